package mount

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// qosDevice takes a process's wish for the longest acceptable wake-up
	// latency of a processor, for as long as it is open
	// (Documentation/power/pm_qos_interface.rst).
	qosDevice = "/dev/cpu_dma_latency"
	// autoCPUs bounds how many processors are kept awake.
	autoCPUs = 16

	burstTick  = 10 * time.Millisecond
	burstBegin = 20 // requests in a tick: 2,000 a second
	burstQuiet = 5  // ticks with fewer than a quarter of that end it
	parkAfter  = 20 // ticks without any request
)

// wakeups watches how often requests come. Every request of a small-file
// program waits for two sleeping processors to wake up, its own and ours, which
// in a virtual machine takes several times as long as the work (a tar of files that were not
// read before took 1.87 times as long as without rootsfs instead of 2.30 over io_uring, and 2.17
// instead of 2.98 by plain readers). During a burst the kernel is asked to let idle
// processors poll instead; some 50 ms after it they sleep as before.
type wakeups struct {
	count  atomic.Uint64
	parked atomic.Bool
	kick   chan struct{}
	stop   chan struct{}
	ended  chan struct{}
	fd     int
	held   bool
}

// newWakeups returns nil where nothing is to be done: on many processors, which would cost much
// power, and where this process may not ask.
func newWakeups() *wakeups {
	if runtime.NumCPU() > autoCPUs {
		return nil
	}
	fd, err := unix.Open(qosDevice, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return startWakeups(fd)
}

// startWakeups takes over the open device.
func startWakeups(fd int) *wakeups {
	w := &wakeups{fd: fd, kick: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	go w.run()
	return w
}

// request counts one. It is called for every request and costs one addition.
func (w *wakeups) request() {
	if w == nil {
		return
	}
	w.count.Add(1)
	if w.parked.Load() {
		select {
		case w.kick <- struct{}{}:
		default:
		}
	}
}

func (w *wakeups) close() {
	if w == nil {
		return
	}
	close(w.stop)
	<-w.ended
}

func (w *wakeups) run() {
	defer close(w.ended)
	defer unix.Close(w.fd) // the wish ends with the descriptor, also if we are killed
	tick := time.NewTicker(burstTick)
	defer tick.Stop()
	var last uint64
	quiet, idle := 0, 0
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		now := w.count.Load()
		n := now - last
		last = now
		switch {
		case n >= burstBegin:
			quiet, idle = 0, 0
			w.hold(true)
		case n < burstBegin/4:
			if quiet++; quiet >= burstQuiet {
				w.hold(false)
			}
		}
		if n > 0 {
			idle = 0
		} else if idle++; idle >= parkAfter {
			if !w.park(tick) {
				return
			}
			idle = 0
		}
	}
}

// park sleeps until the next request; it reports false when it is to stop.
func (w *wakeups) park(tick *time.Ticker) bool {
	tick.Stop()
	w.parked.Store(true)
	select {
	case <-w.stop:
		return false
	case <-w.kick:
	}
	w.parked.Store(false)
	tick.Reset(burstTick)
	return true
}

// hold asks for polling, or takes that back. What the kernel says to it matters
// to nobody: the mount works either way.
func (w *wakeups) hold(on bool) {
	if on == w.held {
		return
	}
	w.held = on
	var us [4]byte // microseconds; -1 is no wish
	v := int32(-1)
	if on {
		v = 0
	}
	binary.NativeEndian.PutUint32(us[:], uint32(v))
	_, _ = unix.Write(w.fd, us[:])
}
