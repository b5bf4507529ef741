package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/guard"
)

// Log is the audit log of one session. Its methods may be called concurrently.
//
// Record folds a record into an earlier one or queues it. One goroutine, the
// writer, encodes what is queued, chains it, writes it and begins new files. A
// second one, the keeper, does what waits for the disk: it syncs and anchors,
// and compresses and deletes files that are finished. mu guards what Record and
// the writer share, and is never held across a system call.
type Log struct {
	opts Options
	lock *os.File
	w    *writer

	wake  chan struct{} // the writer is to write now
	nudge chan struct{} // something is queued that can wait for flushDelay
	stop  chan struct{} // closed by Close
	abort chan struct{} // closed where the log ends without being written
	ended chan struct{} // closed by the writer when it returns; closeErr is set then

	closeErr error

	mu       sync.Mutex // guards the fields below
	batch    []*item    // queued, not yet taken by the writer
	free     []*item
	round    *round
	nudged   bool
	hurried  bool
	promised int64 // bytes that all that was taken will need at most, with what Reserve promised
	reserved int64 // of promised: what Reserve promised and nobody took or gave back
	room     int64 // bytes the current file has on disk beyond what was written
	want     int64 // bytes a caller of Reserve waits for
	folds    folds
	sums     sums
	budgets  budgets
	share    share
	lostNow  uint64 // records not taken since the last "lost" line
	last     mark   // as encoded
	written  mark
	path     string
	status   Status
	closed   bool
}

// Status tells how a Log is doing.
type Status struct {
	Records   uint64 // lines in the chain so far, headers included, over all runs
	Written   uint64 // of those, how many are in files
	Bytes     int64  // written by this Log, before compression
	Queued    int64  // bytes not yet written, at most
	Hash      string // of the last record
	Anchored  uint64 // the line the anchor names
	Lost      uint64 // records that were not taken; their operations failed
	Err       error  // of the last attempt to write; nil if it succeeded
	RoomErr   error  // of the last attempt to reserve room on disk
	AnchorErr error  // of the last attempt to anchor
}

// Errors of Record and Reserve beside those of the file system.
var (
	// ErrFull means that there is no room for the record.
	ErrFull = errors.New("audit: there is no room for the record")
	// ErrClosed means that the Log was closed.
	ErrClosed = errors.New("audit: the log is closed")
)

// item is a record in the queue, with what was folded into it.
type item struct {
	rec    guard.Record
	cost   int64     // bytes of its line at most; part of Log.promised
	count  int64     // how many records it stands for
	closed int64     // how many closes are in it
	last   time.Time // of the latest record in it, if there are several
	sum    *sum      // not nil: the item is a sum, and rec is its sample
	lost   uint64    // not 0: the item says how many records were not taken
	queued bool      // it is in the batch
	urgent bool
	fold   *fold   // whose accumulator it is
	open   openKey // under which a close finds it
}

// round is one turn of the writer, which writes all that was queued before it.
type round struct {
	done chan struct{} // closed when it is over; err is set then
	err  error
}

func newRound() *round { return &round{done: make(chan struct{})} }

// Record takes a record. For a refusal or a failure, nil means that it is in
// the file, or that it was counted: as one more of a kind that is in the file,
// or in a sum (see the package comment). For anything else, nil means that it is
// queued. On an error the operation has to fail: with ErrFull and ErrClosed the
// record was not taken as it is, otherwise it stays queued and is written as soon
// as that works. A record with room that Reserve promised is always taken.
func (l *Log) Record(r guard.Record) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	room, urgent := r.Room, r.Verdict != guard.Allowed
	r.Room = 0
	l.releaseLocked(room)
	now := time.Now()
	if l.foldLocked(&r, now) || l.exceedsLocked(&r, now) {
		l.mu.Unlock()
		return nil
	}
	cost := lineBound(l.opts.Session, &r)
	if room == 0 && !l.fitsLocked(cost) {
		// Wait for the writer rather than fail while the disk is merely slow.
		l.want = max(l.want, cost)
		l.mu.Unlock()
		err := l.Flush()
		l.mu.Lock()
		if !l.closed && !l.fitsLocked(cost) {
			err = errors.Join(ErrFull, err, l.status.RoomErr)
			l.missLocked(&r, now)
			l.mu.Unlock()
			return err
		}
		if l.closed {
			l.mu.Unlock()
			return ErrClosed
		}
	}
	it := l.newItemLocked(&r, cost)
	it.urgent = urgent
	l.trackLocked(it, now)
	l.queueLocked(it)
	turn := l.round
	failing := l.status.Err != nil
	l.mu.Unlock()
	if !urgent {
		if failing {
			_ = l.Flush() // the record is queued, as always
		}
		return nil
	}
	l.hurry()
	if err := l.wait(turn); err != nil {
		return fmt.Errorf("audit: the record is not written yet: %w", err)
	}
	return nil
}

