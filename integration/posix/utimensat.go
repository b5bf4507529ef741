//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	now  = unix.Timespec{Nsec: unix.UTIME_NOW}
	omit = unix.Timespec{Nsec: unix.UTIME_OMIT}
	past = unix.Timespec{Sec: 1_000_000_000, Nsec: 123_456_789}
)

func testUtimensat(s *scene) {
	s.sub("values", func(s *scene) {
		for _, k := range s.kinds() {
			s.create(k, k.name, 0o644)
			utimensValues(s, k)
		}
	})
	s.sub("now_omit", utimensNowOmit)
	s.sub("futimens", func(s *scene) {
		s.file("f", 0o644)
		for _, flags := range []int{unix.O_RDONLY, unix.O_WRONLY} {
			m := unix.Timespec{Sec: 77, Nsec: int64(flags)}
			s.ok(withFd(s.root, "f", flags, func(fd int) error { return s.root.Futimens(fd, past, m) }), "futimens")
			st := s.lstat("f")
			eq(s, st.Atim, past, "atime")
			eq(s, st.Mtim, m, "mtime")
		}
		s.ok(withFd(s.root, ".", unix.O_RDONLY, func(fd int) error { return s.root.Futimens(fd, past, past) }), "futimens of a directory")
		eq(s, s.lstat(".").Mtim, past, "mtime of a directory")
		s.errno(unix.EBADF, s.root.Futimens(987, past, past), "futimens of a descriptor that is not open")
	})
	s.sub("symlink", func(s *scene) {
		s.file("f", 0o644)
		s.must(s.root.Symlink("f", "l"), "symlink")
		other := unix.Timespec{Sec: 5, Nsec: 6}
		s.ok(s.root.Utimens("l", 0, past, past), "through a link")
		eq(s, s.lstat("f").Mtim, past, "mtime of the target")
		s.ok(s.root.Utimens("l", unix.AT_SYMLINK_NOFOLLOW, other, other), "of the link")
		eq(s, s.lstat("l").Mtim, other, "mtime of the link")
		eq(s, s.lstat("f").Mtim, past, "mtime of the target")
	})
	s.sub("EINVAL", func(s *scene) {
		s.file("f", 0o644)
		before := s.lstat("f")
		for _, ns := range []int64{-1, 1_000_000_000, 1<<30 - 3} {
			bad := unix.Timespec{Sec: 1, Nsec: ns}
			s.errno(unix.EINVAL, s.root.Utimens("f", 0, bad, past), "atime of %d ns", ns)
			s.errno(unix.EINVAL, s.root.Utimens("f", 0, past, bad), "mtime of %d ns", ns)
		}
		s.errno(unix.EINVAL, s.root.Utimens("f", 0x40000000, past, past), "a flag that does not exist")
		s.yes(s.lstat("f") == before, "the file changed")
	})
	s.sub("permission", utimensPermission)
}

// utimensValues: times are kept to the nanosecond, before 1970 and after 2038,
// as far as ext4 goes: from 1901 to 2446.
func utimensValues(s *scene, k kind) {
	for _, sec := range []int64{0, 1, 1_000_000_000, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<33 + 5, 1<<34 - 1<<31 - 2, -1, -1000, -1<<31 + 1} {
		for _, ns := range []int64{0, 1, 999_999_999} {
			a, m := unix.Timespec{Sec: sec, Nsec: ns}, unix.Timespec{Sec: sec, Nsec: 999_999_999 - ns}
			s.ok(s.root.Utimens(k.name, unix.AT_SYMLINK_NOFOLLOW, a, m), "utimensat of a %s to %d.%09d", k.name, sec, ns)
			st := s.lstat(k.name)
			eq(s, st.Atim, a, "atime of a %s", k.name)
			eq(s, st.Mtim, m, "mtime of a %s", k.name)
		}
	}
}

