package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/broker/textdiff"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// maxEdit is the size of the largest file that is edited, in bytes: memory holds several copies
// of its text.
const maxEdit = 16 << 20

// edit is one replacement. Both texts are required.
type edit struct {
	OldText *string `json:"oldText"`
	NewText *string `json:"newText"`
}

type editArgs struct {
	Path   string `json:"path"`
	Edits  []edit `json:"edits"`
	DryRun bool   `json:"dryRun"`
}

func (c *call) editFile(a *editArgs) (*result, error) {
	if a.Edits == nil {
		return nil, missing("edits")
	}
	for i, e := range a.Edits {
		switch {
		case e.OldText == nil:
			return nil, missing(fmt.Sprintf("edits/%d/oldText", i))
		case e.NewText == nil:
			return nil, missing(fmt.Sprintf("edits/%d/newText", i))
		case *e.OldText == "":
			return nil, invalid("arguments: edits/%d/oldText is empty: give the text to be replaced", i)
		}
	}
	at, err := c.target("path", a.Path)
	if err != nil {
		return nil, err
	}
	c.reads = a.DryRun
	old, info, err := c.readText(at.Path)
	if err != nil {
		return nil, err
	}
	text, err := applyEdits(c.ctx, a.Edits, old)
	if err != nil {
		return nil, err
	}
	if !a.DryRun && text != old {
		cond := vfs.IfMatch{ETag: vfs.ETag(info), MustExist: true, Follow: true, RespectLocks: true}
		if _, err := c.s.cfg.Tree.Replace(c.ctx, c.s.caller, vfs.At{Path: at.Path}, strings.NewReader(text), cond); err != nil {
			return nil, err
		}
	}
	res, err := c.showDiff(at, old, text)
	if !a.DryRun {
		if err != nil {
			res = &result{}
		}
		res.done = "The edits were made. They are not shown: what may be read has changed meanwhile, or too many answers have not been read."
	}
	return res, err
}

// readText reads a text file that is to be edited.
func (c *call) readText(p guard.Path) (string, *vfs.Info, error) {
	data, info, err := c.read(p, 0, maxEdit+1)
	switch {
	case err != nil:
	case len(data) > maxEdit:
		err = &guard.Error{Path: p, Kind: names.Quota, Err: fmt.Errorf("only files of up to %d bytes are edited", maxEdit)}
	case !utf8.Valid(data):
		err = hint(&guard.Error{Path: p, Kind: names.Invalid, Err: errors.New("the file is not UTF-8, and is left as it is")},
			"read_file_range with encoding base64 shows its bytes")
	}
	return string(data), info, err
}

// showDiff returns a result with the difference of two texts of a file.
func (c *call) showDiff(at target, old, text string) (*result, error) {
	real, err := c.s.cfg.Tree.Follow(c.ctx, c.s.caller, at.Path, true)
	if err != nil {
		return nil, err
	}
	shown, err := diff(c.ctx, c.s.display(at, real), old, text, c.s.cfg.Answer)
	if err != nil {
		return nil, err
	}
	if len(shown) > c.s.cfg.Answer {
		return &result{text: string(wholeRunes([]byte(shown[:c.s.cfg.Answer]))), note: "The difference is longer than one answer; this is its beginning."}, nil
	}
	return &result{text: shown}, nil
}

// applyEdits applies the edits one after the other. It stops when ctx ends.
func applyEdits(ctx context.Context, edits []edit, text string) (string, error) {
	for i, e := range edits {
		var ok bool
		if text, ok = e.apply(ctx, text); ctx.Err() != nil {
			return "", ctx.Err()
		}
		if !ok {
			return "", hint(invalid("edits/%d: could not find exact match for edit:\n%s", i, *e.OldText), "read the file again")
		}
	}
	return text, nil
}

