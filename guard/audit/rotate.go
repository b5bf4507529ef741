package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// roomStep is how much room on disk a file has beyond what is promised, so that
	// Reserve seldom has to wait for the writer.
	roomStep = 512 << 10
	// leastStep is how much the file is enlarged by at least, where the disk has no
	// more.
	leastStep = 4 << 10
	// rotateRetry is how much more is written to a file that is full before another
	// attempt to begin a new one.
	rotateRetry = 64 << 10
)

// begin begins the file w.name. What cannot be created, or gets no room for what is
// promised, is no new file: the current one goes on.
func (w *writer) begin() error {
	base := w.name.String()
	path := filepath.Join(w.l.opts.Dir, base)
	next, err := w.create(path)
	if err != nil {
		return err
	}
	w.l.mu.Lock()
	promised := w.l.promised
	w.l.mu.Unlock()
	allocated, err := allocate(next, 0, promised+headerBound, roomStep)
	if err != nil {
		next.Close()
		os.Remove(path)
		return err
	}
	if w.cur != nil {
		w.handOver()
	}
	w.cur, w.curName, w.size, w.allocated, w.retryAt = next, base, 0, allocated, 0
	w.append(w.enc.header(time.Now(), header{file: base, keptFrom: w.keptFrom, anchor: w.found}), true)
	w.found = nil
	w.l.mu.Lock()
	w.l.path, w.l.room, w.l.last = base, w.room(), w.enc.last
	w.l.mu.Unlock()
	return nil
}

// headerBound is more than the header of a file needs.
const headerBound = 4 << 10

// rotate continues in a new file. If there can be none now, or the keeper still has
// many to close, the current one gets longer.
func (w *writer) rotate() {
	w.retryAt = w.size + rotateRetry
	if len(w.keeper.jobs) == maxJobs {
		return
	}
	w.name.n++
	if err := w.begin(); err != nil {
		w.name.n--
		return
	}
	if w.name.n%maintainFiles == 0 {
		select {
		case w.keeper.jobs <- job{maintain: true}:
		default: // the next time, or the next Open
		}
	}
}

// handOver leaves the current file to the keeper, which anchors its end, closes and
// compresses it.
func (w *writer) handOver() {
	if a, ok := w.cur.(allocator); ok && w.allocated < infinite {
		_ = a.Trim(w.size) // costs room, nothing else
	}
	w.keeper.jobs <- job{file: w.cur, name: w.curName, mark: w.writtenMark(), size: w.size, last: true}
	w.cur, w.unanchored = nil, false
}

// anchor has the keeper anchor what is written, unless the keeper still has jobs: then
// the next turn anchors more at once.
func (w *writer) anchor() {
	w.lastAnchor = time.Now()
	if len(w.keeper.jobs) == 0 {
		w.unanchored = false
		w.keeper.jobs <- job{file: w.cur, name: w.curName, mark: w.writtenMark()}
	}
}

func (w *writer) writtenMark() mark {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.l.written
}

// room is how much more can be written, encoded lines included.
func (w *writer) room() int64 {
	if w.allocated == infinite {
		return infinite
	}
	return w.allocated - w.size
}

// extend sees to it that the file has room on disk for what is promised, and some
// more.
func (w *writer) extend() {
	l := w.l
	if w.cur == nil || w.allocated == infinite {
		return
	}
	l.mu.Lock()
	need := w.size + l.promised
	if l.want > 0 {
		need += l.want + reserveMargin
	}
	l.want = 0
	l.mu.Unlock()
	if need+roomStep/2 <= w.allocated {
		return
	}
	allocated, err := allocate(w.cur, w.allocated, need, roomStep)
	l.mu.Lock()
	defer l.mu.Unlock()
	w.allocated = max(w.allocated, allocated)
	l.room, l.status.RoomErr = w.room(), err
}

// allocate gives a file room for need bytes and up to step more, and returns how long
// it can grow. The error says that there is less room than need, and then how long it
// can grow is as it was.
func allocate(f sink, was, need, step int64) (int64, error) {
	a, ok := f.(allocator)
	if !ok {
		return infinite, nil
	}
	for {
		size := max(need+step, was)
		err := a.Allocate(size)
		switch {
		case err == nil:
			return size, nil
		case errors.Is(err, errors.ErrUnsupported):
			return infinite, nil
		case step < leastStep:
			return was, fmt.Errorf("audit: no room on the disk: %w", err)
		}
		step /= 2
		if step < leastStep {
			step = 0
		}
	}
}

// logFile is an audit file being written.
type logFile struct{ *os.File }

// createFile makes a new audit file.
func createFile(path string) (sink, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err // not a nil *os.File in a sink
	}
	return logFile{f}, nil
}

// anchorFirst has the keeper write the anchor that Open begins with.
func (w *writer) anchorFirst() {
	w.lastAnchor, w.unanchored = time.Now(), false
	w.keeper.jobs <- job{file: w.cur, name: w.curName, mark: w.writtenMark(), first: true, maintain: true}
}
