package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard"
)

// A saved root is loaded unchanged, also with special characters in its name and path. The earlier
// text of the file stays.
func TestSave(t *testing.T) {
	const old = "# mine\n[limits] # all\nmax_file = \"10M\"\ntimeout = \"5s\"\n\n[[root]]\npath = \"/srv/a\" # first\n[profile.p]\nroots = [\"a\"]"
	common := guard.Limits{MaxFile: 10 << 20, Timeout: 5 * time.Second}
	for _, tc := range []struct {
		name string
		root Root
		want string // in the file
	}{
		{"plain", Root{Name: "b", Path: "/srv/b", Rights: guard.ReadWrite, Limits: common}, "[[root]]\nname = \"b\"\npath = \"/srv/b\"\nmode = \"rw\"\n"},
		{"hostile", Root{Name: "b [x] #\u00e9", Path: "/srv/\"\\\n\x01\x7f'''\u202e", Rights: guard.Read, Limits: common}, `\u000A`},
		{"everything", Root{Name: "b", Path: "/srv/b", Rights: guard.ReadOnly, For: 90 * time.Minute, CrossFileSystems: true, AllowSystem: true,
			Limits: guard.Limits{OpsPerSecond: 0.25, Burst: 1, BytesInFlight: 2, MaxFile: 0, MaxWritten: 4, MaxCreated: 5, Timeout: time.Second}}, "for = \"1h30m0s\""},
		{"expires", Root{Name: "b", Path: "/srv/b", Rights: guard.ReadOnly, Limits: common, Expires: time.Date(2031, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))}, "2031-01-02T03:04:05+01:00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(home(t), "config.toml")
			write(t, path, old)
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := Save(path, tc.root, nil); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(text), old+"\n\n[[root]]\n") || !strings.Contains(string(text), tc.want) {
				t.Errorf("file:\n%s", text)
			}
			if info, _ := os.Stat(path); info.Mode() != 0o600 {
				t.Errorf("mode %v", info.Mode())
			}
			c, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Roots) != 2 || !same(c.Roots[1], tc.root) {
				t.Errorf("loaded %+v\nsaved %+v", c.Roots[1:], tc.root)
			}
			onlyFile(t, path)
		})
	}
}

// onlyFile fails the test if the directory of path has another file, too.
func onlyFile(t *testing.T, path string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(list) != 1 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}

func TestSaveNew(t *testing.T) {
	path := filepath.Join(home(t), ".config/rootsfs/config.toml")
	if err := Save(path, Root{Name: "b", Path: "/srv/b", Rights: guard.ReadOnly}, nil); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil || len(c.Roots) != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("directory: %v, %v", info, err)
	}
}

// SaveNet appends hosts to the earlier text. It leaves out hosts that an earlier block without an
// end allows to the same runs.
func TestSaveNet(t *testing.T) {
	path := filepath.Join(home(t), "config.toml")
	const old = "# mine\n[[net]]\nask = true # all\nhosts = [\"every.test:1\"]\n[[net]]\nhosts = [\"short.test:1\"]\nfor = \"1h\"\n"
	write(t, path, old)
	save := func(rules, subject string, length time.Duration) {
		t.Helper()
		list, err := network.ParseRules(rules)
		if err != nil {
			t.Fatal(err)
		}
		if err := SaveNet(path, Net{Hosts: list, Subject: subject, For: length}); err != nil {
			t.Fatal(err)
		}
	}
	save("a.test:443,every.test:1", "me", 0)
	save("a.test:443", "me", 0)
	save("a.test:443", "x\" # \\", time.Hour)
	save("short.test:1,[2606:4700::1]:443", "me", 0)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := old + "\n[[net]]\nhosts = [\"a.test:443\"]\nsubject = \"me\"\n" +
		"\n[[net]]\nhosts = [\"a.test:443\"]\nsubject = \"x\\\" # \\\\\"\nfor = \"1h0m0s\"\n" +
		"\n[[net]]\nhosts = [\"short.test:1\", \"[2606:4700::1]:443\"]\nsubject = \"me\"\n"
	if string(text) != want {
		t.Errorf("file:\n%s\nwant:\n%s", text, want)
	}
	c, err := Load(path)
	if err != nil || len(c.Net) != 5 || !c.Net[0].Ask || c.Net[2].Ask || c.Net[3].Subject != "x\" # \\" {
		t.Errorf("%+v, %v", c, err)
	}
	if err := SaveNet(path, Net{Hosts: c.Net[2].Hosts, Subject: "a\n"}); err == nil || !strings.Contains(err.Error(), "cannot add hosts: with it the file would be wrong") {
		t.Errorf("an invalid subject: %v", err)
	}
}

