package tools

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aymanbagabas/go-udiff"
)

// someText is a text of n lines of few kinds; the last may lack its end.
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

// changed is a text with some of its lines changed, taken out or put in.
func changed(r *rand.Rand, text string) string {
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

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patched applies a patch as strictly as its heads allow: the lines have to stand
// where they say, on both sides, and be as many.
func patched(t *testing.T, old, patch string) string {
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

// The patch of two texts makes the one of the other.
func TestDiffIsAPatch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		old := someText(r, r.IntN(60))
		text := changed(r, old)
		if r.IntN(10) == 0 {
			text = someText(r, r.IntN(5))
		}
		shown, err := diff(context.Background(), "f", old, text, 1<<20)
		noError(t, err)
		patch, ok := strings.CutPrefix(shown, "```diff\nIndex: f\n"+strings.Repeat("=", 67)+"\n--- f\toriginal\n+++ f\tmodified\n")
		patch, ok2 := strings.CutSuffix(patch, "```\n\n")
		if !ok || !ok2 {
			t.Fatalf("%q", shown)
		}
		if got := patched(t, old, patch); got != text {
			t.Fatalf("%q to %q: the patch makes %q of it:\n%s", old, text, got, patch)
		}
	}
}

// Texts that are compared piece by piece have changes that make the one of the
// other, and what was put in or taken out in one go is one change.
func TestDiffByPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		old := someText(r, r.IntN(200))
		text := changed(r, old)
		if r.IntN(10) == 0 {
			text = someText(r, r.IntN(200))
		}
		changes, err := lineChanges(context.Background(), old, text, 1+r.IntN(80), 1<<20)
		noError(t, err)
		if got, err := udiff.Apply(old, changes); err != nil || got != text {
			t.Fatalf("%q to %q: the changes %v make %q, %v", old, text, changes, got, err)
		}
	}
	old, much := strings.Repeat("a\n", 500), strings.Repeat("b\n", 500)
	changes, err := lineChanges(context.Background(), old+"end", old+much+"end", 80, 1<<20)
	if err != nil || len(changes) != 1 || changes[0].New != much || changes[0].Start != len(old) {
		t.Errorf("%v, %v", changes, err)
	}
}

// endsAfter is a context that ends when it has been asked so often.
type endsAfter struct {
	context.Context
	asked, after int
}

func (c *endsAfter) Err() error {
	if c.asked++; c.asked > c.after {
		return context.Canceled
	}
	return nil
}

// The difference of two long texts ends with its request, and is not gone on with
// when there is more of it than an answer carries.
func TestDiffEndsWithItsRequest(t *testing.T) {
	old, text := strings.Repeat("a\nb\n", 1<<18), strings.Repeat("a\nc\n", 1<<18)
	ctx := &endsAfter{Context: context.Background(), after: 2}
	if got, err := diff(ctx, "f", old, text, 1<<30); !errors.Is(err, context.Canceled) || got != "" || ctx.asked != 3 {
		t.Errorf("asked %d times: %d bytes, %v", ctx.asked, len(got), err)
	}
	got, err := diff(context.Background(), "f", old, text, 1000)
	if err != nil || len(got) < 1000 || len(got) > 4*diffWindow {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A long run of backticks does not take the square of its length.
func TestDiffOfManyBackticks(t *testing.T) {
	run := strings.Repeat("`", 4<<20)
	got, err := diff(context.Background(), "f", "", run, 1<<30)
	if err != nil || !strings.HasPrefix(got, run+"`diff\n") || !strings.HasSuffix(got, "\n"+run+"`\n\n") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
