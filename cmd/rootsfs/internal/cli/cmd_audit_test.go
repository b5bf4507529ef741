package cli

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard/audit"
)

func TestParseMoment(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	now := time.Date(2026, 11, 21, 15, 4, 5, 0, zone)
	for in, want := range map[string]time.Time{
		"10m":                  now.Add(-10 * time.Minute),
		"0s":                   now,
		"1h30m":                now.Add(-90 * time.Minute),
		"2026-11-20":           time.Date(2026, 11, 20, 0, 0, 0, 0, zone),
		"2026-11-20T08:30":     time.Date(2026, 11, 20, 8, 30, 0, 0, zone),
		"2026-11-20 08:30:01":  time.Date(2026, 11, 20, 8, 30, 1, 0, zone),
		"2026-11-20T08:30:01Z": time.Date(2026, 11, 20, 8, 30, 1, 0, time.UTC),
	} {
		if got, err := parseMoment(in, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-10m", "yesterday", "10", "2026-13-01", "08:30"} {
		if got, err := parseMoment(in, now); err == nil {
			t.Errorf("%q: %v, want an error", in, got)
		}
	}
}

// An invalid selection of records is a usage error that names the flag.
func TestAuditFilter(t *testing.T) {
	for want, f := range map[string]auditFlags{
		"--op":    {op: "opne"},
		"--since": {since: "soon"},
		"--until": {since: "1m", until: "2m"},
	} {
		_, err := f.filter(time.Now())
		if err == nil || !strings.HasPrefix(err.Error(), want) || exitCode(err) != ExitUsage {
			t.Errorf("%+v: %v, exit code %d", f, err, exitCode(err))
		}
	}
	for _, op := range auditOps() {
		f := auditFlags{op: op}
		if _, err := f.filter(time.Now()); err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// A record is one line whatever the record holds, and no control or invisible character of the
// record is printed unescaped.
func TestAuditLine(t *testing.T) {
	when := time.Date(2026, 11, 21, 15, 4, 5, 678e6, time.Local)
	uid := uint32(7)
	for _, tc := range []struct {
		name  string
		entry audit.Entry
		want  string
	}{
		{"allowed", audit.Entry{Op: "close", Verdict: "allowed", Root: "r", Path: "a/b", Read: 2048, UID: &uid, PID: 9, Via: "fuse", DurationUS: 1_500_000},
			"allowed  close        r/a/b  (read 2.0K, 1.5s, fuse, pid 9)"},
		{"refused", audit.Entry{Op: "open", Verdict: "refused", Root: "r", Kind: "ReadOnly", Errno: "EROFS", Rights: "write"},
			"refused  open         r  (ReadOnly, EROFS, needs write)"},
		{"two paths", audit.Entry{Op: "rename", Verdict: "allowed", Root: "r", Path: "a", Path2: "b c"}, `rename       r/a -> "r/b c"`},
		{"hashed", audit.Entry{Op: "rename", Verdict: "allowed", Root: "r", PathHash: "00ff", Root2: "q", Path2Hash: "11"}, `r/#00ff -> q/#11`},
		{"session", audit.Entry{Op: "mount", Verdict: "allowed", Detail: "/m"}, "mount        -  (/m)"},
		{"lost", audit.Entry{Op: "lost", Lost: 3}, "-        lost         -  (3 records lost)"},
		{"hostile", audit.Entry{Op: "op\n", Verdict: "\x1b[31m", Root: "r\u202e", Path: "x", RawPath: []byte("a\n\xff\x1b]0;\a"), Kind: "k\r", Errno: "\x9b", Rights: "\x00", Subject: "s\n", Via: "v\n", Detail: "d\nallowed"},
			`\u{202e}`},
		{"hostile refusal", audit.Entry{Op: "open", Verdict: "refused", Rights: "\x1b\n", Root: "r", Path: "\u2066", PathHash: "\n", Path2Hash: "\n", Root2: "\n"}, `\u{1b}\n`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.entry.Time, tc.entry.Session = when, "s\n1"
			for _, with := range []bool{false, true} {
				got := string(new(app).auditLine(&tc.entry, with, ""))
				if !strings.HasPrefix(got, "2026-11-21 15:04:05.678  ") || !strings.Contains(got, tc.want) || strings.Contains(got, `s\n1  `) != with {
					t.Errorf("got %q, want %q", got, tc.want)
				}
				line := strings.TrimSuffix(got, "\n")
				if strings.ContainsFunc(line, func(r rune) bool {
					return r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x202e || r == 0x2066 || r == 0xfffd
				}) {
					t.Errorf("not escaped: %q", got)
				}
			}
		})
	}
	header := audit.Entry{Op: "session"}
	if new(app).auditLine(&header, true, "") != nil || new(app).auditLine(&header, true, "session") == nil {
		t.Error("the headers of files must be shown with --op session, and only then")
	}
}

func TestAuditVerdict(t *testing.T) {
	for _, tc := range []struct {
		r    audit.Report
		want string
	}{
		{audit.Report{Session: "s", OK: true, Files: 1, Records: 1, From: 1, To: 1}, "s: ok, 1 record in 1 file, numbers 1 to 1"},
		{audit.Report{Session: "s", OK: true, Files: 2, Records: 5, From: 6, To: 10, Anchored: true, AnchoredAt: 9, Torn: 1, Lost: 4, Pruned: 5},
			"s: ok, 5 records in 2 files, numbers 6 to 10, anchored at 9, numbers 1 to 5 deleted (the bounds of all sessions), 1 line cut by a crash, 4 could not be taken"},
		{audit.Report{Session: "s", Problem: "line 3 was changed\n", At: 3}, `s: BROKEN at record 3: line 3 was changed\n`},
		{audit.Report{Session: "s", Problem: "the anchor file is missing"}, "s: BROKEN: the anchor file is missing"},
	} {
		if got := auditVerdict(tc.r); got != tc.want {
			t.Errorf("got  %q\nwant %q", got, tc.want)
		}
	}
}

// No control character of a record that another machine has written reaches the terminal, not even
// one in the white space between the fields.
func TestRecordOfAMachine(t *testing.T) {
	line := "{\"seq\":1,\r\"op\":\"open\",\t\"root\":\"a\u202e\u009b31m\",\"detail\":\"\\u001b[2J\"}"
	for _, isJSON := range []bool{false, true} {
		var out bytes.Buffer
		p := &Printer{&app{Stdout: &out, JSON: isJSON}}
		e := audit.Entry{Seq: 1, Op: "open", Root: "a\u202e\u009b31m", Detail: "\x1b[2J", Line: []byte(line)}
		if err := p.Record("m1", &e); err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSuffix(out.String(), "\n")
		if i := strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }); i >= 0 || !strings.Contains(text, "m1") {
			t.Errorf("the terminal gets %q", text)
		}
	}
}
