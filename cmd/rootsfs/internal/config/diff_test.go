package config

import (
	"fmt"
	"strings"
	"testing"
)

// DiffRoots and WidenedFile find each difference and tell whether it widens access. The order
// and the comments of a file do not matter.
func TestDiff(t *testing.T) {
	const a, b = "[[root]]\npath = \"/srv/a\"\n", "[[root]]\npath = \"/srv/b\"\n"
	subject := func(name string, most int) string {
		return fmt.Sprintf("[[subject]]\nname = %q\nmax_file = %d\n", name, most)
	}
	for _, tc := range []struct{ name, old, new, want string }{
		{"same", a + b, a + b, ""},
		{"order, comments", a + b, "# x\n" + b + a, ""},
		{"same moment, other zone", a + "expires = 2030-01-01T00:00:00Z\n", a + "expires = 2030-01-01T01:00:00+01:00\n", ""},
		{"added", a, a + b, "+b !b: new root \"/srv/b\", mode ro"},
		{"removed", a + b, b, "-a"},
		{"renamed", a, a + "name = \"x\"\n", `+x -a !x: new root "/srv/a", mode ro`},
		{"mode up", a, a + "mode = \"rw\"\n", "~a(mode) !a: mode ro -> rw"},
		{"mode down", a + "mode = \"rw\"\n", a, "~a(mode)"},
		{"mode with other rights", a + "mode = \"read\"\n", a + "mode = \"list\"\n", "~a(mode) !a: mode read -> list"},
		{"staged", a + "mode = \"rw\"\n", a + "mode = \"stage\"\n", "~a"},
		{"no longer staged", a + "mode = \"stage\"\n", a + "mode = \"rw\"\n", "~a !a: mode stage -> rw"},
		{"staged to ro", a + "mode = \"stage\"\n", a, "~a"},
		{"mode and limit", a, a + "mode = \"rw\"\nlimits.max_file = 1\n", "~a !a: mode ro -> rw"},
		{"path", a, "[[root]]\nname = \"a\"\npath = \"/srv/\\u202eb\"\n", `~a !a: path "/srv/a" -> "/srv/\u{202e}b"`},
		{"crossing", a, a + "cross_file_systems = true\n", "~a !a: crosses file systems"},
		{"system", a, a + "allow_system = true\n", "~a !a: may be writable though a system directory"},
		{"not crossing", a + "cross_file_systems = true\n", a, "~a"},
		{"limit up", a + "limits.max_file = 10\n", a + "limits.max_file = 11\n", "~a !a: max_file 10 -> 11"},
		{"limit down", a + "limits.max_file = 10\n", a + "limits.max_file = 9\n", "~a"},
		{"limit gone", a + "limits.burst = 10\n", a, "~a !a: burst 10 -> none"},
		{"limit new", a, a + "limits.max_created = 10\n", "~a"},
		{"limit of all roots", "[limits]\nops_per_second = 5\n" + a, a, "~a !a: ops_per_second 5 -> none"},
		{"timeout up from default", a, a + "limits.timeout = \"2m\"\n", "~a !a: timeout 1m0s -> 2m0s"},
		{"timeout down from default", a, a + "limits.timeout = \"2s\"\n", "~a"},
		{"stage up from default", a, a + "limits.max_stage = \"20G\"\n", "~a !a: max_stage 10737418240 -> 21474836480"},
		{"stage down to default", a + "limits.max_stage = \"20G\"\n", a, "~a"},
		{"stage up to default", a + "limits.max_stage = \"5G\"\n", a, "~a !a: max_stage 5368709120 -> 10737418240"},
		{"expires later", a + "expires = 2030-01-01T00:00:00Z\n", a + "expires = 2031-01-01T00:00:00Z\n", "~a !a: expires 2030-01-01T00:00:00Z -> 2031-01-01T00:00:00Z"},
		{"expires earlier", a + "expires = 2030-01-01T00:00:00Z\n", a + "expires = 2029-01-01T00:00:00Z\n", "~a"},
		{"expires removed", a + "expires = 2030-01-01T00:00:00Z\n", a, "~a !a: expires 2030-01-01T00:00:00Z -> none"},
		{"expires added", a, a + "expires = 2030-01-01T00:00:00Z\n", "~a"},
		{"for longer", a + "for = \"1h\"\n", a + "for = \"2h\"\n", "~a !a: for 1h0m0s -> 2h0m0s"},
		{"for removed", a + "for = \"1h\"\n", a, "~a !a: for 1h0m0s -> none"},
		{"for shorter", a + "for = \"1h\"\n", a + "for = \"1s\"\n", "~a"},
		{"for becomes expires", a + "for = \"1h\"\n", a + "expires = 2030-01-01T00:00:00Z\n", "~a !a: for 1h0m0s -> expires 2030-01-01T00:00:00Z"},
		{"pre-approved", "[[files.allow]]\npath = \"/srv/a\"\n", "[[files.allow]]\npath = \"/srv/a\"\nmode = \"rw\"\n[[files.allow]]\npath = \"/srv/b\"\n",
			`!files.allow "/srv/a", mode rw !files.allow "/srv/b", mode ro`},
		{"pre-approved, staged", "[[files.allow]]\npath = \"/srv/a\"\nmode = \"stage\"\n", "[[files.allow]]\npath = \"/srv/a\"\nmode = \"rw\"\n", `!files.allow "/srv/a", mode rw`},
		{"no longer pre-approved", "[[files.allow]]\npath = \"/srv/a\"\n", "", ""},
		{"subject up", subject("x", 10), subject("x", 11), `!the server "x": max_file 10 -> 11`},
		{"subject gone", subject("x", 10), "", `!the server "x": max_file 10 -> none`},
		{"subject new", "", subject("x", 10), ""},
		{"subject larger than that of *", subject("*", 10), subject("*", 10) + subject("x", 11), `!the server "x": max_file 10 -> 11`},
		{"subject smaller than that of *", subject("*", 10), subject("*", 10) + subject("x", 9), ""},
		{"subject without a bound, beside *", subject("*", 10), subject("*", 10) + subject("x", 0), `!the server "x": max_file 10 -> none`},
		{"subject falls back to *", subject("*", 12) + subject("x", 11), subject("*", 12), `!the server "x": max_file 11 -> 12`},
		{"subject falls back to smaller *", subject("*", 10) + subject("x", 11), subject("*", 10), ""},
		{"owners may grant", "fleet.allow = [\"answer\"]\n", "fleet.allow = [\"grant\", \"answer\"]\n", "!fleet.allow grant"},
		{"owners may no longer grant", "fleet.allow = [\"answer\", \"grant\"]\n", "fleet.allow = [\"answer\"]\n", ""},
		{"consent deny to ask", "files.consent = \"deny\"\n", "", "!files.consent deny -> ask"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			old, next := mustParse(t, tc.old), mustParse(t, tc.new)
			c := DiffRoots(old.Roots, next.Roots)
			c.Widened = append(c.Widened, WidenedFile(old, next, true)...)
			if got := summary(c); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if c.Empty() != (tc.want == "") {
				t.Errorf("Empty: %v", c.Empty())
			}
		})
	}
	missing := &Config{} // as LoadIfPresent returns it
	if got := WidenedFile(missing, mustParse(t, subject("x", 10)), true); len(got) > 0 {
		t.Errorf("a new file with a subject: %q", got)
	}
}

