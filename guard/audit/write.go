package audit

import (
	"errors"
	"time"
)

// writer is what only the writing goroutine touches.
type writer struct {
	l      *Log
	create func(path string) (sink, error)
	keeper *keeper
	enc    *encoder

	items   []*item // taken from the queue, not yet encoded
	encoded []*item // in out
	out     []byte  // encoded, not yet written
	off     int     // of out: written so far; not 0 after a short write

	cur        sink
	curName    string
	size       int64 // of the current file
	allocated  int64 // bytes the current file can grow to; infinite where the file system promises nothing
	retryAt    int64 // size at which to try again to begin a new file
	name       logName
	keptFrom   uint64  // the first line that was not pruned; fixed when the keeper runs
	found      *anchor // until the first header is written
	unanchored bool    // a refusal or a failure was written since the last anchor
	lastAnchor time.Time
}

// full reports whether the current file is to be continued in a new one.
func (w *writer) full() bool {
	size := w.size + int64(len(w.out)-w.off)
	return size >= w.l.opts.MaxBytes && size >= w.retryAt
}

// infinite is the room where the file system cannot promise any.
const infinite = 1 << 62

// run is the writing goroutine.
func (w *writer) run() {
	l := w.l
	defer close(l.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var due time.Time // when the timer fires; zero: never
	arm := func(at time.Time) {
		if !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
			timer.Reset(time.Until(at))
		}
	}
	for {
		select {
		case <-l.nudge:
			arm(time.Now().Add(flushDelay))
			continue
		case <-l.wake:
		case <-timer.C:
		case <-l.abort:
			_ = w.keeper.end()
			return
		case <-l.stop:
			l.closeErr = w.finish()
			return
		}
		next, err := w.turn(false)
		due = time.Time{}
		arm(next)
		if err != nil {
			arm(time.Now().Add(retryDelay))
		}
	}
}

// finish writes everything and ends the log.
func (w *writer) finish() error {
	_, err := w.turn(true)
	if w.cur != nil {
		w.handOver()
	}
	return errors.Join(err, w.keeper.end())
}

// turn writes what is queued. It returns when it is to be called again although
// nobody asked, the zero time if never, and the error of a write that failed: what
// was not written stays first in line.
func (w *writer) turn(final bool) (next time.Time, err error) {
	err = w.drain()
	turn, next := w.take(time.Now(), err == nil, final)
	if err == nil {
		err = w.drain()
	}
	w.extend()
	if w.unanchored && !final {
		if !time.Now().Before(w.lastAnchor.Add(anchorDelay)) {
			w.anchor()
		}
		if w.unanchored {
			next = earlier(next, w.lastAnchor.Add(anchorDelay))
		}
	}
	w.l.mu.Lock()
	w.l.status.Err = err
	w.l.mu.Unlock()
	turn.err = err
	close(turn.done)
	return next, err
}

// take ends the present round, and takes what is queued if more is true. It returns
// when a fold or a sum will be due.
func (w *writer) take(now time.Time, more, final bool) (turn *round, next time.Time) {
	l := w.l
	l.mu.Lock()
	defer l.mu.Unlock()
	turn, l.round = l.round, newRound()
	l.nudged, l.hurried = false, false
	next = earlier(l.sweepLocked(now, final), l.sumLocked(now, final))
	if !more {
		return turn, next
	}
	if final {
		l.queueLostLocked()
	}
	for _, it := range l.batch {
		l.takenLocked(it)
	}
	w.items = append(w.items, l.batch...)
	clear(l.batch)
	l.batch = l.batch[:0]
	return turn, next
}

// drain encodes and writes what was taken.
func (w *writer) drain() error {
	for {
		for len(w.items) > 0 && len(w.out) < flushSize {
			if w.full() {
				if len(w.out) > 0 {
					break
				}
				w.rotate()
			}
			w.encode(w.items[0])
			w.items = w.items[1:]
		}
		if len(w.out) == 0 {
			w.items = nil
			return nil
		}
		if err := w.write(); err != nil {
			return err
		}
	}
}

// encode puts the line of an item into out.
func (w *writer) encode(it *item) {
	switch {
	case it.lost > 0:
		w.append(w.enc.lost(time.Now(), it.lost), true)
	default:
		w.append(w.enc.item(it), it.urgent)
	}
	w.encoded = append(w.encoded, it)
}

func (w *writer) append(line []byte, urgent bool) {
	w.out = append(w.out, line...)
	w.unanchored = w.unanchored || urgent
}

// write writes out, all or as much as there is room for.
func (w *writer) write() error {
	if w.cur == nil {
		return ErrClosed
	}
	n, err := w.cur.Write(w.out[w.off:])
	w.off += n
	w.size += int64(n)
	done := w.off == len(w.out)
	if !done && err == nil {
		err = errors.New("audit: short write")
	}
	l := w.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Bytes += int64(n)
	l.share.used += int64(n)
	l.room = w.room()
	l.last = w.enc.last
	if !done {
		return err
	}
	l.written = w.enc.last
	for i, it := range w.encoded {
		l.promised -= it.cost
		if it.sum == nil && len(l.free) < maxFree {
			*it = item{}
			l.free = append(l.free, it)
		}
		w.encoded[i] = nil
	}
	w.encoded, w.out, w.off = w.encoded[:0], w.out[:0], 0
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
