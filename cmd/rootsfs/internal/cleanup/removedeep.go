package cleanup

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// removeAll removes a directory and all its contents, of any depth: a command can nest
// directories without end, and os.RemoveAll holds one open for each level.
func removeAll(dir string) error {
	top, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.Close()
	for isLess := true; isLess && err == nil; {
		isLess = false
		var list []string
		list, err = someNames(top, ".")
		for _, name := range list {
			isLess = removeOrRaise(top, name) || isLess
		}
	}
	return errors.Join(err, os.Remove(dir)) // it fails if anything is left
}

// removeOrRaise removes an entry of top, or its contents: directories in it that are not
// empty are moved up to top. It reports whether anything was removed or moved.
func removeOrRaise(top *os.Root, name string) (isLess bool) {
	if err := top.Remove(name); !errors.Is(err, unix.ENOTEMPTY) {
		return err == nil
	}
	list, _ := someNames(top, name) // an unreadable directory is left
	for _, inner := range list {
		from := path.Join(name, inner)
		err := top.Remove(from)
		if errors.Is(err, unix.ENOTEMPTY) {
			err = top.Rename(from, "raised-"+rand.Text())
		}
		isLess = isLess || err == nil
	}
	return isLess
}

// someNames returns names in a directory, at least one if it is not empty.
func someNames(top *os.Root, dir string) ([]string, error) {
	f, err := top.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.Readdirnames(1000)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return list, err
}
