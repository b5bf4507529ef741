package guard

import (
	"context"
	"syscall"
	"time"
)

// Verdict is how an operation ended.
type Verdict uint8

// The verdicts. Refused is a decision (of the gate or of file permissions),
// Failed an error of the file system, Allowed everything else.
const (
	Allowed Verdict = iota + 1
	Refused
	Failed
)

func (v Verdict) String() string {
	switch v {
	case Allowed:
		return "allowed"
	case Refused:
		return "refused"
	case Failed:
		return "failed"
	}
	return "none"
}

// Record is one audit record: who did what where, and how it ended. It never
// holds contents, and no host path except in Detail of records about the
// registry itself (OpGrant and so on), which only the owner reads.
type Record struct {
	Time     time.Time
	Subject  Subject
	Via      Via
	UID      uint32
	PID      int32
	Op       Op
	Path     Path
	Path2    Path   // the second path of rename and link
	Rights   Rights // what the operation needed
	Verdict  Verdict
	Kind     Kind          // why, when not allowed
	Errno    syscall.Errno // what the kernel was told
	Read     int64         // bytes; of OpClose, the sum since the open
	Written  int64
	Duration time.Duration
	Detail   string
	// Target is where a link that was refused leads, as the link says it. It may be a
	// host path: it is told to the owner while the session lives, and not logged.
	Target string
	// Room is what Reserver.Reserve promised for the record; 0 is nothing.
	Room int64
}

// Auditor takes records. An error means the record was not taken: an operation
// whose record is refused fails. Record is called concurrently, and never with
// a lock of this package held.
type Auditor interface {
	Record(Record) error
}

// Reserver is an Auditor that can promise room for the record of an operation before
// it begins, so that none is refused when it has happened.
type Reserver interface {
	Auditor
	// Pace returns how long the operation has to wait before it begins, so that
	// its subject has no more written than its share. Where that is more than
	// limit, the operation is not to begin.
	Pace(r *Record, limit time.Duration) time.Duration
	// Reserve promises room for the record of an operation, r as far as it is
	// known. It waits no longer than until ctx or stop ends. Record takes the room
	// with a record, or Release gives it back.
	Reserve(ctx context.Context, stop <-chan struct{}, r *Record) (room int64, err error)
	Release(room int64)
}
