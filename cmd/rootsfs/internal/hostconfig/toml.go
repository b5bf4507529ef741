package hostconfig

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/tomltree"
)

// tomlServers is the table in which Codex keeps its servers.
const tomlServers = "mcp_servers"

// parseTOML reads Codex's configuration. Its servers become the tree of values that a JSON
// document has, with offsets in the body: a table that is written in parts is one object.
func (c *Config) parseTOML(programs []string) error {
	doc, err := tomltree.Parse(c.body, tomltree.Limits{Depth: maxDepth})
	var wrong *tomltree.Error
	switch {
	case errors.Is(err, tomltree.ErrDepth) && errors.As(err, &wrong):
		return &Error{Line: wrong.Line, Err: fmt.Errorf("nested deeper than the limit of %d", maxDepth)}
	case errors.As(err, &wrong) && wrong.Key == "":
		return &Error{Line: wrong.Line, Err: fmt.Errorf("not TOML: %w", err)}
	case errors.As(err, &wrong):
		return &Error{Line: wrong.Line, Err: err}
	}
	servers := doc.Get(tomlServers)
	if servers == nil {
		return &Error{Err: fmt.Errorf("has no %q: no MCP server is configured in it", tomlServers)}
	}
	c.keys = map[int]*tomltree.Node{}
	m := c.member(servers)
	return c.readServers(&m, "", false, programs)
}

// member is a key of a table as a member of an object.
func (c *Config) member(n *tomltree.Node) hujson.ObjectMember {
	v := hujson.Value{StartOffset: n.From, EndOffset: n.To, Value: trimmed(n)}
	switch x := v.Value.(type) {
	case *hujson.Object:
		for _, key := range n.Children {
			x.Members = append(x.Members, c.member(key))
		}
	case *hujson.Array:
		if n.To > 0 { // no [[NAME]] blocks, of which no server is made
			c.elements(x, n)
		}
	}
	c.keys[n.From] = n
	return hujson.ObjectMember{Name: hujson.Value{StartOffset: n.KeyFrom, Value: hujson.String(n.Name)}, Value: v}
}

// elements adds the items of a list, with what stands around them.
func (c *Config) elements(list *hujson.Array, n *tomltree.Node) {
	at, end := n.From+1, n.To-1
	for _, item := range n.Children {
		e := hujson.Value{StartOffset: item.From, EndOffset: item.To, Value: trimmed(item)}
		if e.StartOffset < at { // of a list or table the parser tells no place
			e.StartOffset, e.EndOffset = at, at
		}
		e.BeforeExtra = c.body[at:e.StartOffset]
		list.Elements = append(list.Elements, e)
		at = e.EndOffset + commaEnd(c.body[e.EndOffset:end])
	}
	list.AfterExtra = c.body[at:end]
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
func trimmed(n *tomltree.Node) hujson.ValueTrimmed {
	switch n.Kind {
	case tomltree.List:
		return &hujson.Array{}
	case tomltree.Table:
		return &hujson.Object{}
	}
	v, _ := n.Value() // a number or time that is none is not ours to refuse
	switch x := v.(type) {
	case string:
		return hujson.String(x)
	case bool:
		return hujson.Bool(x)
	}
	return hujson.Int(0)
}

// newKey is the edit that adds "args" to a server that has none. It stands before the
// command, so that a comment behind the command stays there, and white space after its
// bracket tells Unwrap that it was not there before.
func (c *Config) newKey(command *hujson.Value, words []string) edit {
	key := c.keys[command.StartOffset]
	gap, isFirst := newline(c.body[:key.KeyFrom])
	switch {
	case key.IsInline && isFirst:
		gap = "," + gap
	case key.IsInline:
		gap = ", "
	case !isFirst:
		gap = "\n" // the document's first line
	}
	return edit{key.KeyFrom, key.KeyFrom, string(c.body[key.KeyFrom:key.KeyLast]) + "args = [ " + strings.Join(words, ", ") + " ]" + gap}
}

// newKeySpan is where a key stands that newKey has added, with what follows it up to the
// command.
func (c *Config) newKeySpan(command, args *hujson.Value) (from, to int, ok bool) {
	from, to = c.keys[args.StartOffset].KeyFrom, c.keys[command.StartOffset].KeyFrom
	ok = args.EndOffset <= to && c.body[args.StartOffset+1] == ' ' && len(bytes.Trim(c.body[args.EndOffset:to], ", \t\r\n")) == 0
	return from, to, ok
}
