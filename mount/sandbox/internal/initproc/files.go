package initproc

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// own makes what hides and holds other things, and where those are mounted that are
// the same everywhere.
func (b *builder) own() error {
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

// write and readSmall do without os.File, which would try to poll each of these
// files: there are some fifty of them, in every start.
func (b *builder) write(path string, data []byte) error {
	// Nothing is written to what has been mounted in the new root meanwhile.
	fd, err := unix.Openat2(b.root, path[1:], &unix.OpenHow{
		Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC, Mode: 0o644,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return step(err, "make %s", path)
	}
	n, err := unix.Write(fd, data)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite // the file system is full
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	return step(err, "write %s", path)
}

// readSmall reads a regular file of the host's.
func readSmall(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	switch err := unix.Fstat(fd, &st); {
	case err != nil:
		return nil, err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, errors.New("it is not a regular file")
	case st.Size > layout.CopyMax:
		return nil, fmt.Errorf("it has more than %d bytes", layout.CopyMax)
	}
	data := make([]byte, 0, st.Size+1) // and one, to see its end
	for len(data) <= layout.CopyMax {
		data = slices.Grow(data, 1)
		n, err := unix.Read(fd, data[len(data):cap(data)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n == 0:
			return data, nil
		default:
			data = data[:len(data)+n]
		}
	}
	return data[:layout.CopyMax], nil // it has grown meanwhile
}
