package transport

import (
	"slices"
	"time"
)

const (
	// tick is the interval at which scale looks at the requests. A handler that runs for one
	// or two ticks counts as blocked, and another worker takes over.
	tick = 2 * time.Millisecond
	// restAfter is the number of ticks without a request after which scale sleeps.
	restAfter = 5
)

// wakeScaler makes scale tick, if it sleeps.
func (c *Conn) wakeScaler() {
	if !c.isScaling.Load() && c.isScaling.CompareAndSwap(false, true) {
		c.wake <- struct{}{}
	}
}

// scale starts workers and readers when handlers block, and keeps processors awake during
// bursts. It ticks only while requests come, so that an idle mount wakes no processor.
func (c *Conn) scale() {
	defer c.awake.close()
	last, read := map[*worker]uint64{}, uint64(0) // how many requests workers and readers had taken at the last tick
	for {
		select {
		case <-c.ended:
			return
		case <-c.wake:
		}
		for idle := 0; (idle < restAfter || c.awake.isOn) && !c.hasEnded(); idle++ {
			time.Sleep(tick)
			came, busy := c.grow(last)
			alsoCame, alsoBusy := c.growReaders(&read)
			if came += alsoCame; came > 0 || busy || alsoBusy {
				idle = 0
			}
			c.awake.tick(came)
		}
		c.isScaling.Store(false)
		if c.isAnswering() { // a request that came as isScaling was still set must not be missed
			c.wakeScaler()
		}
	}
}

// isAnswering reports whether a worker answers a request, or nobodyReads reports true. In both
// cases a handler may block, and scale may have to start a worker or a reader.
func (c *Conn) isAnswering() bool {
	isBusy := func(w *worker) bool { return w.node.Load() != 0 }
	return c.nobodyReads() || slices.ContainsFunc(c.allWorkers(), isBusy)
}

// nobodyReads reports whether the connection is plain and no reader waits for the next request, as
// in a burst.
func (c *Conn) nobodyReads() bool { return c.kind == Plain && c.waiting.Load() == 0 }

// growReaders starts a reader if nobodyReads reports true and no reader has read a request since
// the last call. read is how many requests the readers had read at the last call; growReaders
// updates read. It returns how many requests came since the last call, and the result of
// nobodyReads.
func (c *Conn) growReaders(read *uint64) (came uint64, busy bool) {
	taken := c.taken.Load()
	came, busy = taken-*read, c.nobodyReads()
	*read = taken
	if busy && came == 0 {
		c.startReader()
	}
	return came, busy
}

// grow adds a worker to each queue whose workers are all blocked, up to maxWorkers. A worker is
// blocked if it is in the same handler as at the last call and is not runnable. last has how many
// requests each worker had taken at the last call; grow updates last. It returns how many requests
// came to workers since the last call, and whether a worker is answering one.
func (c *Conn) grow(last map[*worker]uint64) (came uint64, busy bool) {
	type state struct {
		busy []*worker // in the same handler as at the last call
		free bool      // the queue has a worker that is not blocked
	}
	queues := map[int]*state{}
	for _, w := range c.allWorkers() {
		q := queues[w.queue]
		if q == nil {
			q = &state{}
			queues[w.queue] = q
		}
		taken, node := w.taken.Load(), w.node.Load()
		before, known := last[w]
		if node == 0 || !known || taken != before {
			q.free = true
		} else {
			q.busy = append(q.busy, w)
		}
		came += taken - before
		busy = busy || node != 0
		last[w] = taken
	}
	for queue, q := range queues {
		// A runnable worker is not blocked, and a new one would have to share its processor.
		isRunnable := func(w *worker) bool { return isRunnable(w.tid) }
		if !q.free && len(q.busy) < maxWorkers && !slices.ContainsFunc(q.busy, isRunnable) {
			c.addWorker(queue, q.busy[0].node.Load())
		}
	}
	return came, busy
}
