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

// Bounds of the queue between Record and the file.
const (
	queueLimit = 4 << 20                // bytes; above it Record waits, and fails if no room comes
	flushSize  = 64 << 10               // bytes that one write(2) takes, about
	flushItems = 256                    // records in the queue that wake the writer
	flushDelay = 100 * time.Millisecond // after which the writer's turn begins by itself
	// retryDelay is the time after which the writer tries again by itself when a write failed.
	retryDelay = time.Second
	// anchorDelay is the least time between two anchors, apart from those of Open, rotation and
	// Close. An anchor costs at least two fsyncs.
	anchorDelay = time.Second

	// reserveLimit bounds the disk space that is reserved for operations in progress and for
	// files that are open for writing.
	reserveLimit = 64 << 20
	// reserveMargin is the room that Reserve leaves free: for records without a
	// reservation (refusals), and for details longer than a reservation expects.
	reserveMargin = 32 << 10
	// reserveDelay is the interval at which Reserve checks for room that others gave back.
	reserveDelay = 5 * time.Millisecond
	// maxFree is how many written items are kept for reuse.
	maxFree = 512
)

// Log is the audit log of one session. Its methods may be called concurrently.
//
// Record queues a record, or counts it as a repetition of another one or in a sum. One
// goroutine, the writer, encodes queued records, chains them, writes them and begins new
// files. A second one, the keeper, does the work that waits for the disk: it syncs and
// anchors, and compresses and deletes files that are finished. mu guards their shared
// state, and is never held across a system call.
type Log struct {
	opts   Options
	lock   *os.File
	writer *writer

	wake     chan struct{} // asks the writer to write now
	timer    *time.Timer   // fires at due
	stop     chan struct{} // closed by Close
	ended    chan struct{} // closed by the writer when it returns; closeErr is set then
	closeErr error

	mu sync.Mutex // guards the fields below
	limits
	batch    []*item   // queued, not yet taken by the writer
	free     []*item   // written, for reuse
	turn     *turn     // the writer's next turn, which will write the batch
	due      time.Time // latest beginning of the turn; zero: only when the writer is woken
	promised int64     // bytes that queued records and reservations need at most
	reserved int64     // of promised: the reservations
	room     int64     // bytes that are reserved on disk for the current file and not written yet
	want     int64     // the most bytes that one caller waits for
	lostNow  uint64    // records that were lost since the last "lost" line
	file     string    // the current file's name
	status   Status
	closed   bool
}

// Status is the state of a Log.
type Status struct {
	Written   uint64 // lines of the chain that were written, headers included, over all runs
	Bytes     int64  // written by this Log, before compression
	Queued    int64  // bytes not yet written, at most
	Lost      uint64 // records that were not taken; their operations failed, except for closes
	Err       error  // of the writer's last turn; nil if it succeeded
	RoomErr   error  // of the last attempt to reserve room on disk
	AnchorErr error  // of the last attempt to anchor
}

// Errors that Record and Reserve return, beside those of the file system.
var (
	// ErrFull means that the queue or the disk has no room for the record.
	ErrFull = errors.New("audit: there is no room for the record")
	// ErrClosed means that the Log is closed.
	ErrClosed = errors.New("audit: the log is closed")
)

// item becomes one line of the file: a record, and the records that were counted in it.
type item struct {
	rec    guard.Record
	cost   int64     // bytes of the line at most
	count  int64     // how many records it stands for
	closed int64     // how many closes are counted in it
	last   time.Time // time of the latest record in it
	sum    *sum      // not nil: the item is a sum, and rec its sample
	lost   uint64    // not 0: the item is the line that says how many records were not taken
	queued bool      // put into the batch; until it is written, cost is part of Log.promised
	urgent bool      // a refusal or a failure, but not a later count or a sum; it is anchored soon
	group  *group    // the group that counts in it
}

