package cli

import (
	"errors"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// Exit codes. Scripts depend on them.
const (
	ExitOK          = 0
	ExitFailure     = 1 // what was asked could not be done; a path that is not there is no wrong usage
	ExitUsage       = 2 // what was written cannot be meant
	ExitNotApproved = 3 // the rules or the owner refuse
	ExitNoSuch      = 4 // no such session or root
	ExitSystem      = 5 // the machine cannot: no FUSE, no confinement

	// Of run, as shells say it.
	ExitNotExecutable = 126 // the command is there and cannot be executed
	ExitNoCommand     = 127 // there is no such command
)

// ExitTexts are what the topic json says of them.
var ExitTexts = [...]string{
	ExitOK:          "done",
	ExitFailure:     "failed; also if a path that was named, such as a root's, is not there",
	ExitUsage:       "wrong usage, or a configuration that cannot be used",
	ExitNotApproved: "not approved",
	ExitNoSuch:      "no such session, root or question",
	ExitSystem:      "the system cannot (no FUSE, no confinement, no permission)",
}

// exitError carries an exit code of its own. With a nil err nothing is printed
// any more.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as one of usage.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: ExitUsage, err: err}
}

// exitCode is the exit code of an error.
func exitCode(err error) int {
	var own *exitError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &own):
		return own.code
	}
	switch control.Classify(err) {
	case control.Usage:
		return ExitUsage
	case control.NotApproved:
		return ExitNotApproved
	case control.NoSuch:
		return ExitNoSuch
	case control.System:
		return ExitSystem
	}
	return ExitFailure
}
