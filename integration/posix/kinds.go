//go:build linux

package posix

import (
	"golang.org/x/sys/unix"
)

// kind is a type of object that a directory can hold.
type kind struct {
	name    string
	fmt     uint32 // the S_IFMT bits
	special bool   // only with Options.Full
	device  bool   // only with Options.Root
	make    func(a *Actor, p string, mode uint32) error
}

var (
	regular = kind{name: "file", fmt: unix.S_IFREG, make: func(a *Actor, p string, mode uint32) error {
		return a.TryOpen(p, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, mode)
	}}
	directory = kind{name: "dir", fmt: unix.S_IFDIR, make: (*Actor).Mkdir}
	fifo      = kind{name: "fifo", fmt: unix.S_IFIFO, special: true, make: (*Actor).Mkfifo}
	block     = kind{name: "block", fmt: unix.S_IFBLK, special: true, device: true, make: func(a *Actor, p string, mode uint32) error {
		return a.Mknod(p, unix.S_IFBLK|mode, int(unix.Mkdev(1, 2)))
	}}
	char = kind{name: "char", fmt: unix.S_IFCHR, special: true, device: true, make: func(a *Actor, p string, mode uint32) error {
		return a.Mknod(p, unix.S_IFCHR|mode, int(unix.Mkdev(1, 3)))
	}}
	socket = kind{name: "socket", fmt: unix.S_IFSOCK, special: true, make: func(a *Actor, p string, mode uint32) error {
		if err := a.Bind(p); err != nil {
			return err
		}
		return a.Chmod(p, mode)
	}}
	symlink = kind{name: "symlink", fmt: unix.S_IFLNK, make: func(a *Actor, p string, _ uint32) error {
		return a.Symlink("target-of-"+p[len(p)-1:], p)
	}}
	allKinds = []kind{regular, directory, fifo, block, char, socket, symlink}
)

// kinds returns the kinds that the directory under test can hold.
func (s *scene) kinds() []kind {
	var out []kind
	for _, k := range allKinds {
		if (k.special && !s.run.opt.Full) || (k.device && !s.run.opt.Root) {
			continue
		}
		out = append(out, k)
	}
	return out
}

// kindsWithMode returns the kinds that have a mode of their own: all but symlinks, which are
// the last.
func (s *scene) kindsWithMode() []kind {
	all := s.kinds()
	return all[:len(all)-1]
}

// file makes an empty regular file of the process's own user.
func (s *scene) file(p string, mode uint32) {
	s.Helper()
	s.create(regular, p, mode)
}

// mkdir makes a directory of the process's own user.
func (s *scene) mkdir(p string, mode uint32) {
	s.Helper()
	s.create(directory, p, mode)
}

// create makes an object of type k as the process's own user. A new scene has
// umask 0. A umask that the case has set may reduce mode.
func (s *scene) create(k kind, p string, mode uint32) {
	s.Helper()
	s.must(k.make(s.root, p, mode), "make %s %q", k.name, p)
}

// createAs makes an object as the process's own user and gives it to the uid and gid of who.
func (s *scene) createAs(k kind, p string, mode uint32, who cred) {
	s.Helper()
	s.create(k, p, mode)
	s.give(p, who)
	if k.fmt != unix.S_IFLNK {
		s.must(s.root.Chmod(p, mode), "chmod %q", p) // chown clears set-id bits
	}
}

// give sets the owner and the group of p itself to the uid and gid of who.
func (s *scene) give(p string, who cred) {
	s.Helper()
	s.must(s.root.Lchown(p, who.uid, who.gid), "lchown %q", p)
}

// content makes data the content of the regular file p. It creates p if p does not exist.
func (s *scene) content(p, data string) {
	s.Helper()
	fd, err := s.root.Open(p, unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY, 0o644)
	s.must(err, "create %q", p)
	if data != "" {
		n, err := s.root.Write(fd, data)
		s.must(err, "write %q", p)
		eq(s, n, len(data), "bytes written to %q", p)
	}
	s.must(s.root.Close(fd), "close %q", p)
}

// lstat returns the attributes of p, which must exist.
func (s *scene) lstat(p string) unix.Stat_t {
	s.Helper()
	st, err := s.root.Lstat(p)
	s.must(err, "lstat %q", p)
	return st
}

// mode asserts the permission bits of p itself.
func (s *scene) mode(p string, want uint32) {
	s.Helper()
	only, err := s.root.Mode(p) // before lstat, because lstat lets the kernel cache all attributes
	s.must(err, "statx(STATX_MODE) of %q", p)
	s.yes(only&0o7777 == want, "mode alone of %q: got %#o, want %#o", p, only&0o7777, want)
	st := s.lstat(p)
	s.yes(st.Mode&0o7777 == want, "mode of %q: got %#o, want %#o", p, st.Mode&0o7777, want)
}

// owner asserts the uid and gid of p itself.
func (s *scene) owner(p string, uid, gid int) {
	s.Helper()
	st := s.lstat(p)
	s.yes(int(st.Uid) == uid && int(st.Gid) == gid, "owner of %q: got %d:%d, want %d:%d", p, st.Uid, st.Gid, uid, gid)
}

// nlink asserts the number of links of p itself. With Options.UncountedDirs it asserts one link for
// a directory, whatever want is.
func (s *scene) nlink(p string, want int) {
	s.Helper()
	st := s.lstat(p)
	if s.run.opt.UncountedDirs && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		want = 1
	}
	s.yes(int(st.Nlink) == want, "links of %q: got %d, want %d", p, st.Nlink, want)
}

// kind asserts the type of p itself.
func (s *scene) kind(p string, want kind) {
	s.Helper()
	st := s.lstat(p)
	s.yes(st.Mode&unix.S_IFMT == want.fmt, "type of %q: got %#o, want %s", p, st.Mode&unix.S_IFMT, want.name)
}

// gone asserts that p does not exist.
func (s *scene) gone(p string) {
	s.Helper()
	_, err := s.root.Lstat(p)
	s.errno(unix.ENOENT, err, "lstat %q", p)
}
