package cleanup

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// removeAll removes a directory with all that is in it, however deep: a command can
// nest directories without end, and os.RemoveAll holds one open for each level.
func removeAll(dir string) error {
	for i := 0; ; i++ {
		err := os.RemoveAll(dir)
		if !errors.Is(err, unix.EMFILE) {
			return err
		}
		if cutErr := cut(dir, fmt.Sprintf("cut-%d", i)); cutErr != nil {
			return errors.Join(err, cutErr)
		}
	}
}

// cutAt is how many levels are left above a cut.
const cutAt = 100

// cut moves what is cutAt levels deep in a directory up to its top.
func cut(dir, name string) error {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	top, err := unix.Open(dir, flags, 0)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	at, err := unix.Dup(top)
	if err != nil {
		return err
	}
	for range cutAt {
		f := os.NewFile(uintptr(at), dir)
		sub, err := subdirectory(f)
		if err == nil {
			at, err = unix.Openat(int(f.Fd()), sub, flags, 0)
		}
		f.Close()
		if err != nil {
			return err
		}
	}
	f := os.NewFile(uintptr(at), dir)
	defer f.Close()
	sub, err := subdirectory(f)
	if err != nil {
		return err
	}
	return unix.Renameat(int(f.Fd()), sub, top, name)
}

// subdirectory is the name of one in a directory.
func subdirectory(f *os.File) (string, error) {
	entries, err := f.ReadDir(-1)
	for _, e := range entries {
		if e.IsDir() {
			return e.Name(), nil
		}
	}
	if err == nil {
		err = unix.ENOENT
	}
	return "", err
}
