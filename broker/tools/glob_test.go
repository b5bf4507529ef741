package tools_test

import (
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
)

// A pattern whose braces stand for more than 256 patterns is refused: nothing could stop its
// comparison with one path.
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

// Patterns that would take minutes for one deep path are refused at once. Usual patterns can
// search a tree with such a path.
func TestPatternsOfDeepTree(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("docs", guard.ReadOnly, "top=text")
	guardtest.Deep(t, dir, strings.Repeat("a", 250), 40, "text")
	b.connect("2025-11-25")
	bomb := "**/" + strings.Repeat("{*,a*}/", 8) + strings.Repeat("*/", 200) + "b"
	for tool, args := range map[string]m{
		"search_files":        {"path": "docs", "pattern": bomb},
		"directory_tree":      {"path": "docs", "excludePatterns": []string{"x", bomb}},
		"search_within_files": {"path": "docs", "substring": "text", "include": bomb},
	} {
		b.refused(tool, args, "write fewer of them or fewer braces")
	}
	b.ok("search_files", m{"path": "docs", "pattern": "**/*.{go,md,txt}", "excludePatterns": []string{"**/node_modules/**", "*.{o,a}"}})
	b.ok("search_within_files", m{"path": "docs", "substring": "text", "include": "*.{go,md}"})
}
