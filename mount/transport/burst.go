package transport

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// When requests are fetched with read(2), not io_uring, most of a request's time goes into waking
// a reader on another processor than the caller's. So while the requests of one caller follow one
// another closely, in a burst, the reader moves to the processor of the caller: it is woken there
// as the caller goes to sleep. No second reader waits then, because the kernel would wake the two
// in turn. Another reader starts when the next request already waits, and when handlers block (see
// scale). Polling instead of moving is as fast for one caller, but occupies a processor and delays
// several callers (measured).

const (
	// burstGap is the longest time between an answer and the next request of the same burst.
	burstGap = 200 * time.Microsecond
	// burstSize is how many requests make a burst. After each further burstSize requests the
	// processor of the caller is looked up again.
	burstSize = 32
	// bulk is the size of a READ or WRITE that ends a burst: copying the data takes longer
	// than waking another processor, and is better done on another processor than the caller's.
	bulk = 64 << 10
)

// burst detects whether requests of one caller follow one another closely.
type burst struct {
	gap      time.Duration // burstGap; tests change it
	start    time.Time
	answered atomic.Int64  // when the latest request was answered, since start
	caller   atomic.Uint32 // thread that made the latest counted request
	count    atomic.Uint32 // requests of caller that followed one another closely
}

// countRequest counts a request that its caller waits for; size is the size of its data.
func (b *burst) countRequest(caller uint32, size int) {
	if caller != b.caller.Load() || size >= bulk || int64(time.Since(b.start))-b.answered.Load() > int64(b.gap) {
		b.caller.Store(caller)
		b.count.Store(0)
	}
	b.count.Add(1)
}

// answer notes that a request was answered.
func (b *burst) answer() { b.answered.Store(int64(time.Since(b.start))) }

// isOn reports whether there is a burst.
func (b *burst) isOn() bool { return b.count.Load() >= burstSize }

// moveNear moves the reader's thread to the processor of the burst's caller, or, if there is
// no burst, lets it run anywhere.
func (r *reader) moveNear() {
	b := &r.conn.burst
	if !b.isOn() {
		r.unpin()
		return
	}
	if r.isNear && b.count.Load()%burstSize != 0 {
		return
	}
	cpu, err := processorOf(b.caller.Load())
	if err == nil && !(r.isNear && cpu == r.cpu) {
		if !r.isNear {
			runtime.LockOSThread()
			r.isNear = true
			_ = unix.SchedGetaffinity(0, &r.anywhere)
		}
		var set unix.CPUSet
		set.Set(cpu)
		err = unix.SchedSetaffinity(0, &set)
		r.cpu = cpu
	}
	if err != nil { // a caller of another pid namespace, or a processor that this process may not use
		b.count.Store(0)
		r.unpin()
	}
}

// unpin lets the reader's thread run on any processor again. If that fails, the thread stays
// locked to the reader, and ends with it.
func (r *reader) unpin() {
	if r.isNear && unix.SchedSetaffinity(0, &r.anywhere) == nil {
		r.isNear = false
		runtime.UnlockOSThread()
	}
}

// requestWaits reports whether a request waits to be read.
func (r *reader) requestWaits() bool {
	r.poll[0] = unix.PollFd{Fd: int32(r.conn.fd), Events: unix.POLLIN}
	n, err := unix.Poll(r.poll[:], 0)
	return n > 0 && err == nil
}
