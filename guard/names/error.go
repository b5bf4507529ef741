package names

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Kind is the kind of an error, in the terms of the gate. Callers branch on it: errors.Is(err,
// names.Revoked). Kinds are appended, never renumbered.
type Kind uint8

// The kinds. The table below gives each its errno and its files/* code.
const (
	Other Kind = iota // not an error of this package; answered as IO
	Invalid
	TooLong
	Escaped // a resolution that leaves its root
	Permission
	ReadOnly
	Revoked
	NotExist
	Timeout
	IO
	NoConsent
	NotDir
	IsDir
	NotEmpty
	Exist
	Conflict
	Locked
	Rate
	Quota
	Internal
	Hidden
	Unavailable
	Suspended // the subject was refused too often
	Paused    // the owner has paused the session, or the lease of the machine has run out
	kindCount
)

// Code is one of the seven error codes of the brokered-files protocol. The
// protocol has no others.
type Code string

// The codes, in the protocol's order.
const (
	FileNotFound        Code = "FILE_NOT_FOUND"
	PermissionDenied    Code = "PERMISSION_DENIED"
	InvalidPath         Code = "INVALID_PATH"
	IOError             Code = "IO_ERROR"
	TimeoutCode         Code = "TIMEOUT"
	ConcurrencyConflict Code = "CONCURRENCY_CONFLICT"
	QuotaExceeded       Code = "QUOTA_EXCEEDED"
)

// About is the scope of an error: which other requests will get it, too.
type About uint8

// What an error can be about.
const (
	AboutName    About = iota // one name or its contents: a request about another name may succeed
	AboutMissing              // a name that does not exist, or is no directory
	AboutRequest              // a malformed request
	AboutRoot                 // all requests in the root, or of the caller, until the owner acts
	AboutMoment               // any request at this moment; afterwards, open files work again
)

// kinds is the one table of errors. It has the errno for the kernel, the code for a peer, the
// words for a person, and the columns by which callers decide: Kind.Refusal, Kind.Retryable and
// Kind.About.
var kinds = [kindCount]struct {
	name        string
	errno       syscall.Errno
	code        Code
	text        string
	isRefusal   bool
	isRetryable bool
	about       About
}{
	Other:       {"Other", syscall.EIO, IOError, "failed", false, false, AboutName},
	Invalid:     {"Invalid", syscall.EINVAL, InvalidPath, "invalid path or argument", false, false, AboutRequest},
	TooLong:     {"TooLong", syscall.ENAMETOOLONG, InvalidPath, "name too long", false, false, AboutRequest},
	Escaped:     {"Escape", syscall.EACCES, PermissionDenied, "the path leaves its root", true, false, AboutName},
	Permission:  {"Permission", syscall.EACCES, PermissionDenied, "permission denied", true, false, AboutName},
	ReadOnly:    {"ReadOnly", syscall.EROFS, PermissionDenied, "the root is read-only", true, false, AboutName},
	Revoked:     {"Revoked", syscall.EACCES, PermissionDenied, "access to the root was revoked", true, false, AboutRoot},
	NotExist:    {"NotExist", syscall.ENOENT, FileNotFound, "no such file or directory", false, false, AboutMissing},
	Timeout:     {"Timeout", syscall.ETIMEDOUT, TimeoutCode, "timed out", false, true, AboutMoment},
	IO:          {"IO", syscall.EIO, IOError, "input/output error", false, false, AboutName},
	NoConsent:   {"NoConsent", syscall.EACCES, PermissionDenied, "nobody approved this", true, false, AboutRoot},
	NotDir:      {"NotDir", syscall.ENOTDIR, InvalidPath, "not a directory", false, false, AboutMissing},
	IsDir:       {"IsDir", syscall.EISDIR, InvalidPath, "is a directory", false, false, AboutName},
	NotEmpty:    {"NotEmpty", syscall.ENOTEMPTY, IOError, "directory not empty", false, false, AboutName},
	Exist:       {"Exist", syscall.EEXIST, ConcurrencyConflict, "already exists", false, false, AboutName},
	Conflict:    {"Conflict", syscall.ESTALE, ConcurrencyConflict, "the file is not the one that was expected", false, true, AboutName},
	Locked:      {"Locked", syscall.EAGAIN, ConcurrencyConflict, "locked by another process", false, true, AboutName},
	Rate:        {"Rate", syscall.EAGAIN, QuotaExceeded, "too many operations", true, true, AboutMoment},
	Quota:       {"Quota", syscall.EDQUOT, QuotaExceeded, "quota exceeded", true, false, AboutName},
	Internal:    {"Internal", syscall.EIO, IOError, "internal error", false, false, AboutName},
	Hidden:      {"Hidden", syscall.ENOENT, FileNotFound, "no such file or directory", true, false, AboutMissing},
	Unavailable: {"Unavailable", syscall.ESTALE, IOError, "the root's directory is gone or was replaced; approve it again", false, false, AboutRoot},
	Suspended:   {"Suspended", syscall.EACCES, PermissionDenied, "suspended after too many refusals; only the owner can end that (rootsfs resume)", true, false, AboutRoot},
	Paused:      {"Paused", syscall.EACCES, PermissionDenied, "the session is paused", true, false, AboutMoment},
}

// String is the kind's name, as in error.data.reason.
func (k Kind) String() string {
	if k < kindCount {
		return kinds[k].name
	}
	return "Other"
}

// Error makes a Kind usable as the target of errors.Is.
func (k Kind) Error() string { return k.String() }

// Code is the files/* code of the kind.
func (k Kind) Code() Code {
	if k < kindCount {
		return kinds[k].code
	}
	return IOError
}

// Refusal reports whether the kind is a decision of the gate, or of the file system (by its
// permissions, its quotas or because it is read-only), as opposed to a failure. The audit commands
// of rootsfs show refusals with --denied.
func (k Kind) Refusal() bool { return k < kindCount && kinds[k].isRefusal }

// Retryable reports whether the same request can succeed later, without an action of the owner.
func (k Kind) Retryable() bool { return k < kindCount && kinds[k].isRetryable }

// About returns the scope of the error.
func (k Kind) About() About {
	if k < kindCount {
		return kinds[k].about
	}
	return AboutName
}

// Error is the error of every guarded operation. Package guard sets Op and Path at the end of the
// operation (Lease.Done). The text of such an error holds root-relative paths only. Errors about a
// grant or another change of the registry may name host paths.
type Error struct {
	Op   Op
	Path Path
	Kind Kind
	// Err is the cause. An errno of the same Kind is passed to the kernel
	// unchanged, so that ENOSPC stays ENOSPC.
	Err error
	// RetryAfter is how long to wait before a retry can succeed; zero when
	// a retry is pointless or the time is unknown.
	RetryAfter time.Duration
	// Limit is the amount that must not be exceeded; zero if the error is about no limit, or
	// must not reveal the limit.
	Limit int64
	// Recorded says that the audit log has a record of the error already. So a front end, which
	// records its own errors, does not record this error again.
	Recorded bool
}

// Error returns "op path: explanation", without the operation and the path if they are not set.
// The method explanation returns the last part.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != OpNone {
		b.WriteString(e.Op.String())
		b.WriteByte(' ')
	}
	if e.Path.Root != "" {
		b.WriteString(Escape(e.Path.String()))
		b.WriteString(": ")
	}
	b.WriteString(e.explanation())
	return b.String()
}

