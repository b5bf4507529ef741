package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Key is a key of the configuration that a command line can set as well, such as a limit of a
// root. Its value is a field of T. The fields of the struct limits are the only list of limits:
// [limits], --limit NAME=VALUE, the limits of configured roots on a command line, the
// comparison at a reload, and Save take the names, kinds and bounds from there. The other
// tables work the same way.
type Key[T any] struct{ key key }

// Limits returns all limits of a root, in the order of [limits].
func Limits() []Key[guard.Limits] { return keysFor[guard.Limits, limits]() }

// NetLimits returns all limits of a network, in the order of run.net_limits.
func NetLimits() []Key[network.Limits] { return keysFor[network.Limits, netLimits]() }

// AbuseBounds returns the keys of [abuse].
func AbuseBounds() []Key[ledger.Abuse] { return keysFor[ledger.Abuse, abuse]() }

// TrashBounds returns the keys of [trash] except the first, on.
func TrashBounds() []Key[rules.Trash] { return keysFor[rules.Trash, trash]()[1:] }

// keysFor returns the keys of a table that has the fields of T.
func keysFor[T, table any]() (list []Key[T]) {
	for _, k := range tableKeys(reflect.TypeFor[table]()) {
		list = append(list, Key[T]{k})
	}
	return list
}

// KeyNamed returns the key of that name. A - in the name counts as _.
func KeyNamed[T any](all []Key[T], name string) (Key[T], error) {
	var known []string
	for _, k := range all {
		if k.Name() == strings.ReplaceAll(name, "-", "_") {
			return k, nil
		}
		known = append(known, k.Name())
	}
	return Key[T]{}, fmt.Errorf("there is no limit %s: write one of %s", names.Quote(name), strings.Join(known, ", "))
}

// Name returns the key's name in its table.
func (k Key[T]) Name() string { return k.key.name }

// Meaning says in a line what the key means.
func (k Key[T]) Meaning() string { return k.key.meaning }

// field returns the key's field in the struct all.
func (k Key[T]) field(all *T) reflect.Value {
	return reflect.ValueOf(all).Elem().FieldByIndex(k.key.field)
}

// Copy sets the key's value in dst to its value in src.
func (k Key[T]) Copy(dst, src *T) { k.field(dst).Set(k.field(src)) }

// IsNegative reports whether the key's value in all is below 0. No key allows such a value.
func (k Key[T]) IsNegative(all *T) bool { return exceeds(k.field(new(T)), k.field(all)) }

// IsSwitch reports whether the value is true or false.
func (k Key[T]) IsSwitch() bool { return k.field(new(T)).Kind() == reflect.Bool }

// Set reads the value from the text of a command line. An error begins with the text.
func (k Key[T]) Set(to *T, text string) error {
	field := k.field(to)
	var v any = text
	if on, err := strconv.ParseBool(text); err == nil && k.IsSwitch() {
		v = on
	} else if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		v = n
	} else if f, err := strconv.ParseFloat(text, 64); err == nil {
		v = f
	}
	kind := kindOf(field.Type(), &k.key)
	got, err := kind.read(&cell{kind: kind, key: &k.key, to: field, v: v})
	if err != nil || got == int64(0) && k.key.kind == "size" {
		return fmt.Errorf("%s: write %s", names.ShellWord(text), k.describe())
	}
	field.Set(reflect.ValueOf(got).Convert(field.Type()))
	return nil
}

// Text returns the value as a person reads it, "" if it is not set.
func (k Key[T]) Text(from *T) string {
	field := k.field(from)
	switch {
	case field.IsZero():
		return ""
	case k.key.kind == "size":
		return FormatSize(field.Int())
	case field.Kind() == reflect.Float64:
		return strconv.FormatFloat(field.Float(), 'f', -1, 64)
	}
	return fmt.Sprint(field.Interface())
}

// describe tells which values the key takes.
func (k Key[T]) describe() string {
	switch k.field(new(T)).Interface().(type) {
	case time.Duration:
		least, most := rangeOf(&k.key)
		return fmt.Sprintf("a duration from %v to %v, such as 10m", least, most)
	case float64:
		return fmt.Sprintf("a number from 0 (no limit) to %d", int64(maxSpeed))
	case bool:
		return "true or false"
	}
	if k.key.kind == "size" {
		return "a size above 0 such as 500K, 10M or 1G; leave the limit out for none"
	}
	return fmt.Sprintf("a whole number from 0 (no limit) to %d", mostOf(&k.key))
}

// Stricter returns, for each of limits, the stricter value of a and b; 0 is no limit.
func Stricter[T any](limits []Key[T], a, b T) T {
	var none T
	for _, l := range limits {
		if isSet := exceeds(l.field(&b), l.field(&none)); isSet && exceeds(l.field(&a), l.field(&b)) || !exceeds(l.field(&a), l.field(&none)) {
			l.Copy(&a, &b)
		}
	}
	return a
}
