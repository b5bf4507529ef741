package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

func at(t testing.TB, root, rel string) guard.Path {
	t.Helper()
	p, err := names.NewPath(guard.RootName(root), rel)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func refusal(t testing.TB, rel string) guard.Record {
	return guard.Record{
		Time: time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.FixedZone("", 3600)),
		Via:  guard.ViaFUSE, PID: 42, Op: names.OpOpen, Path: at(t, "code", rel),
		Rights: guard.Write, Verdict: guard.Refused, Kind: names.ReadOnly, Errno: syscall.EROFS,
	}
}

func allowed(t testing.TB, rel string) guard.Record {
	return guard.Record{
		Time: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Subject: "server",
		Via: guard.ViaFUSE, UID: 1000, PID: 42, Op: names.OpOpen, Path: at(t, "code", rel),
		Rights: guard.Read, Verdict: guard.Allowed, Duration: 12 * time.Microsecond,
	}
}

// checkSeal checks the end of a line by the rule of the package comment, from the text alone, as
// another tool would. It returns the line's hash, which is prev of the next line.
func checkSeal(t *testing.T, line string, prev [32]byte) (hash [32]byte) {
	t.Helper()
	body, rest, ok := strings.Cut(line, `,"hash":"`)
	if !ok || !strings.HasSuffix(body, `,"prev":"`+hex.EncodeToString(prev[:])+`"`) {
		t.Fatalf("no prev and hash at the end of %s", line)
	}
	hash = sha256.Sum256(append(prev[:], body...))
	if want := hex.EncodeToString(hash[:]) + "\"}\n"; rest != want {
		t.Fatalf("hash %q, want %q", rest, want)
	}
	return hash
}

func TestGoldenLine(t *testing.T) {
	e := newEncoder("s1", PathsFull, nil, mark{})
	r := refusal(t, "src/a.go")
	r.Path2 = at(t, "other", "b")
	r.Subject, r.Read, r.Written, r.Duration, r.Detail = "srv", 3, 4, 1500*time.Nanosecond, "no"
	want := `{"seq":1,"time":"2026-03-04T04:06:07.089Z","session":"s1","subject":"srv","via":"fuse","uid":0,"pid":42,` +
		`"op":"open","root":"code","path":"src/a.go","root2":"other","path2":"b","rights":"write","verdict":"refused",` +
		`"kind":"ReadOnly","errno":"EROFS","errno_number":30,"read":3,"written":4,"duration_us":1,"detail":"no",` +
		`"prev":"` + strings.Repeat("0", 64) + `"`
	got := string(e.item(&item{rec: r, count: 1}))
	if !strings.HasPrefix(got, want+`,"hash":"`) {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	hash := checkSeal(t, got, [32]byte{})

	r = guard.Record{Time: r.Time, Via: guard.ViaTools, Op: names.OpLookup, Path: at(t, "code", ""), Verdict: guard.Allowed}
	want = `{"seq":2,"time":"2026-03-04T04:06:07.089Z","session":"s1","via":"tools","op":"lookup","root":"code","verdict":"allowed"`
	got = string(e.item(&item{rec: r, count: 1}))
	if !strings.HasPrefix(got, want+`,"prev":"`) {
		t.Fatalf("empty fields: got %s\nwant %s", got, want)
	}
	checkSeal(t, got, hash)
}

// R082: the line of every operation has the operation's name, the verdict and the number.
func TestR082EveryOperation(t *testing.T) {
	e := newEncoder("s", PathsFull, nil, mark{})
	for op := names.OpLookup; int(op) < names.Ops; op++ {
		r := allowed(t, "f")
		r.Op = op
		got, err := decode(bytes.TrimSpace(e.item(&item{rec: r, count: 1})))
		if err != nil || got.Op.Raw() != op.String() || got.Verdict != "allowed" || got.Seq != uint64(op) {
			t.Errorf("%s: %+v, %v", op, got, err)
		}
	}
}

// oneLine checks what holds for every line and decodes it.
func oneLine(t *testing.T, line []byte) Entry {
	t.Helper()
	if n := bytes.Count(line, []byte{'\n'}); n != 1 || line[len(line)-1] != '\n' {
		t.Fatalf("%d newlines in %q", n, line)
	}
	if !json.Valid(line) || !utf8.Valid(line) {
		t.Fatalf("not JSON in UTF-8: %q", line)
	}
	if len(line) > maxLine {
		t.Fatalf("line of %d bytes", len(line))
	}
	if bytes.ContainsAny(line[:len(line)-1], "\r\x00\x1b\x7f\u0085\u202e\u2066\u2028\u200b\ufeff") {
		t.Fatalf("unescaped control in %q", line)
	}
	s, err := parseSeal(line[:len(line)-1])
	if err != nil || sealOf(line[:len(line)-1], s.prev) != s.hash {
		t.Fatalf("seal: %v in %q", err, line)
	}
	e, err := decode(line[:len(line)-1])
	if err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	return e
}

func TestEscaping(t *testing.T) {
	long := strings.TrimSuffix(strings.Repeat(strings.Repeat("\x01", 255)+"/", 16), "/")
	for _, c := range []struct {
		name, rel, want string
		hasRaw          bool // the line has raw_path
	}{
		{"newline forging a record", "a\n{\"seq\":9}", `"path":"a\n{\"seq\":9}"`, false},
		{"quotes and backslash", `a"b\c`, `"path":"a\"b\\c"`, false},
		{"bidirectional override", "gpj.\u202eexe", `"path":"gpj.\u202eexe"`, false},
		{"line separator", "a\u2028b", `"path":"a\u2028b"`, false},
		{"terminal escape", "\x1b[2J\x7f\t", `"path":"\u001b[2J\u007f\t"`, false},
		{"C1 control", "\u009b1m", `"path":"\u009b1m"`, false},
		{"tag character beyond the BMP", "\U000e0041", `"path":"\udb40\udc41"`, false},
		{"letters stay", "größe/文件", `"path":"größe/文件"`, false},
		{"real U+FFFD", "\ufffd", `"path":"` + "\ufffd" + `"`, false},
		{"invalid UTF-8", "a\xff\xfeb", `"path":"a\ufffd\ufffdb","raw_path":"Yf/+Yg=="`, true},
		{"4 KB of controls", long, `"path":"\u0001\u0001`, true},
		{"4 KB of invalid bytes", strings.ReplaceAll(long, "\x01", "\x80"), `"path":"\ufffd`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEncoder("s", PathsFull, nil, mark{})
			r := refusal(t, c.rel)
			r.Path2 = r.Path
			line := e.item(&item{rec: r, count: 1})
			if !strings.Contains(string(line), c.want) {
				t.Errorf("%s\nlacks %s", line, c.want)
			}
			got := oneLine(t, line)
			if got.Name().Raw() != c.rel || got.Name2().Raw() != c.rel || (got.RawPath != nil) != c.hasRaw {
				t.Errorf("decoded to %q", got.Name())
			}
		})
	}
}

