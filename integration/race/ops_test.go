package race

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func inodeOf(fi os.FileInfo) uint64 { return fi.Sys().(*syscall.Stat_t).Ino }

// ops lists the operations that workers do on the names that the swapper exchanges.
var ops = []struct {
	name string
	do   func(w *worker) error
}{
	{"read", (*worker).read},
	{"read O_NOFOLLOW", (*worker).readNoFollow},
	{"mmap", (*worker).mmap},
	{"write", func(w *worker) error {
		return w.with(w.file(), unix.O_WRONLY, func(fd int) error { _, err := unix.Pwrite(fd, []byte(plain), 0); return err })
	}},
	{"append", func(w *worker) error {
		return w.with(w.file(), unix.O_WRONLY|unix.O_APPEND, func(fd int) error { _, err := unix.Write(fd, []byte("+")); return err })
	}},
	{"open O_TRUNC", func(w *worker) error {
		return w.with(w.file(), unix.O_RDWR|unix.O_TRUNC, func(fd int) error { _, err := unix.Write(fd, []byte(plain)); return err })
	}},
	{"truncate", func(w *worker) error { return unix.Truncate(w.file(), 64) }},
	{"ftruncate", func(w *worker) error {
		return w.with(w.file(), unix.O_RDWR, func(fd int) error { return unix.Ftruncate(fd, 32) })
	}},
	{"fallocate", func(w *worker) error {
		return w.with(w.file(), unix.O_RDWR, func(fd int) error { return unix.Fallocate(fd, 0, 0, 48) })
	}},
	{"create", func(w *worker) error {
		return w.with(w.own("new"), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, func(fd int) error { _, err := unix.Write(fd, []byte(plain)); return err })
	}},
	{"create without O_EXCL", func(w *worker) error {
		path := filepath.Join(w.parent(), "f")
		return w.with(path, unix.O_RDWR|unix.O_CREAT, func(fd int) error { w.checkFile(path, fd); return nil })
	}},
	{"create victim", func(w *worker) error {
		return w.with(filepath.Join(w.parent(), "victim"), unix.O_RDWR|unix.O_CREAT, func(fd int) error { _, err := unix.Write(fd, []byte(plain)); return err })
	}},
	{"mknod", func(w *worker) error { return unix.Mknod(w.own("node"), unix.S_IFREG|0o666, 0) }},
	{"mkdir", func(w *worker) error { return unix.Mkdir(w.own("dir"), 0o777) }},
	{"rmdir", func(w *worker) error { return unix.Rmdir(w.own("dir")) }},
	{"rmdir empty", func(w *worker) error { return unix.Rmdir(filepath.Join(w.parent(), "empty")) }},
	{"unlink", func(w *worker) error { return unix.Unlink(w.own("new")) }},
	{"unlink victim", func(w *worker) error { return unix.Unlink(filepath.Join(w.parent(), "victim")) }},
	{"rename into a directory", func(w *worker) error {
		mine := w.p(fmt.Sprintf("mine-%d", w.id))
		if err := os.WriteFile(mine, []byte(plain), 0o666); err != nil {
			return err
		}
		return unix.Rename(mine, filepath.Join(w.parent(), "victim"))
	}},
	{"rename out of a directory", (*worker).steal},
	{"rename exchange", func(w *worker) error {
		// parents[5:] are left out: an exchange in a/il could move inner/f, which the workers know
		// by its inode.
		x, y := w.pick(parents[:5]), w.pick(parents[:5])
		return unix.Renameat2(unix.AT_FDCWD, w.p(x+"/f"), unix.AT_FDCWD, w.p(y+"/f"), unix.RENAME_EXCHANGE)
	}},
	{"link from a file", (*worker).linkFrom},
	{"link into a directory", func(w *worker) error {
		mine := w.own("hard")
		_ = unix.Unlink(mine)
		return unix.Link(w.p("stable"), mine)
	}},
	{"symlink", func(w *worker) error {
		mine := w.own("soft")
		_ = unix.Unlink(mine)
		return unix.Symlink("f", mine)
	}},
	{"chmod", func(w *worker) error { return unix.Chmod(w.file(), 0o640) }},
	{"chmod directory", func(w *worker) error { return unix.Chmod(w.dir(), 0o755) }},
	{"chown", func(w *worker) error { return unix.Chown(w.file(), 0, 1001) }},
	{"lchown", func(w *worker) error { return unix.Lchown(w.file(), 0, 1002) }},
	{"utimes", func(w *worker) error { now := time.Now(); return os.Chtimes(w.file(), now, now) }},
	{"setxattr", func(w *worker) error { return unix.Setxattr(w.file(), "user.w", []byte("w"), 0) }},
	{"getxattr", (*worker).getxattr},
	{"removexattr", func(w *worker) error { return unix.Removexattr(w.file(), canaryAttr) }},
	{"stat", func(w *worker) error { return w.stat(w.file(), unix.Stat) }},
	{"lstat", func(w *worker) error { return w.stat(w.file(), unix.Lstat) }},
	{"stat directory", func(w *worker) error { return w.stat(w.dir(), unix.Stat) }},
	{"list", (*worker).list},
	{"readlink", (*worker).readlink},
	{"copy_file_range from", (*worker).copyFrom},
	{"copy_file_range to", (*worker).copyTo},
	{"O_TMPFILE and link", (*worker).tmpfile},
	{"openat from an open directory", (*worker).holdDirectory},
	{"O_PATH and /proc/self/fd", (*worker).opath},
}

