package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Limit is one limit of a root, or of a network. The fields of limits are the only list of the
// former: [limits], --limit NAME=VALUE, what the command line allows configured roots, what a
// reload widens and Save take the names, kinds and bounds from there. So are the fields of
// netLimits for run.net_limits, net.limits and --net-limit.
type Limit struct{ key key }

// Limits are all limits of a root, in the order of [limits]. Their values are in a
// guard.Limits.
func Limits() []Limit { return limitsOf[limits]() }

// NetLimits are all limits of a network, likewise. Their values are in a network.Limits.
func NetLimits() []Limit { return limitsOf[netLimits]() }

func limitsOf[T any]() (list []Limit) {
	for _, k := range tableKeys(reflect.TypeFor[T]()) {
		list = append(list, Limit{k})
	}
	return list
}

// LimitNamed is the limit of that name, in which - is as good as _.
func LimitNamed(all []Limit, name string) (Limit, error) {
	var known []string
	for _, l := range all {
		if l.Name() == strings.ReplaceAll(name, "-", "_") {
			return l, nil
		}
		known = append(known, l.Name())
	}
	return Limit{}, fmt.Errorf("there is no limit %s: write one of %s", names.Quote(name), strings.Join(known, ", "))
}

// Name is the limit's key in its table.
func (l Limit) Name() string { return l.key.name }

// Meaning says in a line what is limited.
func (l Limit) Meaning() string { return l.key.meaning }

// of is the limit's place in a set of limits: a pointer to a guard.Limits or network.Limits,
// which have the fields of limits and netLimits.
func (l Limit) of(all any) reflect.Value {
	return reflect.ValueOf(all).Elem().FieldByIndex(l.key.field)
}

// Copy puts the limit of from in the place of that of to.
func (l Limit) Copy(to, from *guard.Limits) { l.of(to).Set(l.of(from)) }

// Negative reports whether the limit is below 0, as no limit is.
func (l Limit) Negative(all *guard.Limits) bool { return above(l.of(new(guard.Limits)), l.of(all)) }

// Set reads the limit from the text of a command line; to is as of has it. An error begins
// with the text.
func (l Limit) Set(to any, text string) error {
	field := l.of(to)
	var v any = text
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		v = n
	} else if f, err := strconv.ParseFloat(text, 64); err == nil {
		v = f
	}
	got, err := kindOf(field.Type(), &l.key).read(&cell{key: &l.key, v: v})
	if err != nil || got == int64(0) && l.key.kind == "size" {
		return fmt.Errorf("%s: write %s", names.ShellWord(text), l.takes(field))
	}
	field.Set(reflect.ValueOf(got).Convert(field.Type()))
	return nil
}

// takes says what the limit can be.
func (l Limit) takes(field reflect.Value) string {
	switch field.Interface().(type) {
	case time.Duration:
		least, most := rangeOf(&l.key)
		return fmt.Sprintf("a duration from %v to %v, such as 10m", least, most)
	case float64:
		return fmt.Sprintf("a number from 0 (no limit) to %d", int64(maxSpeed))
	}
	if l.key.kind == "size" {
		return "a size above 0 such as 500K, 10M or 1G; leave the limit out for none"
	}
	return fmt.Sprintf("a whole number from 0 (no limit) to %d", mostOf(&l.key))
}

// Stricter takes the stricter of each of two limits, of which 0 is none.
func Stricter(a, b guard.Limits) guard.Limits {
	var none guard.Limits
	for _, l := range Limits() {
		if isSet := above(l.of(&b), l.of(&none)); isSet && above(l.of(&a), l.of(&b)) || !above(l.of(&a), l.of(&none)) {
			l.Copy(&a, &b)
		}
	}
	return a
}
