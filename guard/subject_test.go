package guard_test

import (
	"slices"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A session has the roots of its subject and everybody's. A root that was granted to one session
// belongs to that session only.
func TestGrantsOfASession(t *testing.T) {
	const one, two = "serve#1", "serve#2"
	s := newSetup(t, nil)
	grantTo(t, s, "all", "/all", "", guard.ReadOnly)
	grantTo(t, s, "whole", "/whole", "serve", guard.ReadWrite)
	grantTo(t, s, "own", "/own", one, guard.ReadOnly)
	for _, c := range []struct {
		who, root string
		want      names.Kind
	}{
		{one, "all", 0}, {one, "whole", 0}, {one, "own", 0},
		{two, "all", 0}, {two, "whole", 0}, {two, "own", names.NoConsent},
		{"serve", "own", names.NoConsent}, {"other#1", "whole", names.NoConsent}, {"", "own", names.NoConsent},
	} {
		wantKind(t, s.tryAs(t, c.who, c.root, names.OpRead), c.want)
		p, err := s.Parse(guard.Subject(c.who), "/"+c.root+"/x")
		if wantKind(t, err, c.want); err == nil && p.String() != c.root+"/x" {
			t.Errorf("%s: %v", c.who, p)
		}
	}
	for who, want := range map[guard.Subject][]string{one: {"all", "own", "whole"}, two: {"all", "whole"}, "serve": {"all", "whole"}, "other#1": {"all"}} {
		var got []string
		for _, st := range s.RootsOf(who) {
			got = append(got, string(st.Grant.Root))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q knows of %q, want %q", who, got, want)
		}
	}
}

// If a session and its subject both have a grant of a directory, the session's grant bounds that
// session under the names of both roots. It bounds no other session, and its revocation applies to
// no other session.
func TestSessionsGrantBesideItsSubjects(t *testing.T) {
	const one, two = "serve#1", "serve#2"
	s := newSetup(t, nil)
	grantTo(t, s, "whole", "/dir", "serve", guard.ReadWrite)
	grantTo(t, s, "own", "/dir", one, guard.ReadOnly)
	wantKind(t, s.tryAs(t, one, "whole", names.OpUnlink), names.ReadOnly)
	wantKind(t, s.tryAs(t, two, "whole", names.OpUnlink), 0)
	wantKind(t, s.tryAs(t, "serve", "whole", names.OpUnlink), 0)
	if p, err := s.Parse(one, "/dir/x"); err != nil || p.Root != "own" {
		t.Errorf("%v, %v", p, err)
	}
	if p, err := s.Parse(two, "/dir/x"); err != nil || p.Root != "whole" {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := s.Revoke(bg, "own"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, s.tryAs(t, one, "whole", names.OpRead), names.Revoked)
	wantKind(t, s.tryAs(t, two, "whole", names.OpRead), 0)
}

// A new session of a subject resets neither the subject's quota nor the subject's suspension.
func TestSessionsShareTheirSubjectsBounds(t *testing.T) {
	s := newSetup(t, nil)
	s.SetQuotas(map[guard.Subject]ledger.Quota{ledger.AnySubject: {MaxCreated: 1}})
	grantTo(t, s, "all", "/all", "", guard.ReadWrite)
	create := func(who guard.Subject) error {
		q := requestIn(t, req(t, names.OpCreate), who, "all")
		q.Names = 1
		return s.once(q, 0)
	}
	wantKind(t, create("serve#1"), 0)
	wantKind(t, create("serve#2"), names.Quota)
	wantKind(t, create("other#1"), 0)
	s.SetAbuse(ledger.Abuse{Refusals: 1, Suspend: true})
	for range 2 {
		wantKind(t, s.tryAs(t, "serve#1", "nowhere", names.OpRead), names.NoConsent)
	}
	wantKind(t, s.tryAs(t, "serve#2", "all", names.OpRead), names.Suspended)
	wantKind(t, s.tryAs(t, "other#1", "all", names.OpRead), 0)
	if list := s.Suspended(); len(list) != 1 || list[0].Subject != "serve" {
		t.Errorf("%+v", list)
	}
	if err := s.Resume("serve#2"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, s.tryAs(t, "serve#1", "all", names.OpRead), 0)
}
