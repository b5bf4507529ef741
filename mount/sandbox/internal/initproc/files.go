package initproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// makeSkeleton makes the directories, links, files and copies of the layout in the new root.
func (b *builder) makeSkeleton() error {
	for _, dir := range b.layout.Dirs {
		if err := b.mkdir(dir); err != nil {
			return err
		}
	}
	for _, l := range b.layout.Links {
		if err := unix.Symlinkat(l.Target, b.root, l.At[1:]); err != nil && !errors.Is(err, unix.EEXIST) {
			return step(err, "make the link %s", l.At)
		}
	}
	for _, f := range b.layout.Files {
		data, err := b.data(f)
		if err == nil {
			err = b.write(f.At, data)
		}
		if err != nil {
			return err
		}
	}
	for _, f := range b.layout.Copies {
		data, err := readSmall(f.From)
		if err != nil {
			continue // the host's file is gone, too long, not regular, or may not be read
		}
		if err := b.write(f.To, data); err != nil {
			return err
		}
	}
	return nil
}

// data returns the data of f. If the caller has opened a file with the data, data reads that file;
// otherwise it returns f.Data.
func (b *builder) data(f layout.File) ([]byte, error) {
	fd, hasFile := b.files[f.Name()]
	if !hasFile {
		return f.Data, nil
	}
	m := os.NewFile(uintptr(fd), f.At)
	defer m.Close()
	data, err := io.ReadAll(m)
	return data, step(err, "read %s", f.At)
}

// write makes a file in the new root, and the directories above the file if they are missing.
func (b *builder) write(path string, data []byte) error {
	// RESOLVE_NO_XDEV: a mount in the new root is never written to.
	fd, err := unix.Openat2(b.root, path[1:], &unix.OpenHow{
		Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC, Mode: 0o644,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ENOENT) { // the directory is not there yet
		if err := b.mkdir(filepath.Dir(path)); err != nil {
			return err
		}
		return b.write(path, data)
	}
	if err != nil {
		return step(err, "make %s", path)
	}
	defer unix.Close(fd)
	n, err := unix.Write(fd, data)
	if err == nil && n < len(data) {
		err = unix.ENOSPC
	}
	return step(err, "write %s", path)
}

// writeHomeFiles writes the files of HOME, with the rights of the command: this thread is
// confined.
func (p *initProc) writeHomeFiles() error {
	if len(p.conf.HomeFiles) == 0 {
		return nil
	}
	home, err := os.OpenRoot(layout.Home)
	if err != nil {
		return step(err, "open HOME")
	}
	defer home.Close()
	for _, f := range p.conf.HomeFiles {
		if err := home.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
			return step(err, "make the directory of %s in HOME", f.Path)
		}
		if err := home.WriteFile(f.Path, f.Data, 0o600); err != nil {
			return step(err, "write %s in HOME", f.Path)
		}
	}
	return nil
}

// readSmall reads a regular file of the host's, of at most layout.CopyMax bytes.
func readSmall(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
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
	data := make([]byte, st.Size)
	n, err := unix.Read(fd, data)
	return data[:max(n, 0)], err
}

// CloseOnExec marks every descriptor from first on to be closed by execve(2), so that descriptors
// that this process has inherited without knowing are not passed on.
func CloseOnExec(first int) error {
	err := unix.CloseRange(uint(first), ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// Linux before 5.9 has no close_range(2), and before 5.11 not this flag.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
