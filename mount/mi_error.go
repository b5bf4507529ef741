//go:build linux

package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mountError carries one of the Err values above as its kind without showing
// it: the message is a whole sentence already.
type mountError struct {
	kind error
	msg  string
}

func (e *mountError) Error() string { return e.msg }
func (e *mountError) Unwrap() error { return e.kind }

func mountErrorf(kind error, format string, args ...any) error {
	return &mountError{kind: kind, msg: fmt.Sprintf(format, args...)}
}

// accessTimeout bounds every call that a mounted file system may have to
// answer. Its daemon may be stopped or wait for a dead server; five seconds is
// far above what a slow disk takes and short enough for a command line.
const accessTimeout = 5 * time.Second

// bounded runs f and returns what it returns, or os.ErrDeadlineExceeded once
// limit has passed. A call stuck in the kernel cannot be taken back: f then
// runs on in its goroutine until the file system answers or its connection
// ends, so f must not write to what the caller goes on using.
func bounded[T any](limit time.Duration, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case r := <-done:
		return r.v, r.err
	case <-t.C:
		var zero T
		return zero, os.ErrDeadlineExceeded
	}
}

// maxLinks is the kernel's own bound on links in one walk (MAXSYMLINKS).
const maxLinks = 40

// resolvePoint makes path absolute and follows its links as the kernel would
// (".." after a link is the parent of the link's target), without asking the
// file system mounted at the end anything: readlink of a directory is refused
// by the kernel itself, so a stale or hanging mount there does no harm. One
// further up does: the answer is then its error, or os.ErrDeadlineExceeded.
func resolvePoint(path string) (string, error) {
	return bounded(accessTimeout, func() (string, error) { return walkPoint(path) })
}

func walkPoint(path string) (string, error) {
	if path == "" {
		return "", &os.PathError{Op: "resolve", Path: path, Err: unix.ENOENT}
	}
	if !filepath.IsAbs(path) {
		wd, err := os.Getwd()
		if err != nil {
			return "", err
		}
		path = wd + "/" + path
	}
	for range maxLinks {
		// No filepath.Clean: it would fold "link/..".
		for strings.HasSuffix(path, "/") || strings.HasSuffix(path, "/.") {
			path = strings.TrimSuffix(strings.TrimSuffix(path, "."), "/")
		}
		dir, base := filepath.Split(path)
		if path == "" || base == ".." {
			return filepath.EvalSymlinks("/" + path)
		}
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, base)
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // not a link, or absent: the caller's next call says so
		}
		if !filepath.IsAbs(target) {
			target = dir + "/" + target
		}
		path = target
	}
	return "", &os.PathError{Op: "resolve", Path: path, Err: unix.ELOOP}
}
