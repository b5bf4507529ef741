package config

import (
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// lines finds the line of a key. The decoder gives values without places, so
// the document's syntax tree is walked once beside it.
type lines struct {
	at       map[string]int // by joined key path; elements of arrays are "[0]", ...
	newlines []int          // offsets
	arrays   map[string]int // how many [[tables]] of a path there were so far
	p        unstable.Parser
}

// maxParts bounds the depth at which places are kept: no key we know is deeper,
// and the work stays linear for a key of a million parts.
const maxParts = 8

func join(parts []string) string { return strings.Join(parts, "\x00") }

func index(i int) string { return "[" + strconv.Itoa(i) + "]" }

func findLines(doc []byte) *lines {
	l := &lines{at: map[string]int{}, arrays: map[string]int{}}
	for i, c := range doc {
		if c == '\n' {
			l.newlines = append(l.newlines, i)
		}
	}
	l.p.Reset(doc)
	var table []string
	for l.p.NextExpression() {
		e := l.p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = l.table(e)
		case unstable.KeyValue:
			l.keyValue(table, e)
		}
	}
	return l
}

// table notes a [header] and returns the path it opens.
func (l *lines) table(e *unstable.Node) []string {
	var path []string
	keys := e.Key()
	for keys.Next() && len(path) < maxParts {
		n := keys.Node()
		path = append(path, string(n.Data))
		l.note(path, n.Raw.Offset)
		key := join(path)
		if e.Kind == unstable.ArrayTable && keys.IsLast() {
			l.arrays[key]++
		}
		if count := l.arrays[key]; count > 0 {
			path = append(path, index(count-1))
			l.note(path, n.Raw.Offset)
		}
	}
	return path
}

func (l *lines) keyValue(table []string, e *unstable.Node) {
	path := table[:len(table):len(table)]
	keys := e.Key()
	for keys.Next() {
		if len(path) >= maxParts {
			return
		}
		path = append(path, string(keys.Node().Data))
		l.note(path, keys.Node().Raw.Offset)
	}
	l.value(path, e.Value())
}

func (l *lines) value(path []string, v *unstable.Node) {
	if len(path) >= maxParts {
		return
	}
	children := v.Children()
	switch v.Kind {
	case unstable.InlineTable:
		for children.Next() {
			l.keyValue(path, children.Node())
		}
	case unstable.Array:
		for i := 0; children.Next(); i++ {
			n := children.Node()
			elem := append(path[:len(path):len(path)], index(i))
			if n.Raw.Length > 0 {
				l.note(elem, n.Raw.Offset)
			}
			l.value(elem, n)
		}
	}
}

// note keeps the first place of a path.
func (l *lines) note(path []string, offset uint32) {
	key := join(path)
	if _, ok := l.at[key]; !ok {
		l.at[key] = 1 + sort.SearchInts(l.newlines, int(offset))
	}
}

// line is the place of a path, or else of the nearest table around it.
func (l *lines) line(path []string) int {
	for ; len(path) > 0; path = path[:len(path)-1] {
		if n, ok := l.at[join(path)]; ok {
			return n
		}
	}
	return 0
}
