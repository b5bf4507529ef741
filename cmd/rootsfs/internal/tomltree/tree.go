// Package tomltree reads a TOML document into a tree whose nodes have their positions, for the
// configuration of rootsfs and for the configurations of MCP hosts. A decoder would return values
// without positions, stop at the first value of a wrong type, and ignore the difference between
// upper and lower case in keys.
//
// # Promises
//
// The document is read once. Parse accepts the documents that go-toml decodes, within the
// limits of its caller; FuzzParse compares the two. Node.Value decodes numbers and times, and
// refuses those that are out of range. No input makes the package panic.
//
// # Not promised
//
// Comments have no nodes.
package tomltree

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Limits bound a document.
type Limits struct {
	// Depth is the largest depth of a node; a key of the document itself has depth 1. An array or an
	// inline table must be less deep, even if it is empty.
	Depth int
	Keys  int // the largest number of keys of one table; 0: any number
}

// Error describes a mistake in a document, and its position.
type Error struct {
	Line int    // counted from 1; 0: the document as a whole
	Key  string // as in root.mode; "": the syntax is wrong
	Err  error
}

// Error returns the text of Err, which is one line.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrDepth is the error of a key that is deeper than Limits.Depth.
var ErrDepth = errors.New("is nested too deeply")

// Kind is the form of a node.
type Kind byte

// The kinds of nodes.
const (
	Scalar Kind = iota // a text, number, flag or time
	List               // with the items as children; the [[NAME]] blocks of one name are a list, too
	Table              // with the values of its keys as children, in the order in which the keys first appear
)

// Node is a table, a list or a value of a document.
type Node struct {
	Name     string // its key; "[0]" and so on in a list; "" for the document
	Parent   *Node  // nil for the document
	Kind     Kind
	Children []*Node
	Line     int // of its key, or of the item; for a list in a list, of the list around it
	// KeyFrom is the offset of the whole key with which the node first appears, and KeyLast the
	// offset of the part of this key that is Name. For a.b.c, the node b has the offsets of a and b.
	// The document and items have no key: both are 0.
	KeyFrom, KeyLast int
	// From and To are the offsets of the value behind "=", or of an item that is a scalar. For other
	// nodes they mean nothing.
	From, To int
	IsInline bool // whether its key is in an inline table

	origin origin
	depth  int
	byName map[string]*Node
	syntax unstable.Kind
	text   string // of a scalar
}

// origin says how a table began. It decides which later expressions may add keys to the table.
type origin byte

const (
	closed   origin = iota // none: the node is a value
	dotted                 // keys with dots, and headers of tables inside the table
	implicit               // the table's own header, and headers of tables inside the table
	header                 // headers of tables inside the table; for a list, also further headers of the list
)

// Get returns the value of a key of a table, nil if there is none.
func (n *Node) Get(name string) *Node { return n.byName[name] }

// Path returns the path of the node as a person writes it, without the numbers of items.
func (n *Node) Path() string {
	var path []string
	for ; n.Parent != nil; n = n.Parent {
		if n.Parent.Kind != List {
			path = append(path, n.Name)
		}
	}
	slices.Reverse(path)
	return strings.Join(path, ".")
}

// Value decodes a scalar into a string, bool, int64, float64, time.Time or one of go-toml's
// local times. The value of a table or list is nil.
func (n *Node) Value() (any, error) {
	switch {
	case n.Kind != Scalar:
		return nil, nil
	case n.syntax == unstable.String:
		return n.text, nil
	case n.syntax == unstable.Bool:
		return n.text == "true", nil
	}
	var doc map[string]any
	if err := toml.Unmarshal([]byte("v = "+n.text), &doc); err != nil {
		return nil, errors.New(strings.TrimPrefix(names.Escape(err.Error()), "toml: "))
	}
	return doc["v"], nil
}

// builder makes the tree of a document, expression by expression.
type builder struct {
	limits Limits
	p      unstable.Parser
	doc    []byte
	top    *Node
	// seen is the offset up to which lines have been counted. last is the line there.
	seen, last int
}

