// Package textdiff compares texts line by line and writes the hunks of patches, for the tools
// of MCP servers and for the owner's commands.
//
// # Promises
//
//   - The changes turn the one text into the other exactly, whatever bytes the texts have, unless
//     the changes exceed the caller's bound (enough).
//   - A comparison of long texts ends soon after its context ends.
//   - Hunks can be applied by patch and git apply.
//
// # Not promised
//
// The smallest difference of texts longer than 256 KiB, which are compared piece by piece. Nothing
// is escaped: a caller that shows a patch to a person escapes it.
package textdiff

import (
	"context"
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// window is how much of each text is compared at a time, in bytes. A comparison cannot be
// interrupted, so this bounds how long it goes on after the end of its context.
const window = 256 << 10

// Lines returns the changes of whole lines, in order, that turn old into text. Once the removed and
// inserted lines have enough bytes in all, Lines may leave out the other changes. It stops when ctx
// ends.
func Lines(ctx context.Context, old, text string, enough int) ([]udiff.Edit, error) {
	return lines(ctx, old, text, window, enough)
}

// lines is Lines with any window. Texts longer than window are compared piece by piece. So an
// insertion or deletion that is longer than window may become a change of more lines than
// necessary, unless nothing else has changed.
func lines(ctx context.Context, old, text string, window, enough int) (out []udiff.Edit, err error) {
	at, end := sameEnds(old, text)
	old, text = old[:len(old)-end], text[at:len(text)-end]
	size := 0
	add := func(from, to int, put string) {
		size += to - from + len(put)
		if n := len(out); n > 0 && out[n-1].End == from {
			out[n-1].End, out[n-1].New = to, out[n-1].New+put
			return
		}
		out = append(out, udiff.Edit{Start: from, End: to, New: put})
	}
	for size < enough && at < len(old) && text != "" {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		a, b := firstLines(old[at:], window), firstLines(text, window)
		rest := at+len(a) < len(old) || len(b) < len(text)
		from, put := len(a), len(b) // how many bytes of a and b are done
		edits := udiff.Lines(a, b)
		if n := len(edits); rest && n > 0 && edits[n-1].End == len(a) && edits[n-1].Start > len(a)/2 {
			// The ends of the pieces may have caused the last change, so compare it again.
			from, put = edits[n-1].Start, len(b)-len(edits[n-1].New)
			edits = edits[:n-1]
		}
		for _, e := range edits {
			add(at+e.Start, at+e.End, e.New)
		}
		at, text = at+from, text[put:]
	}
	if size < enough && (at < len(old) || text != "") {
		add(at, len(old), text)
	}
	return out, ctx.Err()
}

// sameEnds returns how many bytes of whole lines two texts have in common: start bytes at the
// beginning, and end bytes at the end. In neither text do the two parts overlap.
func sameEnds(a, b string) (start, end int) {
	for start < len(a) {
		n := linesAfter(a, start, 1)
		if linesAfter(b, start, 1) != n || a[start:n] != b[start:n] {
			break
		}
		start = n
	}
	a, b = a[start:], b[start:]
	for end < min(len(a), len(b)) {
		i, j := linesBefore(a, len(a)-end, 1), linesBefore(b, len(b)-end, 1)
		if a[i:len(a)-end] != b[j:len(b)-end] {
			break
		}
		end = len(a) - i
	}
	return start, end
}

// firstLines returns the whole lines in the first n bytes of a text, but at least one line.
func firstLines(text string, n int) string {
	if len(text) <= n {
		return text
	}
	if i := strings.LastIndexByte(text[:n], '\n'); i >= 0 {
		return text[:i+1]
	}
	return text[:linesAfter(text, 0, 1)]
}

// WriteHunks writes the hunks of a patch, with as many unchanged lines before and after a change
// as context says. Changes whose contexts touch share a hunk. The head of a hunk has every count,
// also a count of 1, as server-filesystem writes it.
func WriteHunks(b *strings.Builder, old string, changes []udiff.Edit, context int) {
	seen, line, grown := 0, 1, 0 // bytes of old that are done; line number there; how many more lines the new text has up to there
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && linesAfter(old, changes[n-1].End, 2*context) >= changes[n].Start {
			n++
		}
		from := linesBefore(old, changes[0].Start, context)
		to := linesAfter(old, changes[n-1].End, context)
		line += strings.Count(old[seen:from], "\n")
		var body strings.Builder
		minus, plus, at := 0, 0, from
		for _, e := range changes[:n] {
			same := writeLines(&body, ' ', old[at:e.Start])
			minus += same + writeLines(&body, '-', old[e.Start:e.End])
			plus += same + writeLines(&body, '+', e.New)
			at = e.End
		}
		same := writeLines(&body, ' ', old[at:to])
		minus, plus = minus+same, plus+same
		fmt.Fprintf(b, "@@ -%s +%s @@\n%s", lineSpan(line, minus), lineSpan(line+grown, plus), body.String())
		line, grown, seen = line+minus, grown+plus-minus, to
		changes = changes[n:]
	}
}

// lineSpan returns the range of n lines from line from on, as the head of a hunk has it: FROM,N. If
// n is 0, FROM is the number of the line before.
func lineSpan(from, n int) string {
	if n == 0 {
		from--
	}
	return fmt.Sprintf("%d,%d", from, n)
}

// writeLines writes each line of a text with a mark before it, and returns the number of lines.
func writeLines(b *strings.Builder, mark byte, text string) (n int) {
	for line := range strings.Lines(text) {
		b.WriteByte(mark)
		b.WriteString(line)
		if !strings.HasSuffix(line, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
		n++
	}
	return n
}

// linesBefore returns the offset n lines before the offset at, or 0 if there are fewer lines. at is
// the beginning of a line or the end of the text.
func linesBefore(text string, at, n int) int {
	for ; n > 0 && at > 0; n-- {
		at = strings.LastIndexByte(text[:at-1], '\n') + 1
	}
	return at
}

// linesAfter returns the offset n lines after the offset at, or the end of the text if there are
// fewer lines. at is the beginning of a line or the end of the text.
func linesAfter(text string, at, n int) int {
	for ; n > 0 && at < len(text); n-- {
		i := strings.IndexByte(text[at:], '\n')
		if i < 0 {
			return len(text)
		}
		at += i + 1
	}
	return at
}
