package audit

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// tamperable is a closed session of several files, for tests to damage.
type tamperable struct {
	t     *testing.T
	o     Options
	files []string
}

// newTamperable makes a session with records of the paths prefix0, prefix1 and so on.
func newTamperable(t *testing.T, prefix string) *tamperable {
	o := options(t)
	o.MaxBytes = 1800
	l := mustOpen(t, o)
	for i := range 12 {
		mustRecord(t, l, refusal(t, fmt.Sprint(prefix, i)))
	}
	mustClose(t, l)
	files, err := Files(o.Dir, o.Session)
	if err != nil || len(files) < 3 {
		t.Fatalf("files %v, %v", files, err)
	}
	return &tamperable{t, o, files}
}

func (x *tamperable) must(err error) {
	x.t.Helper()
	testkit.Must(x.t, err)
}

func (x *tamperable) lines(file int) [][]byte {
	b, err := os.ReadFile(x.files[file])
	x.must(err)
	return bytes.SplitAfter(bytes.TrimSuffix(b, []byte{'\n'}), []byte{'\n'})
}

func (x *tamperable) put(file int, lines [][]byte) {
	b := bytes.Join(lines, nil)
	if n := len(b); n > 0 && b[n-1] != '\n' {
		b = append(b, '\n')
	}
	x.must(os.WriteFile(x.files[file], b, 0o600))
}

// reseal makes the chain consistent again. A forger without access to the anchor can do that.
func (x *tamperable) reseal() {
	var prev [hashLen]byte
	for i := range x.files {
		lines := x.lines(i)
		for j, line := range lines {
			line = bytes.TrimSuffix(line, []byte{'\n'})
			body := append([]byte{}, line[:len(line)-sealTail]...)
			body = append(body, prevKey+hex.EncodeToString(prev[:])+`"`...)
			full := append(body, `,"hash":"`+strings.Repeat("0", 64)+`"}`...)
			prev = sealOf(full, prev)
			copy(full[len(full)-2-2*hashLen:], hex.EncodeToString(prev[:]))
			lines[j] = append(full, '\n')
		}
		x.put(i, lines)
	}
}

func (x *tamperable) edit(file, line int) {
	l := x.lines(file)
	l[line] = bytes.Replace(l[line], []byte("refused"), []byte("allowed"), 1)
	x.put(file, l)
}

func TestVerifyDetects(t *testing.T) {
	for _, c := range []struct {
		name, problem string
		tamper        func(x *tamperable)
		// unguarded is set if the chain alone does not detect the change, and only the anchor
		// does.
		unguarded bool
	}{
		{"edit", "was changed", func(x *tamperable) { x.edit(1, 2) }, false},
		{"edit the last line", "was changed", func(x *tamperable) { x.edit(len(x.files)-1, len(x.lines(len(x.files)-1))-1) }, false},
		{"edit and its hash", "does not continue", func(x *tamperable) {
			x.edit(1, 2)
			l := x.lines(1)
			line := bytes.TrimSuffix(l[2], []byte{'\n'})
			s, err := parseSeal(line)
			x.must(err)
			sum := sealOf(line, s.prev)
			copy(line[len(line)-2-2*hashLen:], hex.EncodeToString(sum[:]))
			x.put(1, l)
		}, false},
		{"edit and all hashes after", "not the one that was anchored", func(x *tamperable) { x.edit(1, 2); x.reseal() }, true},
		{"delete a line", "missing", func(x *tamperable) { l := x.lines(1); x.put(1, append(l[:2:2], l[3:]...)) }, false},
		{"delete a header", "missing", func(x *tamperable) { x.put(1, x.lines(1)[1:]) }, false},
		{"swap lines", "missing", func(x *tamperable) { l := x.lines(1); l[1], l[2] = l[2], l[1]; x.put(1, l) }, false},
		{"repeat a line", "follows line", func(x *tamperable) { l := x.lines(1); x.put(1, append(l[:3:3], l[2:]...)) }, false},
		{"insert text", "no record", func(x *tamperable) { l := x.lines(1); l[1] = append([]byte("{}\n"), l[1]...); x.put(1, l) }, false},
		{"insert a huge line", "no log wrote", func(x *tamperable) {
			l := x.lines(1)
			l[1] = append(append(bytes.Repeat([]byte{'x'}, maxLine), '\n'), l[1]...)
			x.put(1, l)
		}, false},
		{"cut the end", "was anchored", func(x *tamperable) { i := len(x.files) - 1; l := x.lines(i); x.put(i, l[:len(l)-1]) }, true},
		{"tear the end", "was anchored", func(x *tamperable) {
			p := x.files[len(x.files)-1]
			info, err := os.Stat(p)
			x.must(err)
			x.must(os.Truncate(p, info.Size()-1))
		}, true},
		{"remove the last file", "was anchored", func(x *tamperable) { x.must(os.Remove(x.files[len(x.files)-1])) }, true},
		{"remove a middle file", "are missing", func(x *tamperable) { x.must(os.Remove(x.files[1])) }, false},
		{"remove the first file", "lines 1 to", func(x *tamperable) { x.must(os.Remove(x.files[0])) }, false},
		{"remove all files", "was anchored", func(x *tamperable) {
			for _, f := range x.files {
				x.must(os.Remove(f))
			}
		}, true},
		{"exchange two files", "this file was", func(x *tamperable) {
			x.must(os.Rename(x.files[0], x.files[0]+".x"))
			x.must(os.Rename(x.files[1], x.files[0]))
			x.must(os.Rename(x.files[0]+".x", x.files[1]))
		}, false},
		{"rename the last file", "this file was", func(x *tamperable) {
			x.must(os.Rename(x.files[len(x.files)-1], strings.Replace(x.files[len(x.files)-1], ".jsonl", "7.jsonl", 1)))
		}, false},
		{"replace all files by another log", "not the one that was anchored", func(x *tamperable) {
			y := newTamperable(x.t, "z")
			for _, f := range x.files {
				x.must(os.Remove(f))
			}
			for _, f := range y.files {
				x.must(os.Rename(f, filepath.Join(x.o.Dir, filepath.Base(f))))
			}
		}, true},
		{"replace one file by another log's", "continue", func(x *tamperable) {
			y := newTamperable(x.t, "z")
			x.must(os.Rename(y.files[1], x.files[1]))
		}, false},
		{"remove the anchor", "anchor file is missing", func(x *tamperable) { x.must(os.Remove(x.o.Anchor)) }, true},
		{"empty the anchor", "anchor file is damaged", func(x *tamperable) { x.must(os.WriteFile(x.o.Anchor, nil, 0o600)) }, true},
		{"another session's anchor", "anchor is that of", func(x *tamperable) {
			b, err := os.ReadFile(x.o.Anchor)
			x.must(err)
			x.must(os.WriteFile(x.o.Anchor, bytes.Replace(b, []byte("work-1"), []byte("work-2"), 1), 0o600))
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTamperable(t, "f")
			mustVerify(t, x.o)
			c.tamper(x)
			r, err := Verify(x.o.Dir, x.o.Session, x.o.Anchor)
			if err != nil || r.OK || r.Anchored || !strings.Contains(r.Problem.Raw(), c.problem) {
				t.Errorf("%+v, %v; want a problem with %q", r, err, c.problem)
			}
			r, err = Verify(x.o.Dir, x.o.Session, "")
			if ok := r.OK || errors.Is(err, fs.ErrNotExist); ok != c.unguarded {
				t.Errorf("without the anchor: %+v, %v", r, err)
			}
		})
	}
}