// R150: a switch between profiles is one set of changes, and a reload under a
// profile concerns that profile's roots only.
func TestDiffProfiles(t *testing.T) {
	const doc = "[[root]]\npath = \"/srv/a\"\n[[root]]\npath = \"/srv/b\"\n[profile.one]\nroots = [\"a\"]\n"
	old := mustParse(t, doc+"[profile.two]\nroots = [\"b\", \"/srv/c:rw\"]\n")
	one, _ := old.Select("one")
	two, _ := old.Select("two")
	if got, want := summary(DiffRoots(one, two)), `+b +c -a !b: new root "/srv/b", mode ro !c: new root "/srv/c", mode rw`; got != want {
		t.Errorf("switch: %s", got)
	}
	next := mustParse(t, strings.Replace(doc, "/srv/b\"", "/srv/b\"\nmode = \"rw\"", 1))
	after, err := next.Select("one")
	if c := DiffRoots(one, after); err != nil || !c.Empty() {
		t.Errorf("b changed under profile one: %s, %v", summary(c), err)
	}
	if _, err := next.Select("two"); err == nil {
		t.Error("Select accepts a profile that the new file does not have")
	}
}

func mustParse(t *testing.T, doc string) *Config {
	t.Helper()
	c, err := parse("/etc/x/config.toml", "/home/me", []byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func summary(c Changes) string {
	var s []string
	for _, r := range c.Added {
		s = append(s, "+"+string(r.Name))
	}
	for _, r := range c.Removed {
		s = append(s, "-"+string(r.Name))
	}
	for _, ch := range c.Changed {
		s = append(s, fmt.Sprintf("~%s%s", ch.New.Name, map[bool]string{true: "(mode)"}[ch.ModeOnly]))
	}
	for _, w := range c.Widened {
		s = append(s, "!"+w)
	}
	return strings.Join(s, " ")
}