// unixEnds returns a text with Unix line ends. Edits are compared, and differences shown, with these.
func unixEnds(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// apply replaces the first match of the edit's old text, and reports whether there is one. A match
// is exact except for the kind of line ends. If there is no such match, apply replaces the first
// whole lines that differ from the old text only in the white space around each line. The rest of
// the text keeps its bytes. The new text gets the line ends of the replaced part (withLineEnds).
func (e edit) apply(ctx context.Context, text string) (string, bool) {
	from, to, ok := find(text, unixEnds(*e.OldText))
	if ok {
		return text[:from] + withLineEnds(unixEnds(*e.NewText), text, from, to) + text[to:], true
	}
	return e.applyLines(ctx, text)
}

// find finds old, which has Unix line ends, in a text in which lines may end in CR LF.
func find(text, old string) (from, to int, ok bool) {
	if i := strings.Index(text, old); i >= 0 && !strings.Contains(old, "\n") {
		return i, i + len(old), true
	}
	i := strings.Index(unixEnds(text), old)
	if i < 0 {
		return 0, 0, false
	}
	from = skip(text, 0, i)
	return from, skip(text, from, len(old)), true
}

// skip returns the offset n bytes after from, where a CR LF counts as one byte.
func skip(text string, from, n int) int {
	i := from
	for ; n > 0; n-- {
		if text[i] == '\r' && i+1 < len(text) && text[i+1] == '\n' {
			i++
		}
		i++
	}
	return i
}

// withLineEnds returns text with the kind of line ends that most lines of old[from:to], the
// replaced part, have. If that part has no line end, the lines of all of old count.
func withLineEnds(text, old string, from, to int) string {
	part := old[from:to]
	if !strings.Contains(part, "\n") {
		part = old
	}
	if strings.Count(part, "\r\n")*2 > strings.Count(part, "\n") {
		return strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

// applyLines applies an edit whose indentation differs, as server-filesystem does. At the
// worst it compares every line of the file with every line of the edit, so it also ends with ctx.
func (e edit) applyLines(ctx context.Context, text string) (string, bool) {
	old := strings.Split(unixEnds(*e.OldText), "\n")
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i+len(old) <= len(lines) && ctx.Err() == nil; i++ {
		same := 0
		for same < len(old) && strings.TrimSpace(old[same]) == strings.TrimSpace(lines[i+same]) {
			same++
		}
		if same < len(old) {
			continue
		}
		from := len(strings.Join(lines[:i], ""))
		body := strings.Join(lines[i:i+len(old)], "")
		to := from + len(strings.TrimSuffix(strings.TrimSuffix(body, "\n"), "\r"))
		put := withLineEnds(strings.Join(indentLike(unixEnds(*e.NewText), old, lines[i]), "\n"), text, from, to)
		return text[:from] + put + text[to:], true
	}
	return text, false
}

// indentLike returns the lines of text, indented like the replaced lines. The first line gets the
// indentation of first, the first replaced line. A further line gets the indentation of first, and
// as many spaces as it is indented more than the line of old with the same number. If either of
// these two lines is not indented, the line of text stays as it is. old are the lines of the edit's
// old text.
func indentLike(text string, old []string, first string) []string {
	base := indent(first)
	lines := strings.Split(text, "\n")
	for j, line := range lines {
		if j == 0 {
			lines[j] = base + strings.TrimLeft(line, " \t")
			continue
		}
		oldIndent := ""
		if j < len(old) {
			oldIndent = indent(old[j])
		}
		if newIndent := indent(line); oldIndent != "" && newIndent != "" {
			lines[j] = base + strings.Repeat(" ", max(0, len(newIndent)-len(oldIndent))) + strings.TrimLeft(line, " \t")
		}
	}
	return lines
}

func indent(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }

// diffContext is how many unchanged lines a hunk shows before and after a change.
const diffContext = 4

// diff returns the difference of two texts as server-filesystem shows it: a git-style patch between
// two runs of backticks, each longer than any run of backticks in the patch. It stops when ctx
// ends. Once the changes have enough bytes in all, diff may leave out the other changes.
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
