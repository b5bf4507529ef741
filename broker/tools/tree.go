package tools

import (
	"strings"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
)

type treeArgs struct {
	Path    string   `json:"path"`
	Exclude []string `json:"excludePatterns"`
	Depth   int      `json:"depth"`
	Cursor  string   `json:"cursor"`
}

// directoryTree writes the tree as JSON while it walks. An answer that ends
// before the tree does is whole JSON too; the next one begins with the
// directories it is in.
func (c *call) directoryTree() (*result, error) {
	var a treeArgs
	if err := c.args(&a); err != nil {
		return nil, err
	}
	if a.Depth < 0 {
		return nil, invalid("arguments: depth must be 0 (no limit) or more")
	}
	exclude, err := c.patterns("excludePatterns", a.Exclude)
	if err != nil {
		return nil, err
	}
	for _, p := range exclude {
		if !strings.Contains(p, "*") {
			exclude = append(exclude, "**/"+p)
		}
	}
	at, err := c.place("path", a.Path)
	if err != nil {
		return nil, err
	}
	w, err := c.walk(at, walkHow{depth: a.Depth, exclude: exclude}, a.Cursor)
	if err != nil {
		return nil, err
	}
	defer w.close()
	t := treeWriter{limit: c.s.cfg.Answer}
	t.b, _ = lend(treeRoom)
	t.b = append(t.b[:0], '"')
	for depth := range w.levels[1:] { // of an earlier answer
		_, name := w.levels[depth+1].path.Split()
		t.entry(depth, name, true)
	}
	for {
		e, _, ok, err := w.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return &result{quoted: t.end()}, nil
		}
		t.entry(len(w.levels)-1, e.name, e.isDir())
		if e.isDir() {
			if err := w.down(&e); err != nil {
				return nil, err
			}
		}
		if len(t.b) >= t.limit {
			return &result{quoted: t.end(), note: goOn(w.cursor())}, nil
		}
	}
}

// treeRoom is what a tree begins with at least, bytes: it grows by copying.
const treeRoom = 256 << 10

// treeWriter writes nested lists as JSON.stringify(tree, null, 2) does, and that as
// a JSON string: every line of it has something to be escaped, which is known here.
type treeWriter struct {
	b     []byte
	limit int
	count []int // entries of the levels that are open
}

const blanks = "                                                                "

// indent begins a line.
func (t *treeWriter) indent(n int) {
	t.b = append(t.b, `\n`...)
	for n *= 2; n > len(blanks); n -= len(blanks) {
		t.b = append(t.b, blanks...)
	}
	t.b = append(t.b, blanks[:n]...)
}

// entry writes one name of the level depth; deeper levels end before it. A
// directory's list stays open for what is in it.
func (t *treeWriter) entry(depth int, name string, dir bool) {
	if len(t.count) == 0 {
		t.b = append(t.b, '[')
		t.count = append(t.count, 0)
	}
	t.closeTo(depth)
	if t.count[depth] > 0 {
		t.b = append(t.b, ',')
	}
	t.count[depth]++
	in := 2*depth + 1
	t.indent(in)
	t.b = append(t.b, '{')
	t.indent(in + 1)
	t.b = append(t.b, `\"name\": \"`...)
	var room [64]byte
	t.b = jsonline.AppendText(t.b, jsonline.AppendText(room[:0], shownName(name)))
	t.b = append(t.b, `\",`...)
	t.indent(in + 1)
	if !dir {
		t.b = append(t.b, `\"type\": \"file\"`...)
		t.indent(in)
		t.b = append(t.b, '}')
		return
	}
	t.b = append(t.b, `\"type\": \"directory\",`...)
	t.indent(in + 1)
	t.b = append(t.b, `\"children\": [`...)
	t.count = append(t.count, 0)
}

// closeTo ends the directories below a level.
func (t *treeWriter) closeTo(depth int) {
	for len(t.count) > depth+1 {
		last := len(t.count) - 1
		if t.count[last] > 0 {
			t.indent(2 * last)
		}
		t.b = append(t.b, ']')
		t.indent(2*last - 1)
		t.b = append(t.b, '}')
		t.count = t.count[:last]
	}
}

// end is the whole string.
func (t *treeWriter) end() []byte {
	if len(t.count) == 0 {
		return append(t.b, `[]"`...)
	}
	t.closeTo(0)
	return append(t.b, `\n]"`...)
}
