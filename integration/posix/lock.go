//go:build linux

package posix

import (
	"errors"

	"golang.org/x/sys/unix"
)

// lockers are two processes with the same file open.
type lockers struct {
	s    *scene
	a, b *Actor
	fa   int // descriptor of the file in a
	fb   int // descriptor of the file in b
}

func newLockers(s *scene) *lockers {
	s.Helper()
	s.content("f", "0123456789")
	l := &lockers{s: s, a: s.start(), b: s.start()}
	var err error
	l.fa, err = l.a.Open("f", unix.O_RDWR, 0)
	s.must(err, "open")
	l.fb, err = l.b.Open("f", unix.O_RDWR, 0)
	s.must(err, "open")
	return l
}

// span returns a lock of a type on a range; length 0 is to the end of the file, also when the
// file grows.
func span(typ int16, start, length int64) unix.Flock_t {
	return unix.Flock_t{Type: typ, Whence: 0, Start: start, Len: length}
}

func (l *lockers) set(a *Actor, fd, op int, k unix.Flock_t) error {
	_, err := a.Fcntl(fd, op, k)
	return err
}

// busy are the errors that POSIX allows for a lock that another process has.
var busy = []unix.Errno{unix.EAGAIN, unix.EACCES}

// testLock: locks between processes, of each of the three sorts: flock, POSIX and OFD.
func testLock(s *scene) {
	s.sub("flock", lockFlock)
	for _, f := range []struct {
		name      string
		set, get  int
		perHandle bool // a lock belongs to the open file, not to the process
	}{{"posix", unix.F_SETLK, unix.F_GETLK, false}, {"ofd", unix.F_OFD_SETLK, unix.F_OFD_GETLK, true}} {
		s.sub(f.name+"_ranges", func(s *scene) { lockRanges(s, f.set) })
		s.sub(f.name+"_getlk", func(s *scene) { lockGet(s, f.set, f.get, f.perHandle) })
		s.sub(f.name+"_close", func(s *scene) { lockClose(s, f.set, f.perHandle) })
		s.sub(f.name+"_modes", func(s *scene) {
			l := newLockers(s)
			ro, err := l.a.Open("f", unix.O_RDONLY, 0)
			s.must(err, "open")
			wo, err := l.a.Open("f", unix.O_WRONLY, 0)
			s.must(err, "open")
			s.ok(l.set(l.a, ro, f.set, span(unix.F_RDLCK, 0, 1)), "read lock of a descriptor for reading")
			s.errno(unix.EBADF, l.set(l.a, ro, f.set, span(unix.F_WRLCK, 0, 1)), "write lock of a descriptor for reading")
			s.ok(l.set(l.a, wo, f.set, span(unix.F_WRLCK, 5, 1)), "write lock of a descriptor for writing")
			s.errno(unix.EBADF, l.set(l.a, wo, f.set, span(unix.F_RDLCK, 7, 1)), "read lock of a descriptor for writing")
			s.errno(unix.EINVAL, l.set(l.a, l.fa, f.set, span(99, 0, 1)), "lock of a type that does not exist")
			s.errno(unix.EINVAL, l.set(l.a, l.fa, f.set, span(unix.F_RDLCK, -5, 1)), "lock before the start")
			s.errno(unix.EBADF, l.set(l.a, 987, f.set, span(unix.F_RDLCK, 0, 1)), "lock of a descriptor that is not open")
		})
	}
	s.sub("posix_wait", func(s *scene) { lockWait(s, unix.F_SETLK, unix.F_SETLKW) })
	s.sub("ofd_wait", func(s *scene) { lockWait(s, unix.F_OFD_SETLK, unix.F_OFD_SETLKW) })
	s.sub("posix_deadlock", lockDeadlock)
	s.sub("between", func(s *scene) { // POSIX and OFD locks exclude each other, flock excludes neither
		l := newLockers(s)
		s.ok(l.set(l.a, l.fa, unix.F_SETLK, span(unix.F_WRLCK, 0, 5)), "POSIX lock")
		s.oneOf(busy, l.set(l.b, l.fb, unix.F_OFD_SETLK, span(unix.F_WRLCK, 0, 5)), "OFD lock over a POSIX lock")
		s.ok(l.b.Flock(l.fb, unix.LOCK_EX|unix.LOCK_NB), "flock beside a POSIX lock")
	})
	s.sub("exit", func(s *scene) { // a process's locks end with it
		l := newLockers(s)
		s.ok(l.set(l.a, l.fa, unix.F_SETLK, span(unix.F_WRLCK, 0, 0)), "POSIX lock")
		s.oneOf(busy, l.set(l.b, l.fb, unix.F_SETLK, span(unix.F_WRLCK, 0, 0)), "lock while the other lives")
		l.a.close()
		s.ok(l.set(l.b, l.fb, unix.F_SETLKW, span(unix.F_WRLCK, 0, 0)), "lock after the other has ended")
		s.ok(l.b.Flock(l.fb, unix.LOCK_EX|unix.LOCK_NB), "flock after the other has ended")
	})
}

