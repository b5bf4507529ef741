package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/auditview"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// records begins the session "s" with the root a, and records n refusals in this session. Every
// third record has a hostile text.
func (l *lab) records(n int) {
	l.t.Helper()
	s := l.session("s", "a")
	for i := range n {
		kind, caller := names.Invalid, guard.Caller{Subject: "=cmd()", Via: guard.ViaFiles, PID: int32(i)}
		detail := "request " + strings.Repeat("x", i%5)
		if i%3 == 0 {
			kind, detail = names.Permission, "\u202eevil\n<script>"
		}
		if err := s.Registry().NoteRefusal(caller, kind, detail); err != nil {
			l.t.Fatal(err)
		}
	}
}

// R007: records can be searched by their fields and are counted over time. Invisible characters
// in servers' texts are made visible.
func TestHistory_R007(t *testing.T) {
	l := newLab(t)
	l.records(30)
	b := l.enter()
	search := func(v url.Values) (f searchResult) {
		t.Helper()
		b.must("GET", "/api/history?"+v.Encode(), "", &f)
		return f
	}
	all := search(url.Values{})
	if all.Matched < 31 || len(all.Entries) != all.Matched || !all.Complete || len(all.Sessions) == 0 {
		t.Fatalf("%d records, %d shown", all.Matched, len(all.Entries))
	}
	for i := 1; i < len(all.Entries); i++ {
		if all.Entries[i].Time.After(all.Entries[i-1].Time) {
			t.Error("not the newest first")
		}
	}
	sum := 0
	for i := range all.Timeline.Allowed {
		sum += all.Timeline.Allowed[i] + all.Timeline.Refused[i] + all.Timeline.Failed[i]
	}
	if sum != all.Matched || len(all.Timeline.Allowed) > 61 {
		t.Errorf("the timeline has %d of %d, in %d spans", sum, all.Matched, len(all.Timeline.Allowed))
	}
	if data, _ := json.Marshal(all); strings.Contains(string(data), "\u202e") || !strings.Contains(string(data), `\\u{202e}evil\\n`) {
		t.Errorf("not made visible: %s", data)
	}
	refused := search(url.Values{"verdict": {"refused"}})
	if refused.Matched != 30 {
		t.Errorf("refused: %d", refused.Matched)
	}
	last := search(url.Values{"limit": {"7"}, "verdict": {"refused"}})
	if len(last.Entries) != 7 || last.Matched != 30 || last.Entries[0].PID != 29 || last.Entries[6].PID != 23 {
		t.Errorf("the last seven: %+v", last.Entries)
	}
	now := time.Now().UTC()
	for want, v := range map[int]url.Values{
		0:           {"session": {"nope"}},
		30:          {"subject": {"=cmd()"}},
		all.Matched: {"since": {now.Add(-time.Hour).Format(time.RFC3339)}, "until": {now.Add(time.Hour).Format(time.RFC3339)}},
		1:           {"root": {"a"}, "op": {"grant"}},
	} {
		if f := search(v); f.Matched != want {
			t.Errorf("%v: %d, want %d", v, f.Matched, want)
		}
	}
	if f := search(url.Values{"until": {now.Add(-time.Hour).Format(time.RFC3339)}}); f.Matched != 0 || f.Entries == nil || f.Timeline.Allowed == nil {
		t.Errorf("before there was anything: %+v", f)
	}
	if r, data := b.do("GET", "/api/history?path=[", "", nil); r.StatusCode != 422 || !strings.Contains(string(data), "is not a pattern") {
		t.Errorf("a bad pattern: %d %s", r.StatusCode, data)
	}
}

