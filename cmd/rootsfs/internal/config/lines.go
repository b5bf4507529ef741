package config

import (
	"fmt"
	"slices"
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
	keys     map[string]int // how many keys a table has
	excess   []string       // path of the first key beyond the bounds below
	what     string         // which one it is
}

// The decoder's work grows with the square of the keys in one table, and with
// the depth of each key. These bounds are looked at before it runs; they leave
// room for every document that means something, in which a table of profiles is
// the largest, and root.[n].limits.KEY the deepest.
const (
	maxParts = 8
	maxKeys  = 10_000
)

func join(parts []string) string { return strings.Join(parts, "\x00") }

func index(i int) string { return "[" + strconv.Itoa(i) + "]" }

func findLines(doc []byte) *lines {
	l := &lines{at: map[string]int{}, arrays: map[string]int{}, keys: map[string]int{}}
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
	for keys.Next() {
		n := keys.Node()
		if len(path) >= maxParts {
			l.exceed(path, "is nested too deeply")
			return path
		}
		path = append(path, string(n.Data))
		l.noteKey(path, n.Raw.Offset)
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
			l.exceed(path, "is nested too deeply")
			return
		}
		path = append(path, string(keys.Node().Data))
		l.noteKey(path, keys.Node().Raw.Offset)
	}
	l.value(path, e.Value())
}

func (l *lines) value(path []string, v *unstable.Node) {
	if len(path) >= maxParts {
		if v.Kind == unstable.InlineTable || v.Kind == unstable.Array {
			l.exceed(path, "is nested too deeply")
		}
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

// exceed keeps the first key beyond a bound.
func (l *lines) exceed(path []string, what string) {
	if l.excess == nil {
		l.excess, l.what = slices.Clone(path), what
	}
}

// noteKey is note for a key, which counts in its table.
func (l *lines) noteKey(path []string, offset uint32) {
	if !l.note(path, offset) {
		return
	}
	table := join(path[:len(path)-1])
	l.keys[table]++
	if l.keys[table] > maxKeys {
		l.exceed(path, fmt.Sprintf("is beyond the limit of %d keys in one table", maxKeys))
	}
}

// note keeps the first place of a path, and reports whether this is it.
func (l *lines) note(path []string, offset uint32) bool {
	key := join(path)
	if _, ok := l.at[key]; ok {
		return false
	}
	l.at[key] = 1 + sort.SearchInts(l.newlines, int(offset))
	return true
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
