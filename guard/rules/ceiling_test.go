package rules

import (
	"strings"
	"testing"
	"time"
)

// homeCeiling returns a ceiling for a home directory: work may be written, its archive may only be
// read, and its vault may not be part of a root. Changes in review have to be staged.
func homeCeiling() Ceiling {
	return Ceiling{Where: "c.toml:1", Places: []CeilingPlace{
		{"/home/u/work", ReadWrite, "c.toml:1"},
		{"/home/u/work/archive", ReadOnly, "c.toml:4"},
		{"/home/u/work/vault", 0, "c.toml:7"},
		{"/home/u/review", ReadWrite | Stage, "c.toml:10"},
	}}
}

func TestCeilingCheck(t *testing.T) {
	for _, c := range []struct {
		path string
		ask  Rights
		want string // "": allowed
	}{
		{"/home/u/work/app", ReadWrite, ""},
		{"/home/u/work/app", ReadWrite | Stage, ""},
		{"/home/u/work/archive", ReadOnly, ""},
		{"/home/u/work/archive/2020", ReadWrite, `at most ro: the ceiling of this machine says so for "/home/u/work/archive" (c.toml:4)`},
		{"/home/u/work/archive", Read | Create, "at most ro"},
		{"/home/u/work/vault", ReadOnly, `allows no root at "/home/u/work/vault" (c.toml:7)`},
		{"/home/u/work/vault/deep", Read, `allows no root at "/home/u/work/vault/deep" (c.toml:7)`},
		{"/home/u/work", ReadOnly, `allows no root that reaches "/home/u/work/vault" (c.toml:7)`},
		{"/home/u/review/x", ReadWrite | Stage, ""},
		{"/home/u/review/x", ReadOnly, ""},
		{"/home/u/review/x", ReadWrite, "at most stage"},
		{"/home/u", ReadOnly, `no place for a root at "/home/u" (c.toml:1)`},
		{"/home/u/workshop", ReadOnly, "no place for a root"},
		{"/", ReadOnly, "no place for a root"},
	} {
		ceiling := homeCeiling()
		err := ceiling.Check(c.path, c.ask)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %s: %v, want %q", c.path, c.ask, err, c.want)
		}
	}
}

// A narrowed root is within the ceiling, and keeps everything that the ceiling allows.
func TestCeilingWithin(t *testing.T) {
	for _, c := range []struct {
		path      string
		had, left Rights // left 0: an error
	}{
		{"/home/u/work/app", ReadWrite, ReadWrite},
		{"/home/u/work/archive", ReadWrite, ReadOnly},
		{"/home/u/work/archive", ReadWrite | Stage, ReadOnly | Stage},
		{"/home/u/work/archive", Write | Create, 0},
		{"/home/u/work/vault/x", ReadOnly, 0},
		{"/home/u/work", ReadOnly, 0},
		{"/home/u/review", ReadWrite, ReadOnly}, // a live root cannot become staged
		{"/home/u/review", ReadWrite | Stage, ReadWrite | Stage},
		{"/elsewhere", ReadOnly, 0},
	} {
		r := RootRules{Ceilings: []Ceiling{homeCeiling()}}
		left, err := r.Within(c.path, c.had)
		if left != c.left || (err == nil) != (c.left != 0) {
			t.Errorf("%s %s: %s, %v; want %s", c.path, c.had, left, err, c.left)
		}
		if left != 0 && r.CheckCeilings(c.path, left) != nil {
			t.Errorf("%s %s: the ceiling does not allow %s, which is left", c.path, c.had, left)
		}
	}
}

// Several ceilings all apply, and none widens another.
//
// The next lines name the keys of a ceiling whose bounds this test tries to exceed, and the ways.
// cmd/rootsfs/ceilingways_test.go reads these lines.
//
// ceiling: root.path by other file
// ceiling: root.mode by other file
// ceiling: grants.longest by other file
func TestCeilingsTogether(t *testing.T) {
	now := time.Unix(1e9, 0)
	second := Ceiling{Longest: time.Hour, Places: []CeilingPlace{{"/home/u/work/app", ReadOnly, "d.toml:1"}, {"/srv", ReadWrite, "d.toml:2"}}}
	r := RootRules{Ceilings: []Ceiling{homeCeiling(), second, {Longest: 2 * time.Hour}}}
	for path, want := range map[string]string{
		"/home/u/work/app":   "at most ro",
		"/home/u/work/other": "no place",
		"/srv":               "no place",
	} {
		if err := r.Check(path, ReadWrite); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if err := r.Check("/home/u/work/app", ReadOnly); err != nil {
		t.Error(err)
	}
	for asked, want := range map[time.Time]time.Time{
		{}:                      now.Add(time.Hour),
		now.Add(time.Minute):    now.Add(time.Minute),
		now.Add(24 * time.Hour): now.Add(time.Hour),
	} {
		if got := r.End(asked, now); !got.Equal(want) {
			t.Errorf("end %v: %v, want %v", asked, got, want)
		}
	}
	if got := r.AsStaged("/home/u/review/x", ReadWrite); got != ReadWrite|Stage {
		t.Errorf("where changes are staged, rw is %s", got)
	}
	if got := (RootRules{}).End(time.Time{}, now); !got.IsZero() {
		t.Errorf("without a ceiling a root ends at %v", got)
	}
}
