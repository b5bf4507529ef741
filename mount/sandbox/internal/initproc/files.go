package initproc

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// scratchDirs makes what hides and holds other things, and where those are mounted that are
// the same everywhere.
func (b *builder) scratchDirs() error {
	for _, dir := range []string{scratch, emptyDir, sysDir, "/proc", "/dev", "/dev/pts"} {
		if err := unix.Mkdirat(b.root, dir[1:], 0o755); err != nil {
			return step(err, "make %s", dir)
		}
	}
	return b.write(emptyFile, nil)
}

// skeleton makes directories, links and files.
func (b *builder) skeleton() error {
	for _, dir := range b.layout.Dirs {
		if err := unix.Mkdirat(b.root, dir[1:], 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return step(err, "make %s", dir)
		}
	}
	for _, l := range b.layout.Links {
		if err := unix.Symlinkat(l.Target, b.root, l.At[1:]); err != nil && !errors.Is(err, unix.EEXIST) {
			return step(err, "make the link %s", l.At)
		}
	}
	for _, f := range b.layout.Files {
		if err := b.write(f.At, f.Data); err != nil {
			return err
		}
	}
	return b.copies()
}

// copies copies files of the host's.
func (b *builder) copies() error {
	for _, f := range b.layout.Copies {
		data, err := readSmall(f.From)
		if err != nil {
			if !errors.Is(err, unix.ENOENT) {
				b.notes = append(b.notes, fmt.Sprintf("%s is not there: %v", f.To, err))
			}
			continue
		}
		if err := b.write(f.To, data); err != nil {
			return err
		}
	}
	return nil
}

// write makes a file of the new root.
func (b *builder) write(path string, data []byte) error {
	// Nothing is written to what has been mounted in the new root meanwhile.
	fd, err := unix.Openat2(b.root, path[1:], &unix.OpenHow{
		Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC, Mode: 0o644,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return step(err, "make %s", path)
	}
	f := os.NewFile(uintptr(fd), path)
	_, err = f.Write(data)
	return step(errors.Join(err, f.Close()), "write %s", path)
}

// readSmall reads a regular file of the host's.
func readSmall(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > layout.CopyMax:
		return nil, fmt.Errorf("it has more than %d bytes", layout.CopyMax)
	}
	return io.ReadAll(io.LimitReader(f, layout.CopyMax)) // it may grow meanwhile
}
