package tools_test

import (
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
)

// A pattern whose braces stand for a million others is refused: one match of it
// could not be stopped.
func TestExplodingPatterns(t *testing.T) {
	b := start(t, nil, nil)
	b.root("docs", guard.ReadOnly, strings.Repeat("a", 200)+"=1")
	b.connect("2025-11-25")
	many := strings.Repeat("{a,aa}", 60) + "b"
	for tool, args := range map[string]m{
		"search_files":   {"path": "docs", "pattern": many},
		"directory_tree": {"path": "docs", "excludePatterns": []string{"x", many}},
	} {
		b.refused(tool, args, "stand for more than 256 patterns")
	}
	b.ok("search_files", m{"path": "docs", "pattern": strings.Repeat("{a,aa}", 8)})
}
