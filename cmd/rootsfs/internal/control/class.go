package control

import (
	"errors"
	"syscall"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// Class is the kind of an error, in the terms of exit codes. It is sent with an error over the
// control socket.
type Class string

// The classes.
const (
	Failure     Class = "failure"
	Usage       Class = "usage"        // the command line or the configuration makes no sense
	NotApproved Class = "not_approved" // the rules or the owner refuse
	NoSuch      Class = "no_such"      // what the request names does not exist: a session, a root, a question, ...
	System      Class = "system"       // the machine cannot do it: no FUSE, ...
)

// Classify returns the class of an error; Failure for an unknown one.
func Classify(err error) Class {
	var remote *Error
	var g *guard.Error
	switch {
	case errors.As(err, &remote):
		return remote.Class
	case errors.Is(err, ErrNoSession), errors.Is(err, mountpoint.ErrNotMounted), errors.Is(err, broker.ErrNoQuestion),
		errors.Is(err, ErrNoDenial):
		return NoSuch
	case errors.Is(err, mountpoint.ErrNoFUSE):
		return System
	case errors.As(err, &g):
		return classOf(g)
	}
	return Failure
}

// Text returns an error's text for the owner, who knows which command was given. It leaves out
// the operation of an error without a path ("no root is named x", not "revoke no root is named
// x").
func Text(err error) string {
	// Not errors.As: if err wraps another error, the text of err itself is wanted.
	if g, ok := err.(*guard.Error); ok && g.Path.Root == "" && g.Err != nil {
		bare := *g
		bare.Op = names.OpNone
		return bare.Error()
	}
	return err.Error()
}

func classOf(g *guard.Error) Class {
	var errno syscall.Errno
	switch {
	case errors.As(g.Err, &errno):
		// The file system refused, not the rules.
		if g.Op == names.OpMount {
			return System
		}
		return Failure
	case g.Kind.About() == names.AboutRequest:
		return Usage
	case g.Kind == names.Permission, g.Kind == names.NoConsent:
		return NotApproved
	case g.Kind == names.NotExist && (g.Op == names.OpRevoke || g.Op == names.OpSet || g.Op == names.OpUnavailable ||
		g.Op == names.OpRestore || g.Op == names.OpEmpty || g.Op == names.OpResume):
		return NoSuch
	}
	return Failure
}

// Error is an error in a session's answer.
type Error struct {
	Text  string
	Class Class
	Kind  string // names.Kind
}

func (e *Error) Error() string { return e.Text }

// Is reports whether target is the error's kind.
func (e *Error) Is(target error) bool {
	k, ok := target.(names.Kind)
	return ok && k.String() == e.Kind
}
