package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/pelletier/go-toml/v2"

	"github.com/rootsfs/rootsfs/guard/names"
)

// reader takes the values out of a decoded document and gathers what is wrong
// with them. Whatever is left in a table when it has been read is unknown.
type reader struct {
	file  string
	lines *lines
	bad   []*Error
}

// table is one table of the document. Its getters return the zero value, after
// noting the problem, for a value that is not as it should be.
//
// With a shape there is no document: the getters note in it what they would take
// (see Schema), and return zero values.
type table struct {
	r     *reader
	path  []string
	m     map[string]any
	shape *jsonschema.Schema
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

func (t table) sub(elems ...string) []string { return append(slices.Clone(t.path), elems...) }

func (t table) fail(key, format string, args ...any) { t.r.fail(t.sub(key), format, args...) }

func (t table) take(key string) (any, bool) {
	v, ok := t.m[key]
	delete(t.m, key)
	return v, ok
}

// done refuses every key that was not taken.
func (t table) done() {
	for key := range t.m {
		t.fail(key, "unknown key; look for a misspelling, or remove it")
	}
}

// get takes a value of one type.
func get[T any](t table, key, want string) (value T, ok bool) {
	v, ok := t.take(key)
	if !ok {
		return value, false
	}
	if value, ok = v.(T); !ok {
		t.fail(key, "must be %s", want)
	}
	return value, ok
}

func (t table) text(key string) string {
	t.note(key, textSchema)
	s, _ := get[string](t, key, "text in quotes")
	return s
}

func (t table) flag(key string) bool {
	on, _ := t.given(key)
	return on
}

// given is flag that tells whether the key was there.
func (t table) given(key string) (on, ok bool) {
	t.note(key, flagSchema)
	return get[bool](t, key, "true or false")
}

// word takes a text that check accepts.
func (t table) word(key string, check func(string) error) string {
	t.note(key, textSchema)
	return t.checked(key, check)
}

// oneOf takes one of some words.
func (t table) oneOf(key string, words ...string) string {
	t.note(key, func() *jsonschema.Schema { return oneOfSchema(words) })
	return t.checked(key, func(s string) error {
		if slices.Contains(words, s) {
			return nil
		}
		return fmt.Errorf("%s is not one of %s", names.Quote(s), strings.Join(words, ", "))
	})
}

func (t table) checked(key string, check func(string) error) string {
	s, ok := get[string](t, key, "text in quotes")
	if !ok {
		return ""
	}
	if err := check(s); err != nil {
		t.fail(key, "%w", err)
		return ""
	}
	return s
}

// table takes a table; a missing one is empty.
func (t table) table(key string) table {
	if t.shape != nil {
		in := object()
		t.note(key, func() *jsonschema.Schema { return in })
		return table{r: t.r, path: t.sub(key), shape: in}
	}
	m, _ := get[map[string]any](t, key, "a table: write ["+show(t.sub(key))+"], and its keys below")
	return table{r: t.r, path: t.sub(key), m: m}
}

// each calls f for the tables under names that the owner chose; with nil for what
// is no table.
func (t table) each(f func(name string, in table)) {
	if t.shape != nil {
		in := object()
		in.Description = describe(show(t.sub("NAME")))
		t.shape.AdditionalProperties = in
		f("NAME", table{r: t.r, path: t.sub("NAME"), m: map[string]any{}, shape: in})
		return
	}
	for name, v := range t.m {
		m, _ := v.(map[string]any)
		f(name, table{r: t.r, path: t.sub(name), m: m})
	}
}

// tables takes an array of tables.
func (t table) tables(key string) []table {
	if t.shape != nil {
		in := object()
		t.note(key, func() *jsonschema.Schema { return &jsonschema.Schema{Type: "array", Items: in} })
		return []table{{r: t.r, path: t.sub(key, index(0)), shape: in}}
	}
	list, _ := get[[]any](t, key, "written as [["+show(t.sub(key))+"]] blocks")
	var out []table
	for i, v := range list {
		m, ok := v.(map[string]any)
		if !ok {
			t.r.fail(t.sub(key, index(i)), "must be a table: write [[%s]] blocks", show(t.sub(key)))
			continue
		}
		out = append(out, table{r: t.r, path: t.sub(key, index(i)), m: m})
	}
	return out
}

// count takes a number between 0 and limit.
func (t table) count(key string, limit int64) (int64, bool) {
	t.note(key, func() *jsonschema.Schema { return countSchema(limit) })
	return t.number(key, limit)
}

func (t table) number(key string, limit int64) (int64, bool) {
	n, ok := get[int64](t, key, "a whole number")
	if ok && (n < 0 || n > limit) {
		t.fail(key, "%d is not between 0 and the limit of %d", n, limit)
		return 0, false
	}
	return n, ok
}

// size takes a number of bytes, as a number or as a text with a unit.
func (t table) size(key string) (int64, bool) {
	t.note(key, sizeSchema)
	if _, isText := t.m[key].(string); !isText {
		if _, isNumber := t.m[key].(int64); !isNumber && t.m[key] != nil {
			t.take(key)
			t.fail(key, "must be a size: a number of bytes, or text as in \"10M\"")
			return 0, false
		}
		return t.number(key, math.MaxInt64)
	}
	text, _ := get[string](t, key, "a size")
	n, err := ParseSize(text)
	if err != nil {
		t.fail(key, "%w", err)
	}
	return n, err == nil
}

// speed takes a number of operations per second.
func (t table) speed(key string) (float64, bool) {
	t.note(key, speedSchema)
	v, ok := t.take(key)
	if !ok {
		return 0, false
	}
	f, isFloat := v.(float64)
	if n, isInt := v.(int64); isInt {
		f, isFloat = float64(n), true
	}
	switch {
	case !isFloat:
		t.fail(key, "must be a number")
	case !(f >= 0 && f <= maxSpeed): // and not NaN
		t.fail(key, "%v is not between 0 and the limit of %d", f, int64(maxSpeed))
	default:
		return f, true
	}
	return 0, false
}

// duration takes a text like "60s".
func (t table) duration(key string, least, most time.Duration) (time.Duration, bool) {
	t.note(key, func() *jsonschema.Schema { return durationSchema(describe(show(t.sub(key))), least, most) })
	s, ok := get[string](t, key, `a duration in quotes, as in "60s" or "8h"`)
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		t.fail(key, "%s is no duration; write one as in \"60s\" or \"1h30m\"", names.Quote(s))
	case d < least || d > most:
		t.fail(key, "%v is not between %v and the limit of %v", d, least, most)
	default:
		return d, true
	}
	return 0, false
}

// moment takes a point in time: a TOML date-time with a zone, or the same text.
func (t table) moment(key string) time.Time {
	t.note(key, momentSchema)
	v, ok := t.take(key)
	if !ok {
		return time.Time{}
	}
	when, ok := v.(time.Time)
	if s, isText := v.(string); isText {
		var err error
		when, err = time.Parse(time.RFC3339, s)
		ok = err == nil
	}
	if !ok || when.IsZero() {
		t.fail(key, "must be a time with its zone, as in 2027-01-31T18:00:00+01:00")
		return time.Time{}
	}
	return when
}

func sortedKeys[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
