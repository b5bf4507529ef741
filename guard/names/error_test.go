package names

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kindRows repeats the table of error kinds, so that a change of the table is a
// decision and not an accident.
var kindRows = []struct {
	kind    Kind
	name    string
	errno   syscall.Errno
	code    Code
	refusal bool
	retry   bool
	about   About
}{
	{Other, "Other", syscall.EIO, "IO_ERROR", false, false, AboutName},
	{Invalid, "Invalid", syscall.EINVAL, "INVALID_PATH", false, false, AboutRequest},
	{TooLong, "TooLong", syscall.ENAMETOOLONG, "INVALID_PATH", false, false, AboutRequest},
	{Escaped, "Escape", syscall.EACCES, "PERMISSION_DENIED", true, false, AboutName},
	{Permission, "Permission", syscall.EACCES, "PERMISSION_DENIED", true, false, AboutName},
	{ReadOnly, "ReadOnly", syscall.EROFS, "PERMISSION_DENIED", true, false, AboutName},
	{Revoked, "Revoked", syscall.EACCES, "PERMISSION_DENIED", true, false, AboutRoot},
	{NotExist, "NotExist", syscall.ENOENT, "FILE_NOT_FOUND", false, false, AboutMissing},
	{Timeout, "Timeout", syscall.ETIMEDOUT, "TIMEOUT", false, true, AboutMoment},
	{IO, "IO", syscall.EIO, "IO_ERROR", false, false, AboutName},
	{NoConsent, "NoConsent", syscall.EACCES, "PERMISSION_DENIED", true, false, AboutRoot},
	{NotDir, "NotDir", syscall.ENOTDIR, "INVALID_PATH", false, false, AboutMissing},
	{IsDir, "IsDir", syscall.EISDIR, "INVALID_PATH", false, false, AboutName},
	{NotEmpty, "NotEmpty", syscall.ENOTEMPTY, "IO_ERROR", false, false, AboutName},
	{Exist, "Exist", syscall.EEXIST, "CONCURRENCY_CONFLICT", false, false, AboutName},
	{Conflict, "Conflict", syscall.ESTALE, "CONCURRENCY_CONFLICT", false, true, AboutName},
	{Locked, "Locked", syscall.EAGAIN, "CONCURRENCY_CONFLICT", false, true, AboutName},
	{Rate, "Rate", syscall.EAGAIN, "QUOTA_EXCEEDED", true, true, AboutMoment},
	{Quota, "Quota", syscall.EDQUOT, "QUOTA_EXCEEDED", true, false, AboutName},
	{Internal, "Internal", syscall.EIO, "IO_ERROR", false, false, AboutName},
	{Hidden, "Hidden", syscall.ENOENT, "FILE_NOT_FOUND", true, false, AboutMissing},
	{Unavailable, "Unavailable", syscall.ESTALE, "IO_ERROR", false, false, AboutRoot},
	{Suspended, "Suspended", syscall.EACCES, "PERMISSION_DENIED", true, false, AboutRoot},
	{Paused, "Paused", syscall.EACCES, "PERMISSION_DENIED", true, false, AboutMoment},
}

