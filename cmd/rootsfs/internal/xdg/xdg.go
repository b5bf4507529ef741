// Package xdg finds the owner's directories for configuration, state and data, by the XDG
// specification.
//
// It reads only the variables HOME and XDG_…. It creates nothing, and does not check that
// a directory is there.
package xdg

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Home returns the home directory, which ~ stands for; "" if there is none.
func Home() string {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return filepath.Clean(home)
}

// Path joins elem to the directory that a variable holds. If the variable is unset, or holds a
// relative path (which the XDG specification says to ignore), Path joins elem to fallback in the
// home directory.
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

// State returns $XDG_STATE_HOME/rootsfs, or the path elem below it.
func State(elem ...string) (string, error) {
	return Path("XDG_STATE_HOME", ".local/state", append([]string{"rootsfs"}, elem...)...)
}

// Data returns $XDG_DATA_HOME/rootsfs, or the path elem below it. rootsfs keeps the HOME
// directories of confined commands there, for later runs.
func Data(elem ...string) (string, error) {
	return Path("XDG_DATA_HOME", ".local/share", append([]string{"rootsfs"}, elem...)...)
}

// Unwritable adds advice to an error about a file in State, if the error says that the file's
// directory is not writable, or cannot be made (as below /proc). It returns any other error, and
// nil, unchanged.
func Unwritable(err error) error {
	switch names.Errno(err) { //nolint:exhaustive // the others are not about the place
	case unix.EROFS, unix.EACCES, unix.EPERM, unix.ENOENT, unix.ENOTDIR:
		return fmt.Errorf("%w; set XDG_STATE_HOME to a directory that you can write in", err)
	}
	return err
}
