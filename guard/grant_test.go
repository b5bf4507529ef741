package guard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// R108, R114, R156, R157: only an existing directory or regular file that can
// be read becomes a root, and a failure while finding out is a refusal.
func TestGrantValidation(t *testing.T) {
	dir := t.TempDir()
	file, loop, dangling := filepath.Join(dir, "f"), filepath.Join(dir, "loop"), filepath.Join(dir, "dangling")
	for _, err := range []error{os.WriteFile(file, nil, 0o644), os.Symlink(loop, loop), os.Symlink("nothing", dangling)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-time.Second)
	for _, c := range []struct {
		name string
		ask  guard.Grant
		want guard.Kind
	}{
		{"directory", guard.Grant{Root: "r", Dir: dir, Policy: guard.Policy{Rights: guard.Read}}, 0},
		{"file", guard.Grant{Root: "r", Dir: file, Policy: guard.Policy{Rights: guard.Read}}, 0},
		{"absent", guard.Grant{Root: "r", Dir: dir + "/none", Policy: guard.Policy{Rights: guard.Read}}, names.NotExist},
		{"below a file", guard.Grant{Root: "r", Dir: file + "/x", Policy: guard.Policy{Rights: guard.Read}}, names.NotDir},
		{"loop", guard.Grant{Root: "r", Dir: loop, Policy: guard.Policy{Rights: guard.Read}}, names.Invalid},
		{"dangling", guard.Grant{Root: "r", Dir: dangling, Policy: guard.Policy{Rights: guard.Read}}, names.NotExist},
		{"device", guard.Grant{Root: "r", Dir: "/dev/null", Policy: guard.Policy{Rights: guard.Read}}, names.Invalid},
		{"kernel interface", guard.Grant{Root: "r", Dir: "/proc/self", Policy: guard.Policy{Rights: guard.Read}}, names.Permission},
		{"too long", guard.Grant{Root: "r", Dir: "/" + string(make([]byte, 0)) + longPath(), Policy: guard.Policy{Rights: guard.Read}}, names.TooLong},
		{"no name", guard.Grant{Dir: dir, Policy: guard.Policy{Rights: guard.Read}}, names.Invalid},
		{"bad name", guard.Grant{Root: "a/b", Dir: dir, Policy: guard.Policy{Rights: guard.Read}}, names.Invalid},
		{"no rights", guard.Grant{Root: "r", Dir: dir}, names.Invalid},
		{"unknown right", guard.Grant{Root: "r", Dir: dir, Policy: guard.Policy{Rights: 1 << 14}}, names.Invalid},
		{"expired", guard.Grant{Root: "r", Dir: dir, Policy: guard.Policy{Rights: guard.Read}, Expires: past}, names.Invalid},
	} {
		s := newSetup(t, func(cfg *guard.Config) { cfg.Opener = vfs.Opener() })
		c.ask.Origin = "test"
		_, err := s.Grant(bg, c.ask)
		if (c.want == 0) != (err == nil) || c.want != 0 && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		recs := s.rec.Of(names.OpGrant)
		if len(recs) != 1 || (recs[0].Verdict == guard.Allowed) != (err == nil) {
			t.Errorf("%s: records %+v", c.name, recs) // R082, R084, R145
		}
		if got := len(s.Roots()); (got == 1) != (c.want == 0) {
			t.Errorf("%s: %d roots", c.name, got)
		}
	}
}

func longPath() string {
	s := ""
	for len(s) < 5000 {
		s += "directory/"
	}
	return s
}

// A link in a root's own path is resolved once, and what it led to is shown.
func TestGrantResolvesOnce(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(real, 0o755), os.Symlink(real, link)); err != nil {
		t.Fatal(err)
	}
	s := newSetup(t, func(c *guard.Config) { c.Opener = vfs.Opener() })
	got, err := s.Grant(bg, guard.Grant{Root: "r", Dir: link, Policy: guard.Policy{Rights: guard.Read}, Origin: "test"})
	if want, _ := filepath.EvalSymlinks(real); err != nil || got.Resolved != want || got.Dir != link {
		t.Errorf("%+v, %v", got, err)
	}
}

