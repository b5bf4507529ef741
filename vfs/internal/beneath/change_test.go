package beneath

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/hangfs"
)

// changes lists the functions that change a source. request is the name of the request by which the
// function changes a source, as in hangfs.FS. If there are several such requests, it is the first.
// TestChangesAreComplete checks that no function is missing.
var changes = map[string]struct {
	request string
	call    func(s *hangScene, l *guard.Lease) error
}{
	"Chmod":        {"setattr", func(s *hangScene, l *guard.Lease) error { return Chmod(l, s.fd, 0o600) }},
	"Chown":        {"setattr", func(s *hangScene, l *guard.Lease) error { return Chown(l, s.fd, os.Getuid(), -1) }},
	"Utimes":       {"setattr", func(s *hangScene, l *guard.Lease) error { return Utimes(l, s.fd, Now, Omit) }},
	"Truncate":     {"setattr", func(s *hangScene, l *guard.Lease) error { return Truncate(l, s.fd, 1) }},
	"TruncatePath": {"setattr", func(s *hangScene, l *guard.Lease) error { return TruncatePath(l, s.fd, 1) }},
	"Setxattr":     {"setxattr", func(s *hangScene, l *guard.Lease) error { return Setxattr(l, s.fd, "user.new", []byte("x"), 0) }},
	"Removexattr":  {"removexattr", func(s *hangScene, l *guard.Lease) error { return Removexattr(l, s.fd, "user.old") }},
	"CopyXattr":    {"setxattr", func(s *hangScene, l *guard.Lease) error { return CopyXattr(l, s.fd.FD(), s.other, "user.old") }},
	"CopyXattrs":   {"setxattr", func(s *hangScene, l *guard.Lease) error { return CopyXattrs(l, s.fd.FD(), s.other) }},
	"CopyUnsupportedXattrs": {"setxattr", func(s *hangScene, l *guard.Lease) error {
		return CopyUnsupportedXattrs(l, s.fd.FD(), s.withoutXattrs(), s.other)
	}},
	"CopyAttributes": {"setattr", func(s *hangScene, l *guard.Lease) error {
		return CopyAttributes(l, s.fd.FD(), &Info{Mode: unix.S_IFREG, UID: s.who.UID, GID: s.who.GID}, s.other, 0o600)
	}},
	"Pwritev": {"write", func(s *hangScene, l *guard.Lease) error {
		return second(Pwritev(l, s.fd, [][]byte{[]byte("x")}, 0, false))
	}},
	"Fsync":         {"fsync", func(s *hangScene, l *guard.Lease) error { return Fsync(l, s.fd, false) }},
	"Fallocate":     {"fallocate", func(s *hangScene, l *guard.Lease) error { return Fallocate(l, s.fd, 0, 0, 100) }},
	"CopyFileRange": {"copy", func(s *hangScene, l *guard.Lease) error { return second(CopyFileRange(l, s.fd.FD(), 0, s.other, 0, 1)) }},
	"OFDLock":       {"lock", func(s *hangScene, l *guard.Lease) error { return OFDLock(l, s.fd, unix.F_WRLCK, 0, 1) }},
	"Flock":         {"lock", func(s *hangScene, l *guard.Lease) error { return Flock(l, s.fd, unix.LOCK_EX) }},
	"CreateFile": {"create", func(s *hangScene, l *guard.Lease) error {
		return s.closeMade(CreateFile(l, s.dir, "new", unix.O_RDWR, 0o666, s.who))
	}},
	"Tmpfile": {"tmpfile", func(s *hangScene, l *guard.Lease) error {
		return s.closeMade(Tmpfile(l, s.dir, unix.O_RDWR, 0o666, s.who))
	}},
	"Nameless": {"tmpfile", func(s *hangScene, l *guard.Lease) error {
		w, _, err := Nameless(l, s.dir, 0o666, s.who)
		return s.closeMade(w, Info{}, err)
	}},
	"Mkdir": {"mkdir", func(s *hangScene, l *guard.Lease) error { return second(Mkdir(l, s.dir, "new", 0o777, s.who)) }},
	"Mknod": {"mknod", func(s *hangScene, l *guard.Lease) error {
		return second(Mknod(l, s.dir, "new", unix.S_IFREG|0o666, 0, s.who))
	}},
	"Symlink": {"symlink", func(s *hangScene, l *guard.Lease) error { return second(Symlink(l, "to", s.dir, "new", s.who)) }},
	"Link": {"link", func(s *hangScene, l *guard.Lease) error {
		return errors.Join(Link(l, s.fd, s.dir, "new"), Link(l, s.nameless, s.dir, "first"))
	}},
	"Unlink":    {"unlink", func(s *hangScene, l *guard.Lease) error { return Unlink(l, s.dir, "f") }},
	"Rmdir":     {"rmdir", func(s *hangScene, l *guard.Lease) error { return Rmdir(l, s.dir, "d") }},
	"Rename":    {"rename", func(s *hangScene, l *guard.Lease) error { return Rename(l, s.dir, "f", s.dir, "new", 0) }},
	"RenameNew": {"rename", func(s *hangScene, l *guard.Lease) error { return RenameNew(l, s.dir, "f", s.dir, "new") }},
	"SyncDir":   {"fsync", func(s *hangScene, l *guard.Lease) error { return SyncDir(l, s.dir) }},
	"MakeTrash": {"mkdir", func(s *hangScene, l *guard.Lease) error {
		d, _, err := MakeTrash(l, s.dir.fd)
		if err == nil {
			d.Close()
		}
		return err
	}},
}

