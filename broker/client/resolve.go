package client

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/rootsfs/rootsfs/guard/names"
)

// This file resolves names in the local file system (Lstat, Readlink, the home and working
// directories). It opens nothing.

const (
	localWindows = runtime.GOOS == "windows"
	// maxWindows bounds a path on Windows, in UTF-16 units ("Maximum Path Length Limitation").
	// resolveLocal compares it with the number of bytes, which is never smaller.
	maxWindows = 32767
)

// resolveLocal makes a path or file URI of this machine absolute and resolves
// its links as far as it exists. A dangling link and ".." after a missing name are
// failures, because their meaning is not known.
func resolveLocal(s string) (string, error) {
	abs, err := absoluteLocal(s)
	if err != nil {
		return "", err
	}
	if len(abs) >= longestLocal() {
		// No system call takes such a path, and it may be as long as a request.
		return "", &names.Error{Kind: names.TooLong}
	}
	if localWindows {
		// Only to refuse devices, streams and names that Windows rewrites.
		if err := checkWindows(abs); err != nil {
			return "", err
		}
	}
	return walk(abs)
}

func longestLocal() int {
	if localWindows {
		return maxWindows
	}
	return names.MaxHostPath
}

// absoluteLocal makes a path absolute and does not clean it: ".." after a link has to be
// walked.
func absoluteLocal(s string) (string, error) {
	if isFileURI(s) {
		if localWindows {
			return ParseWindowsURI(s)
		}
		return names.ParseURI(s)
	}
	if s[0] == '~' {
		if len(s) > 1 && !isSeparator(s[1]) {
			return "", invalidPath("only ~ and ~/ are read as a home directory")
		}
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return "", invalidPath("the home directory is not known")
		}
		return home + s[1:], nil
	}
	if filepath.IsAbs(s) {
		return s, nil
	}
	if localWindows && (isSeparator(s[0]) || filepath.VolumeName(s) != "") {
		return "", invalidPath("relative to a drive")
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", &names.Error{Kind: names.IO, Err: err}
	}
	return wd + string(filepath.Separator) + s, nil
}

func isSeparator(c byte) bool { return c == '/' || localWindows && c == '\\' }

// checkWindows refuses a path that names the device space or has an element that Windows
// reads as something else. The path may climb.
func checkWindows(abs string) error {
	volume := filepath.VolumeName(abs)
	if inDeviceSpace(volume) {
		return badWindows(abs, "names the device space")
	}
	for elem := range elements(abs[len(volume):]) {
		if why := badElement(elem); why != "" && elem != ".." {
			return badWindows(abs, why)
		}
	}
	return nil
}

func elements(p string) func(yield func(string) bool) {
	return strings.FieldsFuncSeq(p, func(r rune) bool { return r < 0x80 && isSeparator(byte(r)) })
}

// walk resolves a path one element at a time, as the kernel would.
func walk(abs string) (string, error) {
	missing := false
	look := func(s names.LinkStep) (string, error) {
		if missing {
			return "", nil
		}
		target, isLink, err := readLink(s.Path())
		switch {
		case errors.Is(err, fs.ErrNotExist) && !s.FromLink: // the target of a link must exist
			missing = true
			return "", nil
		case err != nil:
			return "", &names.Error{Kind: names.Reason(err), Err: err}
		case !isLink:
			return "", nil
		}
		if volume := filepath.VolumeName(target); volume != "" && (inDeviceSpace(volume) || !filepath.IsAbs(target)) {
			return "", &names.Error{Kind: names.Invalid}
		}
		return target, nil
	}
	up := func() error {
		if missing {
			return &names.Error{Kind: names.NotExist}
		}
		return nil
	}
	end, err := names.WalkLinks(abs, look, up)
	if errors.Is(err, syscall.ELOOP) {
		err = &names.Error{Kind: names.Invalid, Err: syscall.ELOOP}
	}
	if err != nil {
		return "", err
	}
	return end, nil
}

// readLink reads one name as a link. On Windows a junction is a link too, and a name that
// is no file, directory or readable link is an error.
func readLink(p string) (target string, isLink bool, err error) {
	info, err := os.Lstat(p)
	if err != nil {
		return "", false, err
	}
	if info.Mode()&fs.ModeSymlink == 0 && !(localWindows && info.Mode()&fs.ModeIrregular != 0) {
		return "", false, nil
	}
	target, err = os.Readlink(p)
	return target, err == nil, err
}
