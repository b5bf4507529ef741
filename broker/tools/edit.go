package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// maxEdit bounds the files that are edited, bytes: several copies of the text
// are held meanwhile.
const maxEdit = 16 << 20

// edit is one replacement; both texts are needed.
type edit struct {
	OldText *string `json:"oldText"`
	NewText *string `json:"newText"`
}

func (c *call) editFile() (*result, error) {
	var a struct {
		Path   string `json:"path"`
		Edits  []edit `json:"edits"`
		DryRun bool   `json:"dryRun"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	if a.Edits == nil {
		return nil, c.missing("edits")
	}
	for i, e := range a.Edits {
		switch {
		case e.OldText == nil:
			return nil, c.missing(fmt.Sprintf("edits/%d/oldText", i))
		case e.NewText == nil:
			return nil, c.missing(fmt.Sprintf("edits/%d/newText", i))
		case *e.OldText == "":
			return nil, invalid("arguments: edits/%d/oldText is empty: give the text to be replaced", i)
		}
	}
	return c.changeText("path", a.Path, a.DryRun, func(text string) (string, error) {
		for i, e := range a.Edits {
			var ok bool
			if text, ok = e.apply(c.ctx, text); c.ctx.Err() != nil {
				return "", c.ctx.Err()
			}
			if !ok {
				return "", hint(invalid("edits/%d: could not find exact match for edit:\n%s", i, *e.OldText), "read the file again")
			}
		}
		return text, nil
	})
}

// changeText gives a text file new contents and answers the difference. The
// file must not have changed between the reading and the writing.
func (c *call) changeText(field, path string, dryRun bool, change func(string) (string, error)) (*result, error) {
	at, err := c.place(field, path)
	if err != nil {
		return nil, err
	}
	data, info, err := c.read(at, 0, maxEdit+1)
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxEdit:
		return nil, &guard.Error{Path: at.Path, Kind: names.Quota, Err: fmt.Errorf("only files of up to %d bytes are edited", maxEdit)}
	case !utf8.Valid(data):
		return nil, hint(&guard.Error{Path: at.Path, Kind: names.Invalid, Err: errors.New("the file is not UTF-8, and is left as it is")},
			"read_file_range with encoding base64 shows its bytes")
	}
	old := string(data)
	text, err := change(old)
	if err != nil {
		return nil, err
	}
	if !dryRun && text != old {
		cond := vfs.IfMatch{ETag: vfs.ETag(info), MustExist: true, Follow: true, RespectLocks: true}
		if _, err := c.s.cfg.Tree.Replace(c.ctx, c.s.caller, vfs.At{Path: at.Path}, strings.NewReader(text), cond); err != nil {
			return nil, err
		}
	}
	real, err := c.s.cfg.Tree.Follow(c.ctx, c.s.caller, at.Path, true)
	if err != nil {
		return nil, err
	}
	shown, err := diff(c.ctx, c.s.shown(at, real), old, text, c.s.cfg.Answer)
	if err != nil {
		return nil, err
	}
	if len(shown) > c.s.cfg.Answer {
		return &result{text: string(whole([]byte(shown[:c.s.cfg.Answer]))), note: "The difference is longer than one answer; this is its beginning."}, nil
	}
	return &result{text: shown}, nil
}

// unixEnds is a text with line ends as texts of edits and differences have them.
func unixEnds(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// apply replaces the first place that matches: exactly but for the kind of line
// end, otherwise by whole lines without regard to white space around them. What
// is not replaced keeps its bytes; what is put in has the line ends of what was
// there.
func (e edit) apply(ctx context.Context, text string) (string, bool) {
	from, to, ok := find(text, unixEnds(*e.OldText))
	if ok {
		return text[:from] + ends(unixEnds(*e.NewText), text, from, to) + text[to:], true
	}
	return e.applyLines(ctx, text)
}

// find looks for a text with Unix line ends where some lines may end in CR LF.
func find(text, old string) (from, to int, ok bool) {
	if i := strings.Index(text, old); i >= 0 && !strings.Contains(old, "\n") {
		return i, i + len(old), true
	}
	i := strings.Index(unixEnds(text), old)
	if i < 0 {
		return 0, 0, false
	}
	from = widened(text, 0, i)
	return from, widened(text, from, len(old)), true
}

// widened is the place in text that lies n bytes after from, a CR LF counting
// as one.
func widened(text string, from, n int) int {
	i := from
	for ; n > 0; n-- {
		if text[i] == '\r' && i+1 < len(text) && text[i+1] == '\n' {
			i++
		}
		i++
	}
	return i
}

// ends gives a text the line ends of the part it replaces, or of the whole.
func ends(text, of string, from, to int) string {
	part := of[from:to]
	if !strings.Contains(part, "\n") {
		part = of
	}
	if strings.Count(part, "\r\n")*2 > strings.Count(part, "\n") {
		return strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

// applyLines is the way around differences in indentation, as server-filesystem
// has it. It takes the lines of the file times those of the edit at the worst, and
// ends with ctx.
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
		put := ends(strings.Join(indented(unixEnds(*e.NewText), old, lines[i]), "\n"), text, from, to)
		return text[:from] + put + text[to:], true
	}
	return text, false
}

// indented gives the new lines the indentation of the place they are put.
func indented(text string, old []string, first string) []string {
	base := indent(first)
	lines := strings.Split(text, "\n")
	for j, line := range lines {
		if j == 0 {
			lines[j] = base + strings.TrimLeft(line, " \t")
			continue
		}
		was := ""
		if j < len(old) {
			was = indent(old[j])
		}
		if is := indent(line); was != "" && is != "" {
			lines[j] = base + strings.Repeat(" ", max(0, len(is)-len(was))) + strings.TrimLeft(line, " \t")
		}
	}
	return lines
}

func indent(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }
