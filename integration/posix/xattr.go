//go:build linux

package posix

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func testXattr(s *scene) {
	for _, k := range []kind{regular, directory} {
		s.sub("values_"+k.name, func(s *scene) { s.create(k, "o", 0o644); xattrValues(s, "o") })
		s.sub("flags_"+k.name, func(s *scene) { s.create(k, "o", 0o644); xattrFlags(s, "o") })
		s.sub("list_"+k.name, func(s *scene) { s.create(k, "o", 0o644); xattrList(s, "o") })
	}
	s.sub("kinds", func(s *scene) { // FIFOs, devices and symlinks have no user attributes
		for _, k := range s.kinds() {
			if k.name == regular.name || k.name == directory.name || k.name == socket.name {
				continue // newer kernels allow sockets
			}
			s.create(k, k.name, 0o644)
			s.errno(unix.EPERM, s.root.Lsetxattr(k.name, "user.x", "v"), "lsetxattr of a %s", k.name)
			_, _, err := s.root.Getxattr(k.name, "user.x", 10, unix.AT_SYMLINK_NOFOLLOW)
			s.errno(unix.ENODATA, err, "lgetxattr of a %s", k.name)
		}
	})
	s.sub("symlink", func(s *scene) {
		s.file("f", 0o644)
		s.must(s.root.Symlink("f", "l"), "symlink")
		s.ok(s.root.Setxattr("l", "user.x", "v", 0), "setxattr through a link")
		got, _, err := s.root.Getxattr("f", "user.x", 10, 0)
		s.ok(err, "getxattr of the target")
		eq(s, got, "v", "value")
		s.ok(s.root.Removexattr("l", "user.x"), "removexattr through a link")
	})
	s.sub("errors", xattrErrors)
	s.sub("permission", xattrPermission)
	s.sub("trusted", func(s *scene) {
		s.needRoot()
		s.needFull()
		s.createAs(regular, "f", 0o666, alice)
		s.ok(s.root.Setxattr("f", "trusted.x", "secret", 0), "setxattr by root")
		got, _, err := s.root.Getxattr("f", "trusted.x", 10, 0)
		s.ok(err, "getxattr by root")
		eq(s, got, "secret", "value")
		a := s.as(alice)
		_, _, err = a.Getxattr("f", "trusted.x", 10, 0)
		s.errno(unix.ENODATA, err, "getxattr by the owner")
		s.errno(unix.EPERM, a.Setxattr("f", "trusted.x", "v", 0), "setxattr by the owner")
		s.errno(unix.EPERM, a.Removexattr("f", "trusted.x"), "removexattr by the owner")
	})
	s.sub("lifetime", func(s *scene) { // attributes belong to the file, not to the name
		s.file("f", 0o644)
		s.must(s.root.Setxattr("f", "user.x", "v", 0), "setxattr")
		s.must(s.root.Link("f", "g"), "link")
		s.must(s.root.Rename("f", "h"), "rename")
		for _, p := range []string{"g", "h"} {
			got, _, err := s.root.Getxattr(p, "user.x", 10, 0)
			s.ok(err, "getxattr")
			eq(s, got, "v", "value")
		}
		s.file("f", 0o644)
		_, _, err := s.root.Getxattr("f", "user.x", 10, 0)
		s.errno(unix.ENODATA, err, "getxattr of a new file of the old name")
		fd := s.openLocal("g")
		s.must(s.root.Unlink("g"), "unlink")
		s.must(s.root.Unlink("h"), "unlink")
		s.ok(unix.Fsetxattr(fd, "user.y", []byte("w"), 0), "fsetxattr of a file without a name")
		buf := make([]byte, 10)
		n, err := unix.Fgetxattr(fd, "user.y", buf)
		s.ok(err, "fgetxattr of a file without a name")
		eq(s, string(buf[:max(n, 0)]), "w", "value")
	})
}

func xattrValues(s *scene, p string) {
	for _, v := range []string{"", "v", "a\x00b", "\xff\xfe", "with\nnewline", strings.Repeat("x", 100), strings.Repeat("y", 1000), strings.Repeat("z", 3000)} {
		s.ok(s.root.Setxattr(p, "user.x", v, 0), "setxattr of %d bytes", len(v))
		got, _, err := s.root.Getxattr(p, "user.x", 4096, 0)
		s.ok(err, "getxattr of %d bytes", len(v))
		s.yes(got == v, "value of %d bytes came back as %d bytes %.20q", len(v), len(got), got)
		_, n, err := s.root.Getxattr(p, "user.x", 0, 0)
		s.ok(err, "getxattr of the length")
		eq(s, n, len(v), "length")
		if len(v) > 1 {
			_, _, err = s.root.Getxattr(p, "user.x", int64(len(v)-1), 0)
			s.errno(unix.ERANGE, err, "getxattr into too small a buffer")
		}
	}
	s.errno(unix.E2BIG, s.root.Setxattr(p, "user.big", strings.Repeat("x", 65537), 0), "setxattr of more than 64 KiB")
	_, _, err := s.root.Getxattr(p, "user.big", 10, 0)
	s.errno(unix.ENODATA, err, "getxattr of the attribute that was too big")
}