func lockFlock(s *scene) {
	l := newLockers(s)
	for _, c := range []struct {
		a, b int
		busy bool
	}{{unix.LOCK_EX, unix.LOCK_EX, true}, {unix.LOCK_EX, unix.LOCK_SH, true}, {unix.LOCK_SH, unix.LOCK_EX, true}, {unix.LOCK_SH, unix.LOCK_SH, false}} {
		s.ok(l.a.Flock(l.fa, c.a|unix.LOCK_NB), "flock %d", c.a)
		want := unix.Errno(0)
		if c.busy {
			want = unix.EWOULDBLOCK
		}
		s.errno(want, l.b.Flock(l.fb, c.b|unix.LOCK_NB), "flock %d against %d", c.b, c.a)
		s.ok(l.a.Flock(l.fa, unix.LOCK_UN), "unlock")
		s.ok(l.b.Flock(l.fb, c.b|unix.LOCK_NB), "flock %d after unlock", c.b)
		s.ok(l.b.Flock(l.fb, unix.LOCK_UN), "unlock")
	}
	again, err := l.a.Open("f", unix.O_RDONLY, 0)
	s.must(err, "open")
	s.ok(l.a.Flock(l.fa, unix.LOCK_EX|unix.LOCK_NB), "flock")
	s.errno(unix.EWOULDBLOCK, l.a.Flock(again, unix.LOCK_SH|unix.LOCK_NB), "flock of another opening in the same process")
	s.ok(l.a.Close(again), "close")
	s.errno(unix.EWOULDBLOCK, l.b.Flock(l.fb, unix.LOCK_EX|unix.LOCK_NB), "flock after another opening was closed")
	s.ok(l.a.Flock(l.fa, unix.LOCK_SH|unix.LOCK_NB), "downgrade")
	s.ok(l.b.Flock(l.fb, unix.LOCK_SH|unix.LOCK_NB), "shared flock beside a downgraded one")
	s.errno(unix.EWOULDBLOCK, l.a.Flock(l.fa, unix.LOCK_EX|unix.LOCK_NB), "upgrade beside another")
	s.ok(l.a.Close(l.fa), "close")
	s.ok(l.b.Flock(l.fb, unix.LOCK_EX|unix.LOCK_NB), "flock after close")
	s.errno(unix.EINVAL, l.b.Flock(l.fb, 77), "flock of a kind that does not exist")
	s.errno(unix.EBADF, l.b.Flock(987, unix.LOCK_SH), "flock of a descriptor that is not open")
}

// lockRanges: two locks conflict if they overlap and at least one of them is a write lock.
func lockRanges(s *scene, set int) {
	l := newLockers(s)
	for _, mine := range []unix.Flock_t{span(unix.F_WRLCK, 10, 10), span(unix.F_RDLCK, 10, 10), span(unix.F_WRLCK, 10, 0)} {
		s.ok(l.set(l.a, l.fa, set, mine), "lock %+v", mine)
		for _, r := range []struct{ start, length int64 }{{0, 10}, {0, 11}, {9, 1}, {10, 1}, {15, 2}, {19, 1}, {20, 1}, {0, 0}, {20, 0}, {100, 5}} {
			for _, typ := range []int16{unix.F_RDLCK, unix.F_WRLCK} {
				mineEnd, end := mine.Start+mine.Len, r.start+r.length
				overlap := (r.length == 0 || end > mine.Start) && (mine.Len == 0 || r.start < mineEnd)
				want := []unix.Errno{0}
				if overlap && (typ == unix.F_WRLCK || mine.Type == unix.F_WRLCK) {
					want = busy
				}
				theirs := span(typ, r.start, r.length)
				s.oneOf(want, l.set(l.b, l.fb, set, theirs), "lock %+v against %+v", theirs, mine)
				s.ok(l.set(l.b, l.fb, set, span(unix.F_UNLCK, 0, 0)), "unlock")
			}
		}
		s.ok(l.set(l.a, l.fa, set, span(unix.F_UNLCK, 0, 0)), "unlock")
	}
	// Unlocking the middle leaves two locks.
	s.ok(l.set(l.a, l.fa, set, span(unix.F_WRLCK, 0, 30)), "lock")
	s.ok(l.set(l.a, l.fa, set, span(unix.F_UNLCK, 10, 10)), "unlock the middle")
	s.ok(l.set(l.b, l.fb, set, span(unix.F_WRLCK, 10, 10)), "lock the middle")
	s.oneOf(busy, l.set(l.b, l.fb, set, span(unix.F_WRLCK, 9, 1)), "lock before the middle")
	s.oneOf(busy, l.set(l.b, l.fb, set, span(unix.F_WRLCK, 20, 1)), "lock after the middle")
	// Downgrading lets readers in.
	s.ok(l.set(l.a, l.fa, set, span(unix.F_RDLCK, 0, 5)), "downgrade")
	s.ok(l.set(l.b, l.fb, set, span(unix.F_RDLCK, 0, 5)), "read lock of the downgraded range")
	s.oneOf(busy, l.set(l.a, l.fa, set, span(unix.F_WRLCK, 0, 5)), "upgrade beside a reader")
}

