package audit

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rootsfs/rootsfs/guard"
)

var _ guard.Reserver = (*Log)(nil)

const (
	// roomStep is how much room on disk a file gets beyond the promised room, so that
	// Reserve seldom has to wait for the writer. If the disk has less, the step is halved,
	// down to leastStep, and is 0 in the end.
	roomStep  = 512 << 10
	leastStep = 4 << 10
	// infinite is the room of a file on a file system that cannot promise room.
	infinite = 1 << 62
	// headerBound is an upper bound for the header of a file.
	headerBound = 4 << 10
	// rotateRetry is how many more bytes a full file gets before the next attempt to begin
	// a new one.
	rotateRetry = 64 << 10
	// maxJobs is how many jobs can wait for the keeper, which stands still while the disk
	// hangs. While so many wait, no new file is begun, and the current one gets longer.
	maxJobs = 64
)

// sink is an open audit file. Tests use sinks that fail.
type sink interface {
	io.Writer
	io.Closer
	Sync() error
}

// allocator is a sink on a file system that can promise room.
type allocator interface {
	// Allocate promises that the file can grow to size bytes.
	Allocate(size int64) error
	// Trim gives back the promised room beyond size bytes.
	Trim(size int64) error
}

// logFile is an audit file being written.
type logFile struct{ *os.File }

// createFile makes a new audit file.
func createFile(path string) (sink, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err // a logFile of a nil *os.File would not be a nil sink
	}
	return logFile{f}, nil
}

// writer is the state of the writing goroutine. Other goroutines use only keeper and keptFrom, which
// do not change while the goroutine runs.
type writer struct {
	l      *Log
	create func(path string) (sink, error)
	keeper *keeper
	enc    *encoder

	items   []*item // taken from the queue, not yet written
	encoded int     // how many of items are in out
	out     []byte  // encoded, not yet written

	file      sink    // the current file
	base      string  // its name
	name      logName // parsed base; while the next file is begun, the name of that file
	size      int64   // of the current file
	allocated int64   // bytes the current file can grow to
	retryAt   int64   // size at which to try again to begin a new file
	written   mark    // the last line that is in a file

	keptFrom   uint64  // the first line that was not pruned; it does not change while the keeper runs
	previous   *anchor // the anchor that Open read; nil once the first header is written
	unanchored bool    // something urgent was encoded since the last anchor
	lastAnchor time.Time
}

// run is the writing goroutine.
func (w *writer) run() {
	l := w.l
	defer close(l.ended)
	defer l.timer.Stop()
	for {
		select {
		case <-l.wake:
		case <-l.timer.C:
		case <-l.stop:
			err := w.turn()
			w.handOver()
			l.closeErr = errors.Join(err, w.keeper.end())
			return
		}
		_ = w.turn() // the error is in Status.Err
	}
}

// turn writes the queued items. If a write fails, the next turn begins with the rest.
func (w *writer) turn() error {
	err := w.drain()
	t := w.nextTurn(time.Now(), err == nil)
	if err == nil {
		err = w.drain()
	}
	w.extend()
	now, l := time.Now(), w.l
	if w.unanchored && !now.Before(w.lastAnchor.Add(anchorDelay)) {
		w.anchor(now)
	}
	l.mu.Lock()
	l.status.Err = err
	if w.unanchored {
		l.armLocked(w.lastAnchor.Add(anchorDelay))
	}
	if err != nil {
		l.armLocked(now.Add(retryDelay))
	}
	l.mu.Unlock()
	t.err = err
	close(t.done)
	return err
}

// nextTurn begins a new turn for records that are queued from now on, and returns the turn before
// it. drained says that all records that were taken from the queue are written: nextTurn then also
// takes the batch.
func (w *writer) nextTurn(now time.Time, drained bool) *turn {
	l := w.l
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.turn
	l.turn, l.due = newTurn(), time.Time{}
	l.sweepLocked(now)
	if l.closed {
		l.queueLostLocked(now)
	}
	if drained {
		for _, it := range l.batch {
			l.stopCountingLocked(it)
		}
		w.items, l.batch = l.batch, nil
	}
	return t
}

