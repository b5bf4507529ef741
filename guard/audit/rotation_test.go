package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
)

func TestRotation(t *testing.T) {
	o := options(t)
	o.MaxBytes = 2000
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
	if err != nil || len(files) < 4 || files[len(files)-1] != l.Path() {
		t.Fatalf("files %v, %v", files, err)
	}
	got := entries(t, o)
	headers := 0
	for _, e := range got {
		if e.Op == opSession {
			headers++
		}
	}
	if headers != len(files) || got[len(got)-1].Path != "f59" || got[0].Op != opSession || got[0].File != filepath.Base(files[0]) {
		t.Errorf("%d headers, first %+v", headers, got[0])
	}
	for _, f := range files {
		if info, _ := os.Stat(f); info.Size() > o.MaxBytes+1000 {
			t.Errorf("%s has %d bytes", f, info.Size())
		}
	}
	r := mustVerify(t, o)
	if r.From != 1 || r.To != l.Status().Written || r.Files != len(files) || r.Pruned != 0 {
		t.Errorf("%+v", r)
	}
}

// R082: without a bound nothing is deleted, however often a session's name is used and however
// many files the session has.
func TestEverythingIsKeptByDefault_R082(t *testing.T) {
	o := options(t)
	o.MaxBytes = 1000
	o.Pruned = func(path string) { t.Errorf("pruned %s", path) }
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