func TestTextIsBounded(t *testing.T) {
	e := newEncoder("s", PathsFull, nil, mark{})
	rel := strings.Repeat(strings.Repeat("\x80", 255)+"/", 2000) + "x"
	r := refusal(t, rel)
	r.Path2, r.Detail, r.Subject = r.Path, strings.Repeat("\x01", 1<<20), guard.Subject(strings.Repeat("ü", 1<<20))
	r.Facts = guard.Facts{Effect: "protect", Rule: r.Detail[:1024], RuleFrom: strings.Repeat("ü", 512), RuleLine: 1 << 30}
	got := oneLine(t, e.item(&item{rec: r, count: 1}))
	if !got.Truncated || !strings.HasPrefix(rel, got.Name().Raw()) || len(got.Name()) != maxRawPath || len(got.Detail) != maxDetailText/6 {
		t.Errorf("truncated %v, path %d bytes, detail %d", got.Truncated, len(got.Name()), len(got.Detail))
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(rel))); got.PathSHA256 != sum || got.Path2SHA256 != sum {
		t.Errorf("hashes %q, %q", got.PathSHA256, got.Path2SHA256)
	}
	if len(got.Line) > 32<<10 {
		t.Errorf("a line of %d bytes", len(got.Line))
	}
	r = refusal(t, "short")
	if got := oneLine(t, e.item(&item{rec: r, count: 1})); got.Truncated {
		t.Error("the next line still says truncated")
	}
}