func xattrFlags(s *scene, p string) {
	s.errno(unix.ENODATA, s.root.Setxattr(p, "user.x", "v", unix.XATTR_REPLACE), "REPLACE of nothing")
	s.ok(s.root.Setxattr(p, "user.x", "first", unix.XATTR_CREATE), "CREATE")
	s.errno(unix.EEXIST, s.root.Setxattr(p, "user.x", "second", unix.XATTR_CREATE), "CREATE again")
	got, _, err := s.root.Getxattr(p, "user.x", 100, 0)
	s.ok(err, "getxattr")
	eq(s, got, "first", "value after CREATE again")
	s.ok(s.root.Setxattr(p, "user.x", "third", unix.XATTR_REPLACE), "REPLACE")
	got, _, err = s.root.Getxattr(p, "user.x", 100, 0)
	s.ok(err, "getxattr")
	eq(s, got, "third", "value after REPLACE")
	s.errno(unix.EINVAL, s.root.Setxattr(p, "user.x", "v", 0x40), "a flag that does not exist")
	s.ok(s.root.Removexattr(p, "user.x"), "removexattr")
	s.errno(unix.ENODATA, s.root.Removexattr(p, "user.x"), "removexattr again")
	_, _, err = s.root.Getxattr(p, "user.x", 100, 0)
	s.errno(unix.ENODATA, err, "getxattr after removexattr")
}

func xattrList(s *scene, p string) {
	_, n, err := s.root.Listxattr(p, 0)
	s.ok(err, "listxattr of nothing")
	eq(s, n, 0, "length of nothing")
	names := []string{"user.a", "user.b", "user.\xff\xfe", "user.with space", "user.a.b.c", "user." + strings.Repeat("n", 250)}
	for _, a := range names {
		s.ok(s.root.Setxattr(p, a, "v", 0), "setxattr %q", a)
	}
	list, n, err := s.root.Listxattr(p, 1000)
	s.ok(err, "listxattr")
	got := strings.Split(strings.TrimSuffix(list, "\x00"), "\x00")
	slices.Sort(got)
	slices.Sort(names)
	s.yes(slices.Equal(got, names), "listxattr: got %q, want %q", got, names)
	_, length, err := s.root.Listxattr(p, 0)
	s.ok(err, "listxattr of the length")
	eq(s, length, n, "length")
	_, _, err = s.root.Listxattr(p, int64(n-1))
	s.errno(unix.ERANGE, err, "listxattr into too small a buffer")
	s.ok(s.root.Removexattr(p, "user.b"), "removexattr")
	_, left, err := s.root.Listxattr(p, 1000)
	s.ok(err, "listxattr")
	eq(s, left, n-len("user.b")-1, "length after removexattr")
}

func xattrErrors(s *scene) {
	s.file("f", 0o644)
	for _, c := range []struct {
		name string
		want unix.Errno
		full bool // only with Options.Full: in safe mode rootsfs itself refuses names other than user.*
	}{
		{"", unix.ERANGE, false}, {"user." + strings.Repeat("n", 251), unix.ERANGE, false}, {"user.", unix.EINVAL, false},
		{"nonamespace", unix.EOPNOTSUPP, true}, {"unknown.x", unix.EOPNOTSUPP, true},
	} {
		if c.full && !s.run.opt.Full {
			continue
		}
		s.errno(c.want, s.root.Setxattr("f", c.name, "v", 0), "setxattr %.20q", c.name)
		_, _, err := s.root.Getxattr("f", c.name, 10, 0)
		s.errno(c.want, err, "getxattr %.20q", c.name)
		s.errno(c.want, s.root.Removexattr("f", c.name), "removexattr %.20q", c.name)
	}
	fd, err := unix.Open(s.path("f"), unix.O_PATH|unix.O_CLOEXEC, 0)
	s.must(err, "open")
	defer unix.Close(fd)
	s.errno(unix.EBADF, unix.Fsetxattr(fd, "user.x", []byte("v"), 0), "fsetxattr of O_PATH")
	_, err = unix.Fgetxattr(fd, "user.x", nil)
	s.errno(unix.EBADF, err, "fgetxattr of O_PATH")
	s.errno(unix.EBADF, unix.Fremovexattr(987, "user.x"), "fremovexattr of a descriptor that is not open")
}

func xattrPermission(s *scene) {
	s.needRoot()
	s.createAs(regular, "f", 0o644, alice)
	b := s.as(bob)
	s.ok(s.as(alice).Setxattr("f", "user.x", "v", 0), "setxattr by the owner")
	got, _, err := b.Getxattr("f", "user.x", 10, 0)
	s.ok(err, "getxattr by a reader")
	eq(s, got, "v", "value")
	s.errno(unix.EACCES, b.Setxattr("f", "user.x", "w", 0), "setxattr by a reader")
	s.errno(unix.EACCES, b.Removexattr("f", "user.x"), "removexattr by a reader")
	s.must(s.root.Chmod("f", 0o600), "chmod")
	_, _, err = b.Getxattr("f", "user.x", 10, 0)
	s.errno(unix.EACCES, err, "getxattr by somebody who may not read")
	s.must(s.root.Chmod("f", 0o646), "chmod")
	s.ok(b.Setxattr("f", "user.x", "w", 0), "setxattr by a writer")
	// Only the owner may set attributes of a sticky directory.
	s.createAs(directory, "sticky", 0o1777, alice)
	s.errno(unix.EPERM, b.Setxattr("sticky", "user.x", "v", 0), "setxattr of another's sticky directory")
	s.ok(s.as(alice).Setxattr("sticky", "user.x", "v", 0), "setxattr of one's own sticky directory")
	s.createAs(directory, "plain", 0o777, alice)
	s.ok(b.Setxattr("plain", "user.x", "v", 0), "setxattr of another's writable directory")
}