// drain encodes and writes all items.
func (w *writer) drain() error {
	for len(w.items) > 0 || len(w.out) > 0 {
		for w.encoded < len(w.items) && len(w.out) < flushSize {
			if w.full() {
				if len(w.out) > 0 {
					break
				}
				w.rotate()
			}
			w.encode(w.items[w.encoded])
			w.encoded++
		}
		if err := w.write(); err != nil {
			return err
		}
	}
	return nil
}

// encode appends the line of an item to out.
func (w *writer) encode(it *item) {
	if it.lost > 0 {
		w.append(w.enc.lost(time.Now(), it.lost), true)
		return
	}
	w.append(w.enc.item(it), it.urgent)
}

// append adds a line to out.
func (w *writer) append(line []byte, urgent bool) {
	w.out = append(w.out, line...)
	w.unanchored = w.unanchored || urgent
}

// write writes w.out to the file, or as much of it as the disk takes.
func (w *writer) write() error {
	n, err := w.file.Write(w.out)
	w.size += int64(n)
	l := w.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Bytes += int64(n)
	l.shareUsed += int64(n)
	l.room = w.room()
	if err != nil {
		w.out = w.out[n:]
		return err
	}
	w.out = w.out[:0]
	w.written = w.enc.last
	l.status.Written = w.written.seq
	for _, it := range w.items[:w.encoded] {
		l.promised -= it.cost
		if it.sum == nil && len(l.free) < maxFree {
			*it = item{}
			l.free = append(l.free, it)
		}
	}
	w.items, w.encoded = w.items[w.encoded:], 0
	return nil
}

// full reports whether the current file is to be continued in a new one.
func (w *writer) full() bool {
	size := w.size + int64(len(w.out))
	return size >= w.l.opts.MaxBytes && size >= w.retryAt
}

// rotate begins a new file. If it cannot be created, or maxJobs jobs wait for the keeper, the
// current file gets longer.
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
	if w.name.n%maintainFiles == 0 && len(w.keeper.jobs) < maxJobs {
		w.keeper.jobs <- w.keeper.maintain
	}
}

// begin creates the file w.name and makes it the current one. If the file cannot be created,
// or the disk has no room for the records that were promised room, the current file stays.
func (w *writer) begin() error {
	base := w.name.String()
	path := filepath.Join(w.l.opts.Dir, base)
	file, err := w.create(path)
	if err != nil {
		return err
	}
	w.l.mu.Lock()
	promised := w.l.promised
	w.l.mu.Unlock()
	allocated, err := allocate(file, 0, promised+headerBound)
	if err != nil {
		file.Close()
		os.Remove(path)
		return err
	}
	if w.file != nil {
		w.handOver()
	}
	w.file, w.base, w.size, w.allocated, w.retryAt = file, base, 0, allocated, 0
	w.append(w.enc.header(time.Now(), base, w.keptFrom, w.previous), true)
	w.previous = nil
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	w.l.file, w.l.room = base, w.room()
	return nil
}

// handOver makes the keeper anchor the end of the current file, close it and compress it.
func (w *writer) handOver() {
	if a, ok := w.file.(allocator); ok && w.allocated < infinite {
		_ = a.Trim(w.size) // after a failure the file only keeps unused room
	}
	file, base, size, at := w.file, w.base, w.size, w.written
	w.keeper.jobs <- func() { w.keeper.finish(file, base, size, at) }
	w.file, w.unanchored = nil, false
}

// anchor makes the keeper anchor the last written line. If jobs wait for the keeper, the line is not
// anchored now: a turn after anchorDelay calls anchor again.
func (w *writer) anchor(now time.Time) {
	w.lastAnchor = now
	if len(w.keeper.jobs) == 0 {
		w.unanchored = false
		file, base, at := w.file, w.base, w.written
		w.keeper.jobs <- func() { w.keeper.anchor(file, base, at) }
	}
}

// room returns how many more bytes the file has room for. The bytes in out need a part of that room.
func (w *writer) room() int64 {
	if w.allocated == infinite {
		return infinite
	}
	return w.allocated - w.size
}

