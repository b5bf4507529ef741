package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

func guardOf(p client.Platform, uris ...string) *client.Guard {
	var roots []wire.Root
	for _, u := range uris {
		roots = append(roots, wire.Root{URI: u})
	}
	return client.NewGuard(p, roots)
}

func posixOnly(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a machine with POSIX paths")
	}
}

// tree makes directories of alice and bob, a file of each, and links that lead into alice/project
// and out of it.
func tree(t *testing.T) (base string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"alice/project/src", "alice/project-evil", "bob"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(base, d), 0o755))
	}
	testkit.Must(t, os.WriteFile(base+"/alice/project/README.md", nil, 0o644))
	testkit.Must(t, os.WriteFile(base+"/bob/secrets", nil, 0o644))
	for link, target := range map[string]string{
		"alice/project/etc":      "/etc",
		"alice/project/out":      "../../bob",
		"alice/project/in":       "src",
		"alice/project/dangling": base + "/bob/none",
		"alice/project/dangle2":  "none/x",
		"alice/project/loop":     "loop",
		"alice/project/deep":     "src/../../../bob",
		"door":                   base + "/alice/project",
	} {
		testkit.Must(t, os.Symlink(target, filepath.Join(base, link)))
	}
	return base
}

// R113, R131, R158, R175, R188, R189, R194, R195, R196, R197, R204, R206, R207, R208,
// R209: the local guard.
func TestGuardLocal(t *testing.T) {
	posixOnly(t)
	base := tree(t)
	root := base + "/alice/project"
	g := guardOf(client.Local, names.FormatURI(root))
	for _, tc := range []struct {
		name, path string
		want       bool
	}{
		{"R195 path", root + "/src/main.py", true},
		{"R195 directory", root + "/src", true},
		{"R195 R197 file URI", "file://" + root + "/README.md", true},
		{"R195 localhost URI", "file://localhost" + root + "/data.json", true},
		{"R196 climbs and comes back", root + "/../project/src", true},
		{"R206 the root itself", root, true},
		{"R206 with a trailing slash", root + "/", true},
		{"R206 its parent", base + "/alice", false},
		{"R206 top", "/", false},
		{"R158 sibling with the same beginning", root + "-evil/x", false},
		{"R188 climbs out", root + "/../../../../../../../etc/passwd", false},
		{"R188 climbs to a neighbour", root + "/../../bob/secrets", false},
		{"R189 R175 link to /etc", root + "/etc/passwd", false},
		{"R189 the link itself", root + "/etc", false},
		{"R175 relative link out", root + "/out/secrets", false},
		{"R175 link with dots out", root + "/deep/secrets", false},
		{"R175 link inside", root + "/in/x", true},
		{"R175 .. after a link means its target's parent", root + "/out/../alice/project/src", true},
		{"R175 .. after a link out", root + "/in/../../x", false},
		{"link from outside to the root", base + "/door/src", true},
		{"R204 missing tail inside", root + "/new/dir/file", true},
		{"R204 missing tail outside", base + "/bob/new/file", false},
		{"R204 missing, then ..", root + "/new/../src", false},
		{"R204 dangling link out", root + "/dangling", false},
		{"R204 dangling link inside", root + "/dangle2", false},
		{"R209 link loop", root + "/loop/x", false},
		{"R209 through a file", root + "/README.md/x", false},
		{"R209 element too long", root + "/" + strings.Repeat("x", 300), false},
		{"R209 NUL", root + "/\x00", false},
		{"R197 /etc/passwd", "/etc/passwd", false},
		{"R197 another's home", base + "/bob/secrets", false},
		{"empty", "", false},
		{"R200 other host", "file://server" + root + "/src", false},
		{"percent-encoded slash", "file://" + root + "%2Fsrc", false},
		{"a URI with another scheme is a relative path", "https://x" + root, false},
		{"R205 other case", base + "/alice/PROJECT/src", false},
	} {
		if got := g.Within(tc.path); got != tc.want && !(strings.HasPrefix(tc.name, "R205") && runtime.GOOS == "darwin") {
			t.Errorf("%s: Within(%q) = %v: %v", tc.name, tc.path, got, g.Check(tc.path))
		}
	}
	// R207: no roots, no access; a nil and a zero guard too.
	for _, none := range []*client.Guard{guardOf(client.Local), nil, {}, guardOf(client.POSIX), guardOf(client.Windows)} {
		if none.Within(root+"/src") || none.Within("/") || none.Within(`C:\`) {
			t.Error("R207: a guard without roots admits")
		}
	}
	// The root / holds every path.
	if all := guardOf(client.Local, "file:///"); !all.Within("/etc") || !all.Within("/") {
		t.Error("the root / does not hold its files")
	}
	// A root that is not a file URI of this machine, or cannot be resolved, has no effect.
	for _, bad := range []string{root, "https://x" + root, "file:" + root, "file://other" + root, "file://" + base + "/alice/project/loop/x", ""} {
		if guardOf(client.Local, bad).Within(root) {
			t.Errorf("the root %q counts", bad)
		}
	}
}

// R203, R208: ~ and relative paths are resolved for a local client, and denied for other clients.
func TestGuardHomeAndWorkingDirectory(t *testing.T) {
	posixOnly(t)
	base := tree(t)
	g := guardOf(client.Local, names.FormatURI(base+"/alice"))
	t.Setenv("HOME", base+"/alice")
	for path, want := range map[string]bool{"~": true, "~/project/src": true, "~/../bob": false, "~alice/project": false, "~bob": false} {
		if g.Within(path) != want {
			t.Errorf("Within(%q) = %v", path, !want)
		}
	}
	t.Setenv("HOME", "")
	for _, path := range []string{"~", "~/project"} {
		if g.Within(path) {
			t.Errorf("without HOME, %q is inside", path)
		}
	}
	t.Chdir(base + "/alice/project")
	for path, want := range map[string]bool{"src": true, ".": true, "../project": true, "../../bob": false, "out/secrets": false} {
		if g.Within(path) != want {
			t.Errorf("R208: from inside, Within(%q) = %v", path, !want)
		}
	}
	t.Chdir(base + "/bob")
	for path, want := range map[string]bool{"secrets": false, "../alice/project": true} {
		if g.Within(path) != want {
			t.Errorf("R208: from outside, Within(%q) = %v", path, !want)
		}
	}
	// R207: neither form means anything on another machine.
	for _, p := range []client.Platform{client.POSIX, client.Windows} {
		remote := guardOf(p, "file:///home/alice", "file:///c:/home/alice")
		for _, path := range []string{"~", "~/x", "x", "./x", "../alice"} {
			if remote.Within(path) {
				t.Errorf("platform %d: %q is inside", p, path)
			}
		}
	}
}

// R174: Within opens no file. If it opened a FIFO, inside or outside the root, the test would
// hang.
func TestGuardOpensNothing(t *testing.T) {
	base := tree(t)
	fifo(t, base+"/bob/fifo")
	fifo(t, base+"/alice/project/fifo")
	g := guardOf(client.Local, names.FormatURI(base+"/alice/project"))
	if g.Within(base+"/bob/fifo") || !g.Within(base+"/alice/project/fifo") {
		t.Error("wrong answers")
	}
}

// R192: the answer of Within holds only for the moment of the call.
func TestGuardAnswerHoldsForOneMoment(t *testing.T) {
	posixOnly(t)
	base := tree(t)
	root := base + "/alice/project"
	g := guardOf(client.Local, names.FormatURI(root))
	if !g.Within(root + "/src/x") {
		t.Fatal("not inside at first")
	}
	if err := errors.Join(os.Remove(root+"/src"), os.Symlink(base+"/bob", root+"/src")); err != nil {
		t.Fatal(err)
	}
	if g.Within(root + "/src/x") {
		t.Error("the next call does not see that a link has replaced the directory")
	}
	// A root that becomes a link does not widen a guard made before.
	if err := errors.Join(os.Rename(root, root+"-moved"), os.Symlink(base+"/bob", root)); err != nil {
		t.Fatal(err)
	}
	if g.Within(root+"/secrets") || g.Within(base+"/bob/secrets") {
		t.Error("the guard follows its root elsewhere")
	}
}

// R102, R205: the paths of a POSIX client on another machine are judged by name, and case counts.
func TestGuardRemotePOSIX(t *testing.T) {
	g := guardOf(client.POSIX, "file:///home/alice/project", "file:///home/alice/with%20space")
	for path, want := range map[string]bool{
		"/home/alice/project/src": true, "/home/alice/project": true, "/home/alice//project/./src/": true,
		"file:///home/alice/project/x": true, "file:///home/alice/with%20space/x": true, "/home/alice/with space/x": true,
		"/home/alice/project-evil": false, "/home/alice/Project": false, "/home/alice": false, "/etc/passwd": false,
		"/home/alice/project/../project/src": false, // the meaning of .. depends on links of that machine
		"/home/alice/project/../../bob":      false,
		`C:\home`:                            false, `\\home\alice`: false, "file://server/home/alice/project": false,
	} {
		if g.Within(path) != want {
			t.Errorf("Within(%q) = %v: %v", path, !want, g.Check(path))
		}
	}
}

// R190, R191, R202, R205, R227: on every platform the paths of a Windows client are judged by
// the rules of Windows.
func TestGuardWindows(t *testing.T) {
	g := guardOf(client.Windows, "file:///c:/Users/alice/project", "file://server/share/folder", "file:///D:/")
	for path, want := range map[string]bool{
		`C:\Users\alice\project\x`: true, `c:\users\ALICE\Project`: true, "C:/Users/alice/project/x": true, // R190
		"file:///C:/Users/alice/project/a%20b": true, "file://localhost/c:/users/alice/project": true, "file:///c|/Users/alice/project": true,
		`\\server\share\folder\x`: true, "//SERVER/Share/folder": true, "file://server/share/folder/x": true, "file:////server/share/folder/x": true, // R191
		`D:\anything\at\all`: true, `d:\`: true, "D:": true,
		`C:\Users\alice\project-evil`: false, `C:\Users\alice`: false, `\\server\share\other`: false, `\\server\share`: false, `\\other\share\folder`: false,
		`C:\Users\alice\project\..\secret`: false, `C:\Users\alice\project\x\..`: false,
		`C:Users\alice\project`: false, `\Users\alice\project`: false, `Users\alice`: false, "/home": false,
		`\\?\C:\Users\alice\project`: false, `\\.\C:\Users\alice\project`: false,
		`C:\Users\alice\project\x:stream`: false, `C:\Users\alice\project\CON`: false, `C:\Users\alice\project\nul.txt`: false, `C:\Users\alice\project\com1`: false,
		`C:\Users\alice\project\x.`: false, `C:\Users\alice\project\.. `: false, `C:\Users\alice\project\x `: false, "C:\\Users\\alice\\project\\\x01": false,
		"C:\\Users\\alice\\project\\\xff": false, "file:///c:/Users/alice/project/%2e%2e/x": false,
	} {
		if g.Within(path) != want {
			t.Errorf("Within(%q) = %v: %v", path, !want, g.Check(path))
		}
	}
	// Case is folded no further than NTFS folds it: the Kelvin sign (U+212A) is not the letter k.
	k := guardOf(client.Windows, "file:///c:/kelvin", "file:///c:/%C3%A4")
	if k.Within("C:\\\u212aelvin") || !k.Within(`C:\KELVIN`) || !k.Within(`C:\Ä`) {
		t.Error("the folding of case is not NTFS's")
	}
}

// R176, R202, R228: ParseWindowsURI accepts or refuses the forms of RFC 8089, and a refusal says
// why. The comments of the table name sections of RFC 8089.
func TestParseWindowsURI(t *testing.T) {
	for _, tc := range []struct{ uri, want, refusal string }{
		{"file:///c:/path/to/file", `C:\path\to\file`, ""}, // E.2
		{"file:///C:/Users/alice/project", `C:\Users\alice\project`, ""},
		{"file:///c|/path/to/file", `C:\path\to\file`, ""}, // E.2.2
		{"file:///c%7C/x", `C:\x`, ""},
		{"file:///c%3A/x", `C:\x`, ""},
		{"file://localhost/c:/x", `C:\x`, ""},
		{"FILE:///c:/x", `C:\x`, ""},
		{"file:///c:", "C:", ""},
		{"file:///c:/", "C:", ""},
		{"file:///c:/a%20b%23", `C:\a b#`, ""}, // R201
		{"file:///c:/%C3%A4", `C:\ä`, ""},
		{"file://host.example.com/share/path/to/file", `\\host.example.com\share\path\to\file`, ""}, // E.3.1
		{"file:////host.example.com/share/path", `\\host.example.com\share\path`, ""},               // E.3.2
		{"file://///host.example.com/share/path", "", "share"},                                      // E.3.2, five slashes
		{"file://server/share", `\\server\share`, ""},
		{"file:c:/path", "", "authority"},
		{"file:/c:/path", "", "authority"},
		{"file://c:/path", "", "port"},
		{"file://user@server/share/x", "", "user information"},
		{"file://server:445/share/x", "", "port"},
		{"file:///c:/x?q", "", "query"},
		{"file:///c:/x#f", "", "fragment"},
		{"file:///c:/%2fx", "", "separator"},
		{"file:///c:/%5Cx", "", "separator"},
		{"file:///c:/%00", "", "NUL"},
		{"file:///c:/%zz", "", "malformed"},
		{"file:///c:/%f", "", "ends inside"},
		{"file:///c:/%ff", "", "UTF-8"},
		{`file:///c:\x`, "", "backslash"},
		{"file:///c:/a/../b", "", "dot element"},
		{"file:///c:/a/%2e%2e/b", "", "dot element"},
		{"file:///home/alice", "", "absolute"},
		{"file://server", "", "no path"},
		{"file://server/", "", "share"},
		{"file:///", "", "absolute"},
		{"http://server/share", "", "not a file URI"},
	} {
		got, err := client.ParseWindowsURI(tc.uri)
		switch {
		case tc.refusal == "" && (err != nil || got != tc.want):
			t.Errorf("%s: %q, %v; want %q", tc.uri, got, err, tc.want)
		case tc.refusal != "" && (err == nil || !strings.Contains(err.Error(), tc.refusal) || !errors.Is(err, names.Invalid)):
			t.Errorf("%s: %q, %v; want a refusal that says %q", tc.uri, got, err, tc.refusal)
		}
	}
}

// R176, R198, R199, R200, R201, R228: a guard of a POSIX client decodes the file URIs of roots and
// paths. It denies URIs that are malformed, or name another host or another path.
func TestGuardURIs(t *testing.T) {
	g := guardOf(client.POSIX, "file:///r/a%20b/%ff")
	for uri, want := range map[string]bool{
		"file:///r/a%20b/%FF/x": true, "file://localhost/r/a%20b/%ff": true, "FILE:///r/a%20b/%ff": true,
		"file://LOCALHOST/r/a%20b/%ff/%25": true,
		"file://host/r/a%20b/%ff":          false, "file:/r/a%20b/%ff": false, "file:///r/a%20b/%ff/%2F": false,
		"file:///r/a%20b/%ff/%00": false, "file:////r/a%20b/%ff": false, "file:///c:/r": false, "file:///r/a%20b/%ff/..": false, "file:///r/a%20b/%fe": false,
	} {
		if g.Within(uri) != want {
			t.Errorf("Within(%q) = %v: %v", uri, !want, g.Check(uri))
		}
	}
	// R222: a path that is turned into a URI and back stays the same.
	for _, p := range []string{"/tmp/mcp scratch", "/a#b", "/100%", "/a?b", "/ü", "/\xff", "/a;b&c=d"} {
		if g := guardOf(client.POSIX, names.FormatURI(p)); !g.Within(p) || len(g.Roots()) != 1 || g.Roots()[0] != p {
			t.Errorf("%q became %q", p, g.Roots())
		}
	}
}

// R194: a guard is immutable and safe for concurrent use.
func TestGuardIsImmutable(t *testing.T) {
	roots := []wire.Root{{URI: "file:///a"}}
	g := client.NewGuard(client.POSIX, roots)
	roots[0].URI = "file:///b"
	g.Roots()[0] = "/b"
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if !g.Within("/a/x") || g.Within("/b/x") {
					t.Error("changed from outside")
				}
			}
		})
	}
	wg.Wait()
}

