package tools

import (
	"context"
	"fmt"
	"strings"

	"github.com/rootsfs/rootsfs/broker/textdiff"
)

// diffContext is how many unchanged lines a hunk shows before and after a change.
const diffContext = 4

// diff returns the difference of two texts as server-filesystem shows it: a git-style patch
// in a block of as many backticks as it needs. It stops when ctx ends. A difference longer than
// enough bytes may be cut there.
func diff(ctx context.Context, name, old, text string, enough int) (string, error) {
	old, text = unixEnds(old), unixEnds(text)
	changes, err := textdiff.Lines(ctx, old, text, enough)
	if err != nil {
		return "", err
	}
	name = validUTF8(name)
	var b strings.Builder
	fmt.Fprintf(&b, "Index: %s\n%s\n--- %[1]s\toriginal\n+++ %[1]s\tmodified\n", name, strings.Repeat("=", 67))
	textdiff.WriteHunks(&b, old, changes, diffContext)
	fence := 3
	for run := range strings.FieldsFuncSeq(b.String(), func(r rune) bool { return r != '`' }) {
		fence = max(fence, len(run)+1)
	}
	ticks := strings.Repeat("`", fence)
	return ticks + "diff\n" + b.String() + ticks + "\n\n", ctx.Err()
}
