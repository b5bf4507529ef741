package initproc

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// Unsupported are the errors by which a kernel refuses a feature that it lacks, or that
// this user may not use. After any other error, the next start may succeed.
var Unsupported = []unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EINVAL, unix.EOPNOTSUPP, unix.ENODEV, unix.ENOENT, unix.ENOPROTOOPT}

// IsUnsupported reports whether an error is one of Unsupported.
func IsUnsupported(err error) bool {
	return slices.ContainsFunc(Unsupported, func(e unix.Errno) bool { return errors.Is(err, e) })
}

// resources maps the errors for a used-up resource to the name of the resource, with the setting
// that limits it.
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

// Exhausted returns the name of the resource that is used up if err is an error of resources, and
// "" for any other error and for nil.
func Exhausted(err error) string {
	for errno, what := range resources {
		if errors.Is(err, errno) {
			return what
		}
	}
	return ""
}
