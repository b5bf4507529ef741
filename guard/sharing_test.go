package guard_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// newSharedSetup returns a registry with one directory granted to two subjects.
func newSharedSetup(t *testing.T) *setup {
	s := newSetup(t, nil)
	for _, g := range []struct {
		root, subject string
		rights        guard.Rights
	}{{"one", "editor", guard.ReadWrite}, {"two", "reviewer", guard.ReadOnly}} {
		grantTo(t, s, g.root, "/dir", g.subject, g.rights)
	}
	return s
}

func grantTo(t *testing.T, s *setup, root, dir, subject string, rights guard.Rights) {
	t.Helper()
	_, err := s.Grant(bg, guard.Grant{Root: guard.RootName(root), Dir: names.Foreign(dir), Subject: guard.Subject(subject), Origin: "test",
		Policy: guard.Policy{Rights: rights}})
	wantKind(t, err, 0)
}

// tryAs tries an operation of a subject in a root.
func (s *setup) tryAs(t testing.TB, who, root string, op guard.Op) error {
	t.Helper()
	return s.once(requestIn(t, req(t, op), guard.Subject(who), root), 0)
}

// R006, R004: two subjects have one directory with two policies. Each has its own policy.
// Revoking one root does not affect the other.
func TestOneDirectoryForTwoSubjects(t *testing.T) {
	s := newSharedSetup(t)
	wantKind(t, s.tryAs(t, "editor", "one", names.OpUnlink), 0)
	wantKind(t, s.tryAs(t, "reviewer", "two", names.OpRead), 0)
	wantKind(t, s.tryAs(t, "reviewer", "two", names.OpUnlink), names.ReadOnly)
	wantKind(t, s.tryAs(t, "reviewer", "one", names.OpRead), names.NoConsent)
	wantKind(t, s.tryAs(t, "editor", "two", names.OpRead), names.NoConsent)
	for who, want := range map[guard.Subject]string{"editor": "one/x", "reviewer": "two/x", "": "", "third": ""} {
		p, err := s.Parse(who, "/dir/x")
		if p.String() != want || want == "" && !errors.Is(err, names.NoConsent) {
			t.Errorf("%q: /dir/x is %v, %v; want %q", who, p, err, want)
		}
	}
	// R127: each subject knows only its own roots.
	for who, want := range map[guard.Subject][]string{"editor": {"one"}, "reviewer": {"two"}, "": nil} {
		var got []string
		for _, st := range s.RootsOf(who) {
			got = append(got, string(st.Grant.Root))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q knows of %q, want %q", who, got, want)
		}
	}
	_, err := s.Grant(bg, guard.Grant{Root: "again", Dir: "/dir", Subject: "editor", Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}})
	wantKind(t, err, names.Exist) // the same subject has the directory already
	if _, err := s.Revoke(bg, "one"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, s.tryAs(t, "editor", "one", names.OpRead), names.Revoked)
	wantKind(t, s.tryAs(t, "reviewer", "two", names.OpRead), 0)
	grantTo(t, s, "one", "/dir", "editor", guard.ReadOnly)
	wantKind(t, s.tryAs(t, "editor", "one", names.OpRead), 0)
}

// R162: besides a grant for everybody, a subject may have a grant of its own for the same
// directory. Its own grant bounds the subject under the names of both roots. After that grant is
// revoked, the subject has no access.
func TestOwnGrantBesideEverybodys(t *testing.T) {
	s := newSetup(t, nil)
	v := &view{}
	s.AddView(v)
	grantTo(t, s, "all", "/dir", "", guard.ReadWrite)
	wantKind(t, s.tryAs(t, "reviewer", "all", names.OpUnlink), 0)
	l, err := s.Admit(bg, requestIn(t, req(t, names.OpOpen), "reviewer", "all"))
	wantKind(t, err, 0)
	held := l.Hold()
	wantKind(t, l.Done(0, nil), 0)
	grantTo(t, s, "own", "/dir", "reviewer", guard.ReadOnly)
	if !slices.Contains(v.all(), "narrowed") {
		t.Errorf("what was handed out before was not taken back: %q", v.all())
	}
	write := requestIn(t, req(t, names.OpWrite), "reviewer", "all")
	write.Held, write.Need = held, guard.Write
	if err := s.once(write, 0); !errors.Is(err, guard.ErrJudgeAgain) {
		t.Errorf("an old handle: %v", err)
	}
	for root, op := range map[string]guard.Op{"all": names.OpUnlink, "own": names.OpUnlink} {
		wantKind(t, s.tryAs(t, "reviewer", root, op), names.ReadOnly)
		wantKind(t, s.tryAs(t, "reviewer", root, names.OpRead), 0)
	}
	wantKind(t, s.tryAs(t, "editor", "all", names.OpUnlink), 0) // nobody else is affected
	wantKind(t, s.tryAs(t, "", "all", names.OpUnlink), 0)
	if p, err := s.Parse("reviewer", "/dir/x"); err != nil || p.Root != "own" {
		t.Errorf("%v, %v", p, err)
	}
	if list := s.RootsOf("reviewer"); len(list) != 1 || list[0].Grant.Root != "own" {
		t.Errorf("%+v", list)
	}
	// An operation of the subject through the root for everybody also counts for the subject's
	// own root.
	inFlight, err := s.Admit(bg, requestIn(t, req(t, names.OpRead), "reviewer", "all"))
	wantKind(t, err, 0)
	if st, _ := s.Lookup("own"); st.InFlight != 1 {
		t.Errorf("%d operations are in flight in the subject's own root, want 1", st.InFlight)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := s.Revoke(bg, "own"); err != nil {
			t.Error(err)
		}
	}()
	<-shutChannel(s, "own")
	wantKind(t, inFlight.Done(0, nil), 0)
	<-done
	wantKind(t, s.tryAs(t, "reviewer", "all", names.OpRead), names.Revoked) // revocation never widens
	wantKind(t, s.tryAs(t, "editor", "all", names.OpRead), 0)
	grantTo(t, s, "own", "/dir", "reviewer", guard.ReadOnly)
	wantKind(t, s.tryAs(t, "reviewer", "all", names.OpRead), 0)
	if _, err := s.Revoke(bg, "all"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, s.tryAs(t, "reviewer", "own", names.OpRead), 0)
	wantKind(t, s.tryAs(t, "reviewer", "all", names.OpRead), names.Revoked)
}

