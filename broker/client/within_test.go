package client_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/broker/client"
)

// R158, R174, R175, R188, R189, R192 (the answer holds for the moment of the call only), R196,
// R197, R198, R206, R207, R208: Within reports whether a path lies inside a root. A server calls
// Within before it opens the path.
func TestWithinOfFiles(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(rel string) string { return filepath.Join(base, rel) }
	if err := errors.Join(os.MkdirAll(at("frontend/src"), 0o755), os.MkdirAll(at("frontend-evil"), 0o755), os.MkdirAll(at("a b/c"), 0o755),
		os.MkdirAll(at("deep/er"), 0o755), os.WriteFile(at("config.json"), nil, 0o644),
		os.WriteFile(at("frontend/README.md"), nil, 0o644), os.WriteFile(at("secret"), nil, 0o644),
		os.Symlink("/etc", at("frontend/etc")), os.Symlink("src", at("frontend/in")), os.Symlink(at("frontend"), at("alias")),
		os.Symlink(at("nothing"), at("frontend/dangling")), os.Symlink("loop", at("frontend/loop")),
		os.Symlink(at("deep/er"), at("frontend/sideways"))); err != nil {
		t.Fatal(err)
	}
	none := guardOf(client.Local)
	for _, p := range []string{"frontend", "/etc/passwd"} {
		if none.Within(at(p)) {
			t.Errorf("%s is inside, although there are no roots", p) // R207
		}
	}
	uri := func(rel string) string { return (&url.URL{Scheme: "file", Path: at(rel)}).String() }
	s := guardOf(client.Local, uri("frontend"), uri("a b"), uri("config.json"))
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
		// ".." after a link is resolved as the kernel does it, not by the text alone.
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
			t.Errorf("with the working directory in a root, Within(%q) = %v", p, got)
		}
	}
	t.Chdir(base)
	for p, want := range map[string]bool{".": false, "frontend": true, "./frontend-evil": false} {
		if got := s.Within(p); got != want {
			t.Errorf("with the working directory outside all roots, Within(%q) = %v", p, got)
		}
	}
	t.Setenv("HOME", at("frontend"))
	if !s.Within("~") || !s.Within("~/src") || s.Within("~/../secret") || s.Within("~other") {
		t.Error("with HOME in a root: ~ or ~/src is outside, or ~/../secret or ~other is inside")
	}
}
