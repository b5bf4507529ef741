package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

func TestFilter(t *testing.T) {
	o := options(t)
	o.MaxBytes = 1000 // several files
	l := mustOpen(t, o)
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i, rel := range []string{"a.go", "src/b.go", "src/deep/c.go", "bad\xff.txt", ""} {
		r := guard.Record{Time: base.Add(time.Duration(i) * time.Second), Op: names.OpOpen, Path: at(t, "code", rel), Verdict: guard.Allowed}
		mustRecord(t, l, r)
	}
	r := guard.Record{Time: base.Add(5 * time.Second), Op: names.OpRename, Subject: "srv", Path: at(t, "code", "m"),
		Path2: at(t, "other", "n.go"), Verdict: guard.Refused}
	mustRecord(t, l, r)
	r = guard.Record{Time: base.Add(6 * time.Second), Op: names.OpRead, Path: at(t, "other", `"verdict":"refused"`), Verdict: guard.Failed}
	mustRecord(t, l, r)
	mustClose(t, l)
	files, err := Files(o.Dir, "")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, c := range []struct {
		name string
		f    Filter
		want string // seconds after base
	}{
		{"root", Filter{Root: "code"}, "0 1 2 3 4 5"},
		{"second root", Filter{Root: "other"}, "5 6"},
		{"since", Filter{Since: base.Add(5 * time.Second)}, "5 6"},
		{"until", Filter{Since: base, Until: base.Add(2 * time.Second)}, "0 1"},
		{"denied", Filter{Denied: true}, "5"},
		{"op", Filter{Op: "open"}, "0 1 2 3 4"},
		{"subject", Filter{Subject: "srv"}, "5"},
		{"other session", Filter{Session: "x"}, ""},
		{"base name", Filter{Path: "*.go"}, "0 1 2 5"},
		{"glob", Filter{Path: "src/*.go"}, "1"},
		{"double star", Filter{Path: "src/**"}, "1 2"},
		{"as printed, with the root", Filter{Path: "code/src/b.go"}, "1"},
		{"a path in another root", Filter{Path: "other/src/b.go"}, ""},
		{"all of a root", Filter{Path: "code/**"}, "0 1 2 3 5"},
		{"the second path as printed", Filter{Path: "other/n.go"}, "5"},
		{"a root itself", Filter{Path: "code"}, "4"},
		{"a path that is not UTF-8", Filter{Path: "bad\xff.txt"}, "3"},
		{"everything that has a path", Filter{Path: "**"}, "0 1 2 3 5 6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			err := Read(files, c.f, func(e Entry) error {
				if e.Op != opSession {
					got = append(got, fmt.Sprint(int(e.Time.Sub(base).Seconds())))
				}
				return nil
			})
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("got %v, %v, want %s", got, err, c.want)
			}
		})
	}
	if err := Read(files, Filter{Path: "[a"}, nil); !errors.Is(err, names.Invalid) {
		t.Errorf("malformed pattern: %v", err)
	}
	stop := errors.New("stop")
	n := 0
	if err := Read(files, Filter{}, func(Entry) error { n++; return stop }); err != stop || n != 1 {
		t.Errorf("error of fn: %v after %d", err, n)
	}
}

// Records before and after a damaged part are read.
func TestReadDamage(t *testing.T) {
	o := options(t)
	l := mustOpen(t, o)
	mustRecord(t, l, refusal(t, "a"))
	mustClose(t, l)
	good, err := os.ReadFile(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(t.TempDir(), "x.jsonl")
	content := "\n[]\n{}\n" + strings.Repeat("y", maxLine+1) + "\n" + string(good) + "{\"seq\""
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	err = Read([]string{p, filepath.Join(t.TempDir(), "gone")}, Filter{}, func(e Entry) error { n++; return nil })
	var damage *DamageError
	if !errors.As(err, &damage) || n != 2 {
		t.Fatalf("%d entries, %v", n, err)
	}
	want := []Damage{{p, 1, false}, {p, 2, false}, {p, 3, false}, {p, 4, false}, {p, 7, true}}
	if !slices.Equal(damage.List, want) || !strings.Contains(err.Error(), "line 1 is not a record (and 4 more)") {
		t.Errorf("%v: %v", err, damage.List)
	}
}

// Since skips whole files. The skipped file of this test has a damaged line.
func TestReadSkipsOldFiles(t *testing.T) {
	o := options(t)
	o.MaxBytes = 1
	l := mustOpen(t, o)
	mustRecord(t, l, refusal(t, "a"))
	mustClose(t, l)
	files, _ := Files(o.Dir, o.Session)
	if err := os.WriteFile(files[0], []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Read(files, Filter{Since: time.Now().Add(time.Hour)}, nil); err != nil {
		t.Errorf("the old file was read: %v", err)
	}
	if err := Read(files, Filter{Since: time.Now()}, nil); err == nil {
		t.Error("a file that may hold recent records was skipped")
	}
}

func TestFilesOrder(t *testing.T) {
	dir := t.TempDir()
	want := []string{
		"b-20260101T000000.000000000Z.jsonl",
		"a-20260102T000000.000000000Z.jsonl",
		"a-20260102T000000.000000000Z.2.jsonl",
		"a-20260102T000000.000000000Z.10.jsonl",
		"a-b-20260103T000000.000000000Z.jsonl",
		"a-20260104T000000.000000000Z.jsonl",
	}
	other := []string{"a.jsonl", "a-20260102T000000.000000000Z.01.jsonl", ".a.lock", "-20260102T000000.000000000Z.jsonl"}
	for _, n := range append(other, want...) {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "a-20260105T000000.000000000Z.jsonl")); err != nil {
		t.Fatal(err)
	}
	check := func(session string, want []string) {
		got, err := Files(dir, session)
		for i := range got {
			got[i] = filepath.Base(got[i])
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", session, got, err)
		}
	}
	check("", want)
	check("a", []string{want[1], want[2], want[3], want[5]})
	check("a-b", want[4:5])
	check("none", nil)

	list, err := listNames(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	early := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	if got := nextStart(early, list); got != "20260104T000000.000000001Z" {
		t.Errorf("with the clock set back: %s", got)
	}
}

func TestPathMode(t *testing.T) {
	for _, m := range []PathMode{PathsFull, PathsHash, PathsNone} {
		if got, err := ParsePathMode(m.String()); got != m || err != nil {
			t.Errorf("%s: %v, %v", m, got, err)
		}
	}
	if _, err := ParsePathMode("some"); !errors.Is(err, names.Invalid) {
		t.Errorf("unknown mode: %v", err)
	}
}
