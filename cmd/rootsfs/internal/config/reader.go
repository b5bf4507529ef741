package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/tomltree"
)

// reader fills the tables of a File, and collects their mistakes. The TOML library could fill a
// File, too. But it accepts a key in any case (Cache for cache), and [root] for a [[root]]
// block, and stops at the first value of a wrong type.
type reader struct {
	file string
	home string // what ~ stands for; "": nothing
	top  *tomltree.Node
	bad  []*Error
}

// documentLimits leave room for every sensible document. In such a document, [profile] is the table
// with the most keys, and an item of a list in root.[n].policy is the deepest node.
var documentLimits = tomltree.Limits{Depth: 8, Keys: 10_000}

// newReader reads the document's syntax.
func newReader(file, home string, doc []byte) (*reader, error) {
	top, err := tomltree.Parse(doc, documentLimits)
	var wrong *tomltree.Error
	if errors.As(err, &wrong) {
		if err = wrong.Err; strings.HasSuffix(err.Error(), "at start of value") {
			err = fmt.Errorf("%w; write texts in quotation marks", err)
		}
		return nil, &Error{File: file, Line: wrong.Line, Key: wrong.Key, Err: err}
	}
	return &reader{file: file, home: home, top: top}, nil
}

// fail notes a mistake in a key of a table; key "": in the node itself.
func (r *reader) fail(at *tomltree.Node, key, format string, args ...any) {
	e := &Error{File: r.file, Line: at.Line, Key: at.Path(), Err: fmt.Errorf(format, args...)}
	if n := at.Get(key); n != nil {
		e.Line = n.Line
	}
	if key != "" {
		e.Key = strings.TrimPrefix(e.Key+"."+key, ".")
	}
	r.bad = append(r.bad, e)
}

// err returns the first problem in the file's order, with the others in its Rest; nil: none.
func (r *reader) err() error {
	if len(r.bad) == 0 {
		return nil
	}
	slices.SortStableFunc(r.bad, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key))
	})
	r.bad[0].Rest = r.bad[1:]
	return r.bad[0]
}

// place is the place of a table in the document. A block embeds it for the checks that concern
// several of its keys.
type place struct {
	r  *reader
	at *tomltree.Node
}

func (p *place) setPlace(at place) { *p = at }

func (p *place) fail(key, format string, args ...any) { p.r.fail(p.at, key, format, args...) }

func (p *place) has(key string) bool { return p.at.Get(key) != nil }

func (p *place) line() int { return p.at.Line }

// own is a table of a [[root]] block. Its keys override or extend those of the table for all roots.
type own[T any] struct{ place }

// overriding returns a copy of the table for all roots, which is the parameter all. In the copy, the
// keys of the block replace values, and lists of the block are appended to the table's lists.
func (o own[T]) overriding(all T) T {
	if o.r != nil {
		o.r.table(o.at, reflect.ValueOf(&all).Elem())
	}
	return all
}

// tableType returns the type of the struct that holds the keys of the table.
func (own[T]) tableType() reflect.Type { return reflect.TypeFor[T]() }

// table fills the struct to with the keys of a table.
func (r *reader) table(at *tomltree.Node, to reflect.Value) {
	keys := tableKeys(to.Type())
	for _, n := range at.Children {
		if i := slices.IndexFunc(keys, func(k key) bool { return k.name == n.Name }); i >= 0 {
			r.value(n, to.FieldByIndex(keys[i].field), &keys[i])
		} else {
			r.fail(at, n.Name, "unknown key; look for a misspelling, or remove it")
		}
	}
	for _, k := range keys {
		if k.need != "" && at.Get(k.name) == nil {
			r.fail(at, k.name, "is missing: write %s", k.need)
		}
	}
	if block, ok := to.Addr().Interface().(interface{ setPlace(place) }); ok {
		block.setPlace(place{r, at})
	}
}

