package transport

import (
	"slices"
	"time"
)

const (
	// tick is how often the requests are looked at, and so how long a handler runs before
	// another worker takes over.
	tick = 2 * time.Millisecond
	// restAfter is after how many ticks without a request the watch rests.
	restAfter = 5
)

// wakeWatch has watch look at the requests.
func (c *Conn) wakeWatch() {
	if !c.watching.Load() && c.watching.CompareAndSwap(false, true) {
		c.wake <- struct{}{}
	}
}

// watch has others take over from handlers that block, and keeps processors awake during
// bursts. It ticks only while requests come, so that nothing wakes at rest.
func (c *Conn) watch() {
	defer c.awake.close()
	last, read := map[*worker]uint64{}, uint64(0) // what workers and readers had taken
	for {
		select {
		case <-c.ended:
			return
		case <-c.wake:
		}
		for idle := 0; (idle < restAfter || c.awake.held) && !c.hasEnded(); idle++ {
			time.Sleep(tick)
			came, busy := c.grow(last)
			taken := c.taken.Load()
			came, read = came+taken-read, taken
			if came > 0 || busy {
				idle = 0
			}
			c.awake.tick(came)
		}
		c.watching.Store(false)
		for _, w := range c.allWorkers() { // what saw watching set, too late, must not be missed
			if w.node.Load() != 0 {
				c.wakeWatch()
				break
			}
		}
	}
}

// grow adds a worker to each queue whose workers are all blocked: in the same handler as at
// the last call. last has what each worker had taken then. grow returns how many requests came to
// workers, and whether they are answering some.
func (c *Conn) grow(last map[*worker]uint64) (came uint64, busy bool) {
	type state struct {
		busy []*worker // in the same handler as at the last call
		free bool      // there is another
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
		// One that wants the processor is not blocked, and another would have to share it.
		isRunnable := func(w *worker) bool { return isRunnable(w.tid) }
		if !q.free && len(q.busy) < maxWorkers && !slices.ContainsFunc(q.busy, isRunnable) {
			c.addWorker(queue, q.busy[0].node.Load())
		}
	}
	return came, busy
}
