package session

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

func TestMain(m *testing.M) { os.Exit(childfs.Main(m)) }

// newOptions returns options of a session with its own directories, which lie in work.
func newOptions(t *testing.T, roots ...string) (opt Options, work string) {
	t.Helper()
	if err := mountpoint.CheckFUSE(); err != nil {
		t.Skip("a real mount is needed: ", err)
	}
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct{ name, dir string }{
		{"XDG_RUNTIME_DIR", "run"}, {"XDG_STATE_HOME", "state"}, {"XDG_CONFIG_HOME", "config"}, {"", "mnt"},
	} {
		dir := filepath.Join(work, v.dir)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if v.name != "" {
			t.Setenv(v.name, dir)
		}
	}
	opt = Options{
		Mount:  mount.Options{Point: filepath.Join(work, "mnt")},
		Logger: func(string) (*slog.Logger, error) { return slog.New(slog.DiscardHandler), nil },
	}
	for _, r := range roots {
		dir := filepath.Join(work, r)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		opt.Roots = append(opt.Roots, guard.Grant{Root: guard.RootName(r), Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}})
	}
	return opt, work
}

// start begins a session in directories of its own and ends it with the test.
func start(t *testing.T, roots ...string) (*Session, string) {
	t.Helper()
	opt, work := newOptions(t, roots...)
	s, err := Start(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	stop := make(chan struct{})
	go func() { ended <- s.Run(stop) }()
	t.Cleanup(func() {
		close(stop)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, work
}

// A session that cannot begin leaves nothing behind: no mount, no session, no audit file. It may
// fail early, or only at the mount or the audit log.
func TestStartLeavesNothing(t *testing.T) {
	no := errors.New("no")
	for name, change := range map[string]func(o *Options, work string){
		"without a log":  func(o *Options, _ string) { o.Logger = func(string) (*slog.Logger, error) { return nil, no } },
		"without a root": func(o *Options, work string) { o.Roots[0].Dir = names.Foreign(filepath.Join(work, "none")) },
		"without a mountpoint": func(o *Options, _ string) {
			logger, point := o.Logger, o.Mount.Point
			o.Logger = func(name string) (*slog.Logger, error) { // called after the mountpoint was checked
				if err := os.Remove(point); err != nil {
					t.Error(err)
				}
				return logger(name)
			}
		},
		"without an audit log": func(_ *Options, work string) { // its directory cannot be made
			if err := os.WriteFile(filepath.Join(work, "state/rootsfs"), nil, 0o600); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			opt, work := newOptions(t, "r")
			change(&opt, work)
			if s, err := Start(context.Background(), opt); err == nil {
				s.end("the test")
				t.Fatal("it began")
			}
			if table, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(table), work) {
				t.Errorf("a mount is left, %v", err)
			}
			err := filepath.WalkDir(work, func(p string, d os.DirEntry, err error) error {
				made := p == filepath.Join(work, "state/rootsfs") // the test has made it
				if err == nil && !made && (!d.IsDir() || filepath.Dir(p) == filepath.Join(work, "run/rootsfs")) {
					t.Errorf("%s is left", p)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// R149: while thousands of roots are added, the registry answers calls. R148: the addition is one
// transaction.
func TestManyRootsDoNotBlock_R149(t *testing.T) {
	const many = 10_000
	s, work := start(t, "first")
	asks := make([]guard.Grant, many)
	for i := range asks {
		dir := filepath.Join(work, "many", strconv.Itoa(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		// With patterns in each root the race detector would need gigabytes.
		asks[i] = guard.Grant{Root: guard.RootName("r" + strconv.Itoa(i)), Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadOnly, Patterns: guard.Patterns{NoDefaults: true}}}
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.addRoots(context.Background(), control.AddRequest{Roots: asks})
		done <- err
	}()
	calls := 0
	for {
		n := len(s.Registry().Roots())
		if n != 1 && n != many+1 {
			t.Fatalf("%d roots: half a transaction is visible", n)
		}
		if _, err := s.Registry().Parse("", filepath.Join(work, "first", "x")); err != nil {
			t.Fatal("the first root is not there")
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			if calls == 0 {
				t.Error("no call was answered while the roots were added")
			}
			if n := len(s.state().Roots); n != many+1 {
				t.Errorf("%d roots, want %d", n, many+1)
			}
			// The end of the roots is not tested. Without the view, ending them does not wait for
			// the mount.
			s.Registry().RemoveView(s.mnt)
			return
		default:
			calls++
		}
	}
}

// R155: changes that a caller makes to the list of roots do not affect the session.
func TestStatusIsACopy_R155(t *testing.T) {
	s, _ := start(t, "a", "b")
	st := s.state()
	st.Roots[0].Name, st.Roots[0].Mode = "changed", "rw"
	st.Roots = st.Roots[:1]
	if got := s.state().Roots; len(got) != 2 || got[0].Name != "a" || got[0].Mode != "ro" {
		t.Errorf("%+v", got)
	}
}

// Requests over the socket are checked like the command line.
func TestAddChecks(t *testing.T) {
	s, work := start(t)
	for _, tt := range []struct {
		name string
		ask  guard.Grant
		want string
	}{
		{"relative path", guard.Grant{Root: "a", Dir: "a", Policy: guard.Policy{Rights: guard.ReadOnly}}, "is not absolute"},
		{"NUL", guard.Grant{Root: "a", Dir: "/a\x00b", Policy: guard.Policy{Rights: guard.ReadOnly}}, "is not absolute"},
		{"no mode", guard.Grant{Root: "a", Dir: names.Foreign(work)}, "unknown mode"},
		{"bad name", guard.Grant{Root: "a/b", Dir: names.Foreign(work), Policy: guard.Policy{Rights: guard.ReadOnly}}, "root name"},
		{"negative limit", guard.Grant{Root: "a", Dir: names.Foreign(work), Policy: guard.Policy{Rights: guard.ReadOnly, Limits: guard.Limits{MaxFile: -1}}}, "negative"},
		{"contains the mountpoint", guard.Grant{Root: "a", Dir: names.Foreign(work), Policy: guard.Policy{Rights: guard.ReadOnly}}, "contains the mountpoint"},
		{"audit directory", guard.Grant{Root: "a", Dir: names.Foreign(filepath.Join(work, "state", "rootsfs", "audit")), Policy: guard.Policy{Rights: guard.ReadOnly}}, "lies inside the directory of audit files"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := s.addRoots(context.Background(), control.AddRequest{Roots: []guard.Grant{tt.ask}}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	if _, err := s.addRoots(context.Background(), control.AddRequest{}); !errors.Is(err, names.Invalid) {
		t.Errorf("no roots: %v", err)
	}
	if n := len(s.Registry().Roots()); n != 0 {
		t.Errorf("%d roots", n)
	}
}

// A session that is ending accepts no roots.
func TestNoRootsAfterTheEnd(t *testing.T) {
	s, work := start(t, "a")
	if _, err := s.endByOwner(context.Background(), control.None{}); err != nil {
		t.Fatal(err)
	}
	_, err := s.addRoots(context.Background(), control.AddRequest{Roots: []guard.Grant{{Root: "b", Dir: names.Foreign(filepath.Join(work, "a")), Policy: guard.Policy{Rights: guard.ReadOnly}}}})
	if !errors.Is(err, errEnding) {
		t.Errorf("add: %v", err)
	}
	if _, err := s.setMode(context.Background(), control.SetRequest{Name: "a", Mode: "rw"}); !errors.Is(err, errEnding) {
		t.Errorf("set: %v", err)
	}
	if n := len(s.Registry().Roots()); n != 0 {
		t.Errorf("%d roots are left", n)
	}
}

// A root that is granted while the session ends is revoked: the ending may have listed the roots
// before the grant.
func TestGrantIsOvertakenByTheEnd(t *testing.T) {
	s, work := start(t, "a")
	s.opt.Observe = func(e guard.Event) {
		if e.Kind == guard.EventAdded {
			go s.end("overtakes the grant")
			<-s.ending.Done()
		}
	}
	_, err := s.addRoots(context.Background(), control.AddRequest{Roots: []guard.Grant{{Root: "b", Dir: names.Foreign(filepath.Join(work, "a")), Policy: guard.Policy{Rights: guard.ReadOnly}, Subject: "v"}}})
	if !errors.Is(err, errEnding) {
		t.Errorf("granted during the ending: %v", err)
	}
	if st, ok := s.Registry().Lookup("b"); ok {
		t.Errorf("it is there when the request is answered: %+v", st)
	}
}

// Roots that did not end are reported, even if others ended.
func TestIncompleteRevocationIsReported(t *testing.T) {
	ended := endings([]guard.Ended{
		{Root: "a", State: guard.RevokedState},
		{Root: "b", State: guard.RevokedState, Err: errors.New("one page is left")},
		{Root: "c", State: guard.Live},
	})
	if ended[0].Error != "" || ended[1].Error != "one page is left" || ended[2].Error == "" {
		t.Errorf("%+v", ended)
	}
	if err := incomplete("root", ended[:1]); err != nil {
		t.Error(err)
	}
	if err := incomplete("root", ended[:2]); err == nil || err.Error() != "root b: one page is left" {
		t.Error(err)
	}
	if err := incomplete("root", ended); err == nil || !strings.HasPrefix(err.Error(), "2 of 3 roots: not everything could be taken back; root b: ") {
		t.Error(err)
	}
	s := &Session{opt: Options{Network: failingNetwork{}}}
	if err := incomplete("", s.cutNetwork()); err == nil || err.Error() != "network: it hangs" {
		t.Error(err)
	}
}

// failingNetwork is a network that cannot be taken back.
type failingNetwork struct{ Network }

func (failingNetwork) Remove([]string) ([]string, int, error) { return nil, 0, errors.New("it hangs") }