// The chain is verified, and a changed record is found.
func TestVerify(t *testing.T) {
	l := newLab(t)
	l.records(5)
	b := l.enter()
	var reports []audit.Report
	b.must("GET", "/api/verify?session=s", "", &reports)
	if len(reports) != 1 || !reports[0].OK || reports[0].Records < 6 {
		t.Errorf("%+v", reports)
	}
	if r, _ := b.do("GET", "/api/verify?session=nope", "", nil); r.StatusCode != 404 {
		t.Errorf("an unknown session: %d", r.StatusCode)
	}
	files, err := filepath.Glob(filepath.Join(l.s.cfg.Records.Dir, "s-*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], []byte(strings.Replace(string(data), "request x", "request y", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	b.must("GET", "/api/verify", "", &reports)
	if reports[0].OK || !strings.Contains(reports[0].Problem.Raw(), "was changed") {
		t.Errorf("changed: %+v", reports)
	}
}

// An export has a line for each matching record, with the record's hash.
func TestExport(t *testing.T) {
	l := newLab(t)
	l.records(9)
	b := l.enter()
	r, data := b.do("GET", "/api/export?verdict=refused", "", nil)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if r.StatusCode != 200 || len(lines) != 9 || r.Header.Get("Content-Disposition") != "attachment" {
		t.Fatalf("%d, %d lines", r.StatusCode, len(lines))
	}
	for _, line := range lines {
		var e audit.Entry
		if json.Unmarshal([]byte(line), &e) != nil || e.Hash == "" || e.Verdict != "refused" {
			t.Errorf("%s", line)
		}
	}
}

// Other files in the directory of the records do not block a search, and links there are not
// followed. Lines that are no records are counted as damaged, except a last line that is cut off: a
// session may still be writing this line.
func TestOddFilesAmongTheRecords(t *testing.T) {
	l := newLab(t)
	l.records(9)
	b := l.enter()
	dir := l.s.cfg.Records.Dir
	name := func(session string) string { return filepath.Join(dir, session+"-20260101T000000.000000000Z.jsonl") }
	outside := filepath.Join(l.work, "outside")
	line := `{"seq":1,"time":"2026-01-01T00:00:00Z","session":"x","op":"open","path":"outside","verdict":"allowed"}` + "\n"
	if err := errors.Join(
		syscall.Mkfifo(name("fifo"), 0o600),
		os.WriteFile(outside, []byte(line), 0o600),
		os.Symlink(outside, name("link")),
		os.Symlink("/dev/zero", name("zero")),
		os.Mkdir(name("directory"), 0o700),
		os.WriteFile(name("nonsense"), []byte("\x00\x01\n{}\n[1]\n"+line), 0o600),
		os.WriteFile(name("endless"), bytes.Repeat([]byte("x"), 5<<20), 0o600),
		os.WriteFile(name("cut"), []byte(line+line[:40]), 0o600),
		os.WriteFile(name("empty"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	var f searchResult
	b.must("GET", "/api/history?op=open", "", &f)
	if f.Matched != 2 || f.Damaged != 3 || !f.Complete {
		t.Errorf("%d records, %d damaged, complete: %v", f.Matched, f.Damaged, f.Complete)
	}
	for _, e := range f.Entries {
		if e.Session != "x" {
			t.Errorf("%+v", e)
		}
	}
	r, data := b.do("GET", "/api/export?op=open", "", nil)
	if n := bytes.Count(data, []byte("\n")); r.StatusCode != 200 || n != 2 {
		t.Errorf("%d, %d lines", r.StatusCode, n)
	}
	var reports []audit.Report
	b.must("GET", "/api/verify", "", &reports)
	bad := 0
	for _, r := range reports {
		if !r.OK {
			bad++
		}
	}
	if bad == 0 || len(reports) < 3 {
		t.Errorf("%+v", reports)
	}
}

// A search ends when its client leaves, even if it finds nothing. A pattern that would take for
// ever is refused.
func TestSearchesEnd(t *testing.T) {
	l := newLab(t)
	l.records(9)
	b := l.enter()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f, err := l.s.cfg.Records.Find(ended, auditview.Query{Filter: audit.Filter{Subject: "nobody"}, Limit: 10})
	if err != nil || f.Complete {
		t.Errorf("after the end: %+v, %v", f, err)
	}
	r, data := b.do("GET", "/api/history?path="+url.QueryEscape(strings.Repeat("{a,aa}", 40)+"b"), "", nil)
	if r.StatusCode != 422 || !strings.Contains(string(data), "more than 256 patterns") {
		t.Errorf("%d %s", r.StatusCode, data)
	}
}

// The number of searches at a time is bounded. The client of a further search is told to try again.
func TestSearchesAreBounded(t *testing.T) {
	l := newLab(t)
	b := l.enter()
	for range maxSearches {
		l.s.search <- struct{}{}
	}
	for _, path := range []string{"/api/history", "/api/verify", "/api/export"} {
		if r, _ := b.do("GET", path, "", nil); r.StatusCode != 429 || r.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}
