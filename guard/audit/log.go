package audit

import (
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
// A record passes three locks, each taken only after the ones before it: wmu
// puts writers in order, amu protects the open file and the anchor, mu the
// chain and the queue. Only mu is on the path of allowed operations and nothing
// slow happens under it. wmu and amu are held across system calls, because
// keeping writes and anchors in order is all they are for.
type Log struct {
	opts   Options
	create func(path string) (sink, error)
	lock   *os.File

	wmu sync.Mutex
	out []chunk // guarded by wmu: taken from the queue, not yet written

	amu      sync.Mutex
	cur      sink   // guarded by amu; changed with wmu held too
	anchored mark   // guarded by amu: what the anchor file holds
	curName  string // guarded by amu: base name of cur
	fresh    bool   // guarded by amu: cur's name has not been synced

	begun    chan struct{} // closed when the first anchor was tried; beginErr is set then
	beginErr error

	mu       sync.Mutex // guards the fields below
	enc      *encoder
	q        queue
	queued   int // bytes in queue and out
	name     logName
	size     int64 // of the current file when all is written
	names    []string
	firsts   []uint64 // first line of each of names; 0: unknown
	keptFrom uint64
	found    *anchor // until the first header is written
	lostNow  uint64  // records not taken since the last "lost" line
	status   Status
	written  mark
	closed   bool
	armed    bool // flusher is going to run
	hurried  bool // at once
	anchorUp bool // anchorer is going to run
	flusher  *time.Timer
	anchorer *time.Timer
	lastTime time.Time // of the last anchor
}

// Status tells how a Log is doing.
type Status struct {
	Records   uint64 // lines in the chain so far, headers included, over all runs
	Written   uint64 // of those, how many are in files
	Bytes     int64  // written by this Log
	Queued    int    // bytes not yet written
	Hash      string // of the last record
	Anchored  uint64 // the line the anchor names
	Lost      uint64 // records that were not taken; their operations failed
	Err       error  // of the last attempt to write; nil if it succeeded
	AnchorErr error  // of the last attempt to anchor
}

// Errors of Record beside those of the file system.
var (
	// ErrFull means that the queue is full and could not be written.
	ErrFull = errors.New("audit: the queue is full")
	// ErrClosed means that the Log was closed.
	ErrClosed = errors.New("audit: the log is closed")
)

// Record takes a record. For a refusal or a failure, nil means that it is in
// the file; for anything else, that it is queued. On an error the operation has
// to fail: with ErrFull and ErrClosed the record was not taken, otherwise it
// stays queued and is written as soon as that works.
func (l *Log) Record(r guard.Record) error {
	urgent := r.Verdict != guard.Allowed
	l.mu.Lock()
	if l.queued >= queueLimit && !l.closed {
		// Wait for the writer rather than fail while the disk is merely slow.
		l.mu.Unlock()
		err := l.flush()
		l.mu.Lock()
		if l.queued >= queueLimit {
			l.lostNow++
			l.status.Lost++
			l.mu.Unlock()
			return errors.Join(ErrFull, err)
		}
	}
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	seq := l.addLocked(&r, urgent)
	now := urgent || l.status.Err != nil
	if !now {
		l.wakeLocked(flushDelay)
	}
	l.mu.Unlock()
	if !now {
		return nil
	}
	err := l.flush()
	if !urgent {
		return nil // queued, as always
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written.seq >= seq {
		return nil
	}
	return fmt.Errorf("audit: record %d is not written yet: %w", seq, errors.Join(err, l.status.Err))
}

// addLocked encodes a record into the queue, with the lines that are due
// before it, and returns its number.
func (l *Log) addLocked(r *guard.Record, urgent bool) uint64 {
	if l.size >= l.opts.MaxBytes {
		l.rotateLocked()
	}
	if l.lostNow > 0 {
		l.appendLocked(l.enc.lost(time.Now(), l.lostNow), true)
		l.lostNow = 0
	}
	l.appendLocked(l.enc.record(r), urgent)
	return l.enc.last.seq
}

func (l *Log) appendLocked(line []byte, urgent bool) {
	l.q.add(line, l.enc.last, urgent)
	l.queued += len(line)
	l.size += int64(len(line))
}

// rotateLocked begins the next file: its header goes through the queue like
// every line, so the chain is in order whoever writes.
func (l *Log) rotateLocked() {
	l.name.n++
	l.beginLocked()
}

// beginLocked begins the file l.name. Which files are pruned is decided here,
// because the header has to tell; they are deleted when the file exists.
func (l *Log) beginLocked() {
	base := l.name.String()
	l.names = append(l.names, base)
	l.firsts = append(l.firsts, l.enc.last.seq+1)
	var prune []string
	if over := len(l.names) - l.opts.Keep; l.opts.Keep > 0 && over > 0 {
		prune = append(prune, l.names[:over]...)
		l.names = l.names[over:]
		l.firsts = l.firsts[over:]
		l.keptFrom = max(l.keptFrom, l.firsts[0])
	}
	l.q.cut(base, prune)
	l.size = 0
	h := header{file: base, keptFrom: l.keptFrom, anchor: l.found}
	l.found = nil
	l.appendLocked(l.enc.header(time.Now(), h), true)
}

// wakeLocked makes the flusher run after at most d, or at once if much is queued.
func (l *Log) wakeLocked(d time.Duration) {
	if l.queued >= flushSize && d == flushDelay {
		if !l.hurried {
			l.hurried, l.armed = true, true
			l.flusher.Reset(0)
		}
		return
	}
	if !l.armed {
		l.armed = true
		l.flusher.Reset(d)
	}
}

// tick is the flusher.
func (l *Log) tick() {
	l.mu.Lock()
	l.armed, l.hurried = false, false
	l.mu.Unlock()
	if l.flush() == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.wakeLocked(retryDelay)
	}
}

// Anchored waits for the anchor that Open begins with, and returns its error. After
// an Open without Options.AnchorLater it returns nil at once.
func (l *Log) Anchored() error {
	<-l.begun
	if l.beginErr != nil {
		return fmt.Errorf("audit: %w", l.beginErr)
	}
	return nil
}

// Path is the current file.
func (l *Log) Path() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return filepath.Join(l.opts.Dir, l.name.String())
}

// Last tells how the log is doing.
func (l *Log) Last() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	s.Records = l.enc.last.seq
	s.Written = l.written.seq
	s.Queued = l.queued
	s.Hash = fmt.Sprintf("%x", l.enc.last.hash)
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
	if l.lostNow > 0 {
		l.appendLocked(l.enc.lost(time.Now(), l.lostNow), true)
		l.lostNow = 0
	}
	l.flusher.Stop()
	l.anchorer.Stop()
	l.mu.Unlock()

	err := l.flush()
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.amu.Lock()
	defer l.amu.Unlock()
	err = errors.Join(err, l.anchorAmuLocked())
	if l.cur != nil {
		err = errors.Join(err, l.cur.Close())
		l.cur = nil
	}
	return errors.Join(err, l.lock.Close())
}
