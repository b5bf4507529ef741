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

// removeAll removes a directory and all its contents, of any depth. A command can nest more
// directories than os.RemoveAll can remove, because os.RemoveAll holds a descriptor for each level.
func removeAll(dir string) error {
	top, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.Close()
	for progress := true; progress && err == nil; {
		progress = false
		var list []string
		list, err = someNames(top, ".")
		for _, name := range list {
			progress = removeOrRaise(top, name) || progress
		}
	}
	return errors.Join(err, os.Remove(dir)) // Remove fails if anything is left
}

// removeOrRaise removes an entry of top. If the entry is a directory that is not empty,
// removeOrRaise removes entries of that directory instead, and moves its subdirectories that are
// not empty up to top. removeOrRaise reports whether anything was removed or moved.
func removeOrRaise(top *os.Root, name string) (progress bool) {
	if err := top.Remove(name); !errors.Is(err, unix.ENOTEMPTY) {
		return err == nil
	}
	list, _ := someNames(top, name) // a directory that cannot be read stays
	for _, inner := range list {
		from := path.Join(name, inner)
		err := top.Remove(from)
		if errors.Is(err, unix.ENOTEMPTY) {
			err = top.Rename(from, "raised-"+rand.Text())
		}
		progress = progress || err == nil
	}
	return progress
}

// someNames returns at most 1000 names in a directory, at least one if the directory is not empty.
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
