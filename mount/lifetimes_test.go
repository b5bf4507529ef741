package mount

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/vfs"
)

// stops blocks requests at the steps of Options.atStep.
type stops struct {
	mu  sync.Mutex // guards the field below
	set map[stopAt]*pause
}

type stopAt struct {
	step step
	root guard.RootName
}

// pause is a step at which one request waits. reached is closed when the request has come to
// the step, and the request continues when resume is closed.
type pause struct {
	reached, resume chan struct{}
}

// next makes a request wait at a step: the next request about the root that comes to this step.
func (s *stops) next(t *testing.T, at step, root guard.RootName) *pause {
	p := &pause{reached: make(chan struct{}), resume: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set = map[stopAt]*pause{}
	}
	s.set[stopAt{at, root}] = p
	t.Cleanup(p.goOn)
	return p
}

// goOn lets the request continue. goOn may be called more than once.
func (p *pause) goOn() {
	select {
	case <-p.resume:
	default:
		close(p.resume)
	}
}

func (s *stops) atStep(at step, root guard.RootName) {
	s.mu.Lock()
	p := s.set[stopAt{at, root}]
	delete(s.set, stopAt{at, root})
	s.mu.Unlock()
	if p != nil {
		close(p.reached)
		<-p.resume
	}
}

// await waits until the request waits at the step. It fails the test if the request is answered
// before.
func await[T any](t *testing.T, held *pause, answered <-chan T) {
	t.Helper()
	select {
	case <-held.reached:
	case got := <-answered:
		t.Fatalf("the request was answered before it came to the step: %v", got)
	}
}

// begin runs f concurrently with the test.
func begin[T any](f func() T) <-chan T {
	done := make(chan T, 1)
	go func() { done <- f() }()
	return done
}

// viewLookups are requests that look up the view of a root without the lock of a directory, so
// that other requests run at the same time. The kernel revalidates a name, or asks for the
// attributes of a fixed directory.
var viewLookups = []struct {
	name   string
	level  Level
	layout Layout
	file   string // the name of the file, if the root is one file
	at     string // the path of the request, below the mountpoint
}{
	{name: "name of a root that is one file", level: Audit, file: "f", at: "code"},
	{name: "name of a root at level strict", level: Strict, at: "code"},
	{name: "fixed directory", level: Strict, layout: Layout{ByPath: true, Spare: 1}, at: SparePath(0)},
}

// R070: a request may learn the present lifetime of a root, and continue after the root was
// revoked and granted again. Such a request does not affect the new lifetime: the next revocation
// ends everything that was given out in the new lifetime.
func TestRevokeAfterALateLookup(t *testing.T) {
	for _, c := range viewLookups {
		t.Run(c.name, func(t *testing.T) {
			var held stops
			var grant guard.Grant
			m := newTestMount(t, guard.ReadWrite, func(o *Options, g *guard.Grant) {
				testkit.Must(t, os.WriteFile(filepath.Join(g.Dir.Raw(), "f"), []byte("text"), 0o644))
				g.Dir = names.Foreign(filepath.Join(g.Dir.Raw(), c.file))
				o.Level, o.Layout, o.atStep = c.level, c.layout, held.atStep
				grant = *g
			})
			if c.layout.Spare > 0 {
				testkit.Must(t, m.Show(0, "code"))
			}
			at := filepath.Join(m.Point(), c.at)
			testkit.Must(t, second(childfs.Stat(at)))

			lookup := held.next(t, viewLookup, "code")
			late := begin(func() error { return second(childfs.Stat(at)) })
			await(t, lookup, late)
			testkit.Must(t, second(m.reg.Revoke(context.Background(), "code")))
			testkit.Must(t, second(m.reg.Grant(context.Background(), grant)))
			name := at
			if c.file == "" {
				name = filepath.Join(at, "f")
			}
			f, err := childfs.OpenFile(name, os.O_RDWR, 0)
			testkit.Must(t, err)
			defer f.Close()
			page := mapFile(t, f, 4, unix.PROT_READ|unix.PROT_WRITE)
			testkit.Must(t, page.load())
			lookup.goOn()
			t.Log("the late request:", <-late)
			testkit.Must(t, page.store("kept"))
			after, err := childfs.Open(name)
			testkit.Must(t, err)
			defer after.Close()
			pageAfter := mapFile(t, after, 4, unix.PROT_READ)
			testkit.Must(t, pageAfter.load())

			testkit.Must(t, second(m.reg.Revoke(context.Background(), "code")))
			if page.load() == nil {
				t.Error("the mapping can be read")
			}
			if pageAfter.load() == nil {
				t.Error("the mapping made after the late request can be read")
			}
			if n, err := f.ReadAt(make([]byte, 4), 0); err == nil {
				t.Errorf("the open file gives %d bytes", n)
			}
			if got := contents(filepath.Join(m.src, "f")); got != "kept" {
				t.Errorf("the source has %q: what was stored before the revocation is lost", got)
			}
		})
	}
}

// R070: if a root is granted again while its revocation waits for an operation, the two
// lifetimes are not confused. When the revocation returns, everything that was given out before
// is dead, and the new lifetime works.
func TestGrantAgainDuringARevocation(t *testing.T) {
	var grant guard.Grant
	m := newTestMount(t, guard.ReadWrite, func(_ *Options, g *guard.Grant) { grant = *g })
	testkit.Must(t, os.WriteFile(filepath.Join(m.src, "f"), []byte("text"), 0o644))
	name := filepath.Join(m.root, "f")
	f, err := childfs.Open(name)
	testkit.Must(t, err)
	defer f.Close()
	page := mapFile(t, f, 4, unix.PROT_READ)
	testkit.Must(t, page.load())

	path, err := guard.NewPath("code", "f")
	testkit.Must(t, err)
	lease, err := m.reg.Admit(context.Background(), guard.Request{Caller: guard.Caller{Via: guard.ViaFiles}, Op: names.OpRead, Path: path})
	testkit.Must(t, err)
	revoked := begin(func() error { return second(m.reg.Revoke(context.Background(), "code")) })
	<-lease.Hold().Dead()
	testkit.Must(t, second(m.reg.Grant(context.Background(), grant)))
	testkit.Must(t, second(childfs.Stat(name)))
	_ = lease.Done(0, nil)
	t.Log("the revocation:", <-revoked)
	if page.load() == nil {
		t.Error("the mapping can be read")
	}
	if got := contents(name); got != "text" {
		t.Errorf("the new lifetime reads %q", got)
	}
}

// R070: a mount is registered as a view before its first request, which may come before New
// returns. So the registry asks the mount before it grants a root.
func TestMountIsAViewFromItsFirstRequest(t *testing.T) {
	if err := mountpoint.CheckFUSE(); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	src, point := t.TempDir(), t.TempDir()
	granted := make(chan error, 1)
	var first sync.Once
	missing := func(string) {
		first.Do(func() {
			granted <- second(reg.Grant(context.Background(), guard.Grant{
				Root: "code", Dir: names.Foreign(src), Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"}))
		})
	}
	mounted := begin(func() *Mount {
		m, err := New(reg, Options{Point: point, ReadOnly: true, Layout: Layout{ByPath: true, Missing: missing}})
		if err != nil {
			t.Error(err)
		}
		return m
	})
	for len(granted) == 0 && !t.Failed() {
		_ = second(childfs.Stat(filepath.Join(point, "missing")))
	}
	if m := <-mounted; m != nil {
		if <-granted == nil {
			t.Error("a root was granted for writing, and the mount, which is read-only, was not asked")
		}
		testkit.Must(t, m.Close())
		<-m.Served()
	}
}