// missLocked accounts for a record there is no room for: a refusal or a failure
// in a sum, another one among the lost.
func (l *Log) missLocked(r *guard.Record, now time.Time) {
	if summable(r) {
		l.sums.add(r, now)
		return
	}
	l.lostNow++
	l.status.Lost++
}

// fitsLocked reports whether bytes more can be queued. Room that is promised to files
// that are open is on the disk and not in the queue.
func (l *Log) fitsLocked(bytes int64) bool {
	return l.promised-l.reserved+bytes <= queueLimit && l.promised+bytes <= l.room
}

// Reserve promises room, in the queue and on the disk, for the record of an
// operation that is about to begin: r as far as it is known. It waits while the
// log catches up, no longer than until ctx or stop ends. The room belongs to the caller until
// Record takes it with a record (Record.Room) or Release.
func (l *Log) Reserve(ctx context.Context, stop <-chan struct{}, r *guard.Record) (room int64, err error) {
	room = reservation(l.opts.Session, r)
	for {
		l.mu.Lock()
		switch {
		case l.closed:
			l.mu.Unlock()
			return 0, ErrClosed
		case l.status.Err == nil && l.promised+room+reserveMargin <= min(reserveLimit, l.room):
			l.promised += room
			l.reserved += room
			l.mu.Unlock()
			return room, nil
		}
		l.want = max(l.want, room)
		l.mu.Unlock()
		if err := l.Flush(); err != nil {
			return 0, errors.Join(ErrFull, err)
		}
		l.mu.Lock()
		err, short := l.status.RoomErr, l.promised+room+reserveMargin > l.room
		l.mu.Unlock()
		if err != nil && short {
			return 0, errors.Join(ErrFull, err)
		}
		// Others hold the room for operations under way.
		if err := sleep(ctx, stop, reserveDelay); err != nil {
			return 0, err
		}
	}
}

// Release gives back room that Reserve promised and no record took.
func (l *Log) Release(room int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releaseLocked(room)
}

func (l *Log) releaseLocked(room int64) {
	l.promised -= room
	l.reserved -= room
}

// errStopped says that what a caller waited for the log with has ended.
var errStopped = errors.New("audit: the root has ended")

func sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-stop:
		return errStopped
	case <-t.C:
		return nil
	}
}

func (l *Log) newItemLocked(r *guard.Record, cost int64) *item {
	var it *item
	if n := len(l.free) - 1; n >= 0 {
		it = l.free[n]
		l.free[n] = nil
		l.free = l.free[:n]
	} else {
		it = new(item)
	}
	*it = item{rec: *r, cost: cost, count: 1, last: r.Time}
	l.promised += cost
	return it
}

// maxFree is how many items are kept for use again.
const maxFree = 512

// queueLocked puts an item into the batch and tells the writer.
func (l *Log) queueLocked(it *item) {
	l.queueLostLocked()
	it.queued = true
	l.batch = append(l.batch, it)
	if len(l.batch) >= flushItems && !l.hurried {
		l.hurried = true
		l.hurry()
	}
	if !l.nudged {
		l.nudged = true
		signal(l.nudge)
	}
}

// queueLostLocked queues the line that says how many records were not taken.
func (l *Log) queueLostLocked() {
	if l.lostNow == 0 {
		return
	}
	it := &item{lost: l.lostNow, cost: fixedBound + maxNameText, queued: true}
	l.promised += it.cost
	l.batch = append(l.batch, it)
	l.lostNow = 0
}

func (l *Log) hurry() { signal(l.wake) }

// signal makes sure that something is waiting in a channel of one place.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Flush writes every record that has been taken, and returns the writer's error.
func (l *Log) Flush() error {
	l.mu.Lock()
	turn := l.round
	l.mu.Unlock()
	l.hurry()
	return l.wait(turn)
}

// wait waits for the end of a round, and returns its error.
func (l *Log) wait(turn *round) error {
	select {
	case <-turn.done:
		return turn.err
	case <-l.ended:
	}
	select {
	case <-turn.done: // at the same time
		return turn.err
	default:
		return ErrClosed
	}
}

// Anchored waits for the anchor that Open begins with, and returns its error. After
// an Open without Options.AnchorLater it returns nil at once.
func (l *Log) Anchored() error {
	<-l.w.keeper.begun
	if err := l.w.keeper.beginErr; err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// Path is the current file.
func (l *Log) Path() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return filepath.Join(l.opts.Dir, l.path)
}

// Last tells how the log is doing.
func (l *Log) Last() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	s.Records = l.last.seq
	s.Written = l.written.seq
	s.Queued = l.promised - l.reserved
	s.Hash = fmt.Sprintf("%x", l.last.hash)
	return s
}

// Close writes and anchors everything and ends the log. It returns an error if
// something could not be written; what was queued is then lost. Closing twice
// is no error.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	close(l.stop)
	<-l.ended
	return errors.Join(l.closeErr, l.lock.Close())
}