// add counts another record in an item.
func (it *item) add(r *guard.Record) {
	it.count++
	it.rec.Read += r.Read
	it.rec.Duration += r.Duration
	if r.Time.After(it.last) {
		it.last = r.Time
	}
}

// turn is one turn of the writer, which writes everything that was queued before it began.
type turn struct {
	done chan struct{} // closed when the turn is over; err is set then
	err  error
}

func newTurn() *turn { return &turn{done: make(chan struct{})} }

// Record takes a record. For a refusal or a failure, nil means that the record is in the
// file, or that it was counted: as a repetition of one in the file, or in a sum (see the
// package comment). For any other record, nil means that it is queued or counted. On an error the
// operation has to fail. With ErrFull or ErrClosed the record has no line of its own: it was
// counted in a sum, or is lost. With another error it stays queued, and is written as soon
// as writing works. Until the Log is closed, a record with room that Reserve promised is
// always taken.
func (l *Log) Record(r guard.Record) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	room := r.Room
	r.Room = 0
	l.releaseLocked(room)
	now := time.Now()
	if l.countLocked(&r, now) {
		l.mu.Unlock()
		return nil
	}
	cost := lineBound(l.opts.Session, &r)
	if room == 0 && !l.fitsLocked(cost) {
		if err := l.makeRoomLocked(cost); err != nil {
			l.rejectLocked(&r, now)
			l.mu.Unlock()
			return err
		}
	}
	it := l.newItemLocked(&r, cost)
	it.urgent = r.Verdict != guard.Allowed
	urgent := it.urgent
	l.trackLocked(it, now)
	l.queueLocked(it, now)
	turn, failing := l.turn, l.status.Err != nil
	l.mu.Unlock()
	if !urgent && !failing {
		return nil
	}
	signal(l.wake)
	err := l.wait(turn)
	if err != nil && urgent {
		return fmt.Errorf("audit: the record is not written yet: %w", err)
	}
	return nil // an allowed operation does not fail because its line is not written yet
}

// makeRoomLocked waits until there is room for a record, or the disk is full or fails. It
// unlocks mu while it waits. While the caller waited, others may have filled the queue
// again. The record is then taken nevertheless: it takes no more memory in the queue than
// in the waiting caller.
func (l *Log) makeRoomLocked(cost int64) error {
	for {
		l.want = max(l.want, cost)
		l.mu.Unlock()
		err := l.Flush()
		l.mu.Lock()
		switch {
		case l.closed:
			return ErrClosed
		case err == nil && l.promised+cost <= l.room, l.fitsLocked(cost):
			return nil
		case err != nil || l.status.RoomErr != nil:
			return errors.Join(ErrFull, err, l.status.RoomErr)
		}
	}
}

// rejectLocked accounts for a record for which there is no room: it adds a refusal or a
// failure to a sum, and counts any other record as lost.
func (l *Log) rejectLocked(r *guard.Record, now time.Time) {
	if summable(r) {
		l.sumLocked(r, now)
		return
	}
	l.lostNow++
	l.status.Lost++
}

// fitsLocked reports whether a record of that many bytes can be queued. Reservations, which
// open files may keep for long, take room on the disk but none in the queue.
func (l *Log) fitsLocked(bytes int64) bool {
	return l.promised-l.reserved+bytes <= queueLimit && l.promised+bytes <= l.room
}