func second[T any](_ T, err error) error { return err }

// hangScene is a root and an operation in the root. The source is a file system whose requests can
// be made to hang.
type hangScene struct {
	*testing.T
	reg             *guard.Registry
	fs              *hangfs.FS
	dir             Dir
	fd, other       Changeable // open files
	nameless        Changeable
	who             Owner
	lease, detached *guard.Lease
	done            func() // ends the use of the detached lease
}

// withoutXattrs opens a file of a file system that does not support user attributes (user_xattr).
func (s *hangScene) withoutXattrs() int {
	s.Helper()
	fd, err := unix.Open("/proc/self/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { unix.Close(fd) })
	return fd
}

func newHangScene(t *testing.T) *hangScene {
	t.Helper()
	back, point := t.TempDir(), t.TempDir()
	for _, f := range []string{"f", "other"} {
		if err := os.WriteFile(filepath.Join(back, f), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(back, "d"), 0o755), unix.Setxattr(filepath.Join(back, "f"), "user.old", []byte("x"), 0)); err != nil {
		t.Fatal(err)
	}
	s := &hangScene{T: t, fs: hangfs.Mount(t, back, point)}
	s.reg = guard.NewRegistry(guard.Config{Opener: Opener{}, Deadline: 50 * time.Millisecond})
	if _, err := s.reg.Grant(t.Context(), guard.Grant{Root: "r", Dir: names.Foreign(point), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}}); err != nil {
		t.Fatal(err)
	}
	p, err := guard.NewPath("r", "")
	if err != nil {
		t.Fatal(err)
	}
	if s.lease, err = s.reg.Admit(t.Context(), guard.Request{Caller: guard.Caller{Via: guard.ViaFUSE}, Op: names.OpWrite, Path: p}); err != nil {
		t.Fatal(err)
	}
	s.detached, s.done = s.lease.Detach()
	s.dir = Root(s.lease)
	for name, w := range map[string]*Changeable{"f": &s.fd, "other": &s.other} {
		h, _, err := OpenFile(s.lease, s.dir, name, unix.O_RDWR)
		if err == nil {
			*w, err = h.Change(s.lease)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
	}
	if s.nameless, _, err = Tmpfile(s.lease, s.dir, unix.O_RDWR, 0o600, s.who); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.nameless.Close)
	s.fs.Changes()
	return s
}

// closeMade closes a file that a call has made.
func (s *hangScene) closeMade(w Changeable, _ Info, err error) error {
	w.Close()
	return err
}

