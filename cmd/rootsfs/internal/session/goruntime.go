package session

import (
	"os"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
)

// raiseMaxProcs gives the Go scheduler more Ps than a small machine has processors. The mount's
// readers sleep in read(2) on the FUSE device, and each keeps a P. With only two Ps, sysmon
// takes one away for every request and wakes a thread to use it (measured on two processors:
// 46,000 futex calls for 40,000 requests, 4,000 with eight Ps).
func raiseMaxProcs() {
	const enough = 8
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < enough {
		runtime.GOMAXPROCS(enough)
	}
}

// A heap smaller than smallHeap may grow by lateGarbage per cent before garbage is collected.
const (
	smallHeap   = 8 << 20
	lateGarbage = 400
)

// collectLate collects the garbage of a small heap later than by default. Little memory of a
// request outlives the request, and looking for that little takes a tenth of the processor time
// of requests (measured). A larger heap is collected as usual.
func collectLate() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	percent := lateGarbage // from the start, so that a short run ends before the first collection
	debug.SetGCPercent(percent)
	afterEachCollection(func() {
		live := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}
		runtimemetrics.Read(live)
		wanted := 100
		if live[0].Value.Uint64() < smallHeap {
			wanted = lateGarbage
		}
		if wanted != percent {
			percent = wanted
			debug.SetGCPercent(wanted)
		}
	})
}

// afterEachCollection calls f after each later garbage collection.
func afterEachCollection(f func()) {
	sentinel := new(*byte) // it holds a pointer, because the runtime puts small objects without pointers into one block
	runtime.AddCleanup(sentinel, func(f func()) {
		f()
		afterEachCollection(f)
	}, f)
}