// Records that were removed, rewritten or damaged are still detected after the session was opened
// again, although Open then writes a new anchor.
func TestVerifyAfterRestart(t *testing.T) {
	for name, tamper := range map[string]func(x *tamperable){
		"cut the end":          func(x *tamperable) { i := len(x.files) - 1; l := x.lines(i); x.put(i, l[:len(l)-1]) },
		"remove the last file": func(x *tamperable) { x.must(os.Remove(x.files[len(x.files)-1])) },
		"rewrite":              func(x *tamperable) { x.edit(1, 2); x.reseal() },
		"remove the first":     func(x *tamperable) { x.must(os.Remove(x.files[0])) },
		"damage the last line": func(x *tamperable) { i := len(x.files) - 1; l := x.lines(i); l[len(l)-1] = []byte("x"); x.put(i, l) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newTamperable(t, "f")
			tamper(x)
			for range 2 {
				l := mustOpen(t, x.o)
				mustRecord(t, l, refusal(t, "later"))
				mustClose(t, l)
			}
			if r, err := Verify(x.o.Dir, x.o.Session, x.o.Anchor); err != nil || r.OK {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// A crash may leave an old anchor, which names a line before the last one. That is no damage, if
// the line is in the chain.
func TestVerifyStaleAnchor(t *testing.T) {
	o := options(t)
	l := mustOpen(t, o)
	stale, err := os.ReadFile(o.Anchor)
	if err != nil {
		t.Fatal(err)
	}
	mustRecord(t, l, refusal(t, "a"))
	mustClose(t, l)
	if err := os.WriteFile(o.Anchor, stale, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := mustVerify(t, o); r.AnchoredAt != 1 || r.To != 2 {
		t.Errorf("%+v", r)
	}
	mustClose(t, mustOpen(t, o))
	if r := mustVerify(t, o); r.AnchoredAt != 3 || r.To != 3 {
		t.Errorf("%+v", r)
	}
}

func TestVerifyNothing(t *testing.T) {
	if r, err := Verify(t.TempDir(), "s", ""); !errors.Is(err, fs.ErrNotExist) || r.OK {
		t.Errorf("%+v, %v", r, err)
	}
}

// parseSeal is given any contents of a file. It accepts no line that is shorter than a seal.
func FuzzParseSeal(f *testing.F) {
	r := refusal(f, "x")
	f.Add(bytes.TrimSpace(newEncoder("s", PathsFull, nil, mark{}).item(&item{rec: r, count: 1})))
	f.Add([]byte(`{"seq":1,"prev":"`))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := parseSeal(line)
		if err == nil && (s.seq == 0 || len(line) < sealTail) {
			t.Errorf("accepted %q", line)
		}
	})
}

// Verify finds no problem in a log that is being written and rotated meanwhile.
func TestVerifyBesideALog(t *testing.T) {
	o := options(t)
	o.MaxBytes = 2000
	l := mustOpen(t, o)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 3000 {
			if err := l.Record(refusal(t, fmt.Sprint("f", i))); err != nil {
				t.Error(err)
			}
		}
	}()
	for looks := 1; ; looks++ {
		r := mustVerify(t, o)
		select {
		case <-done:
			t.Logf("verified %d times, at last %d files", looks, r.Files)
			return
		default:
		}
	}
}
