package hostconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/tailscale/hujson"

	"github.com/rootsfs/rootsfs/guard/names"
)

// tomlServers is the table in which Codex keeps its servers.
const tomlServers = "mcp_servers"

// tomlKey is where the key of a member stands in a TOML document.
type tomlKey struct {
	from, last int  // where it begins, and where the last part of a dotted key does
	isInline   bool // in an inline table
}

// tomlReader reads the servers of a TOML document as the tree of values that a JSON
// document has, with offsets in the body: a table that is written in parts is one object.
type tomlReader struct {
	c       *Config
	p       unstable.Parser
	seen    map[string]int            // keys and headers by path, and where they stand
	objects map[string]*hujson.Object // by path
	top     hujson.Object
	lists   map[string]int // how many headers there are of a list of tables, by path
}

// parseTOML reads Codex's configuration.
func (c *Config) parseTOML(programs []string) error {
	r := &tomlReader{c: c, seen: map[string]int{}, objects: map[string]*hujson.Object{}, lists: map[string]int{}}
	c.keys = map[int]tomlKey{}
	r.p.Reset(c.body)
	var table []string
	for r.p.NextExpression() {
		var err error
		if e := r.p.Expression(); e.Kind == unstable.KeyValue {
			err = r.keyValue(table, e, false)
		} else {
			table, err = r.header(e)
		}
		if err != nil {
			return err
		}
	}
	if err := r.p.Error(); err != nil {
		return r.syntax(err)
	}
	if len(r.top.Members) == 0 {
		return &Error{Err: fmt.Errorf("has no %q: no MCP server is configured in it", tomlServers)}
	}
	return c.readServers(&r.top.Members[0], "", false, programs)
}

// syntax is the parser's error with its line.
func (r *tomlReader) syntax(err error) error {
	e := &Error{Err: fmt.Errorf("not TOML: %s", syntax(err))}
	var pe *unstable.ParserError
	if errors.As(err, &pe) && len(pe.Highlight) > 0 {
		e.Line = r.c.line(int(r.p.Range(pe.Highlight).Offset))
	}
	return e
}

// key reads the key of a member or header in a table. end is where it ends.
func (r *tomlReader) key(table []string, e *unstable.Node) (path []string, key tomlKey, end int, err error) {
	path = slices.Clone(table)
	for keys := e.Key(); keys.Next(); {
		n := keys.Node()
		if len(path) == len(table) {
			key.from = int(n.Raw.Offset)
		}
		path = append(path, string(n.Data))
		key.last, end = int(n.Raw.Offset), int(n.Raw.Offset+n.Raw.Length)
	}
	if len(path) > maxDepth {
		err = r.c.errorf(key.from, "nested deeper than the limit of %d", maxDepth)
	}
	return path, key, end, err
}

// header reads a header, and returns the path of the keys that follow it.
func (r *tomlReader) header(e *unstable.Node) ([]string, error) {
	path, key, _, err := r.key(nil, e)
	if err != nil {
		return nil, err
	}
	if e.Kind != unstable.ArrayTable {
		err := r.once(path, key)
		r.object(path, key)
		return path, err
	}
	name := pathKey(path)
	switch {
	case r.lists[name] > 0:
	case r.objects[name] != nil:
		return nil, r.c.errorf(key.from, "%s is both a table and a list of tables; remove one of them", names.Quote(path[len(path)-1]))
	default:
		r.objects[name] = &hujson.Object{} // of which no server is made
		r.add(path, key, hujson.Value{StartOffset: key.from, Value: &hujson.Array{}})
	}
	// Each header begins another element, whose keys are its own.
	r.lists[name]++
	return append(path, fmt.Sprintf("[%d]", r.lists[name])), nil
}

// keyValue reads a key and its value: of an inline table, the keys in it.
func (r *tomlReader) keyValue(table []string, e *unstable.Node, isInline bool) error {
	path, key, from, err := r.key(table, e)
	if err == nil {
		err = r.once(path, key)
	}
	if err != nil {
		return err
	}
	key.isInline = isInline
	n := e.Value()
	if n.Kind == unstable.InlineTable {
		r.object(path, key)
		for all := n.Children(); all.Next(); {
			if err := r.keyValue(path, all.Node(), true); err != nil {
				return err
			}
		}
		return nil
	}
	from += bytes.IndexByte(r.c.body[from:], '=') + 1
	from += len(r.c.body[from:]) - len(bytes.TrimLeft(r.c.body[from:], " \t"))
	v := hujson.Value{StartOffset: from, EndOffset: int(e.Raw.Offset + e.Raw.Length), Value: trimmed(n)}
	if list, ok := v.Value.(*hujson.Array); ok {
		r.elements(list, n, &v)
	}
	r.add(path, key, v)
	return nil
}