// value fills a field of a struct, or an item of a list, with the value of a node.
func (r *reader) value(n *tomltree.Node, to reflect.Value, k *key) {
	if kind := kindOf(to.Type(), k); kind != nil {
		r.leaf(n, to, k, kind)
		return
	}
	switch to.Kind() {
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		r.value(n, to.Elem(), k)
		return
	case reflect.Slice:
		r.list(n, to, k)
		return
	}
	o, isOwn := to.Addr().Interface().(interface {
		tableType() reflect.Type
		setPlace(place)
	})
	switch {
	case n.Kind != tomltree.Table && n.Parent.Kind == tomltree.List:
		r.fail(n, "", "must be a table: write [[%s]] blocks", n.Path())
	case n.Kind != tomltree.Table:
		r.fail(n, "", "must be a table: write [%s], and its keys below", n.Path())
	case to.Kind() == reflect.Map:
		r.named(n, to)
	case isOwn:
		o.setPlace(place{r, n})
	default:
		r.table(n, to)
	}
}

// named fills a map with tables whose names the owner chose.
func (r *reader) named(at *tomltree.Node, to reflect.Value) {
	to.Set(reflect.MakeMap(to.Type()))
	for _, n := range at.Children {
		one := reflect.New(to.Type().Elem()).Elem()
		r.value(n, one, &key{})
		to.SetMapIndex(reflect.ValueOf(n.Name), one)
	}
}

// list appends to a slice, which may already hold the items of the table for all roots. An item with
// a mistake is appended without the value that has the mistake, so that the other items keep their
// indexes. In a list of tables, an item that is not a table is left out.
func (r *reader) list(n *tomltree.Node, to reflect.Value, k *key) {
	kind := kindOf(to.Type().Elem(), k)
	switch {
	case n.Kind != tomltree.List && kind == nil:
		r.fail(n, "", "must be written as [[%s]] blocks", n.Path())
	case n.Kind != tomltree.List:
		r.fail(n, "", "must be %s", kind.list)
	case len(n.Children) == 0 && k.zero != "":
		r.fail(n, "", "%s", k.zero)
	case kind != nil && kind.most > 0 && len(n.Children) > kind.most:
		r.fail(n, "", "has %d patterns, more than the limit of %d", len(n.Children), kind.most)
	default:
		out := reflect.MakeSlice(to.Type(), 0, to.Len()+len(n.Children))
		out = reflect.AppendSlice(out, to)
		for _, item := range n.Children {
			one := reflect.New(to.Type().Elem()).Elem()
			r.value(item, one, k)
			if kind != nil || item.Kind == tomltree.Table {
				out = reflect.Append(out, one)
			}
		}
		to.Set(out)
	}
}

// leaf reads a value that is no table or list, or notes the mistake in it.
func (r *reader) leaf(n *tomltree.Node, to reflect.Value, k *key, kind *kind) {
	v, err := n.Value()
	var got any
	if err == nil {
		got, err = kind.read(&cell{r, n, kind, k, to, v})
	}
	switch {
	case err == errType:
		r.fail(n, "", "must be %s", kind.want)
		return
	case err != nil:
		r.fail(n, "", "%w", err)
		return
	}
	from := reflect.ValueOf(got)
	if k.zero != "" && from.IsZero() {
		r.fail(n, "", "%s", k.zero)
		return
	}
	to.Set(from.Convert(to.Type()))
}

// key holds the tags of a field; see File.
type key struct {
	field                                           []int // the field's index in the struct
	name, meaning, kind, min, max, zero, need, each string
	words                                           []string
}

var keyCache sync.Map // of []key, by type

// tableKeys returns the keys of a table from the fields of its struct.
func tableKeys(t reflect.Type) []key {
	if keys, ok := keyCache.Load(t); ok {
		return keys.([]key)
	}
	var keys []key
	for _, f := range reflect.VisibleFields(t) {
		name := f.Tag.Get("toml")
		if name == "" {
			continue
		}
		k := key{field: f.Index, name: name, meaning: f.Tag.Get("jsonschema"), kind: f.Tag.Get("kind"), min: f.Tag.Get("min"),
			max: f.Tag.Get("max"), zero: f.Tag.Get("zero"), need: f.Tag.Get("need"), each: f.Tag.Get("each")}
		if words := f.Tag.Get("words"); words != "" {
			k.words = strings.Split(words, ",")
		}
		keys = append(keys, k)
	}
	keyCache.Store(t, keys)
	return keys
}

func sortedKeys[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
