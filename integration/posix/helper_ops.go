//go:build linux

package posix

import (
	"golang.org/x/sys/unix"
)

// ops are the operations of a child, by command.Op.
var ops = map[string]func(*helper, *command, *reply) error{
	"enter": (*helper).enter,
	"close": (*helper).close,
	"bind":  bind,

	"open": func(h *helper, c *command, r *reply) error {
		fd, err := unix.Openat(c.Fd, string(c.P), c.Flags|unix.O_CLOEXEC, c.Mode)
		return h.addOpen(fd, err, r)
	},
	"umask":    func(_ *helper, c *command, r *reply) error { r.N = int64(unix.Umask(int(c.Mode))); return nil },
	"mkdir":    func(_ *helper, c *command, _ *reply) error { return unix.Mkdirat(c.Fd, string(c.P), c.Mode) },
	"mknod":    func(_ *helper, c *command, _ *reply) error { return unix.Mknodat(c.Fd, string(c.P), c.Mode, c.Dev) },
	"mkfifo":   func(_ *helper, c *command, _ *reply) error { return unix.Mkfifo(string(c.P), c.Mode) },
	"unlinkat": func(_ *helper, c *command, _ *reply) error { return unix.Unlinkat(c.Fd, string(c.P), c.Flags) },
	"symlink":  func(_ *helper, c *command, _ *reply) error { return unix.Symlinkat(string(c.Q), c.Fd, string(c.P)) },
	"link": func(_ *helper, c *command, _ *reply) error {
		return unix.Linkat(c.Fd, string(c.P), c.Fd2, string(c.Q), c.Flags)
	},
	"rename": func(_ *helper, c *command, _ *reply) error {
		if c.Flags == 0 {
			return unix.Renameat(c.Fd, string(c.P), c.Fd2, string(c.Q))
		}
		return unix.Renameat2(c.Fd, string(c.P), c.Fd2, string(c.Q), uint(c.Flags))
	},
	"readlink": func(_ *helper, c *command, r *reply) error {
		buf := make([]byte, c.Len)
		n, err := unix.Readlinkat(c.Fd, string(c.P), buf)
		if err == nil {
			r.Data = buf[:n]
		}
		return err
	},

	"chmod":  func(_ *helper, c *command, _ *reply) error { return unix.Fchmodat(c.Fd, string(c.P), c.Mode, c.Flags) },
	"fchmod": func(_ *helper, c *command, _ *reply) error { return unix.Fchmod(c.Fd, c.Mode) },
	"chown": func(_ *helper, c *command, _ *reply) error {
		return unix.Fchownat(c.Fd, string(c.P), c.U, c.G, c.Flags)
	},
	"fchown":    func(_ *helper, c *command, _ *reply) error { return unix.Fchown(c.Fd, c.U, c.G) },
	"truncate":  func(_ *helper, c *command, _ *reply) error { return unix.Truncate(string(c.P), c.Len) },
	"ftruncate": func(_ *helper, c *command, _ *reply) error { return unix.Ftruncate(c.Fd, c.Len) },
	"fallocate": func(_ *helper, c *command, _ *reply) error { return unix.Fallocate(c.Fd, 0, 0, c.Len) },
	"utimensat": func(_ *helper, c *command, _ *reply) error { return utimens(c.Fd, string(c.P), c.Times, c.Flags) },

	"stat": func(_ *helper, c *command, r *reply) error {
		r.Stat = new(unix.Stat_t)
		return unix.Fstatat(c.Fd, string(c.P), r.Stat, c.Flags)
	},
	"mode": func(_ *helper, c *command, r *reply) error {
		var st unix.Statx_t
		err := unix.Statx(c.Fd, string(c.P), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MODE, &st)
		r.N = int64(st.Mode)
		return err
	},
	"fstat": func(_ *helper, c *command, r *reply) error {
		r.Stat = new(unix.Stat_t)
		return unix.Fstat(c.Fd, r.Stat)
	},
	"access": func(_ *helper, c *command, _ *reply) error { return unix.Faccessat(c.Fd, string(c.P), c.Mode, c.Flags) },
	"statfs": func(_ *helper, c *command, r *reply) error {
		r.Fs = new(unix.Statfs_t)
		return unix.Statfs(string(c.P), r.Fs)
	},
	"chdir":  func(_ *helper, c *command, _ *reply) error { return unix.Chdir(string(c.P)) },
	"fchdir": func(_ *helper, c *command, _ *reply) error { return unix.Fchdir(c.Fd) },
	"getcwd": func(_ *helper, _ *command, r *reply) error {
		buf := make([]byte, 2*unix.PathMax)
		n, err := unix.Getcwd(buf)
		if err == nil {
			r.Data = buf[:n-1]
		}
		return err
	},

	"read": func(_ *helper, c *command, r *reply) error {
		buf := make([]byte, c.Len)
		n, err := unix.Read(c.Fd, buf)
		return setData(r, buf, n, err)
	},
	"write": func(_ *helper, c *command, r *reply) error {
		n, err := unix.Write(c.Fd, c.Data)
		r.N = int64(n)
		return err
	},

	"getxattr": func(_ *helper, c *command, r *reply) error {
		buf := make([]byte, c.Len)
		get := unix.Getxattr
		if c.Flags&unix.AT_SYMLINK_NOFOLLOW != 0 {
			get = unix.Lgetxattr
		}
		n, err := get(string(c.P), string(c.Q), buf)
		r.N = int64(n)
		return setData(r, buf, min(n, len(buf)), err)
	},
	"setxattr": func(_ *helper, c *command, _ *reply) error {
		return unix.Setxattr(string(c.P), string(c.Q), c.Data, c.Flags)
	},
	"lsetxattr": func(_ *helper, c *command, _ *reply) error {
		return unix.Lsetxattr(string(c.P), string(c.Q), c.Data, c.Flags)
	},
	"listxattr": func(_ *helper, c *command, r *reply) error {
		buf := make([]byte, c.Len)
		n, err := unix.Listxattr(string(c.P), buf)
		r.N = int64(n)
		return setData(r, buf, min(n, len(buf)), err)
	},
	"removexattr": func(_ *helper, c *command, _ *reply) error { return unix.Removexattr(string(c.P), string(c.Q)) },

	"flock": func(_ *helper, c *command, _ *reply) error { return unix.Flock(c.Fd, c.Flags) },
	"fcntl": func(_ *helper, c *command, r *reply) error {
		r.Lock = c.Lock
		return unix.FcntlFlock(uintptr(c.Fd), c.Flags, r.Lock)
	},
}

// setData puts the first n bytes of buf into r, unless err is set. It returns err.
func setData(r *reply, buf []byte, n int, err error) error {
	if err == nil && n > 0 {
		r.Data = buf[:n]
	}
	return err
}

// utimens is utimensat or, for a descriptor without a path, futimens. Without times it sets the
// present time.
func utimens(fd int, path string, times []unix.Timespec, flags int) error {
	if path != "" || fd == unix.AT_FDCWD {
		if len(times) == 0 {
			times = nil
		}
		return unix.UtimesNanoAt(fd, path, times, flags)
	}
	return futimens(fd, times)
}