// The record of a refused path is short, however long the path is and whatever it contains. The
// record has the beginning of the path.
func TestPaddedPathsMakeShortRecords(t *testing.T) {
	for _, pad := range []string{"a", "\x01", "\"", "\n", "ü", "\u202e", "\ufffd", "\U000e0041", "\x80"} {
		for _, size := range []int{4 << 10, 64 << 10} {
			e := newEncoder("s", PathsFull, nil, mark{})
			elem := strings.Repeat(pad, 250/len(pad))
			rel := strings.Repeat(elem+"/", size/(len(elem)+1)-1) + elem
			r := refusal(t, rel)
			line := e.item(&item{rec: r, count: 1})
			if len(line) > 12<<10 {
				t.Errorf("%d bytes of %q: a record of %d bytes", len(rel), pad, len(line))
			}
			got := oneLine(t, line)
			if got.Truncated != (got.PathSHA256 != "") || size > maxRawPath && !got.Truncated {
				t.Errorf("%q: truncated %v, hash %q", pad, got.Truncated, got.PathSHA256)
			}
			if !strings.HasPrefix(rel, got.Name().Raw()) || size <= maxRawPath && got.Name().Raw() != rel {
				t.Errorf("%q: %d bytes of path", pad, len(got.Name()))
			}
			if _, n := appendText(nil, rel, maxPathText); len(got.Path) == 0 || n < maxPathText/12 {
				t.Errorf("%q: only %d bytes are shown", pad, n)
			}
		}
	}
}

// R086: in modes hash and none, no part of a path or a detail is written. In mode hash equal
// paths have equal hashes, but only under the same key and root.
func TestR086PathsHashAndNone(t *testing.T) {
	k1, k2 := bytes.Repeat([]byte{1}, keyLen), bytes.Repeat([]byte{2}, keyLen)
	r := refusal(t, "medical/diagnosis.txt")
	r.Path2 = at(t, "code", "insurance\xff")
	r.Detail = "/home/ann/medical"
	encoded := func(mode PathMode, key []byte, r guard.Record) Entry {
		line := newEncoder("s", mode, key, mark{}).item(&item{rec: r, count: 1})
		for _, secret := range []string{"medical", "diagnosis", "insurance", "ann", "raw_path"} {
			if bytes.Contains(line, []byte(secret)) {
				t.Errorf("mode %s: %q in %s", mode, secret, line)
			}
		}
		return oneLine(t, line)
	}
	none := encoded(PathsNone, nil, r)
	if (none.Path+none.PathHash+none.Path2Hash).Raw()+none.DetailHash != "" || none.Root != "code" {
		t.Errorf("none: %s", none.Line)
	}
	a, b, other := encoded(PathsHash, k1, r), encoded(PathsHash, k1, r), encoded(PathsHash, k2, r)
	if len(a.PathHash) != 16 || len(a.Path2Hash) != 16 || len(a.DetailHash) != 16 || a.PathHash == a.Path2Hash {
		t.Errorf("hash: %s", a.Line)
	}
	if a.PathHash != b.PathHash || a.PathHash == other.PathHash {
		t.Error("equal paths must correlate under one key only")
	}
	r.Path = at(t, "code2", "medical/diagnosis.txt")
	if encoded(PathsHash, k1, r).PathHash == a.PathHash {
		t.Error("the same path in another root must not correlate")
	}
}

// FuzzLine checks that any strings make one valid line that decodes to them.
func FuzzLine(f *testing.F) {
	f.Add("src/a.go", "b", "subject", "detail")
	f.Add("a\nb", "\xff\xfe", "\"\\\u202e", "\x00\x1b\u2028")
	f.Add(strings.Repeat("\U000e0041", 60), "\ufffd", "\xed\xa0\x80", `,"hash":"`)
	f.Fuzz(func(t *testing.T, rel, rel2, subject, detail string) {
		p, err := names.NewPath("code", rel)
		p2, err2 := names.NewPath("code", rel2)
		if err != nil || err2 != nil {
			t.Skip() // not a path: no record can hold it
		}
		r := guard.Record{Subject: guard.Subject(subject), Detail: detail, Path: p, Path2: p2,
			Op: names.OpRename, Verdict: guard.Failed, Errno: 9999}
		got := oneLine(t, newEncoder("s", PathsFull, nil, mark{}).item(&item{rec: r, count: 1}))
		if got.Truncated {
			return
		}
		if got.Name().Raw() != rel || got.Name2().Raw() != rel2 {
			t.Errorf("paths %q, %q from %q, %q", got.Name(), got.Name2(), rel, rel2)
		}
		lossy := func(s string) string { return string([]rune(s)) }
		if got.Subject.Raw() != lossy(subject) || got.Detail.Raw() != lossy(detail) || got.Errno != "errno 9999" {
			t.Errorf("decoded to %+v", got)
		}
	})
}
