package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
)

func TestRotation(t *testing.T) {
	o := options(t)
	o.MaxBytes, o.Keep = 2000, 3
	var pruned []string
	o.Pruned = func(path string, _ Why) { pruned = append(pruned, path) } // under the writer's lock
	l := mustOpen(t, o)
	for i := range 60 {
		r := allowed(t, fmt.Sprint("f", i))
		if i%7 == 0 {
			r.Verdict = guard.Refused
		}
		mustRecord(t, l, r)
	}
	mustClose(t, l)
	files, err := Files(o.Dir, o.Session)
	if err != nil || len(files) != 3 || files[2] != l.Path() {
		t.Fatalf("files %v, %v", files, err)
	}
	got := entries(t, o)
	headers := 0
	for _, e := range got {
		if e.Op == opSession {
			headers++
		}
	}
	if headers != 3 || got[len(got)-1].Path != "f59" || got[0].Op != opSession || got[0].File != filepath.Base(files[0]) {
		t.Errorf("%d headers, first %+v", headers, got[0])
	}
	for _, f := range files {
		if info, _ := os.Stat(f); info.Size() > o.MaxBytes+1000 {
			t.Errorf("%s has %d bytes", f, info.Size())
		}
	}
	r := mustVerify(t, o)
	if r.From != got[0].Seq || r.From == 1 || r.To != l.Last().Records || r.Files != 3 || r.Pruned != r.From-1 {
		t.Errorf("%+v", r)
	}
	if len(pruned) == 0 || slices.ContainsFunc(pruned, func(p string) bool { return slices.Contains(files, p) }) ||
		!strings.HasSuffix(pruned[0], "Z.jsonl") {
		t.Errorf("told of %v, there are %v", pruned, files)
	}
}

// R082: nothing is deleted unasked, however often a session's name is used and
// however large its records grow.
func TestEverythingIsKeptByDefault_R082(t *testing.T) {
	o := options(t)
	o.MaxBytes = 1000
	o.Pruned = func(path string, _ Why) { t.Errorf("pruned %s", path) }
	const runs = 12
	for i := range runs {
		l := mustOpen(t, o)
		for n := range 5 {
			mustRecord(t, l, allowed(t, fmt.Sprintf("f%d.%d", i, n)))
		}
		mustClose(t, l)
	}
	got := entries(t, o)
	if len(got) == 0 || got[0].Seq != 1 {
		t.Fatalf("%d entries", len(got))
	}
	if r := mustVerify(t, o); r.From != 1 || r.Files <= runs || r.Pruned != 0 || r.Records != uint64(len(got)) {
		t.Errorf("%+v", r)
	}
}