// R049, R050, R051, R052, R053, R054, R055: each kind has one of the seven codes.
func TestKindTable_R049_R050_R051_R052_R053_R054_R055(t *testing.T) {
	if len(kindRows) != int(kindCount) {
		t.Fatalf("%d rows for %d kinds", len(kindRows), kindCount)
	}
	codes, seen := map[Code]bool{}, map[string]bool{}
	for i, c := range kindRows {
		e := &Error{Kind: c.kind}
		if c.kind != Kind(i) || c.kind.String() != c.name || c.kind.Error() != c.name || seen[c.name] {
			t.Errorf("kind %d is %d, named %q and %q; want %q, once", i, c.kind, c.kind, c.kind.Error(), c.name)
		}
		if e.Errno() != c.errno || Errno(e) != c.errno {
			t.Errorf("%v: errno %v and %v, want %v", c.kind, e.Errno(), Errno(e), c.errno)
		}
		if e.Code() != c.code || c.kind.Code() != c.code {
			t.Errorf("%v: code %v and %v, want %v", c.kind, e.Code(), c.kind.Code(), c.code)
		}
		if c.kind.Refusal() != c.refusal || c.kind.Retryable() != c.retry || c.kind.About() != c.about {
			t.Errorf("%v: Refusal() = %v, Retryable() = %v, About() = %v", c.kind, c.kind.Refusal(), c.kind.Retryable(), c.kind.About())
		}
		if e.Text() == "" || e.Error() != e.Text() {
			t.Errorf("%v: text %q, error %q", c.kind, e.Text(), e.Error())
		}
		seen[c.name], codes[c.code] = true, true
	}
	for _, c := range []Code{FileNotFound, PermissionDenied, InvalidPath, IOError, TimeoutCode, ConcurrencyConflict, QuotaExceeded} {
		if !codes[c] {
			t.Errorf("no kind gives %s", c)
		}
		delete(codes, c)
	}
	if len(codes) != 0 {
		t.Errorf("codes outside the protocol's seven: %v", codes)
	}
}

// The error for a hidden file has the text, the errno and the code of the error for a missing one.
// Otherwise the error would reveal the hidden file.
func TestHiddenLooksMissing_R049(t *testing.T) {
	p := mustPath(t, "r/.env")
	h, m := &Error{Op: OpOpen, Path: p, Kind: Hidden}, &Error{Op: OpOpen, Path: p, Kind: NotExist}
	if h.Error() != m.Error() || h.Errno() != m.Errno() || h.Code() != m.Code() {
		t.Errorf("hidden: %v %v %v; missing: %v %v %v", h, h.Errno(), h.Code(), m, m.Errno(), m.Code())
	}
}

// A number that is no kind, for example in the record of a newer peer, is treated as Other.
func TestUnknownKind(t *testing.T) {
	for _, k := range []Kind{kindCount, 255} {
		e := &Error{Kind: k}
		if k.String() != "Other" || k.Code() != IOError || e.Errno() != syscall.EIO || e.Error() != "failed" || k.Refusal() || k.Retryable() || k.About() != AboutName {
			t.Errorf("Kind(%d): %v %v %v %v", uint8(k), k, k.Code(), e.Errno(), e)
		}
	}
}

func TestErrorIs(t *testing.T) {
	for k := Other; k < kindCount; k++ {
		err := fmt.Errorf("outer: %w", &Error{Kind: k, Err: syscall.ENOENT})
		for other := Other; other < kindCount; other++ {
			if errors.Is(err, other) != (k == other) {
				t.Errorf("errors.Is(%v, %v) = %v", k, other, k != other)
			}
		}
		if !errors.Is(err, syscall.ENOENT) {
			t.Errorf("%v: the cause is lost", k)
		}
		if Reason(err) != k {
			t.Errorf("Reason = %v, want %v", Reason(err), k)
		}
		if errors.Is(err, errors.New(k.String())) {
			t.Errorf("%v: compared by text", k)
		}
	}
}

