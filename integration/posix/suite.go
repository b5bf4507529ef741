//go:build linux

package posix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Options says what Run can expect of the directory under test and of the process, and how large
// the cases are.
type Options struct {
	// Full expects special files (FIFOs, sockets, devices) and set-id bits to
	// work. Without it (rootsfs's safe mode) those cases are skipped.
	Full bool
	// Root says that the process may become other users, give files away and
	// make device nodes. Without it only the process's own user acts.
	Root bool
	// UncountedDirs says that directories have one link, whatever is in them, as on file
	// systems that do not count subdirectories.
	UncountedDirs bool
	// Light makes the large cases smaller (depth, entries).
	Light bool
}

// group is the cases of one call or of one family of calls.
type group struct {
	name string
	f    func(*scene)
}

// groups is the whole suite, in the order in which it runs.
var groups = []group{
	{"path", testPath}, {"class", testClass},
	{"chmod", testChmod}, {"chown", testChown}, {"setid", testSetid},
	{"create", testCreate}, {"mkdir", testMkdir}, {"mknod", testMknod}, {"special", testSpecial},
	{"open", testOpen}, {"openflags", testOpenFlags}, {"tmpfile", testTmpfile}, {"opath", testOPath}, {"etxtbsy", testETXTBSY},
	{"link", testLink}, {"symlink", testSymlink},
	{"unlink", testUnlink}, {"rmdir", testRmdir}, {"sticky", testSticky}, {"stickyrename", testStickyRename},
	{"rename", testRename}, {"renamepairs", testRenamePairs}, {"renamedir", testRenameDir},
	{"truncate", testTruncate}, {"fallocate", testFallocate}, {"sparse", testSparse},
	{"utimensat", testUtimensat}, {"effects", testEffects}, {"noeffects", testNoEffects},
	{"unlinked", testUnlinked}, {"rw", testReadWrite}, {"mmap", testMmap}, {"copy", testCopy},
	{"lock", testLock}, {"readdir", testReaddir}, {"names", testNames}, {"deep", testDeep},
	{"xattr", testXattr}, {"acl", testACL}, {"access", testAccess}, {"cwd", testCwd}, {"statfs", testStatfs},
}

// run is one pass of the suite over one directory.
type run struct {
	opt     Options
	base    string // absolute; everything happens below it
	noatime bool
	nodev   bool
	count   atomic.Int64
	seq     int
	actors  map[string]*Actor
}

// Run makes every case a sub-test of t. The cases work below dir, an existing directory on the
// file system to be tested, and leave it as it was. Run returns the number of assertions made;
// with -run only some of the cases run. The cases are sequential. A process must not make two calls
// of Run at the same time, because a few cases change and examine the process's table of open
// files.
func Run(t *testing.T, dir string, opt Options) int64 {
	t.Helper()
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp(dir, "posix-")
	if err != nil {
		t.Fatal(err)
	}
	r := &run{opt: opt, base: base, actors: map[string]*Actor{}}
	t.Cleanup(func() { r.close(t) })
	// Other users need access to base. The children that act as these users start in base and use
	// paths relative to it, so the users need no access to the directories above base.
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	var sfs unix.Statfs_t
	if err := unix.Statfs(base, &sfs); err != nil {
		t.Fatal(err)
	}
	r.noatime = sfs.Flags&unix.ST_NOATIME != 0
	r.nodev = sfs.Flags&unix.ST_NODEV != 0
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) { r.scene(t, g.f) })
	}
	n := r.count.Load()
	t.Logf("%d assertions", n)
	return n
}

func (r *run) close(t *testing.T) {
	for _, a := range r.actors {
		a.close()
	}
	if err := os.RemoveAll(r.base); err != nil {
		t.Errorf("the suite could not clean up: %v", err)
	}
}

// scene is one case. It has a fresh directory, owned by the process's user with mode
// 0755, which is the working directory of every actor. The actors' umask is 0.
type scene struct {
	*testing.T
	run  *run
	rel  string // the scene's directory below the base
	dir  string // the same, absolute
	root *Actor // the process's own user; uid 0 when Options.Root

	started []*Actor // further processes, ended with the scene
}

