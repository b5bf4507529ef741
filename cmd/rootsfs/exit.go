package main

import (
	"errors"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// Exit codes. Scripts depend on them.
const (
	exitOK          = 0
	exitFailure     = 1 // what was asked could not be done; a path that is not there is no wrong usage
	exitUsage       = 2 // what was written cannot be meant
	exitNotApproved = 3 // the rules or the owner refuse
	exitNoSuch      = 4 // no such session or root
	exitSystem      = 5 // the machine cannot: no FUSE, no confinement

	// Of run, as shells say it.
	exitNotExecutable = 126 // the command is there and cannot be executed
	exitNoCommand     = 127 // there is no such command
)

// exitTexts are what the topic json says of them.
var exitTexts = [...]string{
	exitOK:          "done",
	exitFailure:     "failed; also if a path that was named, such as a root's, is not there",
	exitUsage:       "wrong usage, or a configuration that cannot be used",
	exitNotApproved: "not approved",
	exitNoSuch:      "no such session, root or question",
	exitSystem:      "the system cannot (no FUSE, no confinement, no permission)",
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
	return &exitError{code: exitUsage, err: err}
}

// exitCode is the exit code of an error.
func exitCode(err error) int {
	var own *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &own):
		return own.code
	}
	switch control.Classify(err) {
	case control.Usage:
		return exitUsage
	case control.NotApproved:
		return exitNotApproved
	case control.NoSuch:
		return exitNoSuch
	case control.System:
		return exitSystem
	}
	return exitFailure
}
