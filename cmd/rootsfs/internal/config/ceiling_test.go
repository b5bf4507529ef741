package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// writeCeiling writes files below a new directory, and returns the directory.
func writeCeiling(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, doc := range files {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Must(t, os.WriteFile(path, []byte(doc), 0o644))
	}
	return dir
}

func mustCeiling(t *testing.T, files map[string]string) *Ceiling {
	t.Helper()
	c, err := loadCeiling(writeCeiling(t, files), os.Geteuid(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each mistake in a file is an error, even if another file has no mistake.
func TestCeilingMistakes(t *testing.T) {
	const good = "[grants]\nlongest = \"8h\"\n"
	for what, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"an unknown key":             {map[string]string{"ceiling.toml": "[grant]\nlongest = \"8h\"\n"}, "ceiling.toml:1: grant: unknown key"},
		"an empty file":              {map[string]string{"ceiling.toml": ""}, "is empty; to lift the ceiling, remove the file"},
		"only comments":              {map[string]string{"ceiling.toml": "# soon\n"}, "is empty"},
		"no path":                    {map[string]string{"ceiling.toml": "[[root]]\nmode = \"rw\"\n"}, "ceiling.toml:1: root.path: is missing"},
		"a text that is no mode":     {map[string]string{"ceiling.toml": "[[root]]\npath = \"/a\"\nmode = \"w\"\n"}, "or none"},
		"a path twice":               {map[string]string{"ceiling.toml": "[[root]]\npath = \"/a\"\n[[root]]\npath = \"/a/\"\n"}, "has a block already, in line 1"},
		"a mistake in another file":  {map[string]string{"ceiling.toml": good, "ceiling.d/b.toml": "x"}, "ceiling.d/b.toml:1"},
		"a relative path":            {map[string]string{"ceiling.toml": "[[root]]\npath = \"a\"\n"}, "is relative"},
		"a text that is no level":    {map[string]string{"ceiling.toml": "[run]\nlevel = \"off\"\n"}, "run.level"},
		"a text that is no host":     {map[string]string{"ceiling.toml": "[run]\nhosts = [\"*\"]\n"}, "run.hosts"},
		"zero days":                  {map[string]string{"ceiling.toml": "[records]\ndays = 0\n"}, "records.days"},
		"two mistakes, both counted": {map[string]string{"ceiling.toml": "[run]\nlevel = \"x\"\nsecrets = [\"\"]\n"}, "(and 1 more)"},
	} {
		if _, err := loadCeiling(writeCeiling(t, c.files), os.Geteuid(), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// If another user could have written a file of the ceiling, or if the file is a link that leads
// nowhere, reading the ceiling fails: the machine must not be taken for one without a ceiling. If
// the directory does not exist, there is no ceiling, and reading succeeds.
func TestUntrustedCeilingIsRefused(t *testing.T) {
	doc := map[string]string{"ceiling.toml": "[grants]\nlongest = \"8h\"\n", "ceiling.d/a.toml": "[grants]\nlongest = \"1h\"\n"}
	for what, c := range map[string]struct {
		spoil func(dir string) error
		want  string
	}{
		"a file that others can write":           {func(d string) error { return os.Chmod(filepath.Join(d, "ceiling.toml"), 0o666) }, "is writable by others"},
		"a directory that others can write":      {func(d string) error { return os.Chmod(filepath.Join(d, "ceiling.d"), 0o777) }, "others can replace files"},
		"ceiling.toml as a dangling link":        {func(d string) error { return replaceByLink(filepath.Join(d, "ceiling.toml")) }, "ceiling.toml: the file or its directory is a link that leads nowhere"},
		"ceiling.d as a dangling link":           {func(d string) error { return replaceByLink(filepath.Join(d, "ceiling.d")) }, "ceiling.d"},
		"a file of ceiling.d as a dangling link": {func(d string) error { return replaceByLink(filepath.Join(d, "ceiling.d", "a.toml")) }, "a.toml"},
	} {
		dir := writeCeiling(t, doc)
		testkit.Must(t, c.spoil(dir))
		if _, err := loadCeiling(dir, os.Geteuid(), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	if os.Geteuid() != 0 {
		if _, err := loadCeiling(writeCeiling(t, doc), 0, nil); err == nil || !strings.Contains(err.Error(), "chown root") {
			t.Errorf("files that belong to a user: %v", err)
		}
	}
	if c, err := loadCeiling(filepath.Join(t.TempDir(), "none"), 0, nil); err != nil || !c.Empty() {
		t.Errorf("without a directory: %v, %v", c, err)
	}
}

func replaceByLink(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Symlink("/nowhere/at/all", path)
}

// A user's own link does not move a place of the ceiling, and neither does HOME.
func TestCeilingPlacesAreResolved(t *testing.T) {
	home, err := homeOf(os.Geteuid())
	if err != nil {
		t.Skip("this user is in no list of users")
	}
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	testkit.Must(t, os.Symlink("/etc", filepath.Join(dir, "work")))
	if os.Geteuid() == 0 {
		testkit.Must(t, os.Lchown(filepath.Join(dir, "work"), 65534, 65534))
	}
	c := mustCeiling(t, map[string]string{"ceiling.toml": "[[root]]\npath = \"" + dir + "/work\"\nmode = \"rw\"\n[[root]]\npath = \"~/x\"\n"})
	places := c.Roots[0].Places
	if want := filepath.Join(dir, "work"); places[0].Dir != want || places[0].Rights != guard.ReadWrite || !strings.HasSuffix(places[0].Where, "ceiling.toml:1") {
		t.Errorf("%+v, want %s", places[0], want)
	}
	if want := filepath.Join(resolveTrusted(home), "x"); places[1].Dir != want || places[1].Rights != guard.ReadOnly {
		t.Errorf("%+v, want %s", places[1], want)
	}
}

// The bounds of each file apply, and a key that a file lacks bounds nothing. TestCeilingWays of
// package main reads the lines that begin with "ceiling:".
//
// ceiling: run.level by other file
// ceiling: run.hosts by other file
// ceiling: run.secrets by other file
// ceiling: records.paths by other file
// ceiling: records.days by other file
func TestCeilingsOfFiles(t *testing.T) {
	c := mustCeiling(t, map[string]string{
		"ceiling.toml":       "[run]\nhosts = [\"*.example.org:443\", \"10.0.0.0/8\"]\nsecrets = [\"gh\"]\nlevel = \"landlock\"\n",
		"ceiling.d/10.toml":  "[run]\nhosts = [\"a.example.org\", \"*.b.example.org\", \"10.1.0.0/16:80\", \"other.org\"]\n[records]\npaths = \"hash\"\ndays = 30\n",
		"ceiling.d/20.toml":  "[run]\nlevel = \"bubblewrap\"\n[records]\ndays = 90\n",
		"ceiling.d/note.txt": "nothing",
		"ceiling.d/.#a.toml": "nothing",
	})
	if len(c.Files) != 3 {
		t.Errorf("files that were read: %q, want 3", c.Files)
	}
	for host, ok := range map[string]bool{
		"a.example.org:443": true, "a.example.org": false, "a.example.org:80": false, "c.example.org:443": false,
		"*.b.example.org:443": true, "*.example.org:443": false, "x.b.example.org:443": true, "other.org:443": false,
		"10.1.2.3:80": true, "10.1.2.3": false, "10.2.2.3:80": false, "10.1.0.0/24:80": true, "10.0.0.0/8:80": false,
	} {
		rule, err := network.ParseRule(host)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.CheckHost(rule); (err == nil) != ok {
			t.Errorf("%s: %v, want allowed %v", host, err, ok)
		}
	}
	if err := c.CheckWholeNet(); err == nil || !strings.Contains(err.Error(), "ceiling.toml:2") {
		t.Errorf("the whole network: %v", err)
	}
	for _, one := range []struct {
		name, host string
		ok         bool
	}{{"gh", "a.example.org", true}, {"aws", "a.example.org", false}, {"gh", "evil.test", false}} {
		if err := c.CheckSecret(one.name, secret.URL{Host: one.host, Port: 443}); (err == nil) != one.ok {
			t.Errorf("the secret %s for %s: %v", one.name, one.host, err)
		}
	}
	if level, where := c.Level(); level != "bubblewrap" || !strings.HasSuffix(where, "20.toml:2") {
		t.Errorf("level %s by %s", level, where)
	}
	if c.CheckPaths("full") != nil || c.CheckPaths("hash") != nil || c.CheckPaths("none") == nil || c.KeepDays() != 90 {
		t.Error("CheckPaths or KeepDays is wrong")
	}
	var none *Ceiling
	if !none.Empty() || none.CheckWholeNet() != nil || none.CheckPaths("none") != nil || none.CheckSecret("x", secret.URL{Host: "a.test", Port: 443}) != nil || none.KeepDays() != 0 {
		t.Error("without a ceiling something is refused")
	}
}

// For a file with a mistake, the contents in the last ceiling count. For every other file, the
// present contents count: a bad file does not delay the changes of other files in a live session.
func TestLoadCeilingWithBadFile(t *testing.T) {
	dir := writeCeiling(t, map[string]string{
		"ceiling.toml": "[run]\nhosts = [\"a.test\"]\n", "ceiling.d/10.toml": "[run]\nlevel = \"landlock\"\n", "ceiling.d/20.toml": "[records]\ndays = 3\n",
	})
	change := func(name, doc string) { testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(doc), 0o644)) }
	last, err := loadCeiling(dir, os.Geteuid(), nil)
	testkit.Must(t, err)
	change("ceiling.toml", "mistake\n")
	change("ceiling.d/10.toml", "[run]\nlevel = \"namespaces\"\n")
	change("ceiling.d/30.toml", "mistake, too\n")
	testkit.Must(t, os.Remove(filepath.Join(dir, "ceiling.d/20.toml")))
	now, err := loadCeiling(dir, os.Geteuid(), last)
	if err == nil || !strings.Contains(err.Error(), "ceiling.toml:1") {
		t.Errorf("the mistake: %v", err)
	}
	level, _ := now.Level()
	if now.CheckWholeNet() == nil || level != "namespaces" || now.KeepDays() != 0 || len(now.Files) != 2 {
		t.Errorf("with a bad file: hosts %v, level %s, days %d, files %q", now.CheckWholeNet(), level, now.KeepDays(), now.Files)
	}
	testkit.Must(t, os.Chmod(filepath.Join(dir, "ceiling.d"), 0o777))
	change("ceiling.toml", "[run]\nhosts = []\n")
	now, err = loadCeiling(dir, os.Geteuid(), now)
	level, _ = now.Level()
	if err == nil || level != "namespaces" || now.CheckHost(network.Rule{Name: "a.test"}) == nil {
		t.Errorf("with a directory that others can write: %v, level %s", err, level)
	}
}

// A fleet's ceiling can have every key. The refusal because of a key names the ceiling's number and
// the line. If the file of the fleet's ceilings cannot be used, its earlier ceilings stay in force.
// TestCeilingWays of package main reads the lines that begin with "ceiling:".
//
// ceiling: root.path by fleet's ceiling
// ceiling: root.mode by fleet's ceiling
// ceiling: grants.longest by fleet's ceiling
// ceiling: run.level by fleet's ceiling
// ceiling: run.hosts by fleet's ceiling
// ceiling: run.secrets by fleet's ceiling
// ceiling: records.paths by fleet's ceiling
// ceiling: records.days by fleet's ceiling
func TestFleetCeilingBoundsByEveryKey(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	dir, file, err := FleetDir()
	testkit.Must(t, err)
	testkit.Must(t, os.MkdirAll(dir, 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "member.json"), nil, 0o600))
	text := "[[root]]\npath = \"/srv\"\n[grants]\nlongest = \"1h\"\n[run]\nlevel = \"namespaces\"\nhosts = []\nsecrets = []\n[records]\npaths = \"hash\"\ndays = 9\n"
	doc, err := json.Marshal(FleetCeilings{Fleet: "acme", Ceilings: []FleetCeiling{{For: "all", Number: 3, Text: text}}})
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(file, doc, 0o600))
	var c Ceiling
	testkit.Must(t, c.addFleet(nil))
	rule, err := network.ParseRule("a.test")
	testkit.Must(t, err)
	_, level := c.Level()
	for key, got := range map[string]string{
		"line 1":  fmt.Sprint(c.CheckPath("/srv", guard.ReadWrite)),
		"line 6":  level,
		"line 7":  fmt.Sprint(c.CheckHost(rule)),
		"line 8":  fmt.Sprint(c.CheckSecret("x", secret.URL{Host: "a.test", Port: 443})),
		"line 10": fmt.Sprint(c.CheckPaths("none")),
	} {
		if !strings.Contains(got, "fleet acme, ceiling 3, "+key) {
			t.Errorf("%s: %s", key, got)
		}
	}
	if err := c.CheckPath("/other", guard.ReadOnly); err == nil || !strings.Contains(err.Error(), "(fleet acme, ceiling 3)") {
		t.Errorf("another place: %v", err)
	}
	if c.Roots[0].Longest != time.Hour || c.KeepDays() != 9 || len(c.Bounds()) != 7 {
		t.Errorf("longest %v, %d days, %+v", c.Roots[0].Longest, c.KeepDays(), c.Bounds())
	}
	testkit.Must(t, os.WriteFile(file, []byte("{"), 0o600))
	var next Ceiling
	if err := next.addFleet(&c); err == nil || next.KeepDays() != 9 || len(next.OfFleet) != 1 {
		t.Errorf("after a mistake: %v, %q", err, next.OfFleet)
	}
}

// ReadCeiling accepts a relative path, and an error names the file by this path.
func TestReadCeilingByRelativePath(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "agents.toml"), []byte("[run]\nhosts = []\n"), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "bad.toml"), []byte("mistake\n"), 0o600))
	t.Chdir(dir)
	if text, c, err := ReadCeiling("agents.toml"); err != nil || len(text) == 0 || len(c.Bounds()) != 1 {
		t.Errorf("%q, %v", text, err)
	}
	if _, _, err := ReadCeiling("bad.toml"); err == nil || !strings.HasPrefix(err.Error(), "bad.toml:1: ") {
		t.Errorf("a mistake: %v", err)
	}
}

// loadCeiling reads files as other editors and systems write them: without a last newline, with the
// line ends of Windows, with spaces at the ends of lines. It may refuse a file with a byte order
// mark. unreadFiles reports files that are not read because of their names.
func TestCeilingFilesOfOtherEditors(t *testing.T) {
	for what, doc := range map[string]string{
		"no last newline": "[run]\nhosts = []", "Windows": "[run]\r\nhosts = []\r\n", "spaces": "[run]  \nhosts = []\t \n", "byte order mark": "\ufeff[run]\nhosts = []\n",
	} {
		c, err := loadCeiling(writeCeiling(t, map[string]string{"ceiling.toml": doc}), os.Geteuid(), nil)
		if err == nil && c.CheckWholeNet() == nil || err != nil && what != "byte order mark" {
			t.Errorf("%s: %v", what, err)
		}
	}
	dir := writeCeiling(t, map[string]string{"a.toml": "", "b.conf": "", "c": "", "d.toml.rpmnew": "", "e.toml~": "", ".f.swp": "", "README": "", "g.toml.dpkg-new": ""})
	if list := unreadFiles(dir); strings.Join(list, " ") != "b.conf c" {
		t.Errorf("not read: %q", list)
	}
}
