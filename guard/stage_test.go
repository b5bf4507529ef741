package guard_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

const staged = guard.ReadWrite | guard.Stage

// stagedGrant returns a grant of a staged root at a directory of the same name.
func stagedGrant(name string, subject guard.Subject) guard.Grant {
	return guard.Grant{Root: guard.RootName(name), Dir: names.Foreign("/" + name), Subject: subject, Origin: "test", Policy: guard.Policy{Rights: staged}}
}

// The opener makes a staged source for a staged root, and for no other. The grant names the
// chosen store, and the lease gives the staged source.
func TestStagedSource(t *testing.T) {
	s := newSetup(t, nil)
	plain := stagedGrant("plain", "")
	plain.Policy.Rights = guard.ReadWrite
	got, err := s.GrantAll(bg, []guard.Grant{stagedGrant("a", ""), plain})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Store != "/stages/a" || got[1].Store != "" {
		t.Errorf("stores: %q and %q", got[0].Store, got[1].Store)
	}
	for name, want := range map[guard.RootName]bool{"a": true, "plain": false} {
		st, _ := s.Lookup(name)
		if (st.Stage != nil) != want {
			t.Errorf("%s: the status has the stage %v", name, st.Stage)
		}
		l, err := s.Admit(bg, guard.Request{Caller: who, Op: names.OpLookup, Path: path(t, string(name), "f")})
		if err != nil {
			t.Fatal(err)
		}
		if _, is := l.Source().(guard.Staged); is != want {
			t.Errorf("%s: the lease's source is %T", name, l.Source())
		}
		_ = l.Done(0, nil)
	}
}

// oddOpener opens sources that have the properties in odd.
type oddOpener struct {
	guard.Opener
	odd oddSource
}

func (o oddOpener) OpenRoot(path string) (guard.Source, error) {
	src, err := o.Opener.OpenRoot(path)
	o.odd.Source = src
	return &o.odd, err
}

type oddSource struct {
	guard.Source
	file   string
	remote bool
	naming rules.Naming
}

func (s *oddSource) File() string         { return s.file }
func (s *oddSource) Remote() bool         { return s.remote }
func (s *oddSource) Naming() rules.Naming { return s.naming }

