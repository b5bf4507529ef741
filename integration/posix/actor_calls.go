//go:build linux

package posix

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// run makes a call and returns only the error.
func (a *Actor) run(c command) error {
	_, err := a.do(c)
	return err
}

// Openat opens path and returns a descriptor of the child; dir 0 is the child's working directory.
func (a *Actor) Openat(dir int, path string, flags int, mode uint32) (int, error) {
	r, err := a.do(command{Op: "open", Fd: dir, P: []byte(path), Flags: flags, Mode: mode})
	return int(r.N), err
}

// Open opens path relative to the child's working directory.
func (a *Actor) Open(path string, flags int, mode uint32) (int, error) {
	return a.Openat(0, path, flags, mode)
}

// TryOpen opens path and closes the descriptor at once.
func (a *Actor) TryOpen(path string, flags int, mode uint32) error {
	fd, err := a.Open(path, flags, mode)
	if err != nil {
		return err
	}
	return a.Close(fd)
}

// Close closes a descriptor of the child.
func (a *Actor) Close(fd int) error { return a.run(command{Op: "close", Fd: fd}) }

// Umask sets the child's umask.
func (a *Actor) Umask(mask uint32) error { return a.run(command{Op: "umask", Mode: mask}) }

func (a *Actor) Mkdir(p string, mode uint32) error {
	return a.run(command{Op: "mkdir", P: []byte(p), Mode: mode})
}

func (a *Actor) Mknod(p string, mode uint32, dev int) error {
	return a.run(command{Op: "mknod", P: []byte(p), Mode: mode, Dev: dev})
}

func (a *Actor) Mkfifo(p string, mode uint32) error {
	return a.run(command{Op: "mkfifo", P: []byte(p), Mode: mode})
}

func (a *Actor) Bind(p string) error { return a.run(command{Op: "bind", P: []byte(p)}) }

func (a *Actor) Unlink(p string) error { return a.run(command{Op: "unlinkat", P: []byte(p)}) }

func (a *Actor) Rmdir(p string) error {
	return a.run(command{Op: "unlinkat", P: []byte(p), Flags: unix.AT_REMOVEDIR})
}

// Symlink makes p, pointing to target.
func (a *Actor) Symlink(target, p string) error {
	return a.run(command{Op: "symlink", P: []byte(p), Q: []byte(target)})
}

func (a *Actor) Link(from, to string) error { return a.Linkat(0, from, 0, to, 0) }

func (a *Actor) Linkat(fd int, from string, fd2 int, to string, flags int) error {
	return a.run(command{Op: "link", Fd: fd, P: []byte(from), Fd2: fd2, Q: []byte(to), Flags: flags})
}

func (a *Actor) Rename(from, to string) error { return a.Rename2(from, to, 0) }

func (a *Actor) Rename2(from, to string, flags int) error {
	return a.run(command{Op: "rename", P: []byte(from), Q: []byte(to), Flags: flags})
}

func (a *Actor) Readlink(p string) (string, error) {
	r, err := a.do(command{Op: "readlink", P: []byte(p), Len: 2 * unix.PathMax})
	return string(r.Data), err
}

func (a *Actor) Chmod(p string, mode uint32) error { return a.Fchmodat(p, mode, 0) }

func (a *Actor) Fchmodat(p string, mode uint32, flags int) error {
	return a.run(command{Op: "chmod", P: []byte(p), Mode: mode, Flags: flags})
}

func (a *Actor) Fchmod(fd int, mode uint32) error {
	return a.run(command{Op: "fchmod", Fd: fd, Mode: mode})
}

func (a *Actor) Chown(p string, uid, gid int) error {
	return a.run(command{Op: "chown", P: []byte(p), U: uid, G: gid})
}

func (a *Actor) Lchown(p string, uid, gid int) error {
	return a.run(command{Op: "chown", P: []byte(p), U: uid, G: gid, Flags: unix.AT_SYMLINK_NOFOLLOW})
}

func (a *Actor) Fchown(fd, uid, gid int) error {
	return a.run(command{Op: "fchown", Fd: fd, U: uid, G: gid})
}

func (a *Actor) Truncate(p string, size int64) error {
	return a.run(command{Op: "truncate", P: []byte(p), Len: size})
}

// Allocate is fallocate(2) of n bytes, without flags.
func (a *Actor) Allocate(fd int, n int64) error {
	return a.run(command{Op: "fallocate", Fd: fd, Len: n})
}

func (a *Actor) Ftruncate(fd int, size int64) error {
	return a.run(command{Op: "ftruncate", Fd: fd, Len: size})
}

