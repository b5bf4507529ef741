package guard_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// realSetup returns a registry over real directories.
func realSetup(t *testing.T) (*setup, string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return newSetup(t, func(c *guard.Config) { c.Opener = vfs.Opener() }), base
}

// Parse chooses the root and keeps the rest as a path below it. R066, R109.
func TestParse(t *testing.T) {
	s, base := realSetup(t)
	at := func(rel string) string { return filepath.Join(base, rel) }
	testkit.Must(t, os.MkdirAll(at("code/in"), 0o755), os.Symlink(at("code"), at("alias")), os.Symlink(at("code"), at("other")),
		os.WriteFile(at("f"), nil, 0o644))
	s.grant(t, "code", at("alias"), guard.Policy{})
	s.grant(t, "in", at("code/in"), guard.Policy{})
	s.grant(t, "f", at("f"), guard.Policy{})
	for in, want := range map[string]string{
		"code": "code", "code/": "code", "code//a/./b": "code/a/b", "unknown/a": "unknown/a",
		at("code"): "code", at("code/a"): "code/a", at("code/in/b"): "in/b", at("f"): "f",
		at("alias"): "code", at("alias/x"): "code/x", at("alias/in/b"): "in/b", // alias: the path by which code was approved
		"file://" + at("code/a%20b"): "code/a b", "FILE://" + at("code"): "code",
		"code/\xff": "code/\xff",
	} {
		if p, err := s.Parse("", in); err != nil || p.String() != want {
			t.Errorf("Parse(%q) = %v, %v; want %s", in, p, err, want)
		}
	}
	for in, want := range map[string]guard.Kind{
		"": names.Invalid, ".": names.Invalid, "..": names.Invalid, "code/../x": names.Invalid, "code/a\x00": names.Invalid,
		at("code") + "/../x": names.Invalid, at("code2"): names.NoConsent, "/": names.NoConsent, at("f/x"): names.NoConsent,
		// R174: nothing outside of roots is examined. A link outside does not lead into a root,
		// and answers do not depend on what exists outside.
		at("other/x"): names.NoConsent, at("other"): names.NoConsent, at("alias2"): names.NoConsent,
		"/etc/passwd": names.NoConsent, "/a\x00": names.Invalid, "file:///etc/passwd": names.NoConsent,
		"file://" + at("code") + "/%2e%2e/x": names.Invalid, "file:" + at("code"): names.Invalid, "file://h" + at("code"): names.Invalid,
	} {
		p, err := s.Parse("", in)
		if !errors.Is(err, want) {
			t.Errorf("Parse(%q) = %v, %v; want %v", in, p, err, want)
		}
	}
}

// The path by which a root was approved refers to this root until the root ends, or another root is
// approved by the same path. A root that lies at the path itself goes first.
func TestParse_approved(t *testing.T) {
	s, base := realSetup(t)
	at := func(rel string) string { return filepath.Join(base, rel) }
	testkit.Must(t, os.Mkdir(at("a"), 0o755), os.Mkdir(at("b"), 0o755), os.Symlink("a", at("link")))
	s.grant(t, "a", at("link"), guard.Policy{})
	testkit.Must(t, os.Remove(at("link")), os.Symlink("b", at("link")))
	s.grant(t, "b", at("link"), guard.Policy{})
	parsed := func(want string) {
		t.Helper()
		if p, err := s.Parse("", at("link/x")); p.String() != want {
			t.Errorf("%v, %v; want %q", p, err, want)
		}
	}
	parsed("b/x") // approved last
	testkit.Must(t, os.Remove(at("link")), os.Mkdir(at("link"), 0o755))
	s.grant(t, "itself", at("link"), guard.Policy{})
	parsed("itself/x")
	if _, err := s.Revoke(bg, "itself"); err != nil {
		t.Fatal(err)
	}
	parsed("b/x")
	if _, err := s.Revoke(bg, "b"); err != nil {
		t.Fatal(err)
	}
	parsed("")
}

// Parse takes linear time for a path of 4 MiB, which a peer's message can hold. (If the path were
// read again for each element, this test would take hours.)
func TestLongPaths(t *testing.T) {
	s, base := realSetup(t)
	s.grant(t, "r", base, guard.Policy{})
	long := strings.Repeat("/a", 2<<20)
	for in, want := range map[string]string{long: "", base + long: "r" + long, "file://" + base + long: "r" + long, "r" + long: "r" + long} {
		p, err := s.Parse("", in)
		if p.String() != want && (want != "" || !errors.Is(err, names.NoConsent)) {
			t.Errorf("Parse(%.20s…): %.20s, %v", in, p, err)
		}
	}
}

// R138: the cost grows with the depth of the path, and not with the number of roots.
func BenchmarkParse(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newSetup(b, nil)
			dir := b.TempDir()
			asks := []guard.Grant{{Root: "real", Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.Read}, Origin: "test"}}
			for i := range n {
				asks = append(asks, guard.Grant{Root: guard.RootName(fmt.Sprint("r", i)), Dir: names.Foreign(fmt.Sprintf("/roots/%d/%d", i%100, i)),
					Policy: guard.Policy{Rights: guard.Read}, Origin: "test"})
			}
			if _, err := s.GrantAll(bg, asks); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := s.Parse("", dir); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A noted link at the beginning of a path is replaced, as text, by its target, unless a root
// contains the path. The number of noted links is bounded.
func TestParse_notedLinks(t *testing.T) {
	s, base := realSetup(t)
	at := func(rel string) string { return filepath.Join(base, rel) }
	testkit.Must(t, os.MkdirAll(at("var/home/u"), 0o755), os.MkdirAll(at("own"), 0o755))
	s.grant(t, "u", at("var/home/u"), guard.Policy{})
	s.grant(t, "own", at("own"), guard.Policy{})
	s.NoteLink(at("home"), "var/home")
	s.NoteLink(at("own"), at("var/home/u"))
	for in, want := range map[string]string{
		at("home/u/a"): "u/a", "file://" + at("home/u"): "u", at("home//u/"): "u", at("own/a"): "own/a",
	} {
		if p, err := s.Parse("", in); err != nil || p.String() != want {
			t.Errorf("Parse(%q) = %v, %v; want %s", in, p, err, want)
		}
	}
	for _, in := range []string{at("home"), at("home/v"), at("homes/u")} {
		_, err := s.Parse("", in)
		wantKind(t, err, names.NoConsent)
	}
	for i := range 1000 {
		s.NoteLink(fmt.Sprintf("%s/n%d", base, i), at("own"))
	}
	if _, err := s.Parse("", at("n999/a")); err == nil {
		t.Error("clients can name any number of links")
	}
}
