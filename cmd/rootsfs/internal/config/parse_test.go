package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/mount"
)

const fullDocument = `# a comment
[mount]
cache = "strict"
locks = "host"
posix = "full"
audit_paths = "hash"

read_only = true
allow_other = true

[limits]
ops_per_second = 2000
burst = 7
max_file = "10M"
timeout = "5s"

[reload]
debounce = "1s"

[files]
consent = "deny"
consent_timeout = "30s"
ops_per_second = 0.5
bytes_per_second = "1M"
max_file = 7
max_written = "2K"
watches = 3
watched_directories = 30
frame = "64K"

[[files.allow]]
path = "~/src/"
[[files.allow]]
path = "/srv/data"
mode = "rw"

[[root]]
name = "code"
path = "~/src/app/"
mode = "rw"
for = "8h"
limits = { max_file = "1M", max_created = 5 }

[[root]]
uri = "file:///srv/with%20space%23"
expires = 2030-01-31T18:00:00+01:00
cross_file_systems = true
[root.limits]
ops_per_second = 0.5

[profile.review]
roots = ["code", "notes=~/notes:rw", "/srv/data"]
[profile.none]
roots = []
`

// The test parses fullDocument, which has ~, URIs (R222, R228: percent-decoded), inherited and
// overridden limits, and profiles (R150).
func TestParse(t *testing.T) {
	c, err := parse("/etc/x/config.toml", "/home/me", []byte(fullDocument))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Mount{Cache: "strict", Locks: "host", Posix: "full", AuditPaths: "hash", ReadOnly: true, AllowOther: true}); c.Mount != want {
		t.Errorf("mount: %+v", c.Mount)
	}
	files := Files{Deny: true, ConsentTimeout: 30 * time.Second, OpsPerSecond: 0.5, BytesPerSecond: 1 << 20, MaxFile: 7, MaxWritten: 2048,
		Watches: 3, WatchedDirs: 30, Frame: 64 << 10,
		Allow: []Allow{{"/home/me/src", guard.ReadOnly, 31}, {"/srv/data", guard.ReadWrite, 33}}}
	if !reflect.DeepEqual(c.Files, files) {
		t.Errorf("files: %+v", c.Files)
	}
	common := guard.Limits{OpsPerSecond: 2000, Burst: 7, MaxFile: 10 << 20, Timeout: 5 * time.Second}
	first, second := common, common
	first.MaxFile, first.MaxCreated = 1<<20, 5
	second.OpsPerSecond = 0.5
	code := Root{Name: "code", Path: "/home/me/src/app", Rights: guard.ReadWrite, For: 8 * time.Hour, Limits: first, Line: 37}
	srv := Root{Name: "with space#", Path: "/srv/with space#", Rights: guard.ReadOnly, Limits: second, CrossFileSystems: true, Line: 44,
		Expires: time.Date(2030, 1, 31, 17, 0, 0, 0, time.UTC)}
	equalRoots(t, "roots", c.Roots, []Root{code, srv})
	review, err := c.Select("review")
	if err != nil {
		t.Fatal(err)
	}
	equalRoots(t, "review", review, []Root{code,
		{Name: "notes", Path: "/home/me/notes", Rights: guard.ReadWrite, Limits: common, Line: 52},
		{Name: "data", Path: "/srv/data", Rights: guard.ReadOnly, Limits: common, Line: 52}})
	if none, err := c.Select("none"); err != nil || len(none) != 0 {
		t.Errorf("none: %v, %v", none, err)
	}
	if all, err := c.Select(""); err != nil || len(all) != 2 {
		t.Errorf("all: %v, %v", all, err)
	}
	if _, err := c.Select("revue"); err == nil || !strings.Contains(err.Error(), "none, review") {
		t.Errorf("unknown profile: %v", err)
	}
	if c.Debounce != time.Second {
		t.Errorf("debounce: %v", c.Debounce)
	}
	now := time.Unix(1e9, 0)
	if g := code.Grant(now); g.Expires != now.Add(8*time.Hour) || g.Dir.Raw() != code.Path || g.Policy.Rights != guard.ReadWrite || g.Origin != "configuration" {
		t.Errorf("grant: %+v", g)
	}
	if srv.Expired(now) || !srv.Expired(srv.Expires) || code.Expired(now) {
		t.Error("Expired is wrong")
	}
}

func equalRoots(t *testing.T, what string, got, want []Root) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d, want %d: %+v", what, len(got), len(want), got)
	}
	for i := range got {
		if !same(got[i], want[i]) || got[i].Line != want[i].Line {
			t.Errorf("%s %d:\n got %+v\nwant %+v", what, i, got[i], want[i])
		}
	}
}