// The refusal names the path as it was given, escaped, and not where links lead.
func TestGuardReasons(t *testing.T) {
	posixOnly(t)
	base := tree(t)
	g := guardOf(client.Local, names.FormatURI(base+"/alice/project"))
	err := g.Check(base + "/alice/project/out/se\ncrets")
	if !errors.Is(err, names.Escaped) || !strings.Contains(err.Error(), `/alice/project/out/se\ncrets`) || strings.Contains(err.Error(), "bob") {
		t.Errorf("got %v", err)
	}
	if err := g.Check("\x00"); !errors.Is(err, names.Invalid) {
		t.Errorf("got %v", err)
	}
	if err := guardOf(client.Local).Check("/x"); !strings.Contains(err.Error(), "no roots") {
		t.Errorf("got %v", err)
	}
}

// The check of a path of about 2 MiB is fast, and the refusal is short. If the check read the
// path again for each element, the test would take hours.
func TestGuardLongPaths(t *testing.T) {
	posixOnly(t)
	base := tree(t)
	long := strings.Repeat("/a", 1<<20)
	local := guardOf(client.Local, names.FormatURI(base+"/alice"))
	for _, p := range []string{long, base + "/alice" + long, base + "/alice" + strings.Repeat("/../alice", 1<<18), "~" + long, "file://" + base + "/alice" + long} {
		if err := local.Check(p); !errors.Is(err, names.TooLong) || len(err.Error()) > 1000 {
			t.Errorf("%.40s…: %.200v", p, err)
		}
	}
	longest := base + "/alice" + strings.Repeat("/a", (names.MaxHostPath-1-len(base+"/alice"))/2)
	if !local.Within(longest) || local.Within(longest+"/a") {
		t.Error("the bound is not that of the system")
	}
	if g := guardOf(client.POSIX, "file:///r"); !g.Within("/r"+long) || g.Within(long) {
		t.Error("a long path of another machine is not judged by its name")
	}
}

func FuzzGuard(f *testing.F) {
	for _, s := range []string{"/home/alice/x", `C:\Users\x`, "file:///c:/x", "~", "//server/share", "file://server/share/..", `\\?\C:\x`} {
		f.Add(s)
	}
	posix, windows := guardOf(client.POSIX, "file:///home/alice"), guardOf(client.Windows, "file:///c:/users/alice")
	f.Fuzz(func(t *testing.T, s string) {
		if posix.Within(s) && (!strings.Contains(s, "alice") && !strings.Contains(s, "%") || hasDots(s, "/")) {
			t.Errorf("POSIX: %q is inside", s)
		}
		if windows.Within(s) && hasDots(strings.ReplaceAll(s, "/", `\`), `\`) {
			t.Errorf("Windows: %q is inside", s)
		}
		if p, err := client.ParseWindowsURI(s); err == nil && (hasDots(p, `\`) || strings.ContainsAny(p, "/\x00")) {
			t.Errorf("%q became %q", s, p)
		}
	})
}

func hasDots(p, sep string) bool {
	for e := range strings.SplitSeq(p, sep) {
		if e == ".." {
			return true
		}
	}
	return false
}
