package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// records is a session's audit log. It is opened when the session begins to serve, so that a
// mount that fails before leaves no file behind. Earlier records (of the first grants) are held
// in memory, and written first. A request of the kernel means that the session serves, even if
// Start has not returned. So such a request opens the log, too, and its record is not held.
type records struct {
	open func() (*audit.Log, error)

	mu       sync.Mutex // guards the fields below; held while the log is opened
	log      *audit.Log
	held     []guard.Record
	isClosed bool // no record is taken any more, and the log is not opened
	last     [recent]guard.Record
	n        int // records so far; the newest is last[(n-1)%recent]
}

// recent is how many operations `rootsfs status` can show.
const recent = 16

var _ guard.Reserver = (*records)(nil)

// Record implements guard.Auditor.
func (r *records) Record(rec guard.Record) error {
	log, err := r.logOrHold(rec)
	if log == nil {
		return err
	}
	return log.Record(rec)
}

// Pace implements guard.Reserver.
func (r *records) Pace(rec *guard.Record, limit time.Duration) time.Duration {
	if log := r.opened(); log != nil {
		return log.Pace(rec, limit)
	}
	return 0
}

// Reserve implements guard.Reserver. An operation that did not come over the control socket means
// that the session serves, so Reserve opens the log. For the control socket Reserve opens no log:
// it returns 0 until there is one.
func (r *records) Reserve(ctx context.Context, stop <-chan struct{}, rec *guard.Record) (room int64, err error) {
	log := r.opened()
	if log == nil {
		if rec.Via == guard.ViaControl {
			return 0, nil
		}
		if log, err = r.begin(); err != nil {
			return 0, err
		}
	}
	return log.Reserve(ctx, stop, rec)
}

// Release implements guard.Reserver.
func (r *records) Release(room int64) {
	if log := r.opened(); log != nil {
		log.Release(room)
	}
}

// logOrHold returns the log. While there is none, it holds a record of the control socket and
// returns nil, and it opens the log for any other record.
func (r *records) logOrHold(rec guard.Record) (*audit.Log, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[r.n%recent] = rec
	r.last[r.n%recent].Room = 0
	r.n++
	switch {
	case r.log != nil:
		return r.log, nil
	case r.isClosed:
		return nil, audit.ErrClosed
	case rec.Via != guard.ViaControl:
		err := r.beginLocked()
		return r.log, err
	}
	r.held = append(r.held, rec)
	return nil, nil
}

// begin returns the log. If there is none, it opens the log, and writes the held records.
func (r *records) begin() (*audit.Log, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed {
		return nil, audit.ErrClosed
	}
	err := r.beginLocked()
	return r.log, err
}

func (r *records) beginLocked() error {
	if r.log != nil {
		return nil
	}
	log, err := r.open()
	if err != nil {
		return err
	}
	for _, rec := range r.held {
		if err := log.Record(rec); err != nil {
			_ = log.Close() // the earlier error counts
			return err
		}
	}
	r.log, r.held = log, nil
	return nil
}

// newest returns the last records, the newest first.
func (r *records) newest() []guard.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]guard.Record, 0, recent)
	for i := r.n - 1; i >= max(0, r.n-recent); i-- {
		out = append(out, r.last[i%recent])
	}
	return out
}

// path returns the current file, "" before there is one.
func (r *records) path() string {
	if log := r.opened(); log != nil {
		return log.Path()
	}
	return ""
}

// healthy reports whether the last attempt to write succeeded.
func (r *records) healthy() bool {
	log := r.opened()
	return log == nil || log.Status().Err == nil
}

// flush writes the records so far to the file, for a command that reads it.
func (r *records) flush() {
	if log := r.opened(); log != nil {
		_ = log.Flush() // healthy reports an error
	}
}

// opened returns the log, nil before it was opened.
func (r *records) opened() *audit.Log {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log
}

// close closes the log. Records that are still held are dropped.
func (r *records) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isClosed = true
	if r.log == nil {
		return nil
	}
	return r.log.Close()
}

// checkAudit checks whether the audit log can be opened, as far as the nearest existing
// directory shows. It creates nothing.
func checkAudit() error {
	dir, err := config.AuditDir()
	if err != nil {
		return wrapAuditErr(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		switch err := unix.Access(dir, unix.W_OK|unix.X_OK); {
		case err == nil:
			return nil
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR):
			return wrapAuditErr(fmt.Errorf("make a directory in %s: %w", names.Quote(dir), err))
		}
	}
}

// wrapAuditErr wraps an error that keeps the audit log from being opened or anchored; nil stays nil.
func wrapAuditErr(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the audit log cannot be opened: %w", config.Unwritable(err))
}

// openAudit opens the audit log of the session.
func (s *Session) openAudit() (*audit.Log, error) {
	session := s.dir.Name()
	dir, err := config.AuditDir()
	if err != nil {
		return nil, err
	}
	anchor, err := config.AnchorPath(session)
	if err != nil {
		return nil, err
	}
	age, total := s.auditBounds()
	l, err := audit.Open(audit.Options{
		Dir: dir, Session: session, Paths: s.opt.AuditPaths, Anchor: anchor,
		MaxAge: age, MaxTotal: total, AnchorOf: config.AnchorPath, Bounds: s.auditBounds,
		Pruned: func(path string) {
			s.log.Info("an old audit file was deleted to keep all of them within audit_max_days and audit_max_size", "file", path)
		},
	})
	return l, wrapAuditErr(err)
}

// auditBounds returns the bounds of all sessions' audit files, by the configuration and the ceiling
// in force; 0: no bound. Without a configuration there are none.
func (s *Session) auditBounds() (age time.Duration, total int64) {
	conf, _ := s.conf.inForce()
	if conf == nil {
		return 0, 0
	}
	return AuditBounds(conf, s.Ceiling())
}

// AuditBounds returns the configured bounds of all sessions' audit files, or the defaults. Where
// the ceiling demands that files are kept, their size is not bounded.
func AuditBounds(conf *config.Config, ceiling *config.Ceiling) (age time.Duration, total int64) {
	age, total = audit.DefaultMaxAge, audit.DefaultMaxTotal
	if n := conf.Mount.AuditMaxDays; n != nil {
		age = time.Duration(*n) * 24 * time.Hour
	}
	if n := conf.Mount.AuditMaxSize; n != nil {
		total = *n
	}
	if days := ceiling.KeepDays(); days > 0 {
		if age > 0 {
			age = max(age, time.Duration(days)*24*time.Hour)
		}
		total = 0
	}
	return age, total
}
