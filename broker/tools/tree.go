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

// directoryTree writes the tree as JSON while it walks. An answer that is cut is valid JSON,
// too. The next answer begins with the directories in which it goes on.
func (c *call) directoryTree(a *treeArgs) (*result, error) {
	if a.Depth < 0 {
		return nil, invalid("arguments: depth must be 0 (no limit) or more")
	}
	exclude, err := globs("excludePatterns", a.Exclude)
	if err != nil {
		return nil, err
	}
	for _, p := range exclude { // a pattern without * leaves its name out in every directory
		if !strings.Contains(string(p), "*") {
			exclude = append(exclude, "**/"+p)
		}
	}
	at, err := c.target("path", a.Path)
	if err != nil {
		return nil, err
	}
	w, err := c.walk(at.Path, walkOptions{depth: a.Depth, exclude: exclude}, a.Cursor)
	if err != nil {
		return nil, err
	}
	t := newTreeWriter()
	for depth := range w.levels[1:] { // the directories in which the earlier answer ended
		_, name := w.levels[depth+1].path.Split()
		t.entry(depth, name, true)
	}
	for v, err := range w.visits() {
		if err != nil {
			return nil, err
		}
		t.entry(v.depth, v.name, v.isDir())
		if len(t.b) >= c.s.cfg.Answer {
			return &result{data: t.end(), note: c.unread.note(continueNote(w.cursor()))}, nil
		}
	}
	return &result{data: t.end(), note: c.unread.note("")}, nil
}

// treeRoom is the first size of the tree's buffer, in bytes: a buffer that grows is copied.
const treeRoom = 256 << 10

// treeWriter writes nested lists as JSON.stringify(tree, null, 2) does.
type treeWriter struct {
	b     []byte
	count []int // how many entries each open list has so far
}

func newTreeWriter() *treeWriter {
	b, _ := getBuffer(treeRoom)
	return &treeWriter{append(b[:0], '['), []int{0}}
}

// line begins a new line with text. It indents the line by indent levels.
func (t *treeWriter) line(indent int, text string) {
	t.b = append(t.b, '\n')
	for range indent {
		t.b = append(t.b, "  "...)
	}
	t.b = append(t.b, text...)
}

// entry writes a name into the list of this depth, and closes deeper ones. A directory's
// own list stays open.
func (t *treeWriter) entry(depth int, name string, isDir bool) {
	t.closeTo(depth)
	if t.count[depth] > 0 {
		t.b = append(t.b, ',')
	}
	t.count[depth]++
	indent := 2*depth + 1
	t.line(indent, "{")
	t.line(indent+1, `"name": `)
	t.b = append(jsonline.AppendString(t.b, validUTF8(name)), ',')
	if !isDir {
		t.line(indent+1, `"type": "file"`)
		t.line(indent, "}")
		return
	}
	t.line(indent+1, `"type": "directory",`)
	t.line(indent+1, `"children": [`)
	t.count = append(t.count, 0)
}

// closeTo closes the lists below a depth, and their directories.
func (t *treeWriter) closeTo(depth int) {
	for d := len(t.count) - 1; d > depth; d-- {
		t.closeList(d)
		t.line(2*d-1, "}")
		t.count = t.count[:d]
	}
}

func (t *treeWriter) closeList(depth int) {
	if t.count[depth] > 0 {
		t.line(2*depth, "")
	}
	t.b = append(t.b, ']')
}

// end returns the JSON.
func (t *treeWriter) end() []byte {
	t.closeTo(0)
	t.closeList(0)
	return t.b
}