// shutChannel returns a channel that is closed when the root admits no more operations.
func shutChannel(s *setup, root guard.RootName) <-chan struct{} {
	shut := make(chan struct{})
	go func() {
		defer close(shut)
		for {
			if _, ok := s.Lookup(root); !ok {
				return
			}
		}
	}()
	return shut
}

// If roots are granted together and one of them fails, a revoked root stays revoked in the root
// around it, although its own grant was to be repeated.
func TestFailedGrantKeepsRevocation(t *testing.T) {
	s := newSetup(t, nil)
	grantTo(t, s, "outer", "/dir", "", guard.ReadWrite)
	grantTo(t, s, "inner", "/dir/sub", "", guard.ReadOnly)
	in, _ := s.Lookup("inner")
	if _, err := s.Revoke(bg, "inner"); err != nil {
		t.Fatal(err)
	}
	again := guard.Grant{Root: "inner", Dir: "/dir/sub", Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}}
	taken := again
	taken.Root, taken.Dir = "outer", "/elsewhere"
	_, err := s.GrantAll(bg, []guard.Grant{again, taken})
	wantKind(t, err, names.Exist)
	grantTo(t, s, "other", "/dir/other", "", guard.ReadOnly) // the nesting of outer is built anew
	l, err := s.Admit(bg, requestIn(t, req(t, names.OpRead), "", "outer"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.EnterIfNested(in.ID, "")
	wantKind(t, l.Done(0, err), names.Revoked)
	if !s.WasRevoked("inner", "") {
		t.Error("the name of the revoked root is forgotten")
	}
}

// R006, R070: a root of one subject inside a root of another, or its revocation, does not
// affect the other subject. Inside a root for everybody it affects only its own subject.
func TestNestedRootsOfSubjects(t *testing.T) {
	s := newSetup(t, nil)
	grantTo(t, s, "outer", "/dir", "", guard.ReadWrite)
	grantTo(t, s, "mine", "/dir", "a", guard.ReadWrite)
	grantTo(t, s, "inner", "/dir/sub", "b", guard.ReadOnly)
	in, _ := s.Lookup("inner")
	cross := func(who, root string, op guard.Op) error {
		l, err := s.Admit(bg, requestIn(t, req(t, op), guard.Subject(who), root))
		if err != nil {
			return err
		}
		_, err = l.EnterIfNested(in.ID, "")
		return l.Done(0, err)
	}
	wantKind(t, cross("b", "outer", names.OpUnlink), names.ReadOnly)
	wantKind(t, cross("b", "outer", names.OpRead), 0)
	wantKind(t, cross("", "outer", names.OpUnlink), 0)
	wantKind(t, cross("a", "mine", names.OpUnlink), 0)
	wantKind(t, cross("a", "outer", names.OpUnlink), 0)
	if _, err := s.Revoke(bg, "inner"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, cross("b", "outer", names.OpRead), names.Revoked)
	wantKind(t, cross("a", "mine", names.OpRead), 0)
	wantKind(t, cross("", "outer", names.OpRead), 0)
	// The directory of a revoked root for everybody stays closed to everybody, except to subjects
	// that were granted the directory since.
	grantTo(t, s, "inner2", "/dir/sub", "", guard.ReadWrite)
	if _, err := s.Revoke(bg, "inner2"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, cross("", "outer", names.OpRead), names.Revoked)
	wantKind(t, cross("a", "mine", names.OpRead), names.Revoked)
	wantKind(t, cross("b", "outer", names.OpRead), names.Revoked)
	grantTo(t, s, "inner3", "/dir/sub", "b", guard.ReadOnly)
	wantKind(t, cross("b", "outer", names.OpRead), 0)
	wantKind(t, cross("", "outer", names.OpRead), names.Revoked)
}