func (w *worker) stat(path string, how func(string, *unix.Stat_t) error) error {
	var st unix.Stat_t
	err := how(path, &st)
	if err == nil {
		w.checkAttributes(path, &st)
	}
	return err
}

// readNoFollow opens names with O_NOFOLLOW, which must not reach the target of a link.
func (w *worker) readNoFollow() error {
	path := w.p(w.pick([]string{"a/ifl", "a/fl", "a/ff"}))
	return w.with(path, unix.O_RDONLY|unix.O_NOFOLLOW, func(fd int) error {
		w.checkFile(path, fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Ino == w.innerInode {
			w.leak("%s: O_NOFOLLOW arrived at inner/f", path)
		}
		return nil
	})
}

func (w *worker) mmap() error {
	path := w.file()
	return w.with(path, unix.O_RDONLY, func(fd int) error {
		m, err := unix.Mmap(fd, 0, 64, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Munmap(m) }()
		w.checkBytes(path, append([]byte(nil), m...))
		return nil
	})
}

// steal renames a file out of an exchanged directory and examines the file.
func (w *worker) steal() error {
	loot := w.p(fmt.Sprintf("loot-%d", w.id))
	if err := unix.Rename(filepath.Join(w.parent(), "victim"), loot); err != nil {
		return err
	}
	return w.with(loot, unix.O_RDONLY, func(fd int) error { w.checkFile(loot, fd); return nil })
}

func (w *worker) linkFrom() error {
	mine := w.p(fmt.Sprintf("hard-%d", w.id))
	_ = unix.Unlink(mine)
	if err := unix.Linkat(unix.AT_FDCWD, w.file(), unix.AT_FDCWD, mine, unix.AT_SYMLINK_FOLLOW*w.rnd.IntN(2)); err != nil {
		return err
	}
	defer func() { _ = unix.Unlink(mine) }()
	return w.with(mine, unix.O_RDONLY, func(fd int) error { w.checkFile(mine, fd); return nil })
}

func (w *worker) getxattr() error {
	path, buf := w.file(), make([]byte, 1024)
	if n, err := unix.Getxattr(path, canaryAttr, buf); err == nil {
		w.checkBytes(path, buf[:n])
	}
	n, err := unix.Listxattr(path, buf)
	if err == nil && strings.Contains(string(buf[:n]), canaryAttr) {
		w.leak("%s: the list of a canary's attributes", path)
	}
	return err
}

// list reads a directory, and examines the names, the attributes and the files in it.
func (w *worker) list() error {
	dir := w.dir()
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		w.checkBytes(path, []byte(e.Name()))
		_ = w.stat(path, unix.Lstat)
		if !e.IsDir() {
			_ = w.with(path, unix.O_RDONLY, func(fd int) error { w.checkFile(path, fd); return nil })
		}
	}
	return err
}

// readlink reads a link, whose target must not lead out. Then it opens the target through the root.
func (w *worker) readlink() error {
	link := w.p(w.pick(links))
	buf := make([]byte, 4096)
	n, err := unix.Readlink(link, buf)
	if err != nil {
		return err
	}
	target := string(buf[:n])
	if !strings.HasPrefix(target, "../inner") {
		w.leak("%s: returned a target outside: %q", link, target)
	}
	path := filepath.Join(filepath.Dir(link), target)
	return w.with(path, unix.O_RDONLY, func(fd int) error { w.checkFile(path, fd); return nil })
}

func (w *worker) copyFrom() error {
	mine := w.p(fmt.Sprintf("copy-%d", w.id))
	return w.with(w.file(), unix.O_RDONLY, func(in int) error {
		return w.with(mine, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC, func(out int) error {
			_, err := unix.CopyFileRange(in, nil, out, nil, 256, 0)
			w.checkFile(mine, out)
			return err
		})
	})
}

func (w *worker) copyTo() error {
	return w.with(w.p("stable"), unix.O_RDONLY, func(in int) error {
		return w.with(w.file(), unix.O_WRONLY, func(out int) error {
			_, err := unix.CopyFileRange(in, nil, out, nil, 256, 0)
			return err
		})
	})
}

func (w *worker) tmpfile() error {
	mine := w.own("tmp")
	_ = unix.Unlink(mine)
	fd, err := unix.Open(filepath.Dir(mine), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(plain)); err != nil {
		return err
	}
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, mine, unix.AT_SYMLINK_FOLLOW)
}

// holdDirectory opens a directory, and then opens several files from its descriptor.
func (w *worker) holdDirectory() error {
	dir := w.parent()
	d, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	err = unix.ENOENT
	for _, name := range []string{"f", "sub/f", "../" + filepath.Base(dir) + "/f", "victim"} {
		fd, oerr := unix.Openat(d, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if oerr != nil {
			continue
		}
		err = nil
		w.checkFile(dir+" held, "+name, fd)
		unix.Close(fd)
	}
	return err
}

// opath opens a file with O_PATH first and for reading later.
func (w *worker) opath() error {
	path := w.file()
	p, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW*w.rnd.IntN(2), 0)
	if err != nil {
		return err
	}
	defer unix.Close(p)
	return w.with(fmt.Sprintf("/proc/self/fd/%d", p), unix.O_RDONLY, func(fd int) error { w.checkFile(path, fd); return nil })
}
