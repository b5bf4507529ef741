package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bounds of values that nobody means beyond them: they are typing errors.
const (
	maxSpeed = 1e9
	// MaxIdle is the longest time without use that a limit may say.
	MaxIdle = 365 * 24 * time.Hour
	// MaxAuditDays bounds audit_max_days.
	MaxAuditDays = 36_500
)

// kind is one kind of value, such as a size.
type kind struct {
	want string // what such a value must be
	list string // what a list of them must be
	most int    // how many a list may hold; 0: any number
	// read turns a value of the document into one of Go; errType: it is of another type.
	read   func(r *reader, path []string, k *key, v any) (any, error)
	schema func(k *key) *jsonschema.Schema
}

var errType = errors.New("a value of another type")

const aText = "text in quotes"

// kinds by the names that the tag kind gives them.
var kinds = map[string]*kind{
	"text":         {want: aText, read: ofText(func(s string) (string, error) { return s, nil }), schema: textSchema},
	"item":         {want: aText, list: "a list of texts", read: ofText(notEmpty), schema: textSchema},
	"word":         {want: aText, read: readWord, schema: wordSchema},
	"second word":  {want: aText, read: readSecondWord, schema: wordSchema},
	"flag":         {want: "true or false", read: of(func(on bool) (bool, error) { return on, nil }), schema: flagSchema},
	"opposite":     {want: "true or false", read: of(func(on bool) (bool, error) { return !on, nil }), schema: flagSchema},
	"count":        {want: "a whole number", read: readCount, schema: countSchema},
	"size":         {want: `a size: a number of bytes, or text as in "10M"`, read: readSize, schema: sizeSchema},
	"speed":        {want: "a number", read: readSpeed, schema: speedSchema},
	"duration":     {want: `a duration in quotes, as in "60s" or "8h"`, read: readDuration, schema: durationSchema},
	"moment":       {want: "a time with its zone, as in 2027-01-31T18:00:00+01:00", read: readMoment, schema: momentSchema},
	"port":         {list: "a list of ports", read: readPort, schema: portSchema},
	"path":         {want: aText, list: "a list of paths", read: readPath, schema: textSchema},
	"below home":   {want: aText, list: "a list of texts", read: ofText(belowHome), schema: textSchema},
	"mode":         {want: aText, read: ofText(guard.ParseMode), schema: textSchema},
	"mode or \"\"": {want: aText, read: ofText(modeOrDefault), schema: textSchema},
	"server":       {want: aText, read: ofText(checkedBy(CheckSubject)), schema: textSchema},
	"server or *":  {want: aText, read: ofText(checkedBy(checkSubjects)), schema: textSchema},
	"name":         {want: aText, read: ofText(names.ParseRootName), schema: textSchema},
	"host":         {want: aText, list: "a list of texts", read: ofText(network.ParseRule), schema: textSchema},
	"pattern": {want: aText + ": a pattern as in .gitignore", list: "a list of patterns, as in .gitignore", most: guard.MaxPatterns,
		read: readPattern, schema: textSchema},
	"name or spec": {want: aText + ": a root's name or a spec", list: "a list of names and specs", read: ofText(checkedBy(checkSpec)), schema: textSchema},
}

// kindNames are the kinds of values that types of Go tell.
var kindNames = map[reflect.Type]string{
	reflect.TypeFor[string]():         "text",
	reflect.TypeFor[bool]():           "flag",
	reflect.TypeFor[int]():            "count",
	reflect.TypeFor[int64]():          "count",
	reflect.TypeFor[float64]():        "speed",
	reflect.TypeFor[time.Duration]():  "duration",
	reflect.TypeFor[time.Time]():      "moment",
	reflect.TypeFor[guard.Rights]():   "mode or \"\"",
	reflect.TypeFor[guard.Subject]():  "server",
	reflect.TypeFor[guard.RootName](): "name",
	reflect.TypeFor[guard.Pattern]():  "pattern",
	reflect.TypeFor[network.Rule]():   "host",
}

// kindOf is the kind of a field's values; nil for tables, lists and pointers.
func kindOf(t reflect.Type, k *key) *kind {
	switch {
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map:
		return nil
	case k.words != nil:
		return kinds[cmp.Or(k.kind, "word")]
	}
	return kinds[cmp.Or(k.kind, kindNames[t])]
}

// of makes the read of a kind whose values are of one type in TOML.
func of[T, U any](f func(T) (U, error)) func(*reader, []string, *key, any) (any, error) {
	return func(_ *reader, _ []string, _ *key, v any) (any, error) {
		t, ok := v.(T)
		if !ok {
			return nil, errType
		}
		return f(t)
	}
}

func ofText[U any](f func(string) (U, error)) func(*reader, []string, *key, any) (any, error) {
	return of(f)
}

// checkedBy returns a text that check accepts.
func checkedBy(check func(string) error) func(string) (string, error) {
	return func(s string) (string, error) { return s, check(s) }
}

func notEmpty(s string) (string, error) {
	if s == "" {
		return "", errType
	}
	return s, nil
}

func readWord(_ *reader, _ []string, k *key, v any) (any, error) {
	s, ok := v.(string)
	switch {
	case !ok:
		return nil, errType
	case !slices.Contains(k.words, s):
		return nil, fmt.Errorf("%s is not one of %s", names.Quote(s), strings.Join(k.words, ", "))
	}
	return s, nil
}

// readSecondWord is true for the second of two words.
func readSecondWord(r *reader, path []string, k *key, v any) (any, error) {
	s, err := readWord(r, path, k, v)
	return s == k.words[1], err
}

// mostOf is the largest number that a key takes.
func mostOf(k *key) int64 {
	if n, err := strconv.ParseInt(k.max, 10, 64); err == nil {
		return n
	}
	return math.MaxInt64
}

func readCount(_ *reader, _ []string, k *key, v any) (any, error) {
	n, ok := v.(int64)
	switch most := mostOf(k); {
	case !ok:
		return nil, errType
	case n < 0 || n > most:
		return nil, fmt.Errorf("%d is not between 0 and the limit of %d", n, most)
	}
	return n, nil
}

// readSize takes a number of bytes, as a number or as a text with a unit.
func readSize(r *reader, path []string, k *key, v any) (any, error) {
	var n int64
	var err error
	if text, ok := v.(string); ok {
		n, err = ParseSize(text)
	} else {
		var got any
		if got, err = readCount(r, path, &key{}, v); err == nil {
			n = got.(int64)
		}
	}
	if err == nil && k.max != "" && (n < size(k.min) || n > size(k.max)) {
		err = fmt.Errorf("%d bytes is not between %s and the limit of %s", n, k.min, k.max)
	}
	return n, err
}

// size is the size of a tag.
func size(text string) int64 {
	n, err := ParseSize(text)
	if err != nil {
		panic(err) // a tag of File
	}
	return n
}

func readSpeed(_ *reader, _ []string, _ *key, v any) (any, error) {
	f, ok := v.(float64)
	if n, isInt := v.(int64); isInt {
		f, ok = float64(n), true
	}
	switch {
	case !ok:
		return nil, errType
	case !(f >= 0 && f <= maxSpeed): // and not NaN
		return nil, fmt.Errorf("%v is not between 0 and the limit of %d", f, int64(maxSpeed))
	}
	return f, nil
}

// rangeOf are the bounds of a duration.
func rangeOf(k *key) (least, most time.Duration) {
	least, err := time.ParseDuration(k.min)
	most, err2 := time.ParseDuration(k.max)
	if err := errors.Join(err, err2); err != nil {
		panic(err) // a tag of File
	}
	return least, most
}

func readDuration(_ *reader, _ []string, k *key, v any) (any, error) {
	s, ok := v.(string)
	if !ok {
		return nil, errType
	}
	d, err := time.ParseDuration(s)
	switch least, most := rangeOf(k); {
	case err != nil:
		return nil, fmt.Errorf("%s is no duration; write one as in \"60s\" or \"1h30m\"", names.Quote(s))
	case d < least || d > most:
		return nil, fmt.Errorf("%v is not between %v and the limit of %v", d, least, most)
	}
	return d, nil
}

// readMoment takes a TOML date-time with a zone, or the same as text.
func readMoment(_ *reader, _ []string, _ *key, v any) (any, error) {
	when, ok := v.(time.Time)
	if s, isText := v.(string); isText {
		var err error
		when, err = time.Parse(time.RFC3339, s)
		ok = err == nil
	}
	if !ok || when.IsZero() {
		return nil, errType
	}
	return when, nil
}

func readPort(_ *reader, _ []string, _ *key, v any) (any, error) {
	if port, ok := v.(int64); ok && port >= 1 && port <= math.MaxUint16 {
		return port, nil
	}
	return nil, fmt.Errorf("%v is not a port from 1 to %d", v, math.MaxUint16)
}

func readPath(r *reader, _ []string, _ *key, v any) (any, error) {
	s, ok := v.(string)
	switch {
	case !ok:
		return nil, errType
	case s == "":
		return nil, errors.New("is empty")
	}
	return absolute(s, r.home)
}

// absolute undoes ~. A relative path means nothing here: the file is read by
// sessions that run in any directory.
func absolute(path, home string) (string, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return "", errors.New("the path has a NUL byte")
	}
	if path == "~" || strings.HasPrefix(path, "~/") {
		if home == "" {
			return "", fmt.Errorf("path %s: there is no home directory; set HOME", names.Quote(path))
		}
		path = home + path[1:]
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("path %s is relative; write an absolute one, or one that begins with ~/", names.Quote(path))
	}
	return filepath.Clean(path), nil
}

func belowHome(s string) (string, error) {
	if !filepath.IsLocal(s) {
		return "", fmt.Errorf("%s is not a path below HOME", names.Quote(s))
	}
	return s, nil
}

func modeOrDefault(s string) (guard.Rights, error) {
	if s == "" {
		return guard.ReadOnly, nil
	}
	return guard.ParseMode(s)
}

// CheckSubject refuses what no server is called.
func CheckSubject(s string) error {
	if !guard.Subject(s).Named() {
		return fmt.Errorf("%s is no name of a server: write 1 to %d bytes without control or invisible characters, no space at either end, or leave the key out for every server", names.Quote(s), guard.MaxSubject)
	}
	return nil
}

// checkSubjects is CheckSubject where "*" stands for all.
func checkSubjects(s string) error {
	if s == "*" {
		return nil
	}
	return CheckSubject(s)
}

// checkSpec refuses the text that is no name and no spec whatever roots there are.
func checkSpec(s string) error {
	if s == "" {
		_, err := guard.ParseSpec(s)
		return err
	}
	return nil
}

// readPattern reads a pattern of the list that the key before its number names.
func readPattern(r *reader, path []string, _ *key, v any) (any, error) {
	text, ok := v.(string)
	if !ok {
		return nil, errType
	}
	list := []guard.Pattern{{Text: text}} // without its place, which the error says already
	var p guard.Patterns
	switch path[len(path)-2] {
	case "deny":
		p.Deny = list
	case "protect":
		p.Protect = list
	case "allow":
		p.Allow = list
	default:
		p.Hide = list
	}
	return guard.Pattern{Text: text, File: r.file, Line: r.lines.line(path)}, p.Check()
}
