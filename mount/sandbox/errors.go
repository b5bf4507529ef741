package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
)

// ErrCannot is in the chain of an error if this machine, or this user on it, cannot have the
// requested level.
var ErrCannot = errors.New("this machine cannot confine a command so")

// ErrOldKernel is in the chain with ErrCannot if this kernel lacks a system call for the level.
var ErrOldKernel = fmt.Errorf("the kernel is too old: %w", ErrCannot)

// ErrRestricted is in the chain with ErrCannot if a security module of the machine, such as
// AppArmor, forbids this user the level.
var ErrRestricted = fmt.Errorf("a security module forbids it: %w", ErrCannot)

// ErrNotExecutable is in the chain of an error if the command exists but cannot be executed.
var ErrNotExecutable = errors.New("the command cannot be executed")

// ErrNotConfined is in the chain of an error if the machine has the level, but this command
// could not be confined. Nothing was started, and no weaker level was tried.
var ErrNotConfined = errors.New("the command could not be confined")

// sentence is an error with a text of its own. The error that it wraps is in its chain and
// is not printed.
type sentence struct {
	text    string
	wrapped error
}

func (e *sentence) Error() string { return e.text }
func (e *sentence) Unwrap() error { return e.wrapped }

// cannot makes the error for a machine that lacks a requirement.
func cannot(format string, args ...any) error {
	return &names.Error{Kind: names.Permission, Err: &sentence{fmt.Sprintf(format, args...), ErrCannot}}
}

// oldKernel makes the error for a kernel that lacks a system call. need is the first version of
// Linux that has the call.
func oldKernel(call, need string) error {
	text := fmt.Sprintf("%s is missing or forbidden: use Linux %s or newer; in a container, a seccomp profile that permits it", call, need)
	return &names.Error{Kind: names.Permission, Err: &sentence{text, ErrOldKernel}}
}

// notConfined makes the error for a start that failed at a level that the machine has.
func notConfined(level Level, text string) error {
	return &names.Error{Kind: names.IO, Err: &sentence{fmt.Sprintf("%s: %s", level, text), ErrNotConfined}}
}

// notExecutable makes the error for a command that exists but does not run.
func notExecutable(name, why string) error {
	return &names.Error{Kind: names.Permission, Err: &sentence{"the command " + names.Quote(name) + " cannot be executed: " + why, ErrNotExecutable}}
}

// notFound makes the error for a command that does not exist inside.
func notFound(name string) error {
	return &names.Error{Kind: names.NotExist, Err: fmt.Errorf("the command %s is not there inside: make the directory it is installed in a root", names.Quote(name))}
}

// invalid makes the error for invalid options.
func invalid(format string, args ...any) error {
	return &names.Error{Kind: names.Invalid, Err: fmt.Errorf(format, args...)}
}

// failed makes the error for a step that should have worked. Callers print a cause that has an
// errno by %v, not by %w: names.Error would show only the text of the errno, and not the step.
func failed(format string, args ...any) error {
	return &names.Error{Kind: names.IO, Err: fmt.Errorf(format, args...)}
}

// The code below decides whether to try a weaker level. A failed start does not mean that the
// machine lacks the level: another program may have used a resource up, or a path may be gone.
// A level is skipped only if a probe, which does not depend on the command, finds that the
// machine lacks it.

// unableError is the reason why a start could not confine its command, before judge classifies
// it.
type unableError struct {
	text     string
	errno    unix.Errno // 0: not known
	bwrapMsg string     // the message of bwrap, which has no errno
	kind     error      // the error for the chain if the machine lacks the level; nil: ErrCannot
}

func (e *unableError) Error() string { return e.text }

// unable makes an unableError with the errno of cause.
func unable(cause error, format string, args ...any) error {
	e := &unableError{text: fmt.Sprintf(format, args...)}
	if !errors.As(cause, &e.errno) {
		e.errno = 0
	}
	return e
}

// bwrapUnsupported are texts in the messages by which bwrap says that the machine lacks the level.
var bwrapUnsupported = []string{"No permissions to creat", "does not support user namespaces", "Unknown option"}

// isUnsupported reports whether e looks like the error of a machine that lacks the level. Only for
// the error of a probe is this certain, see judge.
func (e *unableError) isUnsupported() bool {
	has := func(text string) bool { return strings.Contains(e.bwrapMsg, text) }
	byWords := slices.ContainsFunc(bwrapUnsupported, has) ||
		slices.ContainsFunc(initproc.Unsupported, func(errno unix.Errno) bool { return has(": " + strerror(errno)) })
	full := e.errno == unix.ENOSPC || e.errno == unix.EUSERS || has("ENOSPC")
	return byWords || initproc.IsUnsupported(e.errno) || full && namespacesForbidden()
}

// strerror returns the C library's text of an errno, in which the first letter is a capital.
func strerror(errno unix.Errno) string {
	s := errno.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}

// namespacesForbidden reports whether the machine's limit is 0 for a kind of namespace that a level
// needs. The kernel's error is then the same as if all namespaces of this kind were in use.
func namespacesForbidden() bool {
	return slices.ContainsFunc([]string{"user", "mnt", "pid", "net", "ipc", "uts"}, noneAllowed)
}

// noneAllowed reports whether the limit of namespaces of a kind is 0.
func noneAllowed(kind string) bool {
	b, err := os.ReadFile("/proc/sys/user/max_" + kind + "_namespaces")
	return err == nil && strings.TrimSpace(string(b)) == "0"
}

// judge turns an unableError of a start into an error with ErrCannot in its chain, if the machine
// lacks the level, otherwise into one with ErrNotConfined. It returns every other error unchanged.
func judge(ctx context.Context, o *Options, level Level, err error) error {
	var e *unableError
	if !errors.As(err, &e) {
		return err
	}
	lacks := e.isUnsupported()
	if lacks && !o.probe {
		_, probeErr := try(ctx, level, o.CheckProgram)
		lacks = errors.Is(probeErr, ErrCannot)
	}
	if lacks {
		return &names.Error{Kind: names.Permission, Err: &sentence{e.text, cmp.Or(e.kind, ErrCannot)}}
	}
	text := e.text
	if what := initproc.Exhausted(e.errno); what != "" {
		text += ": used up are " + what
	}
	return notConfined(level, text)
}
