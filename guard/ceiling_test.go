package guard_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

func ceilingAt(dir string, most guard.Rights) rules.Ceiling {
	return rules.Ceiling{Where: "ceiling.toml:1", Places: []rules.CeilingPlace{{Dir: dir, Rights: most, Where: "ceiling.toml:2"}}}
}

func grantOf(name, dir string, r guard.Rights) guard.Grant {
	return guard.Grant{Root: guard.RootName(name), Dir: names.Foreign(dir), Policy: guard.Policy{Rights: r}, Origin: "test"}
}

// Neither a grant nor a change nor a renewal gives a root more than the ceiling allows.
func TestCeilingHolds(t *testing.T) {
	reg := guard.NewRegistry(guard.Config{Opener: &fakeOpener{}})
	low := ceilingAt("/work", guard.ReadOnly)
	low.Longest = time.Hour
	if _, err := reg.SetCeilings(bg, []rules.Ceiling{low}); err != nil {
		t.Fatal(err)
	}
	for what, g := range map[string]guard.Grant{
		"elsewhere": grantOf("a", "/etc", guard.ReadOnly),
		"wider":     grantOf("a", "/work/a", guard.ReadWrite),
		"lifting":   {Root: "a", Dir: "/", Origin: "test", AllowRootDir: true, AllowSystem: true, Policy: guard.Policy{Rights: guard.ReadOnly}},
	} {
		if _, err := reg.Grant(bg, g); !errors.Is(err, names.Permission) || !strings.Contains(err.Error(), "ceiling.toml:") {
			t.Errorf("%s: %v", what, err)
		}
	}
	got, err := reg.Grant(bg, grantOf("a", "/work/a", guard.ReadOnly))
	if err != nil {
		t.Fatal(err)
	}
	last := func() time.Time { return time.Now().Add(time.Hour) }
	if got.Expires.IsZero() || got.Expires.After(last()) {
		t.Errorf("the root ends at %v", got.Expires)
	}
	if err := reg.Set(bg, "a", guard.ReadWrite); !errors.Is(err, names.Permission) {
		t.Errorf("set to rw: %v", err)
	}
	if err := reg.Renew(bg, "a", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if st, _ := reg.Lookup("a"); st.Grant.Expires.IsZero() || st.Grant.Expires.After(last()) {
		t.Errorf("after a renewal the root ends at %v", st.Grant.Expires)
	}
}

// When SetCeilings returns, exactly the roots and rights that a lowered ceiling forbids have
// ended.
func TestLoweredCeilingEnds(t *testing.T) {
	reg := guard.NewRegistry(guard.Config{Opener: &fakeOpener{}})
	for name, dir := range map[string]string{"in": "/work/in", "wide": "/work/wide", "out": "/out"} {
		if _, err := reg.Grant(bg, grantOf(name, dir, guard.ReadWrite)); err != nil {
			t.Fatal(err)
		}
	}
	c := ceilingAt("/work", guard.ReadWrite)
	c.Places = append(c.Places, rules.CeilingPlace{Dir: "/work/wide", Rights: guard.ReadOnly, Where: "ceiling.toml:5"})
	ended, err := reg.SetCeilings(bg, []rules.Ceiling{c})
	if err != nil || len(ended) != 1 || !strings.Contains(fmt.Sprint(ended["out"]), "ceiling.toml:1") {
		t.Errorf("ended %v, %v", ended, err)
	}
	want := map[guard.RootName]guard.Rights{"in": guard.ReadWrite, "wide": guard.ReadOnly}
	for _, st := range reg.Roots() {
		if st.State != guard.Live {
			continue
		}
		if st.Grant.Policy.Rights != want[st.Grant.Root] {
			t.Errorf("%s is %s", st.Grant.Root, st.Grant.Policy.Rights)
		}
		delete(want, st.Grant.Root)
	}
	if len(want) > 0 {
		t.Errorf("these have ended: %v", want)
	}
	if _, err := reg.SetCeilings(bg, nil); err != nil {
		t.Fatal(err)
	}
	if st, _ := reg.Lookup("wide"); st.Grant.Policy.Rights != guard.ReadOnly {
		t.Errorf("a lifted ceiling has given %s back", st.Grant.Policy.Rights)
	}
}

// A root that is granted or widened while the ceiling is lowered is within the ceiling
// afterwards.
func TestCeilingLoweredMeanwhile(t *testing.T) {
	for round := range 200 {
		reg := guard.NewRegistry(guard.Config{Opener: &fakeOpener{}})
		if _, err := reg.Grant(bg, grantOf("old", "/old", guard.ReadOnly)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = reg.Grant(bg, grantOf("new", "/new", guard.ReadWrite)) })
		wg.Go(func() { _ = reg.Set(bg, "old", guard.ReadWrite) })
		if _, err := reg.SetCeilings(bg, []rules.Ceiling{ceilingAt("/", guard.ReadOnly)}); err != nil {
			t.Fatal(err)
		}
		for _, st := range reg.Roots() {
			if st.Grant.Policy.Rights.Mutating() {
				t.Fatalf("round %d: %s is %s", round, st.Grant.Root, st.Grant.Policy.Rights)
			}
		}
		wg.Wait()
		for _, st := range reg.Roots() {
			if st.Grant.Policy.Rights.Mutating() {
				t.Fatalf("round %d, later: %s is %s", round, st.Grant.Root, st.Grant.Policy.Rights)
			}
		}
	}
}

// loweringHistory lowers the ceiling in the middle of the grant of a writable root.
type loweringHistory struct{ lower func() }

func (h *loweringHistory) NoteWritable(string) error { h.lower(); return nil }

func (h *loweringHistory) Writer(string) string { return "" }

// If the ceiling is lowered during a grant so that the root would have to end earlier, the grant is
// refused. The same grant succeeds when it is tried again, and the root then has an end.
func TestCeilingShortensMeanwhile(t *testing.T) {
	h := &loweringHistory{}
	reg := guard.NewRegistry(guard.Config{Opener: &fakeOpener{}, History: h})
	h.lower = func() {
		if _, err := reg.SetCeilings(bg, []rules.Ceiling{{Longest: time.Hour}}); err != nil {
			t.Error(err)
		}
	}
	_, err := reg.Grant(bg, grantOf("a", "/work", guard.ReadWrite))
	if st, ok := reg.Lookup("a"); err == nil || !strings.Contains(err.Error(), "lowered at this moment; ask again") || ok {
		t.Errorf("%v, and the root ends at %v", err, st.Grant.Expires)
	}
	if got, err := reg.Grant(bg, grantOf("a", "/work", guard.ReadWrite)); err != nil || got.Expires.IsZero() {
		t.Errorf("asked again: %v, until %v", err, got.Expires)
	}
}
