package client

import (
	"errors"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/guard/names"
)

type textError string

func (e textError) Error() string { return string(e) }

// check refuses what no request should carry. It is for early and clear errors;
// the client judges every path again.
func (f *Files) check(name string) error {
	if clean := path.Clean(name); clean == "." && !strings.Contains(name, "..") {
		return textError("the path is empty; name a root and what lies in it")
	}
	return f.checkDir(name)
}

// checkDir is check where "" means the directory of the roots.
func (f *Files) checkDir(name string) error {
	switch {
	case !utf8.ValidString(name):
		return textError("the path is not UTF-8")
	case strings.IndexByte(name, 0) >= 0:
		return textError("the path has a NUL byte")
	case isAbsolute(name) && f.opts.RelativeOnly:
		return textError("the path is absolute; name the root and what lies in it")
	case isFileURI(name) || isWindows(name):
		_, err := hostPath(name)
		return err
	}
	for elem := range strings.SplitSeq(name, "/") {
		if elem == ".." {
			return textError("the path climbs with ..")
		}
	}
	return nil
}

// hostPath reads a file URI, a Windows path or a POSIX one and returns the path.
// Which of them the client's machine takes is not known here, so a URI need only
// be good for one.
func hostPath(name string) (string, error) {
	switch {
	case isFileURI(name):
		p, err := names.ParseURI(name)
		if err == nil {
			return p, nil
		}
		p, werr := ParseWindowsURI(name)
		if werr != nil {
			return "", textError(err.Error() + "; for Windows, " + werr.Error())
		}
		return p, nil
	case name[0] == '/':
		return name, nil
	}
	return windowsPath(name)
}

// splitLast takes the last element off a path that check has passed, and cleans
// it: what came as a URI is a path of the client's machine then.
func splitLast(name string) (dir, base string) {
	sep := byte('/')
	if isAbsolute(name) {
		name, _ = hostPath(name)
	}
	if isWindows(name) {
		sep = '\\' // and clean already
	} else {
		name = path.Clean(name)
	}
	i := strings.LastIndexByte(name, sep)
	dir, base = name[:max(i, 0)], name[i+1:]
	if i == 0 || strings.HasSuffix(dir, ":") {
		dir = name[:i+1] // the top, or that of a drive
	}
	return dir, base
}

// isAbsolute recognises POSIX, URI and Windows spellings: which one the client's
// machine takes is not known here.
func isAbsolute(name string) bool {
	return strings.HasPrefix(name, "/") || isFileURI(name) || isWindows(name)
}

func isWindows(name string) bool {
	return strings.HasPrefix(name, `\`) || len(name) >= 2 && name[1] == ':' && isLetter(name[0])
}

func isFileURI(s string) bool { return len(s) >= 5 && strings.EqualFold(s[:5], "file:") }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// refusedHere is the error of a path that was not sent.
func refusedHere(op names.Op, why error) error {
	return &names.Error{Op: op, Kind: names.Invalid, Err: &Reply{Message: why.Error(), kind: names.Invalid}}
}

func failedHere(method, name string, k names.Kind) error {
	e := &names.Error{Op: ops[method], Kind: k}
	e.Path, _ = names.ParsePath(name)
	e.Err = &Reply{Message: e.Text(), kind: k}
	return e
}

// broken is the error of a reply that breaks the protocol.
func broken(method, name, why string) error {
	e := &names.Error{Op: ops[method], Kind: names.IO, Err: textError(why)}
	e.Path, _ = names.ParsePath(name)
	return e
}

func isNotSupported(err error) bool { return errors.Is(err, ErrNotSupported) }