// Each mistake is an *Error of one line that begins with the file. The error contains the text
// want, for example the number of the line, the key and what to do.
func TestParseErrors(t *testing.T) {
	const root = "[[root]]\npath = \"/srv/a\"\n"
	const oneSecret = "[[secret]]\nname = \"A\"\nurl = \"https://a.test\"\n"
	for _, tc := range []struct{ name, doc, want string }{
		{"syntax", "[mount]\ncache = \n", ":2"},
		{"twice", "[mount]\nread_only = true\nread_only = true\n", ":3"},
		{"twice says where", "[mount]\nread_only = true\n\nread_only = true\n", `:4: mount.read_only: the key "read_only" is given twice, first in line 2`},
		{"number too large, and more", "[abuse]\nescapes = 99999999999999999999\nx = 1\n", ":2: abuse.escapes: decimal number is too large to fit in a 64-bit signed integer (and 1 more)"},
		{"not UTF-8", "# \xff\n", ":1"},
		{"unknown key", "[mount]\ncache = \"max\"\ncahce = 1\n", ":3: mount.cahce: unknown key"},
		{"unknown table", "\n[mounts]\ncache = \"max\"\n", ":2: mounts: unknown key"},
		{"case counts", "[mount]\nCache = \"max\"\n", ":2: mount.Cache: unknown key"},
		{"dotted unknown", "mount.x.y = 1\n", ":1: mount.x: unknown key"},
		{"pattern outside policy", root + "deny = [\"*.key\"]\n", ":3: root.deny: unknown key"},
		{"unknown in a second root", root + "[[root]]\npath = \"/b\"\nnmae = \"x\"\n", ":5: root.nmae: unknown key"},
		{"unknown in inline limits", root + "limits = { max_flie = 1 }\n", ":3: root.limits.max_flie: unknown key"},
		{"unknown in root.limits", root + "[root.limits]\nx = 1\n", ":4: root.limits.x: unknown key"},
		{"unknown in inline roots", "root = [\n {path = \"/a\"},\n {path = \"/b\", x = 1},\n]\n", ":3: root.x: unknown key"},
		{"unknown in profile", "[profile.a]\nroots = []\nx = 1\n", ":3: profile.a.x: unknown key"},
		{"wrong type", "[mount]\nread_only = \"yes\"\n", ":2: mount.read_only: must be true or false"},
		{"wrong word", "[mount]\ncache = \"fast\"\n", `:2: mount.cache: "fast" is not one of strict, audit, max`},
		{"audit paths", "[mount]\naudit_paths = \"some\"\n", `"some" is not one of full, hash, none`},
		{"mount no table", "mount = 3\n", ":1: mount: must be a table: write [mount], and its keys below"},
		{"text without quotation marks", "[[root]]\npath = ~/code\n", ":2: unexpected character U+007E '~' at start of value; write texts in quotation marks"},
		{"root no array", "[root]\npath = \"/a\"\n", ":1: root: must be written as [[root]] blocks"},
		{"root of texts", "root = [\"/a\"]\n", ":1: root: must be a table"},
		{"size", "[limits]\nmax_file = \"10 elephants\"\n", ":2: limits.max_file: size"},
		{"size too large", "[limits]\nmax_file = \"9000000T\"\n", "beyond the limit of 8388607T"},
		{"size negative", "[limits]\nmax_written = -1\n", "-1 is not between 0 and the limit of"},
		{"size float", "[limits]\nmax_written = 1.5\n", "must be a size"},
		{"burst", "[limits]\nburst = 3000000000\n", "not between 0 and the limit of 2147483647"},
		{"speed NaN", "[limits]\nops_per_second = nan\n", "not between 0 and the limit of 1000000000"},
		{"speed text", "[limits]\nops_per_second = \"9\"\n", "must be a number"},
		{"timeout number", "[limits]\ntimeout = 60\n", `a duration in quotes`},
		{"timeout zero", "[limits]\ntimeout = \"0s\"\n", "0s is not between 1ms and the limit of 24h0m0s"},
		{"timeout word", "[limits]\ntimeout = \"soon\"\n", `"soon" is no duration`},
		{"no path", "[[root]]\nname = \"a\"\n", ":1: root.path: is missing"},
		{"empty path", "[[root]]\npath = \"\"\n", ":2: root.path: is empty"},
		{"relative path", "[[root]]\npath = \"src\"\n", ":2: root.path: path \"src\" is relative"},
		{"other user's home", "[[root]]\npath = \"~joe/x\"\n", "is relative"},
		{"NUL", "[[root]]\npath = \"/a\\u0000b\"\n", "NUL"},
		{"path and uri", root + "uri = \"file:///b\"\n", ":3: root.uri: a root has a path or a uri"},
		{"bad uri", "[[root]]\nuri = \"http://x/y\"\n", ":1: root.path: "},
		{"bad name", root + "name = \"a/b\"\n", ":3: root.name: "},
		{"empty name", root + "name = \"\"\n", ":3: root.name: "},
		{"bad mode", root + "mode = \"rx\"\n", ":3: root.mode: "},
		{"name twice", root + root, ":3: root.name: the name \"a\" is taken by the root of line 1"},
		{"for and expires", root + "for = \"1h\"\nexpires = 2030-01-01T00:00:00Z\n", ":3: root.for: "},
		{"for negative", root + "for = \"-1h\"\n", ":3: root.for: -1h0m0s is not between"},
		{"expires without zone", root + "expires = 2030-01-01T00:00:00\n", ":3: root.expires: must be a time with its zone"},
		{"expires text", root + "expires = \"tomorrow\"\n", ":3: root.expires: must be a time with its zone"},
		{"contains the file", "[[root]]\npath = \"/etc\"\n", ":2: root.path: \"/etc\" contains this configuration file"},
		{"is the file", "[[root]]\npath = \"/etc/x/../x/config.toml\"\n", "contains this configuration file"},
		{"root is /", "[[root]]\npath = \"/\"\n", "contains this configuration file"},
		{"profile contains the file", "[profile.a]\nroots = [\n\"/etc/x:rw\"]\n", ":3: profile.a.roots: \"/etc/x\" contains"},
		{"profile with an unknown root", root + "[profile.p]\nroots = [\"a\", \"b\"]\n", `:4: profile.p.roots: no [[root]] is named "b"`},
		{"profile twice", root + "[profile.p]\nroots = [\"a\",\n\"a\"]\n", ":5: profile.p.roots: the name \"a\" is in this list twice"},
		{"profile number", "[profile.p]\nroots = [1]\n", "must be text in quotes"},
		{"profile with an empty text", "[profile.p]\nroots = [\"\"]\n", ":2: profile.p.roots: has an empty text"},
		{"empty variable", "[agent.codex]\nenv = [\"A\", \"\"]\n", ":2: agent.codex.env: has an empty text"},
		{"profile empty", "[profile.p]\n", ":1: profile.p.roots: is missing"},
		{"profile no table", "[profile]\np = 1\n", ":2: profile.p: must be a table"},
		{"profile bad name", "[profile.\"a/b\"]\nroots = []\n", ":1: profile.a/b: "},
		{"profile auto", "[profile.p]\nroots = [\"auto\"]\n", "is relative"},
		{"consent word", "[files]\nconsent = \"always\"\n", `:2: files.consent: "always" is not one of ask, deny`},
		{"consent timeout", "[files]\nconsent_timeout = \"1ms\"\n", ":2: files.consent_timeout: 1ms is not between 1s"},
		{"no watched directories", "[files]\nwatched_directories = 0\n", ":2: files.watched_directories: 0 would be none"},
		{"no watches", "[files]\nwatches = 0\n", ":2: files.watches: 0 would be none"},
		{"frame too small", "[files]\nframe = 100\n", ":2: files.frame: 100 bytes is not between"},
		{"frame too large", "[files]\nframe = \"2G\"\n", ":2: files.frame: "},
		{"allow no blocks", "[files]\nallow = \"/a\"\n", ":2: files.allow: must be written as [[files.allow]] blocks"},
		{"allow without a path", "[[files.allow]]\nmode = \"rw\"\n", ":1: files.allow.path: is missing"},
		{"allow relative", "[[files.allow]]\npath = \"a\"\n", ":2: files.allow.path: path \"a\" is relative"},
		{"allow bad mode", "[[files.allow]]\npath = \"/a\"\nmode = \"x\"\n", ":3: files.allow.mode: "},
		{"allow unknown", "[files]\n[[files.allow]]\npath = \"/a\"\nfor = \"1h\"\n", ":4: files.allow.for: unknown key"},
		{"files unknown", "[files]\nconsents = 1\n", ":2: files.consents: unknown key"},
		{"secret without a name", "[[secret]]\nurl = \"https://a.test\"\n", ":1: secret.name: is missing"},
		{"secret without a URL", "[[secret]]\nname = \"A\"\n", ":1: secret.url: is missing: write url = \"https://api.example.org\""},
		{"secret with an odd name", "[[secret]]\nname = \"a-b\"\nurl = \"https://a.test\"\n", ":2: secret.name: \"a-b\" does not name a variable"},
		{"secret over HTTP", "[[secret]]\nname = \"A\"\nurl = \"http://a.test\"\n", ":3: secret.url: \"http://a.test\": write https://"},
		{"secret that allows nothing", oneSecret + "allow = []\n", ":4: secret.allow: is empty"},
		{"secret with an odd rule", oneSecret + "allow = [\"/x\"]\n", ":4: secret.allow: \"/x\": write a method and a path"},
		{"secret in Host", oneSecret + "header = \"Host\"\n", ":4: secret.header: \"Host\": write a header that takes a credential"},
		{"secret that passes Host", oneSecret + "pass = [\"Host\"]\n", ":4: secret.pass: \"Host\": this is for headers that belong to the connection"},
		{"secret that passes everything", oneSecret + "pass = [\"*\"]\n", ":4: secret.pass: \"*\": write the name of a header"},
		{"secret with header and user", oneSecret + "header = \"x-a\"\nuser = \"git\"\n", "not both"},
		{"secret of two users", oneSecret + "user = \"a:b\"\n", ":4: secret.user: is no name of a user"},
		{"secret of two sources", oneSecret + "file = \"/a\"\ncommand = [\"a\"]\n", "not both"},
		{"secret in a relative file", oneSecret + "file = \"a\"\n", ":4: secret.file: path \"a\" is relative"},
		{"net without hosts", "[[net]]\nsubject = \"a\"\n", ":1: net.hosts: is missing: write hosts = [\"api.example.org:443\"], or ask = true"},
		{"hosts and ask = false", "[[net]]\nask = false\n", ":1: net.hosts: is missing"},
		{"hosts of an unknown profile", "[profile.a]\nroots = []\n[[net]]\nhosts = [\"a.test\"]\nprofile = \"b\"\n", ":5: net.profile: there is no table [profile.NAME] for \"b\""},
		{"no hosts", "[[net]]\nhosts = []\nask = true\n", ":2: net.hosts: is empty"},
		{"ask is text", "[[net]]\nask = \"yes\"\nhosts = [\"a.test\"]\n", ":2: net.ask: must be true or false"},
		{"net timeout", "[run]\nnet_timeout = \"10ms\"\n", ":2: run.net_timeout: 10ms is not between 1s"},
		{"debounce", "[reload]\ndebounce = \"2h\"\n", "limit of 1m0s"},
		{"first of several", root + "mode = \"x\"\nfoo = 1\nbar = 2\n", ":3: root.mode: "},
		{"count of several", root + "mode = \"x\"\nfoo = 1\nbar = 2\n", "(and 2 more)"},
		{"newline in a value", root + "mode = \"x\\ny\"\n", `"x\ny"`},
		{"deep", "a = " + strings.Repeat("[", 200_000), ""},
		{"deep array", "a = " + strings.Repeat("[", 100) + strings.Repeat("]", 100), "nested too deeply"},
		{"deep inline tables", "a = " + strings.Repeat("{a=", 100) + "1" + strings.Repeat("}", 100), "nested too deeply"},
		{"deep key", "a" + strings.Repeat(".a", 200_000) + " = 1", ":1: a.a.a.a.a.a.a.a: is nested too deeply"},
		{"deep header", "\n[a" + strings.Repeat(".a", 200_000) + "]", ":2: a.a.a.a.a.a.a.a: is nested too deeply"},
		{"too many keys", "[x]\n" + numbered(documentLimits.Keys+1), ":10002: x.k10000: is beyond the limit of 10000 keys"},
		{"many keys", numbered(documentLimits.Keys), "unknown key; look for a misspelling, or remove it (and 9999 more)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parse("/etc/x/config.toml", "/home/me", []byte(tc.doc))
			var e *Error
			if c != nil || !errors.As(err, &e) {
				t.Fatalf("got %+v, %v", c, err)
			}
			if s := e.Error(); !strings.HasPrefix(s, "/etc/x/config.toml:") || !strings.Contains(s, tc.want) || strings.Contains(s, "\n") {
				t.Errorf("got %q, want it to contain %q", s, tc.want)
			}
		})
	}
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d = 1\n", i)
	}
	return b.String()
}