// Reserve promises room, in the queue and on the disk, for the record of an operation that
// is about to begin. r is that record, as far as it is known. While the log catches up,
// Reserve waits, at the longest until ctx ends or stop is closed. It fails if the disk has no
// room, or cannot be written. The caller owns the room until Record takes it with a record
// (Record.Room) or Release gives it back.
func (l *Log) Reserve(ctx context.Context, stop <-chan struct{}, r *guard.Record) (room int64, err error) {
	room = reservation(l.opts.Session, r)
	for flushed := false; ; flushed = true {
		l.mu.Lock()
		fits := l.promised+room+reserveMargin <= l.room
		status := l.status
		switch {
		case l.closed:
			l.mu.Unlock()
			return 0, ErrClosed
		case fits && status.Err == nil && l.promised+room+reserveMargin <= reserveLimit:
			l.promised += room
			l.reserved += room
			l.mu.Unlock()
			return room, nil
		}
		l.want = max(l.want, room)
		l.mu.Unlock()
		if flushed {
			if status.RoomErr != nil && !fits {
				return 0, errors.Join(ErrFull, status.RoomErr)
			}
			// Other operations hold the room until they end.
			if err := sleep(ctx, stop, reserveDelay); err != nil {
				return 0, err
			}
		}
		if err := l.Flush(); err != nil {
			return 0, errors.Join(ErrFull, err)
		}
	}
}

// Release gives back room that Reserve promised and that no record took.
func (l *Log) Release(room int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releaseLocked(room)
}

func (l *Log) releaseLocked(room int64) {
	l.promised -= room
	l.reserved -= room
}

// errStopped means that Reserve's stop was closed.
var errStopped = errors.New("audit: the root has ended")

// sleep waits for d. It returns an error if ctx ends or stop is closed before.
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

// newItemLocked returns an item for r, whose line has at most cost bytes.
func (l *Log) newItemLocked(r *guard.Record, cost int64) (it *item) {
	if n := len(l.free) - 1; n >= 0 {
		it, l.free = l.free[n], l.free[:n]
	} else {
		it = new(item)
	}
	*it = item{rec: *r, cost: cost, count: 1, last: r.Time}
	return it
}

// queueLocked puts an item into the batch, after a line about records that were lost
// before it.
func (l *Log) queueLocked(it *item, now time.Time) {
	l.queueLostLocked(now)
	it.queued = true
	l.promised += it.cost
	l.batch = append(l.batch, it)
	if len(l.batch) == flushItems {
		signal(l.wake)
	}
	l.armLocked(now.Add(flushDelay))
}

// queueLostLocked queues the line that says how many records were not taken.
func (l *Log) queueLostLocked(now time.Time) {
	if lost := l.lostNow; lost > 0 {
		l.lostNow = 0
		l.queueLocked(&item{lost: lost, cost: lineBound(l.opts.Session, &guard.Record{})}, now)
	}
}

// armLocked makes the writer's next turn begin no later than deadline.
func (l *Log) armLocked(deadline time.Time) {
	if l.due.IsZero() || deadline.Before(l.due) {
		l.due = deadline
		l.timer.Reset(time.Until(deadline))
	}
}

// signal sends to a channel with room for one signal, unless one is waiting there.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Flush waits for the writer's next turn, which writes every record that is queued so far, and
// returns the error of the turn. Records that are only counted so far may be written later.
func (l *Log) Flush() error {
	l.mu.Lock()
	turn := l.turn
	l.mu.Unlock()
	signal(l.wake)
	return l.wait(turn)
}

// wait waits for the end of a turn and returns the turn's error, or ErrClosed if the writer
// has ended before the turn was over.
func (l *Log) wait(t *turn) error {
	select {
	case <-t.done:
		return t.err
	case <-l.ended:
	}
	select {
	case <-t.done: // both were ready
		return t.err
	default:
		return ErrClosed
	}
}

// Anchored waits for the first anchor after Open, and returns the error of writing it.
func (l *Log) Anchored() error {
	<-l.writer.keeper.begun
	if err := l.writer.keeper.beginErr; err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// Path returns the path of the current file.
func (l *Log) Path() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return filepath.Join(l.opts.Dir, l.file)
}

// Status returns the Log's present state.
func (l *Log) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	s.Queued = l.promised - l.reserved
	return s
}

// Close writes and anchors everything and ends the log. It returns an error if something
// could not be written or anchored; records that were not written are then lost. A second
// Close returns nil.
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
