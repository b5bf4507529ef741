package guard_test

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

var (
	bg  = context.Background()
	who = guard.Caller{Via: guard.ViaFiles, UID: 7, PID: 8}
)

// fakeOpener opens any path without a file system, for tests of the registry's own state. Paths
// in absent do not open.
type fakeOpener struct {
	mu       sync.Mutex // guards the fields below, except at and stageErr
	opened   []string
	closed   int
	absent   map[string]bool
	at       map[string]string // locations, by path
	vanished map[string]bool   // Check fails
	checkErr error             // what every Check returns, unless nil
	stageErr error             // what every Stage returns, unless nil
}

func (o *fakeOpener) OpenRoot(path string) (guard.Source, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.opened = append(o.opened, path)
	if o.absent[path] {
		return nil, &guard.Error{Kind: names.NotExist, Err: errors.New("it does not exist")}
	}
	return &fakeSource{o, path}, nil
}

type fakeSource struct {
	o    *fakeOpener
	path string
}

func (o *fakeOpener) Trace(path string) (string, []rules.Link, error) { return path, nil, nil }
func (o *fakeOpener) LocationOf(string) string                        { return "" }
func (o *fakeOpener) Stage(src guard.Source, g *guard.Grant) (guard.Source, error) {
	if o.stageErr != nil {
		return nil, o.stageErr
	}
	if g.Store == "" {
		g.Store = "/stages/" + string(g.Root)
	}
	return &stagedSource{src, guard.StageStatus{Store: g.Store}}, nil
}

// stagedSource is a fake source that is staged.
type stagedSource struct {
	guard.Source
	status guard.StageStatus
}

func (s *stagedSource) Staged() guard.StageStatus { return s.status }

var errCannotLook = errors.New("the source cannot be asked")

func (s *fakeSource) Free() (int64, error)       { return 0, errCannotLook }
func (s *fakeSource) CheckTrash() error          { return nil }
func (s *fakeSource) Location() string           { return s.o.at[s.path] }
func (s *fakeSource) Links() []rules.Link        { return nil }
func (s *fakeSource) LiesIn(rules.Identity) bool { return false }
func (s *fakeSource) Naming() rules.Naming       { return rules.ExactNames }
func (s *fakeSource) FoldsAt(string, bool) bool  { return true }
func (s *fakeSource) Look(string, bool) (rules.LookResult, error) {
	return rules.LookResult{}, errCannotLook
}
func (s *fakeSource) Head(string, int, bool) ([]byte, error) { return nil, errCannotLook }
func (s *fakeSource) Ignores(func(rules.Ignore), func(string) bool) error {
	return errCannotLook
}

func (s *fakeSource) FD() int { return -1 }
func (s *fakeSource) ID() rules.Identity {
	h := fnv.New64()
	_, _ = h.Write([]byte(s.path))
	return rules.Identity{Dev: 1, Ino: h.Sum64()}
}
func (s *fakeSource) Resolved() string { return s.path }
func (s *fakeSource) File() string     { return "" }
func (s *fakeSource) FSType() string   { return "fake" }
func (s *fakeSource) Remote() bool     { return false }
func (s *fakeSource) Check() error {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	if s.o.checkErr != nil {
		return s.o.checkErr
	}
	if s.o.vanished[s.path] {
		return &guard.Error{Kind: names.Unavailable}
	}
	return nil
}
func (s *fakeSource) Close() error {
	s.o.mu.Lock()
	s.o.closed++
	s.o.mu.Unlock()
	return nil
}

// setup has a registry over fake sources, with a recorder.
type setup struct {
	*guard.Registry
	rec    *guardtest.Recorder
	open   *fakeOpener
	mu     sync.Mutex // guards the field below
	events []guard.Event
}

func newSetup(_ testing.TB, change func(*guard.Config)) *setup {
	s := &setup{rec: &guardtest.Recorder{}, open: &fakeOpener{absent: map[string]bool{}, vanished: map[string]bool{}}}
	cfg := guard.Config{Opener: s.open, Auditor: s.rec, Observe: func(e guard.Event) {
		s.mu.Lock()
		s.events = append(s.events, e)
		s.mu.Unlock()
	}}
	if change != nil {
		change(&cfg)
	}
	s.Registry = guard.NewRegistry(cfg)
	return s
}

// countEvents returns how many events of a kind there were.
func (s *setup) countEvents(k guard.EventKind) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

func (s *setup) grant(t testing.TB, name, dir string, p guard.Policy) {
	t.Helper()
	if p.Rights == 0 {
		p.Rights = guard.ReadWrite
	}
	if _, err := s.Grant(bg, guard.Grant{Root: guard.RootName(name), Dir: names.Foreign(dir), Policy: p, Origin: "test"}); err != nil {
		t.Fatal(err)
	}
}

// vanish makes Check report that the directory of a root has vanished, and rechecks the root, which
// ends the root.
func (s *setup) vanish(name guard.RootName, dir string) error {
	s.open.mu.Lock()
	s.open.vanished[dir] = true
	s.open.mu.Unlock()
	return s.Recheck(bg, name)
}

func path(t testing.TB, root, rel string) guard.Path {
	t.Helper()
	p, err := guard.NewPath(guard.RootName(root), rel)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// req returns a request for an operation on root "r".
func req(t testing.TB, op guard.Op) guard.Request {
	return guard.Request{Caller: who, Op: op, Path: path(t, "r", "a")}
}

// once admits a request and ends it at once, with n bytes.
func (s *setup) once(r guard.Request, n int64) error {
	l, err := s.Admit(bg, r)
	if err != nil {
		return err
	}
	return l.Done(n, nil)
}

func wantKind(t testing.TB, err error, k guard.Kind) {
	t.Helper()
	if k == 0 && err == nil {
		return
	}
	if k == 0 || !errors.Is(err, k) {
		t.Errorf("error %v (%v), want %v", err, names.Reason(err), k)
	}
}

// view lists its calls in order. A test can add other events to the list with note.
type view struct {
	mu    sync.Mutex // guards calls
	calls []string
	// onFlush and onInvalidate, unless nil, are called inside Flush and Invalidate.
	onFlush, onInvalidate func(c guard.Change)
	object                error // of Object
}

func (v *view) note(s string) {
	v.mu.Lock()
	v.calls = append(v.calls, s)
	v.mu.Unlock()
}

func (v *view) all() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.calls)
}

func (v *view) Flush(_ context.Context, c guard.Change) error {
	v.note("flush")
	if v.onFlush != nil {
		v.onFlush(c)
	}
	return nil
}

func (v *view) Invalidate(_ context.Context, c guard.Change) error {
	v.note([]string{"", "ended", "narrowed", "widened", "added", "paused"}[c.Kind])
	if v.onInvalidate != nil {
		v.onInvalidate(c)
	}
	return nil
}

func (v *view) Object(*guard.Policy, guard.Policy) error { return v.object }