// A source that cannot be staged is refused as a staged root, and the error says why, or what to
// do instead.
func TestCannotBeStaged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		odd    oddSource
		change func(*guard.Policy)
		want   string // "": granted
	}{
		{"a directory", oddSource{}, nil, ""},
		{"some directories fold names", oddSource{naming: rules.MixedNames}, nil, ""},
		{"a file", oddSource{file: "f"}, nil, "name its directory"},
		{"remote", oddSource{remote: true}, nil, "copy it to a local disk"},
		{"folded names", oddSource{naming: rules.FoldedNames}, nil, "several spellings"},
		{"short names", oddSource{naming: rules.ShortNames}, nil, "several spellings"},
		{"across file systems", oddSource{}, func(p *guard.Policy) { p.OtherFileSystems = true }, "leave out --cross-file-systems"},
		{"one use", oddSource{file: "f"}, func(p *guard.Policy) { p.Once = true }, "name its directory"},
	} {
		s := newSetup(t, func(c *guard.Config) { c.Opener = oddOpener{c.Opener, tt.odd} })
		g := stagedGrant("a", "")
		if tt.change != nil {
			tt.change(&g.Policy)
		}
		_, err := s.Grant(bg, g)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (!errors.Is(err, names.Invalid) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

// If the store cannot be opened, the grant is refused, and the source is closed.
func TestStageRefusedByOpener(t *testing.T) {
	s := newSetup(t, nil)
	s.open.stageErr = &guard.Error{Kind: names.Locked, Err: errors.New("session p holds it")}
	if _, err := s.Grant(bg, stagedGrant("a", "")); !errors.Is(err, names.Locked) {
		t.Errorf("granted with a store that is held: %v", err)
	}
	if s.open.closed != 1 || len(s.Roots()) != 0 {
		t.Errorf("closed %d sources, %d roots", s.open.closed, len(s.Roots()))
	}
}

// A proposal that a failed grant has staged cannot be used again, because its open source is
// the staged one, whatever the next grant says.
func TestProposalStagedOnce(t *testing.T) {
	s := newSetup(t, nil)
	if _, err := s.Grant(bg, stagedGrant("a", "")); err != nil {
		t.Fatal(err)
	}
	p, err := s.Propose(stagedGrant("a", "")) // the name is taken
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := s.GrantProposed(bg, []*guard.Proposal{p}, []guard.Grant{p.Ask()}); !errors.Is(err, names.Exist) {
		t.Errorf("granted twice: %v", err)
	}
	again := p.Ask()
	again.Root = "b"
	again.Policy.Rights = guard.ReadOnly
	if _, err := s.GrantProposed(bg, []*guard.Proposal{p.WithName("b")}, []guard.Grant{again}); !errors.Is(err, names.Internal) {
		t.Errorf("the staged source was granted as another: %v", err)
	}
}

// A staged root overlaps no other root of the same callers.
func TestStagedNesting(t *testing.T) {
	at := func(name, dir string, who guard.Subject, r guard.Rights) guard.Grant {
		return guard.Grant{Root: guard.RootName(name), Dir: names.Foreign(dir), Subject: who, Origin: "test", Policy: guard.Policy{Rights: r}}
	}
	for _, tt := range []struct {
		name   string
		first  guard.Grant
		second guard.Grant
		want   error
	}{
		{"inside a staged one", at("a", "/p", "", staged), at("b", "/p/d", "", guard.ReadOnly), names.Invalid},
		{"around a staged one", at("a", "/p/d", "", staged), at("b", "/p", "", guard.ReadWrite), names.Invalid},
		{"a staged one inside", at("a", "/p", "", guard.ReadOnly), at("b", "/p/d", "", staged), names.Invalid},
		{"a staged one around", at("a", "/p/d", "", guard.ReadOnly), at("b", "/p", "", staged), names.Invalid},
		{"the same directory, for everybody and for one subject", at("a", "/p", "", staged), at("b", "/p", "s", guard.ReadOnly), names.Invalid},
		{"inside, for another subject", at("a", "/p", "s", staged), at("b", "/p/d", "t", guard.ReadWrite), nil},
		{"the same directory, for another subject", at("a", "/p", "s", staged), at("b", "/p", "t", staged), nil},
		{"beside each other", at("a", "/p", "", staged), at("b", "/pd", "", staged), nil},
		{"neither is staged", at("a", "/p", "", guard.ReadWrite), at("b", "/p/d", "", guard.ReadOnly), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, together := range []bool{false, true} {
				s := newSetup(t, nil)
				var err error
				if together {
					_, err = s.GrantAll(bg, []guard.Grant{tt.first, tt.second})
				} else if _, err = s.Grant(bg, tt.first); err == nil {
					_, err = s.Grant(bg, tt.second)
				}
				if !errors.Is(err, tt.want) {
					t.Errorf("together %v: %v, want %v", together, err, tt.want)
				}
			}
		})
	}
	t.Run("after the staged root has ended", func(t *testing.T) {
		s := newSetup(t, nil)
		if _, err := s.Grant(bg, at("a", "/p", "", staged)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Revoke(bg, "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Grant(bg, at("b", "/p/d", "", guard.ReadWrite)); err != nil {
			t.Errorf("the staged root has ended: %v", err)
		}
	})
}

// A live root never becomes staged or unstaged. Its other rights can change.
func TestSetStaged(t *testing.T) {
	for _, tt := range []struct {
		have, set string
		then      string // "": refused
	}{
		{"stage", "rw", ""},
		{"rw", "stage", ""},
		{"ro", "stage", ""},
		{"stage", "ro", "ro,stage"},
		{"stage", "read,write", "read,write,stage"},
		{"stage", "stage", "stage"},
		{"ro,stage", "stage", "stage"},
		{"rw", "ro", "ro"},
	} {
		s := newSetup(t, nil)
		rights, err := rules.ParseMode(tt.have)
		if err != nil {
			t.Fatal(err)
		}
		g := stagedGrant("a", "")
		g.Policy.Rights = rights
		if _, err := s.Grant(bg, g); err != nil {
			t.Fatal(err)
		}
		to, err := rules.ParseMode(tt.set)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Set(bg, "a", to)
		st, _ := s.Lookup("a")
		now := st.Grant.Policy.Rights.String()
		switch {
		case tt.then == "" && (!errors.Is(err, names.Invalid) || !strings.Contains(err.Error(), "rootsfs roots add a=PATH:") || now != tt.have):
			t.Errorf("%s, set %s: %v; it is %s now", tt.have, tt.set, err, now)
		case tt.then != "" && (err != nil || now != tt.then):
			t.Errorf("%s, set %s: %v; it is %s now, want %s", tt.have, tt.set, err, now, tt.then)
		}
	}
}

// Files that programs remove in a staged root do not go to its trash. Files that the owner's
// apply replaces do.
func TestStagedTrash(t *testing.T) {
	s := newSetup(t, nil)
	g := stagedGrant("a", "")
	g.Policy.Trash.On = true
	if _, err := s.Grant(bg, g); err != nil {
		t.Fatal(err)
	}
	for op, want := range map[guard.Op]bool{names.OpUnlink: false, names.OpReplace: false, names.OpApply: true} {
		l, err := s.Admit(bg, guard.Request{Caller: who, Op: op, Path: path(t, "a", "f")})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, ok := l.Trash(); ok != want {
			t.Errorf("%s: keeps what it removes: %v", op, ok)
		}
		_ = l.Done(0, nil)
	}
}

// After a staged root is revoked, its directory is granted as a staged root again only when the
// store of the first root is closed. An operation that is still running keeps the store open.
func TestStageIsContinuedAfterRevoke(t *testing.T) {
	s := newSetup(t, func(c *guard.Config) { c.Deadline = 200 * time.Millisecond })
	if _, err := s.Grant(bg, stagedGrant("a", "")); err != nil {
		t.Fatal(err)
	}
	l, err := s.Admit(bg, guard.Request{Caller: who, Op: names.OpLookup, Path: path(t, "a", "f")})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Revoke(bg, "a") // Revoke gives up at the deadline, because the operation does not end
	if _, err := s.Grant(bg, stagedGrant("a", "")); !errors.Is(err, names.Locked) {
		t.Errorf("granted while the store is in use: %v", err)
	}
	_ = l.Done(0, nil)
	if err := s.AwaitStages(bg); err != nil {
		t.Fatal(err)
	}
	s.open.mu.Lock()
	closed := s.open.closed
	s.open.mu.Unlock()
	if closed != 2 { // the source of the refused grant, too
		t.Errorf("%d sources are closed", closed)
	}
	if _, err := s.Grant(bg, stagedGrant("a", "")); err != nil {
		t.Error(err)
	}
}
