package childfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// wireError is an error of the child in a form that can be sent. It keeps the error types of
// package os, the errors in known, and error numbers, so that errors.Is and errors.As find them in
// both processes. Of any other error it keeps the text, and the number if there is one.
type wireError struct {
	Kind          string // "path", "link", "syscall", "errno", or ""
	Op, Path, New string
	Inner         *wireError
	Errno         syscall.Errno
	Known         int // the index in known plus one; 0: not in known
	Text          string
}

var known = []error{io.EOF, io.ErrUnexpectedEOF, fs.ErrClosed, fs.ErrInvalid, fs.ErrExist, fs.ErrNotExist, fs.ErrPermission, os.ErrDeadlineExceeded}

func newWireError(err error) *wireError {
	switch e := err.(type) { //nolint:errorlint // the type itself is sent
	case *fs.PathError:
		return &wireError{Kind: "path", Op: e.Op, Path: e.Path, Inner: newWireError(e.Err)}
	case *os.LinkError:
		return &wireError{Kind: "link", Op: e.Op, Path: e.Old, New: e.New, Inner: newWireError(e.Err)}
	case *os.SyscallError:
		return &wireError{Kind: "syscall", Op: e.Syscall, Inner: newWireError(e.Err)}
	case syscall.Errno:
		return &wireError{Kind: "errno", Errno: e}
	}
	for i, k := range known {
		if err == k { //nolint:errorlint // the value itself is sent
			return &wireError{Known: i + 1}
		}
	}
	w := &wireError{Text: err.Error()}
	_ = errors.As(err, &w.Errno)
	return w
}

func (w *wireError) err() error {
	switch {
	case w.Kind == "path":
		return &fs.PathError{Op: w.Op, Path: w.Path, Err: w.Inner.err()}
	case w.Kind == "link":
		return &os.LinkError{Op: w.Op, Old: w.Path, New: w.New, Err: w.Inner.err()}
	case w.Kind == "syscall":
		return &os.SyscallError{Syscall: w.Op, Err: w.Inner.err()}
	case w.Kind == "errno":
		return w.Errno
	case w.Known > 0:
		return known[w.Known-1]
	}
	return &textError{w.Text, w.Errno}
}

// textError is an error of another type: its text, and its number, 0 for none.
type textError struct {
	text  string
	errno syscall.Errno
}

func (e *textError) Error() string { return e.text }

func (e *textError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}
