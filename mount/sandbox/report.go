package sandbox

import (
	"errors"
	"fmt"

	"github.com/rootsfs/rootsfs/guard/names"
)

// ErrCannot is in the chain of every error that says that this machine, or this
// user on it, cannot be given the level that was asked for.
var ErrCannot = errors.New("this machine cannot confine a command so")

// ErrNotExecutable is in the chain of every error that says that a command is
// there and cannot be executed.
var ErrNotExecutable = errors.New("the command cannot be executed")

// State is what became of a layer.
type State string

// The states. Their texts are part of `status --json`.
const (
	On           State = "on"
	Off          State = "off"           // not wanted at this level or with these options
	NotAvailable State = "not available" // wanted, and this machine does not have it
)

// Layer is one thing that confines.
type Layer struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"`
}

// Reach says whether a level can be reached, and if not, why not.
type Reach struct {
	Level Level  `json:"-"`
	Name  string `json:"level"`
	OK    bool   `json:"ok"`
	Why   string `json:"why,omitempty"`
}

// Report is what a command is, or could be, confined by.
type Report struct {
	Level  Level   `json:"-"`
	Name   string  `json:"level"` // of Level
	UID    uint32  `json:"uid"`
	GID    uint32  `json:"gid"`
	Layers []Layer `json:"layers,omitempty"`
	// Holes are what stays possible, each a sentence.
	Holes []string `json:"holes,omitempty"`
	// Notes are limits of what the command sees, each a sentence.
	Notes []string `json:"notes,omitempty"`
	// Follows are the directories inside in which each root appears, whenever it
	// is granted; Closed those in which none does that is granted later, but for
	// Follows: see Appears. Without Closed every root appears, with Process.Bind
	// where it does not follow.
	Follows []string `json:"follows,omitempty"`
	Closed  []string `json:"closed,omitempty"`
	// TmpSize is how many bytes the private directories in memory hold; 0: they are
	// on the host's disk.
	TmpSize int64 `json:"tmp_size,omitempty"`
	// Levels is what Probe found, strongest first.
	Levels []Reach `json:"levels,omitempty"`
}

// cannotError carries ErrCannot without showing it: its text is a sentence.
type cannotError struct{ text string }

func (e *cannotError) Error() string { return e.text }
func (e *cannotError) Unwrap() error { return ErrCannot }

// cannot is the error of a machine that does not have what is needed.
func cannot(format string, args ...any) error {
	return &names.Error{Kind: names.Permission, Err: &cannotError{fmt.Sprintf(format, args...)}}
}

// notConfinedError carries ErrNotConfined without showing it.
type notConfinedError struct{ text string }

func (e *notConfinedError) Error() string { return e.text }
func (e *notConfinedError) Unwrap() error { return ErrNotConfined }

// notConfined is the error of a start that failed at a level that the machine has.
func notConfined(level Level, text string) error {
	return &names.Error{Kind: names.IO, Err: &notConfinedError{fmt.Sprintf("%s: %s", level, text)}}
}

// notExecutable is the error for a command that is there and does not run.
func notExecutable(name, why string) error {
	return &names.Error{Kind: names.Permission, Err: &cannotRun{"the command " + names.Quote(name) + " cannot be executed: " + why}}
}

// cannotRun carries ErrNotExecutable without showing it.
type cannotRun struct{ text string }

func (e *cannotRun) Error() string { return e.text }
func (e *cannotRun) Unwrap() error { return ErrNotExecutable }

// failed is the error of a step that should have worked. The cause is printed,
// not wrapped: names.Error would show an errno's words only, and here the step
// is what helps.
func failed(format string, args ...any) error {
	return &names.Error{Kind: names.IO, Err: fmt.Errorf(format, args...)}
}
