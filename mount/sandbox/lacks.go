package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Whether a level is lowered is decided here. A start that fails says nothing about the
// machine: another program may have used a resource up, or a path may be gone. A level is
// left out only if the machine lacks it by kind, which a probe finds out that has nothing
// to do with the command.

// ErrNotConfined is in the chain of every error of a command that could not be confined
// on a machine that can confine one: nothing was started, and no weaker level was taken.
var ErrNotConfined = errors.New("the command could not be confined")

// unableError is why one start could not confine its command, before judge.
type unableError struct {
	text  string
	errno unix.Errno // 0: not known
	said  string     // what bwrap said, which has no errno
}

func (e *unableError) Error() string { return e.text }

// unable makes an unableError; its errno is cause's.
func unable(cause error, format string, args ...any) error {
	e := &unableError{text: fmt.Sprintf(format, args...)}
	if !errors.As(cause, &e.errno) {
		e.errno = 0
	}
	return e
}

// lackErrnos are the errors by which a kernel refuses what it does not have, or does not
// let this user have. Every other error is about this one start.
var lackErrnos = []unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EINVAL, unix.EOPNOTSUPP, unix.ENODEV, unix.ENOENT, unix.ENOPROTOOPT}

// bwrapLacks are the words of bwrap for the same.
var bwrapLacks = []string{"No permissions to creat", "does not support user namespaces", "Unknown option"}

// resources are the errors of resources that are used up, with what to look at.
var resources = map[unix.Errno]string{
	unix.ENOSPC:       "namespaces, mounts or terminals (user.max_*_namespaces, fs.mount-max, kernel.pty.max)",
	unix.EUSERS:       "namespaces of this user (user.max_user_namespaces)",
	unix.EMFILE:       "descriptors of this process (ulimit -n)",
	unix.ENFILE:       "open files of the machine (fs.file-max)",
	unix.ETOOMANYREFS: "descriptors in flight of this user (ulimit -n)",
	unix.EAGAIN:       "processes of this user (ulimit -u)",
	unix.ENOMEM:       "memory",
	unix.EDQUOT:       "the quota of this user",
	unix.ENOBUFS:      "memory for sockets",
}

// exhausted returns the resource that an error says is used up; "" if it says none.
func exhausted(err error) string {
	for errno, what := range resources {
		if errors.Is(err, errno) {
			return what
		}
	}
	return ""
}

// lacksByKind reports whether an error says that a thing does not exist here.
func lacksByKind(err error) bool {
	return slices.ContainsFunc(lackErrnos, func(e unix.Errno) bool { return errors.Is(err, e) })
}

// lack reports whether the error of a probe means that the machine lacks the level.
func (e *unableError) lack() bool {
	has := func(text string) bool { return strings.Contains(e.said, text) }
	byWords := slices.ContainsFunc(bwrapLacks, has) ||
		slices.ContainsFunc(lackErrnos, func(errno unix.Errno) bool { return has(": " + strerror(errno)) })
	full := e.errno == unix.ENOSPC || e.errno == unix.EUSERS || has("ENOSPC")
	return byWords || lacksByKind(e.errno) || full && namespacesForbidden()
}

// strerror is the C library's text of an errno, in which the first letter is a capital.
func strerror(errno unix.Errno) string {
	s := errno.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}

// namespacesForbidden reports whether the machine allows no namespaces of a kind that a
// level needs. The kernel's error is then the one of namespaces that are used up.
func namespacesForbidden() bool {
	return slices.ContainsFunc([]string{"user", "mnt", "pid", "net", "ipc", "uts"}, noneAllowed)
}

// noneAllowed reports whether the limit of namespaces of a kind is 0.
func noneAllowed(kind string) bool {
	b, err := os.ReadFile("/proc/sys/user/max_" + kind + "_namespaces")
	return err == nil && strings.TrimSpace(string(b)) == "0"
}

// judge turns the error of a start into ErrCannot, if the machine lacks the level, or
// into ErrNotConfined.
func judge(ctx context.Context, o *Options, level Level, err error) error {
	var e *unableError
	if !errors.As(err, &e) {
		return err
	}
	lacks := e.lack()
	if lacks && !o.probe {
		_, probed := try(ctx, level)
		lacks = errors.Is(probed, ErrCannot)
	}
	if lacks {
		return cannot("%s", e.text)
	}
	text := e.text
	if what := exhausted(e.errno); what != "" {
		text += ": used up are " + what
	}
	return notConfined(level, text)
}