// Errno returns the errno of the cause if this errno is of the error's kind, and otherwise the
// errno of the kind.
func TestErrnoPasses_R052_R055(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		cause error
		want  syscall.Errno
	}{
		{IO, syscall.ENOSPC, syscall.ENOSPC},
		{IO, syscall.EIO, syscall.EIO},
		{IO, syscall.EBUSY, syscall.EBUSY},
		{IO, fmt.Errorf("write: %w", syscall.ENOSPC), syscall.ENOSPC},
		{IO, &fs.PathError{Op: "write", Path: "/h", Err: syscall.ENOSPC}, syscall.ENOSPC},
		{Quota, syscall.EFBIG, syscall.EFBIG},
		{Quota, syscall.EDQUOT, syscall.EDQUOT},
		{Invalid, syscall.EXDEV, syscall.EXDEV},
		{Invalid, syscall.ELOOP, syscall.ELOOP},
		{Permission, syscall.EPERM, syscall.EPERM},
		{Locked, syscall.EDEADLK, syscall.EDEADLK},
		{Escaped, syscall.EXDEV, syscall.EACCES}, // openat2 beneath a root
		{Escaped, syscall.ELOOP, syscall.EACCES},
		{Revoked, syscall.ENOENT, syscall.EACCES},
		{Hidden, syscall.EACCES, syscall.ENOENT},
		{Quota, syscall.ENOSPC, syscall.EDQUOT},
		{Internal, syscall.ENOENT, syscall.EIO},
		{Timeout, context.DeadlineExceeded, syscall.ETIMEDOUT},
		{IO, syscall.Errno(0), syscall.EIO}, // never success
		{NotExist, nil, syscall.ENOENT},
	} {
		e := &Error{Kind: c.kind, Err: c.cause}
		if got := e.Errno(); got != c.want {
			t.Errorf("%v over %v: %v, want %v", c.kind, c.cause, got, c.want)
		}
		if got := Errno(fmt.Errorf("wrapped: %w", e)); got != c.want {
			t.Errorf("%v over %v, wrapped: %v, want %v", c.kind, c.cause, got, c.want)
		}
	}
}

func TestKindOf(t *testing.T) {
	for errno, want := range map[syscall.Errno]Kind{
		syscall.ENOENT: NotExist, syscall.EACCES: Permission, syscall.EPERM: Permission, syscall.EROFS: ReadOnly,
		syscall.EEXIST: Exist, syscall.ENOTDIR: NotDir, syscall.EISDIR: IsDir, syscall.ENOTEMPTY: NotEmpty,
		syscall.ENAMETOOLONG: TooLong, syscall.EINVAL: Invalid, syscall.EXDEV: Invalid, syscall.ELOOP: Invalid,
		syscall.ESTALE: Conflict, syscall.EAGAIN: Locked, syscall.EDEADLK: Locked, syscall.ETIMEDOUT: Timeout,
		syscall.EDQUOT: Quota, syscall.EFBIG: Quota, syscall.ENOSPC: IO, syscall.EIO: IO, syscall.EBUSY: IO,
	} {
		if got := KindOf(errno); got != want {
			t.Errorf("KindOf(%v) = %v, want %v", errno, got, want)
		}
		// A file system's errno reaches the kernel unchanged.
		if got := (&Error{Kind: KindOf(errno), Err: errno}).Errno(); got != errno {
			t.Errorf("%v became %v", errno, got)
		}
		if got := Reason(fmt.Errorf("x: %w", errno)); got != want {
			t.Errorf("Reason(%v) = %v, want %v", errno, got, want)
		}
	}
	plain := errors.New("plain")
	if Reason(plain) != Other || Reason(nil) != Other {
		t.Errorf("Reason: %v, %v; want Other", Reason(plain), Reason(nil))
	}
	if Errno(nil) != 0 || Errno(plain) != syscall.EIO || Errno(fmt.Errorf("x: %w", syscall.ENOSPC)) != syscall.ENOSPC {
		t.Errorf("Errno: %v, %v", Errno(nil), Errno(plain))
	}
}

// The text names the operation and the root-relative path, on one line.
func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  Error
		want string
	}{
		{Error{Kind: Revoked}, "access to the root was revoked"},
		{Error{Op: OpOpen, Kind: Revoked}, "open access to the root was revoked"},
		{Error{Op: OpOpen, Path: mustPath(t, "r/a b"), Kind: Revoked}, "open r/a b: access to the root was revoked"},
		{Error{Op: OpMkdir, Path: mustPath(t, "r"), Kind: Invalid, Err: textError("why")}, "mkdir r: why"},
		{Error{Op: OpOpen, Path: mustPath(t, "r/a\nb\u202e"), Kind: NotExist}, `open r/a\nb\u{202e}: no such file or directory`},
		{Error{Kind: NotExist, Err: syscall.ENOENT}, "no such file or directory"},
		{Error{Kind: IO, Err: syscall.ENOSPC}, syscall.ENOSPC.Error()},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		checkShown(t, c.err.Error())
	}
}

