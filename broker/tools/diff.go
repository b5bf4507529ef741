package tools

import (
	"context"
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// diffWindow is how much of each text is compared at a time, bytes. A comparison cannot be
// interrupted, so this bounds how long a request lingers that has ended.
const diffWindow = 256 << 10

// diffContext is how many unchanged lines a hunk shows before and after a change.
const diffContext = 4

// diff returns the difference of two texts as server-filesystem shows it: a git-style patch
// in a block of as many backticks as it needs. It ends with ctx. A difference of more than
// enough bytes may be cut after so many.
func diff(ctx context.Context, name, old, text string, enough int) (string, error) {
	old, text = unixEnds(old), unixEnds(text)
	changes, err := lineChanges(ctx, old, text, diffWindow, enough)
	if err != nil {
		return "", err
	}
	name = validUTF8(name)
	var b strings.Builder
	fmt.Fprintf(&b, "Index: %s\n%s\n--- %[1]s\toriginal\n+++ %[1]s\tmodified\n", name, strings.Repeat("=", 67))
	writeHunks(&b, old, changes)
	fence := 3
	for run := range strings.FieldsFuncSeq(b.String(), func(r rune) bool { return r != '`' }) {
		fence = max(fence, len(run)+1)
	}
	ticks := strings.Repeat("`", fence)
	return ticks + "diff\n" + b.String() + ticks + "\n\n", ctx.Err()
}

// lineChanges returns the changes of whole lines, in order, that turn old into text, or the
// first of them that have enough bytes. Texts longer than window are compared piece by
// piece. So an insertion or deletion that is longer than window may come out as a change of
// more lines than necessary, unless nothing else has changed.
func lineChanges(ctx context.Context, old, text string, window, enough int) (out []udiff.Edit, err error) {
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
		from, put := len(a), len(b) // how much of them is done
		edits := udiff.Lines(a, b)
		if n := len(edits); rest && n > 0 && edits[n-1].End == len(a) && edits[n-1].Start > len(a)/2 {
			// The last change may be due to where the pieces end: compare it again.
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

// sameEnds returns how many bytes of whole lines two texts have in common at the beginning
// and, behind those, at the end.
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

// writeHunks writes the hunks of a patch. Changes whose contexts touch share a hunk. Every
// count is written out, as server-filesystem does.
func writeHunks(b *strings.Builder, old string, changes []udiff.Edit) {
	seen, line, grown := 0, 1, 0 // bytes of old that are done; the line there; how many more lines the new text has by then
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && linesAfter(old, changes[n-1].End, 2*diffContext) >= changes[n].Start {
			n++
		}
		from := linesBefore(old, changes[0].Start, diffContext)
		to := linesAfter(old, changes[n-1].End, diffContext)
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

// lineSpan writes n lines, beginning with line from, as a hunk's head has them.
func lineSpan(from, n int) string {
	if n == 0 {
		from--
	}
	return fmt.Sprintf("%d,%d", from, n)
}

// writeLines writes each line of a text behind a mark, and returns how many there are.
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

// linesBefore returns the offset n lines before an offset, which begins a line.
func linesBefore(text string, at, n int) int {
	for ; n > 0 && at > 0; n-- {
		at = strings.LastIndexByte(text[:at-1], '\n') + 1
	}
	return at
}

// linesAfter returns the offset n lines after an offset, which begins a line.
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