// R149: a document with ten thousand roots is within documentLimits.
func TestParseManyRoots(t *testing.T) {
	c, err := parse("/etc/x/config.toml", "", []byte(rootBlocks(10_000)))
	if err != nil || len(c.Roots) != 10_000 || c.Roots[9999].Name != "9999" || c.Roots[9999].Line != 19999 {
		t.Fatal(len(c.Roots), err)
	}
}

func TestNoHome(t *testing.T) {
	_, err := parse("/etc/x/config.toml", "", []byte("[[root]]\npath = \"~/a\"\n"))
	if err == nil || !strings.Contains(err.Error(), "set HOME") {
		t.Error(err)
	}
}

// The table [mount] accepts the words that packages mount and audit accept.
func TestWordsOfMount(t *testing.T) {
	for _, w := range []string{"strict", "audit", "max", "fast"} {
		_, err := mount.ParseLevel(w)
		_, perr := parse("/f", "", []byte("mount.cache = \""+w+"\""))
		if (err == nil) != (perr == nil) {
			t.Errorf("cache %s: mount says %v, config says %v", w, err, perr)
		}
	}
	for _, w := range []string{"local", "host", "none"} {
		_, err := mount.ParseLocks(w)
		_, perr := parse("/f", "", []byte("mount.locks = \""+w+"\""))
		if (err == nil) != (perr == nil) {
			t.Errorf("locks %s: mount says %v, config says %v", w, err, perr)
		}
	}
	for _, w := range []string{"full", "hash", "none", "some"} {
		_, err := audit.ParsePathMode(w)
		_, perr := parse("/f", "", []byte("mount.audit_paths = \""+w+"\""))
		if (err == nil) != (perr == nil) {
			t.Errorf("paths %s: audit says %v, config says %v", w, err, perr)
		}
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "17": 17, "1b": 1, "10M": 10 << 20, "10m": 10 << 20, "3KiB": 3 << 10, "2 GB": 2 << 30, "2\t G": 2 << 30, "5 ": 5, "1T": 1 << 40,
		"8388607T": 8388607 << 40, "9223372036854775807": math.MaxInt64,
	} {
		if got, err := ParseSize(in); got != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "M", "-1", "+1", "1.5M", "1_000", "10iB", "10P", "8388608T", "9223372036854775808", "1MM", "0x10", "1e3", "١",
		" 10M", "10\nM", "10\u00a0M", "10M ", "10\n"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("%q: %d, want an error", in, got)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for _, tc := range []struct{ env, config, audit string }{
		{"", "/home/me/.config/rootsfs/config.toml", "/home/me/.local/state/rootsfs/audit"},
		{"relative", "/home/me/.config/rootsfs/config.toml", "/home/me/.local/state/rootsfs/audit"},
		{"/x//y", "/x/y/rootsfs/config.toml", "/x/y/rootsfs/audit"},
	} {
		t.Setenv("XDG_CONFIG_HOME", tc.env)
		t.Setenv("XDG_STATE_HOME", tc.env)
		if got, err := DefaultPath(); got != tc.config || err != nil {
			t.Errorf("%q: %s, %v", tc.env, got, err)
		}
		if got, err := AuditDir(); got != tc.audit || err != nil {
			t.Errorf("%q: %s, %v", tc.env, got, err)
		}
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_CONFIG_HOME", "")
	if _, err := DefaultPath(); err == nil || !strings.Contains(err.Error(), "set HOME") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fullDocument))
	for _, s := range []string{"", "a=1", "[[root]]\n[root.limits]\n", "root=[{path='/a'},{}]", "[profile]\n''={roots=['a=b']}", "a.b.c={d=[{e=1}]}", "\xef\xbb\xbf", "x=1979-05-27"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		c, err := parse("/etc/x/config.toml", "/home/me", doc)
		if err != nil {
			s := err.Error()
			var e *Error
			if !errors.As(err, &e) || c != nil || strings.ContainsAny(s, "\n\r\x1b\u202e") || e.Line > strings.Count(string(doc), "\n")+1 {
				t.Fatalf("error %q of %T", s, err)
			}
			return
		}
		for _, r := range c.Roots {
			if r.Name == "" || !filepath.IsAbs(r.Path) || r.Rights == 0 || r.Line == 0 {
				t.Fatalf("accepted %+v", r)
			}
		}
	})
}

// home returns a new directory that the trust rules accept, and makes it HOME. The system's
// temporary directory is sticky, and the directories between it and the new one are the user's own.
func home(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", dir)
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
