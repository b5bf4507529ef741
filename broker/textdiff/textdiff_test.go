package textdiff

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aymanbagabas/go-udiff"
)

// someText returns n random lines, each of them a digit from 0 to 5. The last line may lack its
// line end.
func someText(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, "%d\n", r.IntN(6))
	}
	text := b.String()
	if r.IntN(3) == 0 {
		text = strings.TrimSuffix(text, "\n")
	}
	return text
}

// mutate returns a text with some lines changed, removed or inserted.
func mutate(r *rand.Rand, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		switch r.IntN(20) {
		case 0:
		case 1:
			b.WriteString("new\n")
		case 2:
			b.WriteString(line + "more\n")
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}

// applyPatch applies a patch strictly: the lines have to be at the numbers in the patch's headers,
// on both sides, and as many as the headers say.
func applyPatch(t *testing.T, old, patch string) string {
	t.Helper()
	from, to := slices.Collect(strings.Lines(old)), []string{}
	used, left, mark := 0, [2]int{}, byte(0)
	for line := range strings.Lines(patch) {
		var a, n, b, m int
		switch _, err := fmt.Sscanf(line, "@@ -%d,%d +%d,%d @@\n", &a, &n, &b, &m); {
		case err == nil:
			if left != [2]int{} {
				t.Fatalf("a hunk lacks %d lines", left)
			}
			a, b, left = a-min(1, n), b-min(1, m), [2]int{n, m}
			to = append(to, from[used:a]...)
			if used = a; len(to) != b {
				t.Fatalf("%q says +%d, and %d lines are before it", line, b, len(to))
			}
			continue
		case strings.HasPrefix(line, "\\ No newline"):
			if mark != '-' {
				to[len(to)-1] = strings.TrimSuffix(to[len(to)-1], "\n")
			}
			continue
		}
		mark = line[0]
		if line[0] != '+' {
			if strings.TrimSuffix(from[used], "\n") != strings.TrimSuffix(line[1:], "\n") {
				t.Fatalf("%q is not line %d, %q", line, used+1, from[used])
			}
			used, left[0] = used+1, left[0]-1
		}
		if line[0] != '-' {
			to, left[1] = append(to, line[1:]), left[1]-1
		}
	}
	if left != [2]int{} {
		t.Fatalf("the last hunk lacks %d lines", left)
	}
	return strings.Join(append(to, from[used:]...), "")
}

// The patch of two texts turns the first into the second.
func TestHunksAreAPatch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		old := someText(r, r.IntN(60))
		text := mutate(r, old)
		if r.IntN(10) == 0 {
			text = someText(r, r.IntN(5))
		}
		changes, err := Lines(context.Background(), old, text, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, around := range []int{0, 3, 4} {
			var patch strings.Builder
			WriteHunks(&patch, old, changes, around)
			if got := applyPatch(t, old, patch.String()); got != text {
				t.Fatalf("%q to %q: the patch with context %d makes %q of it:\n%s", old, text, around, got, &patch)
			}
		}
	}
}

// The changes between texts that are compared piece by piece turn the old text into the new
// one. An insertion at one place is one change, even if it is longer than a piece.
func TestLinesByPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		old := someText(r, r.IntN(200))
		text := mutate(r, old)
		if r.IntN(10) == 0 {
			text = someText(r, r.IntN(200))
		}
		changes, err := lines(context.Background(), old, text, 1+r.IntN(80), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := udiff.Apply(old, changes); err != nil || got != text {
			t.Fatalf("%q to %q: the changes %v make %q, %v", old, text, changes, got, err)
		}
	}
	old, much := strings.Repeat("a\n", 500), strings.Repeat("b\n", 500)
	changes, err := lines(context.Background(), old+"end", old+much+"end", 80, 1<<20)
	if err != nil || len(changes) != 1 || changes[0].New != much || changes[0].Start != len(old) {
		t.Errorf("%v, %v", changes, err)
	}
}