// explanation returns the last part of the error's text. It never returns the text of an
// *fs.PathError, or of another error around an errno: both may contain the host path. The text
// of an errno is safe.
func (e *Error) explanation() string {
	var errno syscall.Errno
	var pathErr *fs.PathError
	switch {
	case e.Err == nil:
		return e.Text() + e.limitText()
	case errors.As(e.Err, &errno):
		if e.Kind == IO || e.Kind == Other {
			return errno.Error()
		}
		if words := invalidBecause[errno]; words != "" && e.Kind == Invalid {
			return words
		}
		return e.Text() + e.limitText()
	case errors.As(e.Err, &pathErr):
		return e.Text()
	}
	if cause := e.Err.Error(); cause != "" {
		return cause
	}
	return e.Text()
}

// invalidBecause has the texts for errors of the kind Invalid, by errno.
var invalidBecause = map[syscall.Errno]string{
	syscall.ELOOP: "the links on the way lead in a circle, or are too many",
	syscall.EXDEV: "the two paths lie in different roots or file systems",
}

// limitText names the limit, if there is one.
func (e *Error) limitText() string {
	if e.Limit <= 0 {
		return ""
	}
	return " (the limit is " + strconv.FormatInt(e.Limit, 10) + ")"
}

// Text returns the sentence for a person, without operation and path.
func (e *Error) Text() string {
	if e.Kind < kindCount {
		return kinds[e.Kind].text
	}
	return kinds[Other].text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error's Kind.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// Errno returns the error's answer to the kernel.
func (e *Error) Errno() syscall.Errno {
	var errno syscall.Errno
	if errors.As(e.Err, &errno) && errno != 0 && KindOf(errno) == e.Kind {
		return errno
	}
	if e.Kind < kindCount {
		return kinds[e.Kind].errno
	}
	return syscall.EIO
}

// Code returns the error's answer to a peer.
func (e *Error) Code() Code { return e.Kind.Code() }

// Reason returns the kind of any error: the Kind of an *Error, KindOf of an errno, and Other for
// any other error and for nil.
func Reason(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return KindOf(errno)
	}
	return Other
}

// Errno returns the errno of any error; 0 for nil, EIO for an unknown one.
func Errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Errno()
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}

// KindOf maps an errno that a file system returned to its Kind. EXDEV means "across file
// systems or roots" here. If it means an escape (openat2 with RESOLVE_BENEATH), package beneath
// returns Escaped itself.
func KindOf(errno syscall.Errno) Kind {
	switch errno {
	case syscall.ENOENT:
		return NotExist
	case syscall.EACCES, syscall.EPERM:
		return Permission
	case syscall.EROFS:
		return ReadOnly
	case syscall.EEXIST:
		return Exist
	case syscall.ENOTDIR:
		return NotDir
	case syscall.EISDIR:
		return IsDir
	case syscall.ENOTEMPTY:
		return NotEmpty
	case syscall.ENAMETOOLONG:
		return TooLong
	case syscall.EINVAL, syscall.EXDEV, syscall.ELOOP:
		return Invalid
	case syscall.ESTALE:
		return Conflict
	case syscall.EAGAIN, syscall.EDEADLK:
		return Locked
	case syscall.ETIMEDOUT:
		return Timeout
	case syscall.EDQUOT, syscall.EFBIG:
		return Quota
	}
	return IO
}

// textError is an error whose text is safe to show to a peer.
type textError string

func (e textError) Error() string { return string(e) }
