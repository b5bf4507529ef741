package cli

import (
	"errors"
	"io/fs"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// Exit codes. Scripts depend on them.
const (
	ExitOK          = 0
	exitFailure     = 1 // the command failed, for instance because a path does not exist
	ExitUsage       = 2 // the command line or the configuration is wrong
	exitNotApproved = 3 // the rules or the owner refuse
	ExitNoSuch      = 4 // no such session, root or question
	ExitSystem      = 5 // the machine cannot do it: no FUSE, no confinement
	exitConflict    = 6 // changes of a stage were left, mostly because the owner changed the files, too

	// Codes of run, the same as those of shells.
	exitNotExecutable = 126 // the command is there and cannot be executed
	exitNoCommand     = 127 // the command was not found
)

// ExitTexts are the texts for the exit codes in the topic json.
var ExitTexts = [...]string{
	ExitOK:          "done",
	exitFailure:     "failed; also if a path that was named, such as a root's, is not there",
	ExitUsage:       "wrong usage, or a configuration that cannot be used",
	exitNotApproved: "not approved",
	ExitNoSuch:      "no such session, root or question",
	ExitSystem:      "the system cannot (no FUSE, no confinement, no permission)",
	exitConflict:    "changes of a stage were not applied: `stage apply` lists them",
}

// exitError is an error with its own exit code. If Err is nil, nothing is printed for it.
type exitError struct {
	Code int
	Err  error
}

func (e *exitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *exitError) Unwrap() error { return e.Err }

// usage marks an error as a usage error.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{Code: ExitUsage, Err: err}
}

// exitCode returns the exit code of an error.
func exitCode(err error) int {
	var own *exitError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &own):
		return own.Code
	}
	switch control.Classify(err) {
	case control.Usage:
		return ExitUsage
	case control.NotApproved:
		return exitNotApproved
	case control.NoSuch:
		return ExitNoSuch
	case control.System:
		return ExitSystem
	}
	return exitFailure
}

// cause returns an error without its path, which the message already has.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
