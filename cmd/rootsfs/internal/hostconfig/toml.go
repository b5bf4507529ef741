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

// parseTOML reads Codex's configuration. It turns the servers into the tree of values of a JSON
// document, with offsets in the body. A table that is written in parts becomes one object.
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

// member returns a key of a table as a member of an object.
func (c *Config) member(n *tomltree.Node) hujson.ObjectMember {
	v := hujson.Value{StartOffset: n.From, EndOffset: n.To, Value: trimmed(n)}
	switch x := v.Value.(type) {
	case *hujson.Object:
		for _, key := range n.Children {
			x.Members = append(x.Members, c.member(key))
		}
	case *hujson.Array:
		if n.To > 0 { // not [[NAME]] blocks: no server is written in such blocks
			c.elements(x, n)
		}
	}
	c.keys[n.From] = n
	return hujson.ObjectMember{Name: hujson.Value{StartOffset: n.KeyFrom, Value: hujson.String(n.Name)}, Value: v}
}

// elements adds the items of a list, with the white space and comments around them.
func (c *Config) elements(list *hujson.Array, n *tomltree.Node) {
	at, end := n.From+1, n.To-1
	for _, item := range n.Children {
		e := hujson.Value{StartOffset: item.From, EndOffset: item.To, Value: trimmed(item)}
		if e.StartOffset < at { // the parser reports no place for a list or table
			e.StartOffset, e.EndOffset = at, at
		}
		e.BeforeExtra = c.body[at:e.StartOffset]
		list.Elements = append(list.Elements, e)
		at = e.EndOffset + commaEnd(c.body[e.EndOffset:end])
	}
	list.AfterExtra = c.body[at:end]
}

// commaEnd returns the end of the first comma outside of comments, or 0.
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

// trimmed returns a TOML value as a JSON value. The items of lists and tables are left out. Every
// number and time becomes 0, because this package uses no such value.
func trimmed(n *tomltree.Node) hujson.ValueTrimmed {
	switch n.Kind {
	case tomltree.List:
		return &hujson.Array{}
	case tomltree.Table:
		return &hujson.Object{}
	}
	v, _ := n.Value() // the host will refuse an invalid number or time
	switch x := v.(type) {
	case string:
		return hujson.String(x)
	case bool:
		return hujson.Bool(x)
	}
	return hujson.Int(0)
}

// newKey returns the edit that adds "args" to a server without it. The key is put before the
// command, so that a comment behind the command stays in its place. White space after the
// bracket tells Unwrap that Wrap has added the key.
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

// newKeySpan returns the span of a key that newKey has added, up to the command. ok reports whether
// newKey can have added the key.
func (c *Config) newKeySpan(command, args *hujson.Value) (from, to int, ok bool) {
	from, to = c.keys[args.StartOffset].KeyFrom, c.keys[command.StartOffset].KeyFrom
	ok = args.EndOffset <= to && c.body[args.StartOffset+1] == ' ' && len(bytes.Trim(c.body[args.EndOffset:to], ", \t\r\n")) == 0
	return from, to, ok
}
