package rules

import (
	"time"
)

// DefaultTimeout is how long an operation may take before it is answered with
// the error names.Timeout (R059), if Limits.Timeout is 0.
const DefaultTimeout = 60 * time.Second

// DefaultMaxStage is the limit in bytes if Limits.MaxStage is 0.
const DefaultMaxStage = 10 << 30

// Limits bound what a root's users may do. Zero means no limit, except for
// Burst, Timeout and MaxStage: for these, zero means the default.
type Limits struct {
	OpsPerSecond  float64       `json:"ops_per_second,omitempty" toml:"ops_per_second"` // sustained speed; further operations wait
	Burst         int           `json:"burst,omitempty" toml:"burst"`                   // operations that need not wait; default OpsPerSecond, at least 1
	BytesInFlight int64         `json:"bytes_in_flight,omitempty" toml:"bytes_in_flight"`
	MaxFile       int64         `json:"max_file,omitempty" toml:"max_file"`       // bytes; larger files cannot be made (EFBIG)
	MaxWritten    int64         `json:"max_written,omitempty" toml:"max_written"` // bytes over the grant's life (EDQUOT)
	MaxCreated    int64         `json:"max_created,omitempty" toml:"max_created"` // names over the grant's life (EDQUOT)
	MaxStage      int64         `json:"max_stage,omitempty" toml:"max_stage"`     // bytes that the store of a staged root takes (ENOSPC); 0: DefaultMaxStage
	Timeout       time.Duration `json:"timeout,omitempty" toml:"timeout"`
	Idle          time.Duration `json:"idle,omitempty" toml:"idle"`
}

// Policy bounds the access that a grant allows: rights, reduced by patterns, within limits.
type Policy struct {
	Rights Rights `json:"mode"`
	Patterns
	Limits Limits `json:"limits"`
	// OtherFileSystems lets resolution cross mount points inside the root.
	OtherFileSystems bool `json:"cross_file_systems,omitempty"`
	// PosixFull shows special files, and keeps set-id bits and security attributes. It is for
	// trusted users.
	PosixFull bool `json:"posix_full,omitempty"`
	// Once grants one use of a single file; see package ledger.
	Once bool `json:"once,omitempty"`
	// Trash keeps removed files.
	Trash Trash `json:"trash,omitzero"`

	rules *RuleSet // see Compile; nil: no name is judged
}

// Timeout returns how long one operation may take.
func (p *Policy) Timeout() time.Duration {
	if p.Limits.Timeout > 0 {
		return p.Limits.Timeout
	}
	return DefaultTimeout
}

// TrashName is the name of the directory with the trash, at the top of the root. The name is
// hidden anywhere in a root that keeps a trash, and anywhere in every other root unless the
// built-in rules are off. No Allow lifts the rule that hides the name.
const TrashName = ".rootsfs-trash"

// Trash says whether a root keeps removed files, and how many. The zero value keeps none. A
// single-file root has no directory to keep files in, so a grant of a writable single-file root
// with a trash is refused.
type Trash struct {
	On   bool          `json:"on,omitempty"`
	Size int64         `json:"size,omitempty"` // bytes; beyond this size the oldest files are removed; 0: DefaultTrashSize
	Age  time.Duration `json:"age,omitempty"`  // older files are removed; 0: DefaultTrashAge
}

// The default bounds of a trash.
const (
	DefaultTrashSize = 1 << 30
	DefaultTrashAge  = 30 * 24 * time.Hour
)

// Bounds returns how much the trash keeps, in bytes, and for how long.
func (t Trash) Bounds() (size int64, age time.Duration) {
	size, age = t.Size, t.Age
	if size <= 0 {
		size = DefaultTrashSize
	}
	if age <= 0 {
		age = DefaultTrashAge
	}
	return size, age
}
