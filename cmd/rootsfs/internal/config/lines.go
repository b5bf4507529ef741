package config

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// lines finds the line of a key. The decoder gives values without places, so
// the document's syntax tree is walked once beside it, in the document's order.
type lines struct {
	doc    []byte
	at     map[string]int // by joined key path; elements of arrays are "[0]", ...
	arrays map[string]int // how many [[tables]] of a path there were so far
	keys   map[string]int // how many keys a table has
	// seen is how far lines have been counted; last is the line there.
	seen, last int
	excess     []string // path of the first key beyond the bounds below
	what       string   // which one it is
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
	l := &lines{doc: doc, at: map[string]int{}, arrays: map[string]int{}, keys: map[string]int{}, last: 1}
	var p unstable.Parser
	p.Reset(doc)
	var table []string
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table, _ = l.key(nil, e)
		case unstable.KeyValue:
			l.keyValue(table, e)
		}
	}
	return l
}

// key notes the key of a [header], which begins at the top, or of a value in the table at
// path, and returns its own path. ok is false if it is nested too deeply.
func (l *lines) key(path []string, e *unstable.Node) (_ []string, ok bool) {
	path = slices.Clip(path)
	for keys := e.Key(); keys.Next(); {
		n := keys.Node()
		if len(path) >= maxParts {
			l.exceed(path, "is nested too deeply")
			return path, false
		}
		path = append(path, string(n.Data))
		if table := join(path[:len(path)-1]); l.note(path, n.Raw.Offset) {
			if l.keys[table]++; l.keys[table] > maxKeys {
				l.exceed(path, fmt.Sprintf("is beyond the limit of %d keys in one table", maxKeys))
			}
		}
		if e.Kind == unstable.KeyValue {
			continue
		}
		array := join(path)
		if e.Kind == unstable.ArrayTable && keys.IsLast() {
			l.arrays[array]++
		}
		if count := l.arrays[array]; count > 0 {
			path = append(path, index(count-1))
			l.note(path, n.Raw.Offset)
		}
	}
	return path, true
}

func (l *lines) keyValue(table []string, e *unstable.Node) {
	if path, ok := l.key(table, e); ok {
		l.value(path, e.Value())
	}
}

func (l *lines) value(path []string, v *unstable.Node) {
	if v.Kind != unstable.InlineTable && v.Kind != unstable.Array {
		return
	}
	if len(path) >= maxParts {
		l.exceed(path, "is nested too deeply")
		return
	}
	children := v.Children()
	for i := 0; children.Next(); i++ {
		n := children.Node()
		if v.Kind == unstable.InlineTable {
			l.keyValue(path, n)
			continue
		}
		elem := append(slices.Clip(path), index(i))
		if n.Raw.Length > 0 {
			l.note(elem, n.Raw.Offset)
		}
		l.value(elem, n)
	}
}

// exceed keeps the first key beyond a bound.
func (l *lines) exceed(path []string, what string) {
	if l.excess == nil {
		l.excess, l.what = slices.Clone(path), what
	}
}

// note keeps the first place of a path, and reports whether this is it.
func (l *lines) note(path []string, offset uint32) bool {
	key := join(path)
	if _, ok := l.at[key]; ok {
		return false
	}
	if at := int(offset); at > l.seen {
		l.last += bytes.Count(l.doc[l.seen:at], []byte{'\n'})
		l.seen = at
	}
	l.at[key] = l.last
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
