package guardtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bare is the Front of the plain file system, without any guard. On it, the call of a case
// marked Unguarded must succeed. A mount's front end is a Bare whose Host leads into the mount,
// so that both make the very same calls.
type Bare struct {
	// Host turns "root/a/b" into a path for system calls.
	Host func(path string) string
}

// path returns a path of the host for a system call, and a function to be called after that call.
// If the path is too long for a system call, path opens one of the parent directories, and returns
// a path that leads through the descriptor of that directory.
func (b Bare) path(p string) (string, func(), error) {
	h := b.Host(p)
	if len(h) < unix.PathMax {
		return h, func() {}, nil
	}
	const chunk = 3000 // below PATH_MAX; an element has at most 255 bytes, so each chunk has a slash
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for err == nil && len(h) > chunk {
		i := strings.LastIndexByte(h[:chunk], '/')
		var next int
		next, err = unix.Openat(fd, strings.TrimPrefix(h[:i], "/"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		_ = unix.Close(fd)
		fd, h = next, h[i+1:]
	}
	if err != nil {
		return "", func() {}, err
	}
	return "/proc/self/fd/" + itoa(fd) + "/" + h, func() { _ = unix.Close(fd) }, nil
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// withPath calls f with the host path of p.
func (b Bare) withPath(p string, f func(h string) error) error {
	h, done, err := b.path(p)
	if err != nil {
		return err
	}
	defer done()
	return f(h)
}

// withPaths calls f with the host paths of p and q.
func (b Bare) withPaths(p, q string, f func(h, k string) error) error {
	return b.withPath(p, func(h string) error { return b.withPath(q, func(k string) error { return f(h, k) }) })
}

// ReadFile never blocks on a FIFO.
func (b Bare) ReadFile(p string) (data []byte, err error) {
	err = b.withPath(p, func(h string) error {
		f, err := os.OpenFile(h, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if st, err := f.Stat(); err != nil || st.Mode()&os.ModeType != 0 {
			return err // for a FIFO, device or directory, only whether it can be opened matters
		}
		data, err = os.ReadFile(h)
		return err
	})
	return data, err
}

func (b Bare) write(p string, flags int, data []byte) error {
	return b.withPath(p, func(h string) error {
		f, err := os.OpenFile(h, os.O_WRONLY|os.O_CREATE|flags, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		return err
	})
}

// WriteFile implements Front.
func (b Bare) WriteFile(p string, data []byte) error { return b.write(p, os.O_TRUNC, data) }

// Append implements Front.
func (b Bare) Append(p string, data []byte) error { return b.write(p, os.O_APPEND, data) }

// Mkdir implements Front.
func (b Bare) Mkdir(p string) error {
	return b.withPath(p, func(h string) error { return os.Mkdir(h, 0o755) })
}

// Remove implements Front.
func (b Bare) Remove(p string) error {
	return b.withPath(p, func(h string) error {
		err := unix.Unlink(h)
		if err == unix.EISDIR {
			err = unix.Rmdir(h)
		}
		return err
	})
}

// Rename implements Front.
func (b Bare) Rename(p, q string) error { return b.withPaths(p, q, unix.Rename) }

// Link implements Front.
func (b Bare) Link(p, q string) error { return b.withPaths(p, q, unix.Link) }

// Symlink implements Front.
func (b Bare) Symlink(target, p string) error {
	return b.withPath(p, func(h string) error { return unix.Symlink(target, h) })
}

// Readlink implements Front.
func (b Bare) Readlink(p string) (target string, err error) {
	err = b.withPath(p, func(h string) error { target, err = os.Readlink(h); return err })
	return target, err
}

// Stat implements Front.
func (b Bare) Stat(p string) (info Info, err error) {
	err = b.withPath(p, func(h string) error {
		var st unix.Stat_t
		err := unix.Lstat(h, &st)
		info = Info{Size: st.Size, Mode: st.Mode}
		return err
	})
	return info, err
}

// List implements Front.
func (b Bare) List(p string) (list []string, err error) {
	err = b.withPath(p, func(h string) error {
		entries, err := os.ReadDir(h)
		for _, e := range entries {
			list = append(list, e.Name())
		}
		slices.Sort(list)
		return err
	})
	return list, err
}

// Chmod implements Front.
func (b Bare) Chmod(p string, mode uint32) error {
	return b.withPath(p, func(h string) error { return unix.Chmod(h, mode) })
}

// Truncate implements Front.
func (b Bare) Truncate(p string, size int64) error {
	return b.withPath(p, func(h string) error { return unix.Truncate(h, size) })
}

// Setxattr implements Front.
func (b Bare) Setxattr(p, name string, value []byte) error {
	return b.withPath(p, func(h string) error { return unix.Lsetxattr(h, name, value, 0) })
}

// Getxattr implements Front.
func (b Bare) Getxattr(p, name string) (value []byte, err error) {
	err = b.withPath(p, func(h string) error {
		buf := make([]byte, 256)
		n, err := unix.Lgetxattr(h, name, buf)
		if err == nil {
			value = buf[:n]
		}
		return err
	})
	return value, err
}

// hostPath returns a function for Bare.Host. dirs has the host path of each root by the root's name.
// For a path in no root, the function returns a path that does not exist.
func hostPath(dirs map[string]string) func(string) string {
	return func(p string) string {
		root, rest, _ := strings.Cut(p, "/")
		dir, ok := dirs[root]
		if !ok {
			return filepath.Join("/nonexistent", syscall.ENOENT.Error(), root)
		}
		if rest == "" {
			return dir
		}
		return dir + "/" + rest
	}
}
