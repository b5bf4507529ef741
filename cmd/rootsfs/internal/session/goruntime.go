package session

import (
	"os"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
)

// manyPs gives the Go scheduler more Ps than a small machine has processors. Its
// readers sleep in read(2) on the FUSE device, each keeping a P; with two Ps,
// sysmon takes one away for every request and wakes a thread to use it
// (measured on two processors: 46,000 futex calls for 40,000 requests, 4,000
// with eight).
func manyPs() {
	const enough = 8
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < enough {
		runtime.GOMAXPROCS(enough)
	}
}

// A heap of less than smallHeap gathers lateGarbage per cent of garbage before that is
// collected.
const (
	smallHeap   = 8 << 20
	lateGarbage = 400
)

// collectLate has the garbage of a small heap collected later than by default: little of
// what a request makes outlives it, and to look for that little takes a tenth of the
// processor time that requests take (measured). A larger heap is collected as usual.
func collectLate() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	percent := lateGarbage // a short run never has garbage collected
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

// afterEachCollection has f called once after each garbage collection to come.
func afterEachCollection(f func()) {
	sentinel := new(*byte) // a pointer, since the runtime keeps small objects without any together
	runtime.AddCleanup(sentinel, func(f func()) {
		f()
		afterEachCollection(f)
	}, f)
}
