package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If npx or a virtual environment puts a project's bwrap first in PATH, findBwrap refuses it. No
// bwrap runs then.
func TestProjectsBwrap(t *testing.T) {
	dir := t.TempDir()
	fake := filepath.Join(dir, "bwrap")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(fake, 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if bwrap, err := findBwrap(nil); err == nil || !strings.Contains(err.Error(), "not root's") {
		t.Errorf("%s, %v", bwrap, err)
	}
	// A bwrap that root owns may still have been made by a program that runs as root. The
	// caller can refuse it.
	if os.Geteuid() == 0 {
		if err := os.Chown(fake, 0, 0); err != nil {
			t.Fatal(err)
		}
		checked := ""
		bwrap, err := findBwrap(func(path string) error { checked = path; return errors.New("it is a program's") })
		if err == nil || checked != fake || !strings.Contains(err.Error(), "bwrap is not run: it is a program's") {
			t.Errorf("%s, %v, checked %q", bwrap, err, checked)
		}
	}
}

// prepareBubblewrap does not let bwrap open this program's own file if CheckProgram refuses the
// file.
func TestOwnFileThatProgramsWrite(t *testing.T) {
	if _, err := findBwrap(nil); err != nil {
		t.Skip(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := &launch{o: &Options{CheckProgram: func(path string) error {
		if path == self {
			return errors.New("it is a program's")
		}
		return nil
	}}}
	if err := l.prepareBubblewrap(privateDirs{}); !errors.Is(err, ErrCannot) || !strings.Contains(err.Error(), "own file is not run: it is a program's") {
		t.Errorf("bubblewrap: %v", err)
	}
}
