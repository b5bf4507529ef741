package tools

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// endsAfter is a context that ends after a number of calls of Err.
type endsAfter struct {
	context.Context
	calls, after int
}

func (c *endsAfter) Err() error {
	if c.calls++; c.calls > c.after {
		return context.Canceled
	}
	return nil
}

// The comparison of two long texts ends when the context of its request ends. It also ends when the
// difference is larger than the caller's bound.
func TestDiffEndsWithItsRequest(t *testing.T) {
	old, text := strings.Repeat("a\nb\n", 1<<18), strings.Repeat("a\nc\n", 1<<18)
	ctx := &endsAfter{Context: context.Background(), after: 2}
	if got, err := diff(ctx, "f", old, text, 1<<30); !errors.Is(err, context.Canceled) || got != "" || ctx.calls != 3 {
		t.Errorf("Err was called %d times: %d bytes, %v", ctx.calls, len(got), err)
	}
	got, err := diff(context.Background(), "f", old, text, 1000)
	if err != nil || len(got) < 1000 || len(got) > 1<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// The time for a long run of backticks is not quadratic in its length.
func TestDiffOfManyBackticks(t *testing.T) {
	run := strings.Repeat("`", 4<<20)
	got, err := diff(context.Background(), "f", "", run, 1<<30)
	if err != nil || !strings.HasPrefix(got, run+"`diff\n") || !strings.HasSuffix(got, "\n"+run+"`\n\n") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A difference is shown as server-filesystem shows it.
func TestDiffFrame(t *testing.T) {
	got, err := diff(context.Background(), "f", "a\r\nb\n", "a\nc\n", 1<<20)
	want := "```diff\nIndex: f\n" + strings.Repeat("=", 67) + "\n--- f\toriginal\n+++ f\tmodified\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n```\n\n"
	if err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
}