func lockGet(s *scene, set, get int, perHandle bool) {
	l := newLockers(s)
	s.ok(l.set(l.a, l.fa, set, span(unix.F_WRLCK, 3, 4)), "lock")
	got, err := l.b.Fcntl(l.fb, get, span(unix.F_RDLCK, 0, 0))
	s.ok(err, "get")
	eq(s, got.Type, unix.F_WRLCK, "type")
	eq(s, got.Start, 3, "start")
	eq(s, got.Len, 4, "length")
	pid := int32(l.a.cmd.Process.Pid)
	if perHandle {
		pid = -1
	}
	eq(s, got.Pid, pid, "pid")
	got, err = l.b.Fcntl(l.fb, get, span(unix.F_WRLCK, 7, 0))
	s.ok(err, "get of a free range")
	eq(s, got.Type, unix.F_UNLCK, "type for a free range")
	got, err = l.a.Fcntl(l.fa, get, span(unix.F_WRLCK, 0, 0))
	s.ok(err, "get over the process's own lock")
	eq(s, got.Type, unix.F_UNLCK, "type for the process's own lock")
}

// lockClose: a process that closes any of its descriptors of the file loses its POSIX locks on
// the file. An OFD lock ends only with the open file that the lock belongs to.
func lockClose(s *scene, set int, perHandle bool) {
	l := newLockers(s)
	again, err := l.a.Open("f", unix.O_RDWR, 0)
	s.must(err, "open")
	s.ok(l.set(l.a, l.fa, set, span(unix.F_WRLCK, 0, 5)), "lock")
	want := []unix.Errno{0}
	if perHandle {
		want = busy
	}
	s.oneOf(want, l.set(l.a, again, set, span(unix.F_WRLCK, 0, 5)), "lock through another opening in the same process")
	s.oneOf(busy, l.set(l.b, l.fb, set, span(unix.F_WRLCK, 0, 5)), "lock in another process")
	s.ok(l.a.Close(again), "close of another opening")
	s.oneOf(want, l.set(l.b, l.fb, set, span(unix.F_WRLCK, 0, 5)), "lock after another opening was closed")
	s.ok(l.set(l.b, l.fb, set, span(unix.F_UNLCK, 0, 0)), "unlock")
	s.ok(l.set(l.a, l.fa, set, span(unix.F_WRLCK, 0, 5)), "lock again")
	s.ok(l.a.Close(l.fa), "close")
	s.ok(l.set(l.b, l.fb, set, span(unix.F_WRLCK, 0, 5)), "lock after close")
}

// lockWait: a call that waits returns once the lock is free.
func lockWait(s *scene, set, wait int) {
	l := newLockers(s)
	for range 10 {
		s.ok(l.set(l.a, l.fa, set, span(unix.F_WRLCK, 0, 5)), "lock")
		done := make(chan error, 1)
		go func() { done <- l.set(l.b, l.fb, wait, span(unix.F_WRLCK, 0, 5)) }()
		s.ok(l.set(l.a, l.fa, set, span(unix.F_UNLCK, 0, 0)), "unlock")
		s.ok(<-done, "waiting lock")
		s.oneOf(busy, l.set(l.a, l.fa, set, span(unix.F_RDLCK, 0, 5)), "lock while the other has it")
		s.ok(l.set(l.b, l.fb, set, span(unix.F_UNLCK, 0, 0)), "unlock")
	}
}

// lockDeadlock: if two processes wait for each other's locks, one of them gets EDEADLK.
func lockDeadlock(s *scene) {
	l := newLockers(s)
	s.ok(l.set(l.a, l.fa, unix.F_SETLK, span(unix.F_WRLCK, 0, 1)), "first lock")
	s.ok(l.set(l.b, l.fb, unix.F_SETLK, span(unix.F_WRLCK, 1, 1)), "second lock")
	ra, rb := make(chan error, 1), make(chan error, 1)
	go func() { ra <- l.set(l.a, l.fa, unix.F_SETLKW, span(unix.F_WRLCK, 1, 1)) }()
	go func() { rb <- l.set(l.b, l.fb, unix.F_SETLKW, span(unix.F_WRLCK, 0, 1)) }()
	// The process that waits second gets EDEADLK and unlocks; then the first gets its lock.
	loser, fd, winner := l.a, l.fa, rb
	var err error
	select {
	case err = <-ra:
	case err = <-rb:
		loser, fd, winner = l.b, l.fb, ra
	}
	s.yes(errors.Is(err, unix.EDEADLK), "the first answer: %v, want EDEADLK", err)
	s.ok(l.set(loser, fd, unix.F_SETLK, span(unix.F_UNLCK, 0, 0)), "the loser unlocks")
	s.ok(<-winner, "the winner's lock")
}