// Parse returns a document as a table. The error is an *Error.
func Parse(doc []byte, limits Limits) (*Node, error) {
	b := &builder{limits: limits, doc: doc, last: 1, top: &Node{Kind: Table, byName: map[string]*Node{}}}
	b.p.Reset(doc)
	table := b.top
	for b.p.NextExpression() {
		var err error
		if e := b.p.Expression(); e.Kind == unstable.KeyValue {
			err = b.keyValue(table, e, false)
		} else {
			table, err = b.header(e)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := b.p.Error(); err != nil {
		return nil, b.syntax(err)
	}
	return b.top, nil
}

// syntax returns the parser's error with its line.
func (b *builder) syntax(err error) error {
	e := &Error{Err: errors.New(names.Escape(err.Error()))}
	var at *unstable.ParserError
	if errors.As(err, &at) && at.Highlight != nil {
		e.Line = b.line(b.p.Range(at.Highlight).Offset)
	}
	return e
}

// line returns the line of an offset. It must be called with rising offsets: for an offset before
// seen it returns the line of seen.
func (b *builder) line(offset uint32) int {
	if at := int(offset); at > b.seen {
		b.last += bytes.Count(b.doc[b.seen:at], []byte{'\n'})
		b.seen = at
	}
	return b.last
}

// header returns the table whose keys follow the header e. It makes this table, or the next
// [[NAME]] block, unless the table is there already because of the headers of tables inside it.
func (b *builder) header(e *unstable.Node) (*Node, error) {
	at, isList := b.top, e.Kind == unstable.ArrayTable
	for keys := e.Key(); keys.Next(); {
		key := keys.Node()
		next, isLast := at.Get(string(key.Data)), keys.IsLast()
		var err error
		switch {
		case next == nil:
			next, err = b.key(at, e, key)
			next.Kind, next.origin = Table, implicit
			if isLast && isList {
				next.Kind = List
			}
		case next.origin == closed, isLast && !isList && next.Kind == Table && next.origin != implicit:
			err = b.duplicate(next, key)
		case isLast && isList != (next.Kind == List):
			err = b.errorf(next, key, "%s is both a table and a list of tables; remove one of them", names.Quote(next.Name))
		}
		if err != nil {
			return nil, err
		}
		if isLast {
			next.origin = header
		}
		if isLast && isList {
			b.item(next, key.Raw, Table).origin = header
		}
		if at = next; at.Kind == List {
			at = at.Children[len(at.Children)-1]
		}
	}
	return at, nil
}

// keyValue adds a key and its value to a table.
func (b *builder) keyValue(at *Node, e *unstable.Node, isInline bool) error {
	var from uint32
	for keys := e.Key(); keys.Next(); {
		key := keys.Node()
		next := at.Get(string(key.Data))
		if next != nil && (keys.IsLast() || next.origin != dotted) {
			return b.duplicate(next, key)
		}
		if next == nil {
			var err error
			if next, err = b.key(at, e, key); err != nil {
				return err
			}
			next.Kind, next.origin, next.IsInline = Table, dotted, isInline
		}
		at, from = next, key.Raw.Offset+key.Raw.Length
	}
	at.From = int(from) + bytes.IndexByte(b.doc[from:], '=') + 1
	at.From += len(b.doc[at.From:]) - len(bytes.TrimLeft(b.doc[at.From:], " \t"))
	at.To = int(e.Raw.Offset + e.Raw.Length)
	at.origin = closed
	return b.value(at, e.Value())
}

// value fills a node with its value in the document.
func (b *builder) value(n *Node, v *unstable.Node) error {
	n.syntax = v.Kind
	switch v.Kind {
	case unstable.InlineTable:
		n.Kind = Table
	case unstable.Array:
		n.Kind = List
	default:
		n.Kind, n.text = Scalar, string(v.Data)
		return nil
	}
	if n.depth >= b.limits.Depth {
		return &Error{Line: n.Line, Key: n.Path(), Err: ErrDepth}
	}
	for children := v.Children(); children.Next(); {
		var err error
		if child := children.Node(); n.Kind == Table {
			err = b.keyValue(n, child, true)
		} else {
			err = b.value(b.item(n, child.Raw, Scalar), child)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// key adds a node to a table for one part of the key of an expression.
func (b *builder) key(table *Node, e, key *unstable.Node) (*Node, error) {
	first := e.Key()
	first.Next()
	n := &Node{Name: string(key.Data), Parent: table, Line: b.line(key.Raw.Offset), depth: table.depth + 1,
		KeyFrom: int(first.Node().Raw.Offset), KeyLast: int(key.Raw.Offset)}
	n.From = n.KeyFrom
	if n.depth > b.limits.Depth {
		return n, &Error{Line: n.Line, Key: table.Path(), Err: ErrDepth}
	}
	if table.byName == nil {
		table.byName = map[string]*Node{}
	}
	table.byName[n.Name] = n
	if table.Children = append(table.Children, n); b.limits.Keys > 0 && len(table.Children) > b.limits.Keys {
		return n, b.errorf(n, key, "is beyond the limit of %d keys in one table", b.limits.Keys)
	}
	return n, nil
}

// item adds a node to a list. The parser gives no position for a list in a list: raw is empty then.
func (b *builder) item(list *Node, raw unstable.Range, kind Kind) *Node {
	n := &Node{Name: "[" + strconv.Itoa(len(list.Children)) + "]", Parent: list, Kind: kind, Line: list.Line, depth: list.depth + 1}
	if raw.Length > 0 {
		n.Line, n.From, n.To = b.line(raw.Offset), int(raw.Offset), int(raw.Offset+raw.Length)
	}
	list.Children = append(list.Children, n)
	return n
}

// duplicate returns the error for a key that is in use.
func (b *builder) duplicate(n *Node, key *unstable.Node) error {
	return b.errorf(n, key, "the key %s is given twice, first in line %d; remove one of them", names.Quote(n.Name), n.Line)
}

// errorf returns an error about a node, in the line of a key.
func (b *builder) errorf(n *Node, key *unstable.Node, format string, args ...any) error {
	return &Error{Line: b.line(key.Raw.Offset), Key: n.Path(), Err: fmt.Errorf(format, args...)}
}