func (r *run) scene(t *testing.T, f func(*scene)) {
	r.seq++
	rel := fmt.Sprintf("s%05d", r.seq)
	s := &scene{T: t, run: r, rel: rel, dir: filepath.Join(r.base, rel)}
	if err := unix.Mkdir(s.dir, 0o755); err != nil {
		t.Fatalf("scene: %v", err)
	}
	t.Cleanup(func() {
		// The children leave first: a directory that is a process's working directory can
		// be removed, but the process's descriptors would stay open.
		for _, a := range r.actors {
			a.leave()
		}
		for _, a := range s.started {
			a.close()
		}
		if err := os.RemoveAll(s.dir); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	s.root = s.as(self())
	f(s)
}

// sub runs f as a sub-test in a scene of its own. The actors that s.as returned before lose their
// open descriptors.
func (s *scene) sub(name string, f func(*scene)) {
	s.Helper()
	s.Run(name, func(t *testing.T) { s.run.scene(t, f) })
	if err := s.root.enter(s.rel); err != nil {
		s.Fatalf("helper: enter: %v", err)
	}
}

// as returns the child that acts as c, after it has entered this scene.
func (s *scene) as(c cred) *Actor {
	s.Helper()
	if c.uid != os.Getuid() && !s.run.opt.Root {
		s.Skip("needs root: acts as another user")
	}
	a, err := s.run.actor(c)
	if err != nil {
		s.Fatalf("helper: %v", err)
	}
	if err := a.enter(s.rel); err != nil {
		s.Fatalf("helper: enter: %v", err)
	}
	return a
}

// start returns a further child with the test process's own user, which only this scene uses. Locks
// and many faults show only between two processes.
func (s *scene) start() *Actor {
	s.Helper()
	a, err := s.run.start(self())
	if err != nil {
		s.Fatalf("helper: %v", err)
	}
	s.started = append(s.started, a)
	if err := a.enter(s.rel); err != nil {
		s.Fatalf("helper: enter: %v", err)
	}
	return a
}

// needRoot skips the case unless the process may act as other users.
func (s *scene) needRoot() {
	s.Helper()
	if !s.run.opt.Root {
		s.Skip("needs root")
	}
}

// needFull skips the case in safe mode.
func (s *scene) needFull() {
	s.Helper()
	if !s.run.opt.Full {
		s.Skip("needs special files or set-id bits")
	}
}

func (s *scene) path(name string) string { return filepath.Join(s.dir, name) }

// ok asserts that a call succeeded.
func (s *scene) ok(err error, what string, args ...any) bool {
	s.Helper()
	return s.errno(0, err, what, args...)
}

// must asserts that a call succeeded and ends the case if not.
func (s *scene) must(err error, what string, args ...any) {
	s.Helper()
	if !s.errno(0, err, what, args...) {
		s.FailNow()
	}
}

// errno asserts that a call failed with want, or succeeded if want is 0.
func (s *scene) errno(want unix.Errno, err error, what string, args ...any) bool {
	s.Helper()
	return s.oneOf([]unix.Errno{want}, err, what, args...)
}

// oneOf asserts that a call ended with one of the errnos in want; 0 stands for success.
func (s *scene) oneOf(want []unix.Errno, err error, what string, args ...any) bool {
	s.Helper()
	s.run.count.Add(1)
	var got unix.Errno
	if err != nil && !errors.As(err, &got) {
		s.Fatalf("%s: %v", fmt.Sprintf(what, args...), err)
	}
	for _, w := range want {
		if got == w {
			return true
		}
	}
	s.Errorf("%s: got %s, want %s", fmt.Sprintf(what, args...), errName(got), errNames(want))
	return false
}

// eq asserts that got equals want.
func eq[V comparable](s *scene, got, want V, what string, args ...any) bool {
	s.Helper()
	s.run.count.Add(1)
	if got == want {
		return true
	}
	s.Errorf("%s: got %v, want %v", fmt.Sprintf(what, args...), got, want)
	return false
}

// yes asserts a condition.
func (s *scene) yes(cond bool, what string, args ...any) bool {
	s.Helper()
	s.run.count.Add(1)
	if !cond {
		s.Errorf(what, args...)
	}
	return cond
}

func errName(e unix.Errno) string {
	if e == 0 {
		return "success"
	}
	if n := unix.ErrnoName(e); n != "" {
		return n
	}
	return fmt.Sprintf("errno %d", int(e))
}

func errNames(es []unix.Errno) string {
	out := ""
	for i, e := range es {
		if i > 0 {
			out += " or "
		}
		out += errName(e)
	}
	return out
}

// tick waits until every new time stamp is later than all time stamps taken before the call. File
// systems use the coarse clock, which moves every few milliseconds; waiting for it keeps
// comparisons of stamps exact.
func (s *scene) tick() {
	var start, now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &start); err != nil {
		s.Fatal(err)
	}
	for {
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
			s.Fatal(err)
		}
		if now.Nano() > start.Nano() {
			return
		}
		time.Sleep(500 * time.Microsecond)
	}
}