// The text contains no host path if the cause is an *fs.PathError, or an error that wraps one.
func TestErrorHasNoHostPath_R050(t *testing.T) {
	const host = "/home/owner/private"
	for k := Other; k < kindCount; k++ {
		for _, inner := range []error{syscall.ENOENT, syscall.EIO, syscall.ENOSPC, fs.ErrClosed} {
			pathErr := &fs.PathError{Op: "openat", Path: host, Err: inner}
			for _, cause := range []error{pathErr, fmt.Errorf("reading %s: %w", host, pathErr)} {
				e := &Error{Op: OpRead, Path: mustPath(t, "r/a"), Kind: k, Err: cause}
				if text := e.Error(); strings.Contains(text, host) || !strings.HasPrefix(text, "read r/a: ") {
					t.Errorf("%v over %v: %q", k, cause, text)
				}
				if !errors.Is(e, inner) {
					t.Errorf("%v: the cause %v is lost", k, inner)
				}
			}
		}
	}
}

// R055: the time to wait can be read from an error that wraps the *Error.
func TestRetryAfter_R055(t *testing.T) {
	err := fmt.Errorf("outer: %w", &Error{Kind: Rate, RetryAfter: 250 * time.Millisecond})
	var e *Error
	if !errors.As(err, &e) || e.RetryAfter != 250*time.Millisecond || e.Code() != QuotaExceeded || e.Errno() != syscall.EAGAIN {
		t.Errorf("%v: %+v", err, e)
	}
}

func TestOpNames(t *testing.T) {
	if Ops != int(OpRequest)+1 {
		t.Errorf("Ops = %d, the last operation is %d", Ops, OpRequest)
	}
	seen := map[string]Op{}
	for o := OpNone; o < opCount; o++ {
		s := o.String()
		if s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("operation %d has the name %q", o, s)
		}
		if prev, dup := seen[s]; dup {
			t.Errorf("operations %d and %d are both %q", prev, o, s)
		}
		seen[s] = o
		if got, ok := ParseOp(s); !ok || got != o {
			t.Errorf("ParseOp(%q) = %d, %v; want %d", s, got, ok, o)
		}
	}
	// These operations must keep their names: audit records contain the names, so a shifted or
	// swapped row of opNames would falsify the records.
	for o, want := range map[Op]string{
		OpNone: "none", OpLookup: "lookup", OpGetattr: "getattr", OpReadlink: "readlink", OpOpendir: "opendir",
		OpReaddir: "readdir", OpOpen: "open", OpRead: "read", OpWrite: "write", OpCreate: "create",
		OpTmpfile: "tmpfile", OpMkdir: "mkdir", OpMknod: "mknod", OpSymlink: "symlink", OpLink: "link",
		OpUnlink: "unlink", OpRmdir: "rmdir", OpRename: "rename", OpSetattr: "setattr", OpTruncate: "truncate",
		OpAllocate: "allocate", OpFsync: "fsync", OpFlush: "flush", OpLseek: "lseek",
		OpCopyFileRange: "copy_file_range", OpGetxattr: "getxattr", OpListxattr: "listxattr",
		OpSetxattr: "setxattr", OpRemovexattr: "removexattr", OpStatfs: "statfs", OpGetlk: "getlk",
		OpSetlk: "setlk", OpWatch: "watch", OpReplace: "replace", OpClose: "close",
		OpGrant: "grant", OpRevoke: "revoke", OpSet: "set", OpExpire: "expire", OpUnavailable: "unavailable",
		OpMount: "mount", OpUnmount: "unmount", OpReload: "reload", OpPanic: "panic",
		OpResume: "resume", OpRun: "run",
		opCount: fmt.Sprintf("op(%d)", Ops), 255: "op(255)",
	} {
		if o.String() != want {
			t.Errorf("operation %d is %q, want %q", uint8(o), o, want)
		}
	}
	for _, s := range []string{"", "Open", "open ", "op(255)", "unknown"} {
		if o, ok := ParseOp(s); ok || o != OpNone {
			t.Errorf("ParseOp(%q) = %v, %v; want none", s, o, ok)
		}
	}
}
