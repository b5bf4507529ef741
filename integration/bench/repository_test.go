package main

import (
	"strings"
	"testing"
	"time"
)

// Git works in a root with fifteen patterns that hide names and twenty that protect names. The
// rules hold at a depth of four, too, and for names that appear while a program runs.
func TestRepositoryRows(t *testing.T) {
	needFUSE(t)
	l := newLab(t)
	if err := l.findPrograms(t.Context(), "", "bindfs"); err != nil {
		t.Fatal(err)
	}
	r := &report{When: time.Now(), Size: tiny, Repetitions: 1}
	if err := l.repositoryRows(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if v := r.Repository; v == nil || v.Broken != "" || len(v.WithRules) != 1 || len(v.Inside) != 1 || len(v.Native) != 1 {
		t.Fatalf("%+v, skipped %q", v, r.Skipped)
	}
	if table := r.repositoryTable(); !strings.Contains(table, "15 hidden and 20 protected") || !strings.Contains(table, "git worktree") {
		t.Error(table)
	}
}
