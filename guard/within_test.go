package guard_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// realSetup is a registry over real directories.
func realSetup(t *testing.T) (*setup, string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return newSetup(t, func(c *guard.Config) { c.Opener = vfs.Opener() }), base
}

func mustAll(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// R158, R174, R175, R188, R189, R192 (about this moment only), R196, R197,
// R198, R206, R207, R208: the question a server asks before it opens a path.
func TestWithin(t *testing.T) {
	s, base := realSetup(t)
	at := func(rel string) string { return filepath.Join(base, rel) }
	mustAll(t, os.MkdirAll(at("frontend/src"), 0o755), os.MkdirAll(at("frontend-evil"), 0o755), os.MkdirAll(at("a b/c"), 0o755),
		os.MkdirAll(at("deep/er"), 0o755), os.WriteFile(at("config.json"), nil, 0o644),
		os.WriteFile(at("frontend/README.md"), nil, 0o644), os.WriteFile(at("secret"), nil, 0o644),
		os.Symlink("/etc", at("frontend/etc")), os.Symlink("src", at("frontend/in")), os.Symlink(at("frontend"), at("alias")),
		os.Symlink(at("nothing"), at("frontend/dangling")), os.Symlink("loop", at("frontend/loop")),
		os.Symlink(at("deep/er"), at("frontend/sideways")))
	for _, p := range []string{"frontend", "/etc/passwd"} {
		if s.Within(at(p)) {
			t.Errorf("%s is inside of no root", p) // R207
		}
	}
	s.grant(t, "front", at("frontend"), guard.Policy{Rights: guard.ReadOnly})
	s.grant(t, "space", at("a b"), guard.Policy{Rights: guard.ReadOnly})
	s.grant(t, "file", at("config.json"), guard.Policy{Rights: guard.ReadOnly})
	uri := func(rel string) string { return (&url.URL{Scheme: "file", Path: at(rel)}).String() }
	for p, want := range map[string]bool{
		at("frontend"): true, at("frontend") + "/": true, at("frontend/src"): true, at("frontend/README.md"): true,
		at("frontend/src/not/yet"): true, at("frontend") + "//src": true, at("frontend") + "/./src": true,
		at("frontend") + "/../frontend/src": true, // R196
		at("frontend/in"):                   true,
		at("alias/src"):                     true,
		uri("frontend/README.md"):           true,
		uri("a b/c"):                        true,
		at("config.json"):                   true,

		base: false, "/": false, "": false, at("frontend-evil"): false, at("frontend-evil/x"): false, at("secret"): false,
		at("frontend") + "/../secret": false, at("frontend") + "/../../../../../../etc/passwd": false, "/etc/passwd": false,
		at("frontend/etc/passwd"): false, at("frontend/etc"): false, at("frontend/dangling"): false, at("frontend/loop"): false,
		at("frontend/loop/x"): false,
		// ".." after a link is what the kernel would make of it, not what
		// the text looks like.
		at("frontend") + "/sideways/../secret":    false,
		at("frontend") + "/sideways/../../secret": false,
		at("frontend") + "/sideways/../frontend":  false,
		at("frontend") + "/nothing/../../secret":  false,
		at("frontend") + "/src/../README.md":      true,
		at("config.json") + "/x":                  false,
		at("config.json2"):                        false,
		uri("secret"):                             false,
		uri("frontend") + "/%2e%2e/secret":        false,
		"file:" + at("frontend"):                  false,
		"file://elsewhere" + at("frontend"):       false,
		"http://localhost" + at("frontend"):       false,
		at("frontend") + "\x00":                   false,
		"~":                                       false, "~/x": false,
	} {
		if got := s.Within(p); got != want {
			t.Errorf("Within(%q) = %v", p, got)
		}
	}
	t.Chdir(at("frontend"))
	for p, want := range map[string]bool{".": true, "src": true, "..": false, "../secret": false, "src/../..": false} {
		if got := s.Within(p); got != want {
			t.Errorf("from inside, Within(%q) = %v", p, got)
		}
	}
	t.Chdir(base)
	for p, want := range map[string]bool{".": false, "frontend": true, "./frontend-evil": false} {
		if got := s.Within(p); got != want {
			t.Errorf("from outside, Within(%q) = %v", p, got)
		}
	}
	t.Setenv("HOME", at("frontend"))
	if !s.Within("~") || !s.Within("~/src") || s.Within("~/../secret") || s.Within("~other") {
		t.Error("~ is the home directory, nothing else")
	}
}

// What is revoked inside a root stays denied through the root around it.
func TestWithinTombstone(t *testing.T) {
	s, base := realSetup(t)
	in := filepath.Join(base, "in")
	mustAll(t, os.Mkdir(in, 0o755))
	s.grant(t, "out", base, guard.Policy{})
	s.grant(t, "in", in, guard.Policy{})
	if !s.Within(in) || !s.Within(in+"/x") {
		t.Error("two live roots")
	}
	if _, err := s.Revoke(bg, "in"); err != nil {
		t.Fatal(err)
	}
	if s.Within(in) || s.Within(in+"/x") || !s.Within(base) || !s.Within(in+"2") {
		t.Error("the tombstone is not respected, or too wide")
	}
	if _, err := s.Revoke(bg, "out"); err != nil {
		t.Fatal(err)
	}
	if s.Within(base) {
		t.Error("a revoked root")
	}
}

// Parse chooses the root and keeps the rest as a path below it. R066, R109.
func TestParse(t *testing.T) {
	s, base := realSetup(t)
	at := func(rel string) string { return filepath.Join(base, rel) }
	mustAll(t, os.MkdirAll(at("code/in"), 0o755), os.Symlink(at("code"), at("alias")), os.Symlink(at("code"), at("other")),
		os.WriteFile(at("f"), nil, 0o644))
	s.grant(t, "code", at("alias"), guard.Policy{})
	s.grant(t, "in", at("code/in"), guard.Policy{})
	s.grant(t, "f", at("f"), guard.Policy{})
	for in, want := range map[string]string{
		"code": "code", "code/": "code", "code//a/./b": "code/a/b", "unknown/a": "unknown/a",
		at("code"): "code", at("code/a"): "code/a", at("code/in/b"): "in/b", at("f"): "f",
		at("alias"): "code", at("alias/x"): "code/x", at("alias/in/b"): "in/b", // as it was approved
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
		// R174: whatever lies outside is not looked at: no link there leads
		// in, and no two answers differ by what exists.
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

// The path by which a root was approved means it only as long as it lives, and
// what lies there itself goes first.
func TestParse_approved(t *testing.T) {
	s, base := realSetup(t)
	at := func(rel string) string { return filepath.Join(base, rel) }
	mustAll(t, os.Mkdir(at("a"), 0o755), os.Mkdir(at("b"), 0o755), os.Symlink("a", at("link")))
	s.grant(t, "a", at("link"), guard.Policy{})
	mustAll(t, os.Remove(at("link")), os.Symlink("b", at("link")))
	s.grant(t, "b", at("link"), guard.Policy{})
	parsed := func(want string) {
		t.Helper()
		if p, err := s.Parse("", at("link/x")); p.String() != want {
			t.Errorf("%v, %v; want %q", p, err, want)
		}
	}
	parsed("b/x") // approved last
	mustAll(t, os.Remove(at("link")), os.Mkdir(at("link"), 0o755))
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

// A path as long as a frame can be costs no more than reading it. (The test ends
// at all: what is read again for each element takes hours here.)
func TestLongPaths(t *testing.T) {
	s, base := realSetup(t)
	s.grant(t, "r", base, guard.Policy{})
	long := strings.Repeat("/a", 2<<20)
	for in, want := range map[string]string{long: "", base + long: "r" + long, "file://" + base + long: "r" + long, "r" + long: "r" + long} {
		p, err := s.Parse("", in)
		if p.String() != want && (want != "" || !errors.Is(err, names.NoConsent)) {
			t.Errorf("Parse(%.20s…): %.20s, %v", in, p, err)
		}
		if s.Within(in) {
			t.Errorf("Within(%.20s…): no system call takes so long a path", in)
		}
	}
	most := base + strings.Repeat("/a", (names.MaxHostPath-1-len(base))/2)
	if !s.Within(most) || s.Within(most+"/a") {
		t.Error("the bound is not that of the system")
	}
}

// R138: the cost grows with the depth of the path, not with the roots.
func BenchmarkWithin(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newSetup(b, nil)
			dir := b.TempDir()
			asks := []guard.Grant{{Root: "real", Dir: dir, Policy: guard.Policy{Rights: guard.Read}, Origin: "test"}}
			for i := range n {
				asks = append(asks, guard.Grant{Root: guard.RootName(fmt.Sprint("r", i)), Dir: fmt.Sprintf("/roots/%d/%d", i%100, i),
					Policy: guard.Policy{Rights: guard.Read}, Origin: "test"})
			}
			if _, err := s.GrantAll(bg, asks); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if !s.Within(dir) {
					b.Fatal("not inside")
				}
			}
		})
	}
}
