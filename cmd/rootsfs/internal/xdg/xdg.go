// Package xdg finds the owner's directories for configuration, state and data, by the XDG
// specification.
//
// # Promises
//
// Nothing is created, and nothing is read but the variables HOME and XDG_….
//
// # Not promised
//
// Whether the directory is there, and what it is.
package xdg

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Home is the home directory, which ~ stands for; "" if there is none.
func Home() string {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return filepath.Clean(home)
}

// Path is what elem names below the directory of a variable, or below fallback in the home
// directory if that is unset or, as the XDG specification wants it, relative.
func Path(variable, fallback string, elem ...string) (string, error) {
	dir := os.Getenv(variable)
	if !filepath.IsAbs(dir) {
		home := Home()
		if home == "" {
			return "", &names.Error{Kind: names.Invalid, Err: fmt.Errorf(
				"no home directory: set HOME or %s to an absolute path", variable)}
		}
		dir = filepath.Join(home, fallback)
	}
	return filepath.Join(append([]string{dir}, elem...)...), nil
}

// State is $XDG_STATE_HOME/rootsfs, or what elem names below it.
func State(elem ...string) (string, error) {
	return Path("XDG_STATE_HOME", ".local/state", append([]string{"rootsfs"}, elem...)...)
}

// Data is $XDG_DATA_HOME/rootsfs, or what elem names below it. HOMEs are kept there.
func Data(elem ...string) (string, error) {
	return Path("XDG_DATA_HOME", ".local/share", append([]string{"rootsfs"}, elem...)...)
}

// Unwritable adds to an error about a file in State what to do, where it is that
// this user, or nobody, may write there, or that it can be no directory, as below /proc.
// Another error, or nil, it returns as it is.
func Unwritable(err error) error {
	switch names.Errno(err) { //nolint:exhaustive // the others are not about the place
	case unix.EROFS, unix.EACCES, unix.EPERM, unix.ENOENT, unix.ENOTDIR:
		return fmt.Errorf("%w; set XDG_STATE_HOME to a directory that you can write in", err)
	}
	return err
}
