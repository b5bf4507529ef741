package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// R008, R094: one root, or all roots of all sessions, can be revoked. The answer says which roots
// ended and how long the revocation took.
func TestRevoke_R008_R094(t *testing.T) {
	l := newLab(t)
	one, two := l.session("one", "a", "b"), l.session("two", "c")
	b := l.enter()
	testkit.Until(l.t, "both sessions are seen", func() bool { return len(l.s.live.Names()) == 2 })
	var r revocation
	b.must("POST", "/api/revoke", `{"session":"one","names":["a"]}`, &r)
	if len(r.Sessions) != 1 || len(r.Sessions[0].Ended) != 1 || r.Sessions[0].Ended[0].Root != "a" || r.Sessions[0].Ended[0].State != "revoked" || r.TookMS <= 0 {
		t.Errorf("one root: %+v", r)
	}
	if left := one.Registry().Roots(); len(left) != 1 || left[0].Grant.Root != "b" {
		t.Errorf("left: %+v", left)
	}
	if len(two.Registry().Roots()) != 1 {
		t.Error("another session's root has ended, too")
	}
	b.must("POST", "/api/revoke", `{"session":"one","names":["nope"]}`, &r)
	if !strings.Contains(r.Sessions[0].Error, `no root is named "nope"`) {
		t.Errorf("an unknown root: %+v", r)
	}
	b.must("POST", "/api/revoke", `{"session":"gone","all":true}`, &r)
	if !strings.Contains(r.Sessions[0].Error, `"gone" has ended`) {
		t.Errorf("an unknown session: %+v", r)
	}
	b.must("POST", "/api/revoke", `{"everything":true}`, &r)
	if len(r.Sessions) != 2 || len(one.Registry().Roots())+len(two.Registry().Roots()) != 0 {
		t.Errorf("everything: %+v", r)
	}
}

// R105, R116: a root is added and changed from the page, within the rules.
func TestAddAndSet_R105_R116(t *testing.T) {
	l := newLab(t)
	s := l.session("s", "a")
	dir := filepath.Join(l.work, "more")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b := l.enter()
	testkit.Until(l.t, "the session is seen", func() bool { return slices.Contains(l.s.live.Names(), "s") })
	var added control.AddAnswer
	b.must("POST", "/api/add?session=s", fmt.Sprintf(`{"path":%q,"mode":"ro","for_ms":3600000}`, dir), &added)
	if len(added.Roots) != 1 || added.Roots[0].Name != "more" || added.Roots[0].Mode != "ro" || added.Roots[0].Expires == nil || added.Roots[0].Origin != "console" {
		t.Errorf("%+v", added)
	}
	var set control.SetAnswer
	b.must("POST", "/api/set?session=s", `{"name":"more","mode":"rw"}`, &set)
	if set.Root.Mode != "rw" {
		t.Errorf("%+v", set)
	}
	for body, want := range map[string]string{
		`{"path":"more","mode":"ro"}`:                  "not absolute",
		`{"path":"/nonexistent/x","mode":"ro"}`:        "does not exist",
		`{"path":"/proc","mode":"ro"}`:                 "kernel interfaces",
		`{"path":"/etc","mode":"rw"}`:                  "system directory",
		`{"path":"/tmp","mode":"frobnicate"}`:          "unknown mode",
		`{"path":"/","mode":"ro"}`:                     "name:",
		`{"path":"/tmp","mode":"ro","for_ms":-1}`:      "for:",
		`{"path":"/tmp","mode":"ro","allow_system":1}`: "unknown field",
	} {
		if r, data := b.do("POST", "/api/add?session=s", body, nil); r.StatusCode < 400 || !strings.Contains(string(data), want) {
			t.Errorf("%s: %d %s, want %q", body, r.StatusCode, data, want)
		}
	}
	if r, data := b.do("POST", "/api/add?session=gone", `{"path":"/tmp","mode":"ro","for_ms":1}`, nil); r.StatusCode != 404 || !strings.Contains(string(data), "has ended") {
		t.Errorf("a session that is gone: %d %s", r.StatusCode, data)
	}
	// Verbs that the page does not use are not passed on to sessions.
	for _, verb := range []string{"unmount", "roots.add", "status", "trash.empty"} {
		if r, data := b.do("POST", "/api/"+verb+"?session=s", "{}", nil); r.StatusCode != 404 {
			t.Errorf("%s: %d %s", verb, r.StatusCode, data)
		}
	}
	if n := len(s.Registry().Roots()); n != 2 {
		t.Errorf("%d roots", n)
	}
	var p control.PolicyAnswer
	b.must("POST", "/api/policy?session=s", "{}", &p)
	if len(p.Roots) != 2 || len(p.Roots[0].Rules) < 20 {
		t.Errorf("R136: the policy in force: %+v", p)
	}
}

// R007, R083, R090: updates have the sessions with their roots, and the events as they happen.
func TestStream_R007_R083_R090(t *testing.T) {
	l := newLab(t)
	s := l.session("s", "a")
	sub := l.s.live.Subscribe()
	defer sub.Close()
	state := func(want func(sessionhub.Update) bool) {
		t.Helper()
		for range 200 {
			u, ok := l.s.live.Next(t.Context(), sub)
			if !ok {
				break
			}
			if data, err := json.Marshal(u); err != nil || len(data) > 1<<20 {
				t.Fatalf("an update of %d bytes: %v", len(data), err)
			}
			if want(u) {
				return
			}
		}
		t.Fatal("the expected update never came")
	}
	state(func(u sessionhub.Update) bool {
		return len(u.Sessions) == 1 && len(u.Sessions[0].Roots) == 1 && u.Sessions[0].Roots[0].Mode == "rw"
	})
	if _, err := s.Registry().Revoke(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	hasRevoked := false
	state(func(u sessionhub.Update) bool {
		for _, e := range u.Events {
			hasRevoked = hasRevoked || e.Session == "s" && e.Kind == "revoked" && e.Root == "a"
		}
		return hasRevoked && len(u.Sessions) == 1 && len(u.Sessions[0].Roots) == 0
	})
}

// A new subscriber, such as a page that was just opened, gets earlier refusals, too (R146).
func TestEarlierRefusals_R146(t *testing.T) {
	l := newLab(t)
	l.records(4)
	sub := l.s.live.Subscribe()
	defer sub.Close()
	seen := 0
	for range 200 {
		u, ok := l.s.live.Next(t.Context(), sub)
		if !ok {
			break
		}
		for _, e := range u.Events {
			if e.Kind == "refusal" && e.Reason != "" {
				seen++
			}
		}
		if seen >= 4 {
			return
		}
	}
	t.Fatalf("%d of 4 refusals were sent", seen)
}
