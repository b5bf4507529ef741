package vfs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// shortOrSoak returns how often a loop runs, or how large a tree is: long with ROOTSFS_SOAK=1
// (make soak), short otherwise.
func shortOrSoak(short, long int) int {
	if os.Getenv("ROOTSFS_SOAK") != "" {
		return long
	}
	return short
}

// remoteOpener makes every source look like one of a network file system, so that operations
// run detached (each in a goroutine of its own).
type remoteOpener struct{ guard.Opener }

func (o remoteOpener) OpenRoot(path string) (guard.Source, error) {
	s, err := o.Opener.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return remoteSource{s}, nil
}

type remoteSource struct{ guard.Source }

func (remoteSource) Remote() bool { return true }

// bed is a tree over one root called "code".
type bed struct {
	testing.TB
	reg *guard.Registry
	t   *vfs.Tree
	rec *guardtest.Recorder
	src string
}

// patience is the deadline of a registry in tests where nothing hangs. On a busy machine an operation
// can take longer than guard.EndDeadline.
const patience = time.Minute

func newBed(t testing.TB, remote bool, p guard.Policy) *bed {
	t.Helper()
	b := &bed{TB: t, rec: &guardtest.Recorder{}, src: t.TempDir()}
	open := vfs.Opener()
	if remote {
		open = remoteOpener{open}
	}
	b.reg = guard.NewRegistry(guard.Config{Opener: open, Auditor: b.rec, Deadline: patience})
	b.t = vfs.New(b.reg)
	b.grant("code", "", p)
	return b
}

// both runs a test on a local source and on one that counts as remote.
func both(t *testing.T, f func(t *testing.T, b *bed)) {
	for name, remote := range map[string]bool{"local": false, "remote": true} {
		t.Run(name, func(t *testing.T) {
			before := openFDs(t)
			f(t, newBed(t, remote, guard.Policy{Rights: guard.ReadWrite}))
			noLeak(t, before, 2) // the root's own descriptor, and that of /proc/self/fd, which stays open
		})
	}
}

func (b *bed) grant(root, rel string, p guard.Policy) {
	b.Helper()
	if p.Rights == 0 {
		p.Rights = guard.ReadWrite
	}
	b.must(second(b.reg.Grant(bg, guard.Grant{Root: guard.RootName(root), Dir: names.Foreign(filepath.Join(b.src, rel)), Policy: p, Origin: "test"})))
}

func second[T any](_ T, err error) error { return err }

func (b *bed) must(err error) {
	b.Helper()
	testkit.Must(b, err)
}

func (b *bed) host(rel string) string { return filepath.Join(b.src, rel) }

func (b *bed) put(rel, text string) {
	b.Helper()
	b.must(os.MkdirAll(filepath.Dir(b.host(rel)), 0o755))
	b.must(os.WriteFile(b.host(rel), []byte(text), 0o644))
}

func (b *bed) at(rel string) vfs.At {
	b.Helper()
	p, err := guard.NewPath("code", rel)
	b.must(err)
	return vfs.At{Path: p}
}

// known returns a place with the identity of the file that lies there now.
func (b *bed) known(rel string) vfs.At {
	b.Helper()
	at := b.at(rel)
	info, err := b.t.Lstat(bg, who, at)
	b.must(err)
	at.ID = info.ID()
	return at
}

func (b *bed) open(rel string, flags int) *vfs.File {
	b.Helper()
	f, _, err := b.t.Open(bg, who, b.at(rel), flags)
	b.must(err)
	return f
}

// readRange is ReadChunk into buf.
func (b *bed) readRange(p guard.Path, off int64, buf []byte, ifMatch string) (int, vfs.Info, error) {
	got, info, err := b.t.ReadChunk(bg, who, p, off, int64(len(buf)), ifMatch, func(n int64) ([]byte, error) { return make([]byte, n), nil })
	return copy(buf, got), info, err
}

func (b *bed) contents(rel, want string) {
	b.Helper()
	if got, err := os.ReadFile(b.host(rel)); err != nil || string(got) != want {
		b.Errorf("%s holds %q, %v; want %q", rel, got, err, want)
	}
}

func (b *bed) wantKind(err error, k guard.Kind) {
	b.Helper()
	if k == 0 && err != nil || k != 0 && !errors.Is(err, k) {
		b.Errorf("%v (%v), want %v", err, names.Reason(err), k)
	}
}

func (b *bed) wantErrno(err error, want unix.Errno) {
	b.Helper()
	if got := names.Errno(err); got != want {
		b.Errorf("%v (%d), want %v", err, int(got), want)
	}
}

func (b *bed) write(f *vfs.File, text string, off int64) error {
	return second(f.WriteAt(bg, who, [][]byte{[]byte(text)}, off, vfs.WriteAtOptions{}))
}

func (b *bed) revoke(root string) {
	b.Helper()
	b.must(second(b.reg.Revoke(context.Background(), guard.RootName(root))))
}

// openFDs counts this process's descriptors.
func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// noLeak checks that at most before+extra descriptors are open. The descriptors of an ended root
// are closed a little later, so noLeak waits for them to be closed.
func noLeak(t testing.TB, before, extra int) {
	t.Helper()
	now := 0
	if !testkit.Eventually(func() bool { now = openFDs(t); return now <= before+extra }) {
		var open []string
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			open = append(open, e.Name()+" "+to)
		}
		t.Errorf("%d descriptors were open before, %d are now: %q", before, now, open)
	}
}