func utimensNowOmit(s *scene) {
	for i, c := range []struct{ a, m unix.Timespec }{{now, now}, {now, omit}, {omit, now}, {omit, omit}, {past, omit}, {omit, past}, {past, now}, {now, past}} {
		p := fmt.Sprint("f", i)
		s.file(p, 0o644)
		old := unix.Timespec{Sec: 999, Nsec: 888}
		s.must(s.root.Utimens(p, 0, old, old), "utimensat")
		before := s.lstat(p)
		s.tick()
		s.ok(s.root.Utimens(p, 0, c.a, c.m), "utimensat %v %v", c.a, c.m)
		st := s.lstat(p)
		for _, w := range []struct {
			name      string
			set, have unix.Timespec
		}{{"atime", c.a, st.Atim}, {"mtime", c.m, st.Mtim}} {
			switch w.set {
			case now:
				s.yes(later(w.have, before.Ctim), "%s after UTIME_NOW: %v", w.name, w.have)
			case omit:
				eq(s, w.have, old, "%s after UTIME_OMIT", w.name)
			default:
				eq(s, w.have, w.set, "%s", w.name)
			}
		}
		if c.a == omit && c.m == omit {
			eq(s, st.Ctim, before.Ctim, "ctime after nothing was set")
		} else {
			s.yes(later(st.Ctim, before.Ctim), "ctime after times were set: %v, before %v", st.Ctim, before.Ctim)
		}
	}
	s.must(s.root.Utimens("f0", 0, past, past), "utimensat")
	s.ok(s.root.Utimens("f0", 0), "utimensat without times")
	s.yes(later(s.lstat("f0").Mtim, past), "mtime after utimensat without times")
}

func later(a, b unix.Timespec) bool {
	return a.Sec > b.Sec || (a.Sec == b.Sec && a.Nsec > b.Nsec)
}

// utimensPermission: only the owner and root may set explicit times, or set one time and omit the
// other. Any user who may write may set both times to the present time.
func utimensPermission(s *scene) {
	s.needRoot()
	writer, reader := bob.in(carol.gid), bob
	for i, c := range []struct {
		who  cred
		a, m unix.Timespec
		want unix.Errno
	}{
		{alice, past, past, 0}, {alice, now, now, 0}, {alice, now, omit, 0}, {alice, past, omit, 0}, {self(), past, past, 0},
		{writer, now, now, 0}, {writer, omit, omit, 0}, {writer, past, past, unix.EPERM}, {writer, now, omit, unix.EPERM}, {writer, omit, now, unix.EPERM}, {writer, past, now, unix.EPERM}, {writer, past, omit, unix.EPERM},
		{reader, now, now, unix.EACCES}, {reader, omit, omit, 0}, {reader, past, past, unix.EPERM}, {reader, now, omit, unix.EPERM}, {reader, omit, past, unix.EPERM},
	} {
		for _, k := range s.kindsWithMode() {
			p := fmt.Sprint(k.name, i)
			s.createAs(k, p, 0o664, cred{alice.uid, carol.gid, nil})
			before := s.lstat(p)
			s.errno(c.want, s.as(c.who).Utimens(p, 0, c.a, c.m), "utimensat %v %v of a %s by %s", c.a, c.m, k.name, c.who.key())
			if c.want != 0 {
				s.yes(s.lstat(p) == before, "a %s changed by the failed call", k.name)
			}
		}
	}
	s.createAs(regular, "none", 0o664, cred{alice.uid, carol.gid, nil})
	s.ok(s.as(writer).Utimens("none", 0), "without times by a writer")
	s.errno(unix.EACCES, s.as(reader).Utimens("none", 0), "without times by a reader")
	s.createAs(regular, "ro", 0o444, alice)
	s.ok(s.as(alice).Utimens("ro", 0), "without times by the owner who may not write")
	s.ok(s.as(alice).Utimens("ro", 0, past, past), "with times by the owner who may not write")
}