// elements reads the elements of a list, with what stands around them.
func (r *tomlReader) elements(list *hujson.Array, n *unstable.Node, v *hujson.Value) {
	at, end := v.StartOffset+1, v.EndOffset-1
	for all := n.Children(); all.Next(); {
		raw := all.Node().Raw
		e := hujson.Value{StartOffset: int(raw.Offset), EndOffset: int(raw.Offset + raw.Length), Value: trimmed(all.Node())}
		if e.StartOffset < at { // of a list or table the parser tells no place
			e.StartOffset, e.EndOffset = at, at
		}
		e.BeforeExtra = r.c.body[at:e.StartOffset]
		list.Elements = append(list.Elements, e)
		at = e.EndOffset + commaEnd(r.c.body[e.EndOffset:end])
	}
	list.AfterExtra = r.c.body[at:end]
}

// commaEnd is where the first comma that is in no comment ends; 0 if there is none.
func commaEnd(b []byte) int {
	isComment := false
	for i, ch := range b {
		switch {
		case ch == '#', ch == '\n':
			isComment = ch == '#'
		case ch == ',' && !isComment:
			return i + 1
		}
	}
	return 0
}

// trimmed is a value of TOML as one of JSON; what lists and tables hold is left out.
func trimmed(n *unstable.Node) hujson.ValueTrimmed {
	switch n.Kind {
	case unstable.String:
		return hujson.String(string(n.Data))
	case unstable.Array:
		return &hujson.Array{}
	case unstable.InlineTable:
		return &hujson.Object{}
	case unstable.Bool:
		return hujson.Bool(string(n.Data) == "true")
	default: // numbers and times
		return hujson.Int(0)
	}
}

func pathKey(path []string) string { return strings.Join(path, "\x00") }

// once refuses a key that is given twice.
func (r *tomlReader) once(path []string, key tomlKey) error {
	name := pathKey(path)
	if first, ok := r.seen[name]; ok {
		return r.c.errorf(key.from, "the key %s is given twice, first in line %d; remove one of them", names.Quote(path[len(path)-1]), r.c.line(first))
	}
	r.seen[name] = key.from
	return nil
}

// object returns the object at a path, which it adds to the one around it if there is
// none yet.
func (r *tomlReader) object(path []string, key tomlKey) *hujson.Object {
	if len(path) == 0 {
		return &r.top
	}
	name := pathKey(path)
	if r.objects[name] == nil {
		r.objects[name] = &hujson.Object{}
		r.add(path, key, hujson.Value{StartOffset: key.from, Value: r.objects[name]})
	}
	return r.objects[name]
}

// add adds a member to the object around it, if it is about servers.
func (r *tomlReader) add(path []string, key tomlKey, v hujson.Value) {
	if path[0] != tomlServers {
		return
	}
	last := len(path) - 1
	around := r.object(path[:last], key)
	around.Members = append(around.Members, hujson.ObjectMember{Name: hujson.Value{StartOffset: key.from, Value: hujson.String(path[last])}, Value: v})
	r.c.keys[v.StartOffset] = key
}

// newKey is the edit that adds "args" to a server that has none. It stands before the
// command, so that a comment behind the command stays there, and white space after its
// bracket tells Unwrap that it was not there before.
func (c *Config) newKey(command *hujson.Value, words []string) edit {
	key := c.keys[command.StartOffset]
	gap, isFirst := newline(c.body[:key.from])
	switch {
	case key.isInline && isFirst:
		gap = "," + gap
	case key.isInline:
		gap = ", "
	case !isFirst:
		gap = "\n" // the document's first line
	}
	return edit{key.from, key.from, string(c.body[key.from:key.last]) + "args = [ " + strings.Join(words, ", ") + " ]" + gap}
}

// newKeySpan is where a key stands that newKey has added, with what follows it up to the
// command.
func (c *Config) newKeySpan(command, args *hujson.Value) (from, to int, ok bool) {
	from, to = c.keys[args.StartOffset].from, c.keys[command.StartOffset].from
	ok = args.EndOffset <= to && c.body[args.StartOffset+1] == ' ' && len(bytes.Trim(c.body[args.EndOffset:to], ", \t\r\n")) == 0
	return from, to, ok
}
