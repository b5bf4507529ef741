package audit

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// olderRecords is a copy of the records of four sessions, which the last version with format 1
// wrote: a mount with two roots, a run, a run with a network and a secret, and a server.
type olderRecords struct{ dir, anchors string }

// olderSessions has the number of lines of each session.
var olderSessions = map[string]uint64{"mounted": 13, "ran": 9, "netted": 14, "served": 7}

func newOlderRecords(t *testing.T) olderRecords {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/format1")); err != nil {
		t.Fatal(err)
	}
	return olderRecords{filepath.Join(dir, "audit"), filepath.Join(dir, "anchors")}
}

func (o olderRecords) verify(t *testing.T, session string) Report {
	t.Helper()
	r, err := Verify(o.dir, session, filepath.Join(o.anchors, session+".anchor"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Verify accepts the records of format 1 with their anchor, and detects a change of one byte.
func TestOlderRecordsVerify(t *testing.T) {
	o := newOlderRecords(t)
	for session, lines := range olderSessions {
		if r := o.verify(t, session); !r.OK || !r.Anchored || r.AnchoredAt != lines || r.Records != lines {
			t.Errorf("%s: %+v", session, r)
		}
		files, err := Files(o.dir, session)
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[0], bytes.Replace(text, []byte("grant"), []byte("grand"), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := o.verify(t, session); r.OK || !strings.Contains(r.Problem.Raw(), "was changed") {
			t.Errorf("%s, changed: %+v", session, r)
		}
	}
}

// Read and Follow deliver every record of format 1. LacksFacts reports true for each entry that Read
// delivers.
func TestOlderRecordsAreRead(t *testing.T) {
	o := newOlderRecords(t)
	files, err := Files(o.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []Filter{{}, {Denied: true}} {
		read, followed := map[string]uint64{}, map[string]uint64{}
		err = Read(files, f, func(e Entry) error {
			read[e.Session.Raw()]++
			if !e.LacksFacts() {
				t.Errorf("%s", e.Line)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if !f.Denied && !maps.Equal(read, olderSessions) {
			t.Errorf("read %v", read)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		f.Since = time.Unix(1, 0) // all
		left := uint64(0)
		for _, n := range read {
			left += n
		}
		err = Follow(ctx, o.dir, "", f, nil, func(e Entry) error {
			if followed[e.Session.Raw()]++; left == 1 {
				cancel()
			}
			left--
			return nil
		})
		cancel()
		if err != nil || !maps.Equal(read, followed) {
			t.Errorf("followed %v, read %v, %v", followed, read, err)
		}
	}
}

// A session with records of format 1 begins again. It continues its chain, in the present format.
// LacksFacts reports true for the old lines only.
func TestOlderSessionGoesOn(t *testing.T) {
	o := newOlderRecords(t)
	opt := Options{Dir: o.dir, Session: "mounted", Anchor: filepath.Join(o.anchors, "mounted.anchor")}
	l := mustOpen(t, opt)
	mustRecord(t, l, refusal(t, "new"))
	mustClose(t, l)
	if r := mustVerify(t, opt); r.Files != 2 || r.Records <= olderSessions["mounted"] {
		t.Errorf("%+v", r)
	}
	for _, e := range entries(t, opt) {
		if e.LacksFacts() != (e.Seq <= olderSessions["mounted"]) {
			t.Errorf("format %d: %s", e.FileFormat, e.Line)
		}
	}
}

// Verify reports that it does not know a future format.
func TestLaterFormatIsUnknown(t *testing.T) {
	o := options(t)
	mustClose(t, mustOpen(t, o))
	files, _ := Files(o.Dir, o.Session)
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	seal, err := parseSeal(line)
	if err != nil {
		t.Fatal(err)
	}
	later := bytes.Replace(line, []byte(`"format":2`), []byte(`"format":3`), 1)
	sum := sealOf(later, seal.prev)
	e := &encoder{b: later[:len(later)-hashTail]}
	e.hex("hash", sum[:])
	if err := os.WriteFile(files[0], append(e.b, "}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Verify(o.Dir, o.Session, ""); err != nil || !strings.Contains(r.Problem.Raw(), "format 3 is not known") {
		t.Errorf("%+v, %v", r, err)
	}
}

// facts has something in every field except the two of a pause, Cause and Reason.
var facts = guard.Facts{
	Dir: "/home/ann/medical", Origin: "command line", Effect: "hide", Rule: "diagnosis*", RuleFrom: "ann/.gitignore", RuleLine: 7,
	Point: "/mnt/ann", Level: "namespaces", Host: "medical.test", Port: 443, ServerName: "insurance.test", NoRule: true, Program: "/usr/bin/ann",
	Secret: "ANN_TOKEN", Method: "GET", URLPath: "/medical", Status: 418, SecretRule: "GET /medical",
}

// Each of these facts of a record has its own field in the line. If paths are not written in full, the
// line keeps Effect, Level and NoRule, and has no path, host, port, rule, status or name of a secret.
func TestFactsAreWritten(t *testing.T) {
	r := refusal(t, "x")
	r.Facts = facts
	line := func(mode PathMode) Entry {
		return oneLine(t, newEncoder("s", mode, make([]byte, keyLen), mark{}).item(&item{rec: r, count: 1}))
	}
	e := line(PathsFull)
	got := guard.Facts{
		Dir: e.Dir.Raw(), Origin: e.Origin.Raw(), Effect: e.Effect.Raw(), Rule: e.Rule.Raw(), RuleFrom: e.RuleFrom.Raw(), RuleLine: e.RuleLine,
		Point: e.Point.Raw(), Level: e.Level.Raw(), Host: e.Host.Raw(), Port: uint16(e.Port), ServerName: e.ServerName.Raw(), NoRule: e.NoRule, Program: e.Program.Raw(),
		Secret: e.Secret.Raw(), Method: e.Method.Raw(), URLPath: e.URLPath.Raw(), Status: e.Status, SecretRule: e.SecretRule.Raw(),
	}
	if got != facts || e.Truncated {
		t.Errorf("%+v", got)
	}
	for _, mode := range []PathMode{PathsHash, PathsNone} {
		e := line(mode)
		for _, secret := range []string{"medical", "ann", "diagnosis", "insurance", "443", "418", "ANN_TOKEN", "rule_line"} {
			if bytes.Contains(e.Line, []byte(secret)) {
				t.Errorf("%s: %q in %s", mode, secret, e.Line)
			}
		}
		if e.Level.Raw() != facts.Level || e.Effect.Raw() != facts.Effect || !e.NoRule {
			t.Errorf("%s: %s", mode, e.Line)
		}
	}
}

// A host path that a line cannot hold whole and unchanged is left out, because a part of it would
// name another file.
func TestFactsAreWholePaths(t *testing.T) {
	for _, path := range []string{"/a\xff", "/" + strings.Repeat("a/", maxPathText), "/" + strings.Repeat("\x01", 1000)} {
		r := refusal(t, "x")
		r.Facts = guard.Facts{Dir: path, Point: path, Program: path, RuleFrom: path, Host: "a.test"}
		e := oneLine(t, newEncoder("s", PathsFull, nil, mark{}).item(&item{rec: r, count: 1}))
		if e.Dir+e.Point+e.Program+e.RuleFrom != "" || !e.Truncated || e.Host != "a.test" {
			t.Errorf("%q: %s", path[:2], e.Line)
		}
	}
}

// Refusals that differ only in a fact have separate records.
func TestFactsAreNotFolded(t *testing.T) {
	o := options(t)
	l := mustOpen(t, o)
	programs := []string{"/usr/bin/a", "/usr/bin/b"}
	for _, program := range append(programs, programs...) {
		r := refusal(t, "x")
		r.Op, r.Facts = names.OpConnect, guard.Facts{Host: "a.test", Program: program}
		mustRecord(t, l, r)
	}
	mustClose(t, l)
	seen := map[string]int64{}
	for _, e := range ofOp(entries(t, o), "connect") {
		seen[e.Program.Raw()] += e.Times()
	}
	if list := slices.Sorted(maps.Keys(seen)); !slices.Equal(list, programs) || seen[programs[0]] != 2 || seen[programs[1]] != 2 {
		t.Error(seen)
	}
}