// A link stays a link; its target is replaced. A root that contains the target is refused.
func TestSaveLink(t *testing.T) {
	dir := home(t)
	path, target := filepath.Join(dir, "config.toml"), filepath.Join(dir, "dot/c.toml")
	write(t, target, "# x\n")
	if err := os.Symlink("dot/c.toml", path); err != nil {
		t.Fatal(err)
	}
	if err := Save(path, Root{Name: "b", Path: "/srv/b", Rights: guard.ReadOnly}, nil); err != nil {
		t.Fatal(err)
	}
	if link, err := os.Readlink(path); err != nil || link != "dot/c.toml" {
		t.Errorf("link: %q, %v", link, err)
	}
	onlyFile(t, target)
	if c, err := Load(path); err != nil || len(c.Roots) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	saved, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	around := Root{Name: "dot", Path: filepath.Dir(target), Rights: guard.ReadOnly}
	if err := Save(path, around, nil); err == nil || !strings.Contains(err.Error(), "with it the file would be wrong") || !strings.Contains(err.Error(), "contains this configuration file") {
		t.Errorf("a root that contains the target: %v", err)
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != string(saved) {
		t.Errorf("the refused root has changed the file: %s, %v", text, err)
	}
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	if err := Save(path, Root{Name: "b", Path: "/srv/b", Rights: guard.ReadOnly}, nil); err == nil || !strings.Contains(err.Error(), "link to nothing") {
		t.Errorf("dangling: %v", err)
	}
}

// A root that contains a new file is refused also if a directory on the way to the file is a link.
func TestSaveNewBehindLink(t *testing.T) {
	dir := home(t)
	target := filepath.Join(dir, "dot")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("dot", filepath.Join(dir, "conf")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "conf/config.toml")
	err := Save(path, Root{Name: "dot", Path: target, Rights: guard.ReadOnly}, nil)
	if list, _ := os.ReadDir(target); err == nil || !strings.Contains(err.Error(), "contains this configuration file") || len(list) > 0 {
		t.Errorf("%v; written: %v", err, list)
	}
	if err := Save(path, Root{Name: "b", Path: "/srv/b", Rights: guard.ReadOnly}, nil); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(path); err != nil || len(c.Roots) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A save that fails changes nothing, and the error says why.
func TestSaveRefused(t *testing.T) {
	good := Root{Name: "b", Path: "/srv/b", Rights: guard.ReadOnly}
	for _, tc := range []struct {
		name, old, want string
		root            Root
	}{
		{"name taken", "\n[[root]]\npath = \"/srv/b\"\n", "line 2 has a root of that name", good},
		{"bad file", "oops = 1\n", ":1: oops: unknown key", good},
		{"inline roots", "root = [{path = \"/srv/a\"}]\n", "with it the file would be wrong", good},
		{"contains the file", "", "contains this configuration file", Root{Name: "b", Path: "/", Rights: guard.ReadOnly}},
		{"relative", "", "is relative", Root{Name: "b", Path: "b", Rights: guard.ReadOnly}},
		{"bad name", "", "name", Root{Name: "b/c", Path: "/srv/b", Rights: guard.ReadOnly}},
		{"no rights", "", "mode", Root{Name: "b", Path: "/srv/b"}},
		{"not UTF-8", "", "not UTF-8", Root{Name: "b", Path: "/srv/\xff", Rights: guard.ReadOnly}},
		{"too large", strings.Repeat("#", maxSize-4) + "\n", "larger than the limit", good},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(home(t), "config.toml")
			write(t, path, tc.old)
			err := Save(path, tc.root, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), path) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != tc.old {
				t.Errorf("the file was changed: %q, %v", text, err)
			}
			onlyFile(t, path)
		})
	}
	path := filepath.Join(home(t), "config.toml")
	write(t, path, "")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Save(path, good, nil); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("untrusted: %v", err)
	}
}

// Concurrent saves exclude each other, and none is lost.
func TestSaveMany(t *testing.T) {
	path := filepath.Join(home(t), "config.toml")
	var wg sync.WaitGroup
	const n = 8
	for i := range n {
		wg.Go(func() {
			if err := Save(path, Root{Name: guard.RootName(rune('a' + i)), Path: "/srv/x", Rights: guard.ReadOnly}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if c, err := Load(path); err != nil || len(c.Roots) != n {
		t.Errorf("%+v, %v", c, err)
	}
}