// Utimens sets atime and mtime to the two times in ts, or to the present time without ts.
func (a *Actor) Utimens(p string, flags int, ts ...unix.Timespec) error {
	return a.run(command{Op: "utimensat", P: []byte(p), Times: ts, Flags: flags})
}

func (a *Actor) Futimens(fd int, ts ...unix.Timespec) error {
	return a.run(command{Op: "utimensat", Fd: fd, Times: ts})
}

func (a *Actor) fstatat(p string, flags int) (unix.Stat_t, error) {
	r, err := a.do(command{Op: "stat", P: []byte(p), Flags: flags})
	if r.Stat == nil {
		r.Stat = new(unix.Stat_t)
	}
	return *r.Stat, err
}

func (a *Actor) Stat(p string) (unix.Stat_t, error) { return a.fstatat(p, 0) }

func (a *Actor) Lstat(p string) (unix.Stat_t, error) {
	return a.fstatat(p, unix.AT_SYMLINK_NOFOLLOW)
}

// Mode asks for the mode of p itself and nothing else (statx(2) with STATX_MODE).
func (a *Actor) Mode(p string) (uint32, error) {
	r, err := a.do(command{Op: "mode", P: []byte(p)})
	return uint32(r.N), err
}

func (a *Actor) Fstat(fd int) (unix.Stat_t, error) {
	r, err := a.do(command{Op: "fstat", Fd: fd})
	if r.Stat == nil {
		r.Stat = new(unix.Stat_t)
	}
	return *r.Stat, err
}

func (a *Actor) Access(p string, mode uint32, flags int) error {
	return a.run(command{Op: "access", P: []byte(p), Mode: mode, Flags: flags})
}

func (a *Actor) Statfs(p string) (unix.Statfs_t, error) {
	r, err := a.do(command{Op: "statfs", P: []byte(p)})
	if r.Fs == nil {
		r.Fs = new(unix.Statfs_t)
	}
	return *r.Fs, err
}

func (a *Actor) Chdir(p string) error { return a.run(command{Op: "chdir", P: []byte(p)}) }

func (a *Actor) Fchdir(fd int) error { return a.run(command{Op: "fchdir", Fd: fd}) }

func (a *Actor) Getcwd() (string, error) {
	r, err := a.do(command{Op: "getcwd"})
	return string(r.Data), err
}

func (a *Actor) Read(fd int, n int64) (string, error) {
	r, err := a.do(command{Op: "read", Fd: fd, Len: n})
	return string(r.Data), err
}

func (a *Actor) Write(fd int, data string) (int, error) {
	r, err := a.do(command{Op: "write", Fd: fd, Data: []byte(data)})
	return int(r.N), err
}

// Getxattr reads an attribute into a buffer of size bytes; size 0 asks for its length.
func (a *Actor) Getxattr(p, name string, size int64, flags int) (string, int, error) {
	r, err := a.do(command{Op: "getxattr", P: []byte(p), Q: []byte(name), Len: size, Flags: flags})
	return string(r.Data), int(r.N), err
}

func (a *Actor) Setxattr(p, name, value string, flags int) error {
	return a.run(command{Op: "setxattr", P: []byte(p), Q: []byte(name), Data: []byte(value), Flags: flags})
}

func (a *Actor) Lsetxattr(p, name, value string) error {
	return a.run(command{Op: "lsetxattr", P: []byte(p), Q: []byte(name), Data: []byte(value)})
}

func (a *Actor) Listxattr(p string, size int64) (string, int, error) {
	r, err := a.do(command{Op: "listxattr", P: []byte(p), Len: size})
	return string(r.Data), int(r.N), err
}

func (a *Actor) Removexattr(p, name string) error {
	return a.run(command{Op: "removexattr", P: []byte(p), Q: []byte(name)})
}

func (a *Actor) Flock(fd, how int) error { return a.run(command{Op: "flock", Fd: fd, Flags: how}) }

// Fcntl makes a lock call (F_SETLK, F_GETLK and the like) and returns the lock as the
// kernel left it.
func (a *Actor) Fcntl(fd, op int, l unix.Flock_t) (unix.Flock_t, error) {
	r, err := a.do(command{Op: "fcntl", Fd: fd, Flags: op, Lock: &l})
	if r.Lock == nil {
		r.Lock = new(unix.Flock_t)
	}
	return *r.Lock, err
}

// futimens is utimensat with a null path, which x/sys cannot pass.
func futimens(fd int, times []unix.Timespec) error {
	var p unsafe.Pointer
	if len(times) == 2 {
		p = unsafe.Pointer(&times[0])
	}
	if _, _, e := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(p), 0, 0, 0); e != 0 {
		return e
	}
	return nil
}
