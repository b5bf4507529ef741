package guard_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// A proposal is no root until it is granted. It can be granted once, not after it was closed, and
// never with more than was asked for (R089, R104).
func TestGrantProposed(t *testing.T) {
	dir := t.TempDir()
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	propose := func(name string, r guard.Rights) *guard.Proposal {
		t.Helper()
		p, err := reg.Propose(guard.Grant{Root: guard.RootName(name), Dir: names.Foreign(dir), Policy: guard.Policy{Rights: r}, Expires: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}

	p := propose("a", guard.ReadOnly)
	if len(reg.Roots()) != 0 {
		t.Fatal("a proposal is a root already")
	}
	wider := p.Ask()
	wider.Policy.Rights = guard.ReadWrite
	if _, err := reg.GrantProposed(t.Context(), []*guard.Proposal{p}, []guard.Grant{wider}); !errors.Is(err, names.NoConsent) {
		t.Errorf("wider rights: %v", err)
	}
	forever := p.Ask()
	forever.Expires = time.Time{}
	if _, err := reg.GrantProposed(t.Context(), []*guard.Proposal{p}, []guard.Grant{forever}); !errors.Is(err, names.NoConsent) {
		t.Errorf("without expiry: %v", err)
	}
	same := p.Ask()
	same.Origin = "test"
	if _, err := reg.GrantProposed(t.Context(), []*guard.Proposal{p}, []guard.Grant{same}); err != nil {
		t.Fatal(err)
	}
	if _, err := reg.GrantProposed(t.Context(), []*guard.Proposal{p}, []guard.Grant{same}); !errors.Is(err, names.Internal) {
		t.Errorf("granted twice: %v", err)
	}
	p.Close() // the root keeps its descriptor
	if _, err := reg.Parse("", dir+"/x"); err != nil {
		t.Error("the root is not there")
	}

	q := propose("b", guard.ReadWrite)
	q.Close()
	if _, err := reg.GrantProposed(t.Context(), []*guard.Proposal{q}, []guard.Grant{q.Ask()}); !errors.Is(err, names.Internal) {
		t.Errorf("granted after it was given up: %v", err)
	}
}

// The answer to a request for consent cannot raise or remove a limit of the request. The test
// covers each limit, including ones that are added later.
func TestGrantProposedRaisesNoLimit_R104(t *testing.T) {
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	dir := t.TempDir()
	limits := reflect.TypeFor[guard.Limits]()
	for i := range limits.NumField() {
		ask := guard.Grant{Root: "a", Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadOnly}}
		set := func(g *guard.Grant, n int) {
			v := reflect.ValueOf(&g.Policy.Limits).Elem().Field(i)
			v.Set(reflect.ValueOf(n).Convert(v.Type()))
		}
		set(&ask, int(time.Hour))
		p, err := reg.Propose(ask)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, int(2 * time.Hour)} {
			raised := p.Ask()
			set(&raised, n)
			if _, err := reg.GrantProposed(t.Context(), []*guard.Proposal{p}, []guard.Grant{raised}); !errors.Is(err, names.NoConsent) {
				t.Errorf("%s %d, asked %d: %v", limits.Field(i).Name, n, time.Hour, err)
			}
		}
		lower := p.Ask()
		set(&lower, 1)
		if _, err := reg.GrantProposed(t.Context(), []*guard.Proposal{p}, []guard.Grant{lower}); err != nil {
			t.Errorf("%s lower than asked: %v", limits.Field(i).Name, err)
		}
		if _, err := reg.RevokeAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// R141, R153: a name that is in use is refused, with advice what to write instead. R019: a
// directory cannot be two roots for the same subject.
func TestNameCollision(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "b", "/x/b", guard.Policy{})
	_, err := s.Grant(bg, guard.Grant{Root: "b", Dir: "/y/b", Origin: "test", Policy: guard.Policy{Rights: guard.Read}})
	wantKind(t, err, names.Exist)
	if err == nil || !strings.Contains(err.Error(), "NAME=") {
		t.Errorf("no remedy in %v", err)
	}
	_, err = s.Grant(bg, guard.Grant{Root: "other", Dir: "/x/b", Origin: "test", Policy: guard.Policy{Rights: guard.Read}})
	wantKind(t, err, names.Exist)
	if n := len(s.Roots()); n != 1 {
		t.Errorf("%d roots", n)
	}
}