// extend reserves disk space for the current file: for all records that were promised room, for a
// caller that waits for room, and up to roomStep more.
func (w *writer) extend() {
	l := w.l
	l.mu.Lock()
	need := w.size + l.promised
	if l.want > 0 {
		need += l.want + reserveMargin
	}
	l.want = 0
	l.mu.Unlock()
	if w.allocated == infinite || need+roomStep/2 <= w.allocated {
		return
	}
	allocated, err := allocate(w.file, w.allocated, need)
	l.mu.Lock()
	defer l.mu.Unlock()
	w.allocated = max(w.allocated, allocated)
	l.room, l.status.RoomErr = w.room(), err
}

// allocate gives a file room for need bytes and up to roomStep more, and returns the size
// to which it can grow. have is the size to which it could grow before. If there is no room
// for need bytes, allocate returns have and an error.
func allocate(f sink, have, need int64) (int64, error) {
	a, ok := f.(allocator)
	if !ok {
		return infinite, nil
	}
	for step := int64(roomStep); ; step /= 2 {
		if step < leastStep {
			step = 0
		}
		size := max(need+step, have)
		err := a.Allocate(size)
		switch {
		case err == nil:
			return size, nil
		case errors.Is(err, errors.ErrUnsupported):
			return infinite, nil
		case step == 0:
			return have, fmt.Errorf("audit: no room on the disk: %w", err)
		}
	}
}

// keeper runs jobs that wait for the disk, one after the other, in a goroutine of its own.
type keeper struct {
	l           *Log
	jobs        chan func()   // only the writer sends, so it sees by len whether sending would block
	anchored    mark          // the line in the anchor file
	dirUnsynced bool          // the directory was not synced since the current file was created
	begun       chan struct{} // closed after the first attempt to anchor; beginErr is set then
	beginErr    error
	done        chan struct{} // closed when run has returned; err is set then
	err         error         // of the last anchor, and of closing its file
}

func newKeeper(l *Log) *keeper {
	return &keeper{l: l, dirUnsynced: true, jobs: make(chan func(), maxJobs), begun: make(chan struct{}), done: make(chan struct{})}
}

// run is the keeper's goroutine.
func (k *keeper) run() {
	defer close(k.done)
	for job := range k.jobs {
		job()
	}
}

// end waits until all jobs are done, and returns the error of the last anchor and of closing
// the last file.
func (k *keeper) end() error {
	close(k.jobs)
	<-k.done
	return k.err
}

// begin anchors the log for the first time, then compresses and prunes.
func (k *keeper) begin(file sink, name string, at mark) {
	k.anchor(file, name, at)
	k.beginErr = k.err
	close(k.begun)
	k.maintain()
}

// anchor syncs a file and anchors a line in it.
func (k *keeper) anchor(file sink, name string, at mark) {
	k.err = nil
	if at == k.anchored {
		return
	}
	syncs := []func() error{file.Sync}
	if k.dirUnsynced {
		syncs = append(syncs, func() error {
			_ = syncDir(k.l.opts.Dir) // if it fails, a power failure may lose the new file
			return nil
		})
	}
	k.err = writeAnchor(k.l.opts.Anchor, anchor{
		Format:   anchorVersion,
		Session:  k.l.opts.Session,
		Count:    at.seq,
		Hash:     hex.EncodeToString(at.hash[:]),
		File:     name,
		Time:     time.Now().UTC(),
		KeptFrom: k.l.writer.keptFrom,
	}, syncs...)
	if k.err == nil {
		k.anchored, k.dirUnsynced = at, false
	}
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.l.status.AnchorErr = k.err
}

// finish anchors the end of a file of size bytes, closes it, and compresses it.
func (k *keeper) finish(file sink, name string, size int64, at mark) {
	k.anchor(file, name, at)
	k.err = errors.Join(k.err, file.Close())
	k.dirUnsynced = true
	if size < k.l.opts.compressFrom {
		return
	}
	compressed, err := compressFile(k.l.opts.Dir, k.l.opts.Session, name)
	if err != nil {
		return // compressLeftovers tries again
	}
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.l.shareUsed -= size - compressed
}
