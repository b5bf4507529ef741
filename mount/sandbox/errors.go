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

// ErrNotConfined is in the chain of every error of a command that could not be confined
// on a machine that can confine one: nothing was started, and no weaker level was taken.
var ErrNotConfined = errors.New("the command could not be confined")

// sentence is the text of an error that is another one: that is in its chain and not shown.
type sentence struct {
	text string
	is   error
}

func (e *sentence) Error() string { return e.text }
func (e *sentence) Unwrap() error { return e.is }

// cannot is the error of a machine that does not have what is needed.
func cannot(format string, args ...any) error {
	return &names.Error{Kind: names.Permission, Err: &sentence{fmt.Sprintf(format, args...), ErrCannot}}
}

// notConfined is the error of a start that failed at a level that the machine has.
func notConfined(level Level, text string) error {
	return &names.Error{Kind: names.IO, Err: &sentence{fmt.Sprintf("%s: %s", level, text), ErrNotConfined}}
}

// notExecutable is the error for a command that is there and does not run.
func notExecutable(name, why string) error {
	return &names.Error{Kind: names.Permission, Err: &sentence{"the command " + names.Quote(name) + " cannot be executed: " + why, ErrNotExecutable}}
}

// notFound is the error for a command that does not exist inside.
func notFound(name string) error {
	return &names.Error{Kind: names.NotExist, Err: fmt.Errorf("the command %s is not there inside: make the directory it is installed in a root", names.Quote(name))}
}

// invalid is the error for options that cannot be meant.
func invalid(format string, args ...any) error {
	return &names.Error{Kind: names.Invalid, Err: fmt.Errorf(format, args...)}
}

// failed is the error of a step that should have worked. The cause is printed,
// not wrapped: names.Error would show an errno's words only, and here the step
// is what helps.
func failed(format string, args ...any) error {
	return &names.Error{Kind: names.IO, Err: fmt.Errorf(format, args...)}
}
