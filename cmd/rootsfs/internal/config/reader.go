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

	"github.com/pelletier/go-toml/v2"

	"github.com/rootsfs/rootsfs/guard/names"
)

// The TOML library reads the document's syntax. It could fill a File as well, but it takes
// a key in any case (Cache for cache), takes [root] for a [[root]] block, and stops at the
// first value of a wrong type. reader fills the File instead, and knows every mistake.

// reader fills the tables of a File, and gathers what is wrong with them.
type reader struct {
	file  string
	home  string // what ~ stands for; "": nothing
	lines *lines
	bad   []*Error
}

func (r *reader) fail(path []string, format string, args ...any) {
	r.bad = append(r.bad, &Error{File: r.file, Line: r.lines.line(path), Key: show(path), Err: fmt.Errorf(format, args...)})
}

// show is a path as a person writes it: without the numbers of array elements.
func show(path []string) string {
	var words []string
	for _, p := range path {
		if !strings.HasPrefix(p, "[") {
			words = append(words, p)
		}
	}
	return strings.Join(words, ".")
}

// sub is the path of what lies in the table or list at path.
func sub(path []string, elems ...string) []string { return append(slices.Clip(path), elems...) }

// err is the first problem in the file's order, which knows the others.
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

// decode reads the document's syntax.
func decode(file string, doc []byte) (map[string]any, error) {
	var m map[string]any
	err := toml.Unmarshal(doc, &m)
	if err == nil {
		return m, nil
	}
	said := strings.TrimSpace(strings.TrimPrefix(names.Escape(err.Error()), "toml:"))
	if strings.HasSuffix(said, "at start of value") {
		said += "; write texts in quotation marks"
	}
	e := &Error{File: file, Err: errors.New(said)}
	var de *toml.DecodeError
	if errors.As(err, &de) {
		e.Line, _ = de.Position()
		e.Key = strings.Join(de.Key(), ".")
	}
	return nil, e
}

// place is where a table stands in the document. A block embeds it for the checks that
// concern several of its keys.
type place struct {
	r    *reader
	path []string
	m    map[string]any
}

func (p *place) setPlace(at place) { *p = at }

func (p *place) fail(key, format string, args ...any) { p.r.fail(sub(p.path, key), format, args...) }

func (p *place) has(key string) bool { _, ok := p.m[key]; return ok }

func (p *place) line() int { return p.r.lines.line(p.path) }

// own is a table of a [[root]] block, which says what differs from the table for all roots.
type own[T any] struct{ place }

// over returns all with what the block says in place of it.
func (o own[T]) over(all T) T {
	if o.r != nil {
		o.r.table(o.path, o.m, reflect.ValueOf(&all).Elem())
	}
	return all
}

func (own[T]) of() reflect.Type { return reflect.TypeFor[T]() }

// table fills the struct to with the keys of m, the table at path.
func (r *reader) table(path []string, m map[string]any, to reflect.Value) {
	keys := tableKeys(to.Type())
	for name, v := range m {
		if i := slices.IndexFunc(keys, func(k key) bool { return k.name == name }); i >= 0 {
			r.value(sub(path, name), v, to.FieldByIndex(keys[i].field), &keys[i])
		} else {
			r.fail(sub(path, name), "unknown key; look for a misspelling, or remove it")
		}
	}
	for _, k := range keys {
		if _, ok := m[k.name]; !ok && k.need != "" {
			r.fail(sub(path, k.name), "is missing: write %s", k.need)
		}
	}
	if block, ok := to.Addr().Interface().(interface{ setPlace(place) }); ok {
		block.setPlace(place{r, path, m})
	}
}

// value fills a field of a struct, or an element of a list, with what stands at path.
func (r *reader) value(path []string, v any, to reflect.Value, k *key) {
	if kind := kindOf(to.Type(), k); kind != nil {
		r.leaf(path, v, to, k, kind)
		return
	}
	switch to.Kind() {
	case reflect.Pointer:
		one := reflect.New(to.Type().Elem())
		r.value(path, v, one.Elem(), k)
		to.Set(one)
	case reflect.Slice:
		r.list(path, v, to, k)
	default:
		m, ok := v.(map[string]any)
		switch {
		case !ok:
			r.fail(path, "must be a table: write [%s], and its keys below", show(path))
		case to.Kind() == reflect.Map:
			r.named(path, m, to)
		default:
			if o, ok := to.Addr().Interface().(interface {
				of() reflect.Type
				setPlace(place)
			}); ok {
				o.setPlace(place{r, path, m})
				return
			}
			r.table(path, m, to)
		}
	}
}

// named fills a map with tables whose names the owner chose.
func (r *reader) named(path []string, m map[string]any, to reflect.Value) {
	to.Set(reflect.MakeMap(to.Type()))
	for name, v := range m {
		one := reflect.New(to.Type().Elem()).Elem()
		r.value(sub(path, name), v, one, &key{})
		to.SetMapIndex(reflect.ValueOf(name), one)
	}
}

// list appends to a slice. A text with a mistake is there too, as a zero value, so that the
// others keep their numbers.
func (r *reader) list(path []string, v any, to reflect.Value, k *key) {
	items, ok := v.([]any)
	one := reflect.New(to.Type().Elem()).Elem()
	kind := kindOf(one.Type(), k)
	switch {
	case !ok && kind == nil:
		r.fail(path, "must be written as [[%s]] blocks", show(path))
	case !ok:
		r.fail(path, "must be %s", kind.list)
	case len(items) == 0 && k.zero != "":
		r.fail(path, "%s", k.zero)
	case kind != nil && kind.most > 0 && len(items) > kind.most:
		r.fail(path, "has %d patterns, more than the limit of %d", len(items), kind.most)
		return
	}
	out := reflect.MakeSlice(to.Type(), 0, to.Len()+len(items))
	out = reflect.AppendSlice(out, to)
	for i, item := range items {
		at := sub(path, index(i))
		one.SetZero()
		if _, isTable := item.(map[string]any); kind == nil && !isTable {
			r.fail(at, "must be a table: write [[%s]] blocks", show(path))
			continue
		}
		r.value(at, item, one, k)
		out = reflect.Append(out, one)
	}
	to.Set(out)
}

// leaf fills what is no table, or notes why it cannot.
func (r *reader) leaf(path []string, v any, to reflect.Value, k *key, kind *kind) {
	got, err := kind.read(&cell{r, path, k, v})
	switch {
	case err == errType:
		r.fail(path, "must be %s", kind.want)
		return
	case err != nil:
		r.fail(path, "%w", err)
		return
	}
	from := reflect.ValueOf(got)
	if k.zero != "" && from.IsZero() {
		r.fail(path, "%s", k.zero)
		return
	}
	if to.Kind() == reflect.String && from.Kind() != reflect.String {
		from = reflect.ValueOf(v) // the text itself, now that it was checked
	}
	to.Set(from.Convert(to.Type()))
}

// key is what the tags of a field say; see File.
type key struct {
	field                                           []int // of the struct
	name, meaning, kind, min, max, zero, need, each string
	words                                           []string
}

var keyCache sync.Map // of []key, by type

// tableKeys are the keys of a table, by the fields of its struct.
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