// use runs f in a goroutine, and returns a channel that gets the error of f. f gets the lease of an
// operation that is answered before f returns (early), or the lease of an operation for which the
// revocation waits in vain.
func (s *hangScene) use(early bool, f func(l *guard.Lease) error) <-chan error {
	got := make(chan error, 1)
	l := s.lease
	if early {
		l = s.detached
	}
	go func() { got <- f(l) }()
	return got
}

// end revokes the root, and returns the error of the revocation. If early is set, end first answers
// the operation.
func (s *hangScene) end(early bool) error {
	if early {
		s.lease.Abandon()
		_ = s.lease.Done(0, &guard.Error{Kind: names.Revoked})
	}
	return second(s.reg.Revoke(s.Context(), "r"))
}

// bothWays lists the two fates of an operation that hangs when its root ends: it is answered
// early (true), or the revocation waits for it in vain.
var bothWays = map[string]bool{"answered early": true, "waited for in vain": false}

const pendingCallText = "1 call that changes the source has not returned and may still arrive"

// The error of a revocation reports a call that is still changing the source. After the revocation,
// no other call that changes the source begins, neither in the same function nor in the next one.
func TestNoChangeAfterHangingChange(t *testing.T) {
	for name, c := range changes {
		for way, early := range bothWays {
			t.Run(name+"/"+way, func(t *testing.T) {
				s := newHangScene(t)
				held := s.fs.Hold(c.request)
				next := s.use(early, func(l *guard.Lease) error {
					_ = c.call(s, l)
					return second(Mkdir(l, s.dir, "next", 0o700, s.who))
				})
				<-held.Entered
				err := s.end(early)
				if err == nil || !strings.Contains(err.Error(), pendingCallText) {
					t.Errorf("the revocation returned %v, want: %s", err, pendingCallText)
				}
				if !early && !strings.Contains(err.Error(), "still running") {
					t.Errorf("the error of the revocation does not report the operation: %v", err)
				}
				if got := s.fs.Changes(); !slices.Equal(got, []string{c.request}) {
					t.Errorf("before the revocation: %v", got)
				}
				held.Release()
				if err := <-next; !errors.Is(err, names.Revoked) {
					t.Errorf("the next change: %v, want %v", err, names.Revoked)
				}
				if got := s.fs.Changes(); len(got) > 0 {
					t.Errorf("changes after the revocation: %v", got)
				}
				s.done()
			})
		}
	}
}

// If an operation hangs in stat(2) until the root has ended, the operation does not begin a change
// afterwards.
func TestNoChangeAfterHangingStat(t *testing.T) {
	for name, c := range changes {
		for way, early := range bothWays {
			t.Run(name+"/"+way, func(t *testing.T) {
				s := newHangScene(t)
				held := s.fs.Hold("getattr")
				got := s.use(early, func(l *guard.Lease) error {
					if _, err := Stat(l, s.fd.FD()); err != nil {
						return err
					}
					return c.call(s, l)
				})
				<-held.Entered
				if err := s.end(early); early != (err == nil) || err != nil && strings.Contains(err.Error(), "may still arrive") {
					t.Errorf("the revocation returned %v", err)
				}
				held.Release()
				if err := <-got; !errors.Is(err, names.Revoked) {
					t.Errorf("after the revocation: %v, want %v", err, names.Revoked)
				}
				if got := s.fs.Changes(); len(got) > 0 {
					t.Errorf("changes after the revocation: %v", got)
				}
				s.done()
			})
		}
	}
}

// Functions that only open a file ignore flags that would change it.
func TestOpenChangesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	top, err := unix.Open(dir, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(top)
	h, _, err := OpenFile(nil, Dir{fd: top}, "f", unix.O_RDWR|unix.O_TRUNC)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	again, err := Reopen(h.FD(), unix.O_RDWR|unix.O_TRUNC)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(again)
	for _, flags := range []uint64{unix.O_RDWR | unix.O_CREAT, unix.O_RDWR | unix.O_TMPFILE} {
		if _, err := openPlain(Dir{fd: top}, "new", int(flags)); err != unix.ENOENT && err != unix.ENOTDIR { //nolint:errorlint // bare errno
			t.Errorf("open with %#x: %v", flags, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(got) != "text" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("the directory holds %v, %v", list, err)
	}
}
