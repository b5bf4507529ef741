// Package atomicfile replaces a file in one step. A reader finds either all of the old contents or
// all of the new ones, even after a power cut.
//
// A killed process may leave a file whose name begins with ".new-" in the directory.
package atomicfile

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
)

// Replace puts a new file of mode 0600 at path. The directory of path must exist. write writes the
// contents of the new file. After an error of write, the file at path is as it was. When Replace
// returns nil, the new file is on disk.
func Replace(path string, write func(*os.File) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	err = cmp.Or(write(f), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(dir)
}

// SyncDir returns when the names in a directory are on disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return cmp.Or(d.Sync(), d.Close())
}