// R148: a transaction adds all of its roots or none, and leaves nothing open.
func TestGrantAllOrNone(t *testing.T) {
	ask := func(list ...string) (asks []guard.Grant) {
		for i, d := range list {
			asks = append(asks, guard.Grant{Root: guard.RootName(fmt.Sprint("r", i)), Dir: d, Policy: guard.Policy{Rights: guard.Read}, Origin: "test"})
		}
		return asks
	}
	for _, c := range []struct {
		name string
		asks []guard.Grant
		ok   bool
	}{
		{"three", ask("/a", "/b", "/c"), true},
		{"absent last", ask("/a", "/b", "/absent"), false},
		{"same directory twice", ask("/a", "/b", "/a"), false},
		{"same name twice", append(ask("/a"), ask("/b")...), false},
		{"taken by an older one", ask("/a", "/old"), false},
	} {
		s := newSetup(t, nil)
		s.grant(t, "old", "/old", guard.Policy{})
		s.open.absent["/absent"] = true
		version := s.Version()
		got, err := s.GrantAll(bg, c.asks)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if c.ok {
			if len(got) != 3 || s.Version() != version+1 || s.seen(guard.EventAdded) != 4 {
				t.Errorf("%s: %d grants, %d snapshots, %d events", c.name, len(got), s.Version()-version, s.seen(guard.EventAdded))
			}
			continue
		}
		if len(s.Roots()) != 1 || s.Version() != version || s.seen(guard.EventAdded) != 1 {
			t.Errorf("%s: something of it stayed: %d roots", c.name, len(s.Roots()))
		}
		if opened := len(s.open.opened) - 1 - btoi(c.name == "absent last"); s.open.closed != opened {
			t.Errorf("%s: %d opened, %d closed", c.name, opened, s.open.closed)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A grant whose record the audit does not take is no grant (R084).
func TestGrantNeedsItsRecord(t *testing.T) {
	s := newSetup(t, nil)
	s.rec.Fail(errors.New("full"))
	if _, err := s.Grant(bg, guard.Grant{Root: "r", Dir: "/a", Policy: guard.Policy{Rights: guard.Read}, Origin: "test"}); err == nil {
		t.Error("granted without a record")
	}
	s.rec.Fail(nil)
	if len(s.Roots()) != 0 {
		t.Error("the root stayed")
	}
}

type approver func(guard.Grant) (guard.Grant, error)

func (a approver) Approve(_ context.Context, ask guard.Grant) (guard.Grant, error) { return a(ask) }

// R067, R115: who asks is told no unless the approver says yes, and the
// approver may narrow only.
func TestApproverMayOnlyNarrow(t *testing.T) {
	ask := guard.Grant{Root: "r", Dir: "/a", Subject: "srv", Expires: time.Now().Add(time.Hour), Policy: guard.Policy{
		Rights: guard.Read | guard.Write, Hide: []guard.Pattern{".ssh"}, Limits: guard.Limits{MaxFile: 10, OpsPerSecond: 5},
	}}
	for _, c := range []struct {
		name   string
		change func(*guard.Grant)
		ok     bool
	}{
		{"as asked", func(*guard.Grant) {}, true},
		{"fewer rights", func(g *guard.Grant) { g.Policy.Rights = guard.Read }, true},
		{"sooner end", func(g *guard.Grant) { g.Expires = time.Now().Add(time.Minute) }, true},
		{"lower limit", func(g *guard.Grant) { g.Policy.Limits.MaxFile = 5 }, true},
		{"more patterns", func(g *guard.Grant) { g.Policy.Hide = []guard.Pattern{".ssh", ".git"} }, true},
		{"no rights", func(g *guard.Grant) { g.Policy.Rights = 0 }, false},
		{"more rights", func(g *guard.Grant) { g.Policy.Rights = guard.ReadWrite }, false},
		{"another directory", func(g *guard.Grant) { g.Resolved = "/" }, false},
		{"another name", func(g *guard.Grant) { g.Root = "code" }, false},
		{"another subject", func(g *guard.Grant) { g.Subject = "" }, false},
		{"later end", func(g *guard.Grant) { g.Expires = time.Time{} }, false},
		{"higher limit", func(g *guard.Grant) { g.Policy.Limits.MaxFile = 11 }, false},
		{"no limit", func(g *guard.Grant) { g.Policy.Limits.OpsPerSecond = 0 }, false},
		{"fewer patterns", func(g *guard.Grant) { g.Policy.Hide = nil }, false},
		{"other file systems", func(g *guard.Grant) { g.Policy.OtherFileSystems = true }, false},
		{"full POSIX", func(g *guard.Grant) { g.Policy.PosixFull = true }, false},
	} {
		s := newSetup(t, func(cfg *guard.Config) {
			cfg.Approver = approver(func(g guard.Grant) (guard.Grant, error) { c.change(&g); return g, nil })
		})
		_, err := s.Grant(bg, ask)
		if c.ok {
			wantKind(t, err, 0)
		} else if !errors.Is(err, names.NoConsent) {
			t.Errorf("%s: %v, want NoConsent", c.name, err)
		}
	}
	no := &guard.Error{Kind: names.NoConsent}
	s := newSetup(t, func(cfg *guard.Config) {
		cfg.Approver = approver(func(guard.Grant) (guard.Grant, error) { return guard.Grant{}, no })
	})
	_, err := s.Grant(bg, ask)
	wantKind(t, err, names.NoConsent)
	if len(s.Roots()) != 0 || s.open.closed != 1 {
		t.Errorf("denied: %d roots, %d closed", len(s.Roots()), s.open.closed)
	}
}

// R155: what Roots returns is the caller's own.
func TestRootsReturnsCopies(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{Rights: guard.Read})
	list := s.Roots()
	list[0].Grant.Root, list[0].Grant.Policy.Rights, list[0].State = "evil", guard.ReadWrite, guard.RevokedState
	again := s.Roots()
	if again[0].Grant.Root != "r" || again[0].Grant.Policy.Rights != guard.Read || again[0].State != guard.Live {
		t.Errorf("the registry changed: %+v", again[0])
	}
	wantKind(t, s.once(guard.Request{Caller: who, Op: names.OpMkdir, Path: path(t, "r", "a")}, 0), names.ReadOnly)
}

// A view that cannot carry a policy has the last word before it takes effect.
func TestObjection(t *testing.T) {
	s := newSetup(t, nil)
	v := &view{object: &guard.Error{Kind: names.Invalid}}
	s.AddView(v)
	_, err := s.Grant(bg, guard.Grant{Root: "r", Dir: "/a", Policy: guard.Policy{Rights: guard.Read}, Origin: "test"})
	wantKind(t, err, names.Invalid)
	v.object = nil
	s.grant(t, "r", "/a", guard.Policy{Rights: guard.Read})
	v.object = &guard.Error{Kind: names.Invalid}
	wantKind(t, s.Set(bg, "r", guard.ReadWrite), names.Invalid)
	s.RemoveView(v)
	wantKind(t, s.Set(bg, "r", guard.ReadWrite), 0)
}

// R149: thousands of roots do not slow the ones in use: an operation among
// 10,000 roots allocates as little as among one.
func TestManyRoots(t *testing.T) {
	s := newSetup(t, nil)
	var asks []guard.Grant
	for i := range 10_000 {
		asks = append(asks, guard.Grant{Root: guard.RootName(fmt.Sprint("r", i)), Dir: fmt.Sprintf("/roots/%d/%d", i%100, i),
			Policy: guard.Policy{Rights: guard.ReadOnly}, Origin: "test"})
	}
	one := newSetup(t, nil)
	one.grant(t, "r5000", "/roots/0/5000", guard.Policy{Rights: guard.ReadOnly})
	if _, err := s.GrantAll(bg, asks); err != nil {
		t.Fatal(err)
	}
	r := guard.Request{Caller: who, Op: names.OpGetattr, Path: path(t, "r5000", "a")}
	cost := func(s *setup) float64 {
		return testing.AllocsPerRun(100, func() {
			if err := s.once(r, 0); err != nil {
				t.Fatal(err)
			}
		})
	}
	if many, few := cost(s), cost(one); many > few {
		t.Errorf("%v allocations among 10,000 roots, %v alone", many, few)
	}
	if st, ok := s.Lookup("r9999"); !ok || st.Grant.Dir != "/roots/99/9999" {
		t.Errorf("%+v %v", st, ok)
	}
	if p, err := s.Parse("/roots/99/9999/x"); err != nil || p.String() != "r9999/x" {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := s.Revoke(bg, "r5000"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, s.once(r, 0), names.Revoked)
	if n := len(s.Roots()); n != 9999 {
		t.Errorf("%d roots", n)
	}
}
