package tools_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The note of an answer names the directories and files that a tree, a listing with sizes or a
// search could not read.
func TestNoteNamesUnreadable(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("r", guard.ReadOnly, "open/f=text", "locked/f=text", "shut.txt=text", "links/out => /etc/passwd", "links/dangling => none")
	testkit.Must(t, b.reg.SetPatterns(context.Background(), "r", guard.Patterns{Deny: []rules.Pattern{{Text: "locked/"}, {Text: "shut.txt"}}}))
	b.connect("2025-11-25")
	for _, c := range []struct {
		tool string
		args m
		want []string
	}{
		{"directory_tree", m{"path": dir}, []string{`"locked"`}},
		{"search_files", m{"path": dir, "pattern": "**/f"}, []string{`"locked"`}},
		{"search_within_files", m{"path": dir, "substring": "text"}, []string{`"locked"`, `"shut.txt"`}},
		{"list_directory_with_sizes", m{"path": dir + "/links"}, []string{`"out"`}},
		{"search_within_files", m{"path": dir + "/shut.txt", "substring": "text"}, []string{`"shut.txt"`}},
	} {
		_, note, failed := b.call(c.tool, c.args)
		if failed || !strings.Contains(note, "Could not be read: "+strings.Join(c.want, ", ")+".") {
			t.Errorf("%s %v: note %q; want one that names %v", c.tool, c.args, note, c.want)
		}
	}
	// An answer without unreadable names has no note.
	for _, tool := range []string{"directory_tree", "list_directory_with_sizes"} {
		if _, note, _ := b.call(tool, m{"path": dir + "/open"}); note != "" {
			t.Errorf("%s of a directory that can be read: note %q", tool, note)
		}
	}
}

// A note names ten of the names that could not be read, and counts the others.
func TestNoteOfManyUnreadIsBounded(t *testing.T) {
	b := start(t, nil, nil)
	var tree []string
	for i := range 25 {
		tree = append(tree, fmt.Sprintf("locked%02d/f=text", i))
	}
	dir := b.root("r", guard.ReadOnly, tree...)
	testkit.Must(t, b.reg.SetPatterns(context.Background(), "r", guard.Patterns{Deny: []rules.Pattern{{Text: "locked*/"}}}))
	b.connect("2025-11-25")
	_, note, _ := b.call("directory_tree", m{"path": dir})
	if !strings.Contains(note, `"locked09" and 15 more.`) {
		t.Errorf("note %q", note)
	}
}
