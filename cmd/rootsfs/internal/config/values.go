package config

import (
	"cmp"
	"encoding"
	"encoding/json"
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
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/tomltree"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Upper bounds of values. A larger value is taken for a typo.
const (
	maxSpeed = 1e9
	// MaxIdle is the largest value for the idle time after which a grant ends.
	MaxIdle = 365 * 24 * time.Hour
	// MaxFor is the longest duration in a request over the control socket.
	MaxFor = 100 * 365 * 24 * time.Hour
)

// kind is one kind of value, such as a size.
type kind struct {
	want string // describes such a value, for messages
	list string // describes a list of them
	most int    // how many a list may hold; 0: any number
	// read turns the value of a cell into a Go value. If read returns errType, the message says
	// that the value must be want.
	read   func(c *cell) (any, error)
	schema *jsonschema.Schema // without the words and bounds of the key
}

// cell is a value of the document that is neither a table nor a list, with the field for the value.
type cell struct {
	r    *reader
	n    *tomltree.Node
	kind *kind
	key  *key
	to   reflect.Value
	v    any
}

var errType = errors.New("a value of another type")

const aText = "text in quotes"

var (
	textSchema   = jsonschema.Schema{Type: "string"}
	flagSchema   = jsonschema.Schema{Type: "boolean"}
	countSchema  = jsonschema.Schema{Type: "integer", Minimum: jsonschema.Ptr(0.0)}
	speedSchema  = jsonschema.Schema{Type: "number", Minimum: jsonschema.Ptr(0.0), Maximum: jsonschema.Ptr(maxSpeed)}
	portSchema   = jsonschema.Schema{Type: "integer", Minimum: jsonschema.Ptr(1.0), Maximum: jsonschema.Ptr(float64(math.MaxUint16))}
	momentSchema = jsonschema.Schema{Type: "string", Format: "date-time"}
	// The forms that ParseSize and time.ParseDuration read.
	sizeSchema     = jsonschema.Schema{AnyOf: []*jsonschema.Schema{&countSchema, {Type: "string", Pattern: `^[0-9]+[ \t]*([bB]|[kKmMgGtT]([iI]?[bB])?)?$`}}}
	durationSchema = jsonschema.Schema{Type: "string", Pattern: `^[+]?([0-9]*\.?[0-9]+|[0-9]+\.)(ns|us|µs|μs|ms|s|m|h)(([0-9]*\.?[0-9]+|[0-9]+\.)(ns|us|µs|μs|ms|s|m|h))*$`}
)

// kinds has the kinds of values, by name. The struct tag "kind" of a field is such a name.
var kinds = map[string]*kind{
	"own":          {want: aText, list: "a list of texts", read: readOwn, schema: &textSchema},
	"text":         textKind("", func(string) error { return nil }),
	"item":         textKind("a list of texts", notEmpty),
	"word":         {want: aText, read: readWord, schema: &textSchema},
	"flag":         {want: "true or false", read: readFlag, schema: &flagSchema},
	"opposite":     {want: "true or false", read: readFlag, schema: &flagSchema},
	"count":        {want: "a whole number", read: readNumber, schema: &countSchema},
	"size":         {want: `a size: a number of bytes, or text as in "10M"`, read: readSize, schema: &sizeSchema},
	"speed":        {want: "a number", read: readNumber, schema: &speedSchema},
	"duration":     {want: `a duration in quotes, as in "60s" or "8h"`, read: readDuration, schema: &durationSchema},
	"moment":       {want: "a time with its zone, as in 2027-01-31T18:00:00+01:00", read: readMoment, schema: &momentSchema},
	"port":         {list: "a list of ports", read: readPort, schema: &portSchema},
	"path":         {want: aText, list: "a list of paths", read: readPath, schema: &textSchema},
	"below home":   textKind("a list of texts", belowHome),
	"mode":         textKind("", parseCheck(rules.ParseMode)),
	"mode or none": {want: aText, read: readMode, schema: &textSchema},
	"server":       textKind("", CheckSubject),
	"server or *":  textKind("", checkSubjects),
	"name":         textKind("", parseCheck(names.ParseRootName)),
	"host":         textKind("a list of texts", parseCheck(network.ParseRule)),
	"secret":       textKind("", secret.CheckName),
	"header":       textKind("", secret.CheckHeader),
	"pass":         textKind("a list of names", secret.CheckPass),
	"in":           textKind("a list", secret.CheckIn),
	"shown":        textKind("", secret.CheckShown),
	"scope":        textKind("a list", secret.CheckScope),
	"act":          textKind("a list", checkAct),
	"pattern": {want: aText + ": a pattern as in .gitignore", list: "a list of patterns, as in .gitignore", most: rules.MaxPatterns,
		read: readPattern, schema: &textSchema},
	"name or spec": {want: aText + ": a root's name or a spec", list: "a list of names and specs", read: textKind("", notEmpty).read, schema: &textSchema},
}

// kindNames are the names of the kinds of fields without a tag "kind", by the Go types of the
// fields. A type that unmarshals itself (encoding.TextUnmarshaler) needs no kind.
var kindNames = map[reflect.Type]string{
	reflect.TypeFor[string]():         "text",
	reflect.TypeFor[bool]():           "flag",
	reflect.TypeFor[int]():            "count",
	reflect.TypeFor[int64]():          "count",
	reflect.TypeFor[float64]():        "speed",
	reflect.TypeFor[time.Duration]():  "duration",
	reflect.TypeFor[time.Time]():      "moment",
	reflect.TypeFor[guard.Rights]():   "mode or none",
	reflect.TypeFor[guard.Subject]():  "server",
	reflect.TypeFor[guard.RootName](): "name",
	reflect.TypeFor[rules.Pattern]():  "pattern",
}

// kindOf returns the kind of a field's values, or nil for tables, lists and pointers.
func kindOf(t reflect.Type, k *key) *kind {
	switch {
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map:
		return nil
	case k.words != nil:
		return kinds["word"]
	case k.kind == "" && kindNames[t] == "" && reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return kinds["own"]
	}
	return kinds[cmp.Or(k.kind, kindNames[t])]
}

// readOwn reads the value of a type that unmarshals itself.
func readOwn(c *cell) (any, error) {
	s, ok := c.v.(string)
	if !ok {
		return nil, errType
	}
	own := reflect.New(c.to.Type())
	err := own.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s))
	return own.Elem().Interface(), err
}

// textKind returns a kind whose values are the texts that check accepts.
func textKind(list string, check func(string) error) *kind {
	read := func(c *cell) (any, error) {
		s, ok := c.v.(string)
		if !ok {
			return nil, errType
		}
		return s, check(s)
	}
	return &kind{want: aText, list: list, read: read, schema: &textSchema}
}

// parseCheck returns a check that accepts the texts that parse accepts.
func parseCheck[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error { _, err := parse(s); return err }
}

func notEmpty(s string) error {
	if s == "" {
		return errors.New("has an empty text: remove it")
	}
	return nil
}

// checkAct accepts the words for the kinds of acts that the owners of a fleet may be allowed.
func checkAct(s string) error {
	if s != "answer" && s != "grant" {
		return fmt.Errorf("%s is neither answer nor grant", names.Quote(s))
	}
	return nil
}

func readFlag(c *cell) (any, error) {
	on, ok := c.v.(bool)
	if !ok {
		return nil, errType
	}
	return on != (c.key.kind == "opposite"), nil
}

// readWord reads one of the key's words. For a boolean field the second word is true.
func readWord(c *cell) (any, error) {
	s, ok := c.v.(string)
	switch {
	case !ok:
		return nil, errType
	case !slices.Contains(c.key.words, s):
		return nil, fmt.Errorf("%s is not one of %s", names.Quote(s), strings.Join(c.key.words, ", "))
	case c.to.Kind() == reflect.Bool:
		return s == c.key.words[1], nil
	}
	return s, nil
}

// mostOf returns the largest number that a key takes.
func mostOf(k *key) int64 {
	if n, err := strconv.ParseInt(k.max, 10, 64); err == nil {
		return n
	}
	return math.MaxInt64
}

// readNumber reads a number within the bounds of the schema.
func readNumber(c *cell) (any, error) {
	s := leafSchema(c.kind, c.key)
	n, isInt := c.v.(int64)
	f, isFloat := c.v.(float64)
	if isInt {
		f = float64(n)
	}
	most := int64(math.MaxInt64)
	if s.Maximum != nil {
		most = int64(*s.Maximum)
	}
	switch {
	case !isInt && (!isFloat || s.Type == "integer"):
		return nil, errType
	case !(f >= *s.Minimum && f <= float64(most)): // and not NaN
		return nil, fmt.Errorf("%v is not between %v and the limit of %d", c.v, *s.Minimum, most)
	case s.Type == "integer":
		return n, nil
	}
	return f, nil
}

// readSize reads a number of bytes: a number, or a text with a unit.
func readSize(c *cell) (any, error) {
	n, isNumber := c.v.(int64)
	text, isText := c.v.(string)
	var err error
	if isText {
		n, err = ParseSize(text)
	}
	least, _ := ParseSize(c.key.min) // 0 without a bound
	most, none := ParseSize(c.key.max)
	switch {
	case !isNumber && !isText:
		return nil, errType
	case err != nil:
		return nil, err
	case n < 0:
		return nil, fmt.Errorf("%d is not between 0 and the limit of %d", n, int64(math.MaxInt64))
	case none == nil && (n < least || n > most):
		return nil, fmt.Errorf("%d bytes is not between %s and the limit of %s", n, c.key.min, c.key.max)
	}
	return n, nil
}

// rangeOf returns the bounds of a duration.
func rangeOf(k *key) (least, most time.Duration) {
	least, err := time.ParseDuration(k.min)
	most, err2 := time.ParseDuration(k.max)
	if err := errors.Join(err, err2); err != nil {
		panic(err) // the tags min and max of a duration in File are wrong
	}
	return least, most
}

func readDuration(c *cell) (any, error) {
	s, ok := c.v.(string)
	if !ok {
		return nil, errType
	}
	d, err := time.ParseDuration(s)
	switch least, most := rangeOf(c.key); {
	case err != nil:
		return nil, fmt.Errorf("%s is no duration; write one as in \"60s\" or \"1h30m\"", names.Quote(s))
	case d < least || d > most:
		return nil, fmt.Errorf("%v is not between %v and the limit of %v", d, least, most)
	}
	return d, nil
}

// readMoment reads a TOML date-time with a zone, or the same as text.
func readMoment(c *cell) (any, error) {
	when, ok := c.v.(time.Time)
	if s, isText := c.v.(string); isText {
		var err error
		when, err = time.Parse(time.RFC3339, s)
		ok = err == nil
	}
	if !ok || when.IsZero() {
		return nil, errType
	}
	return when, nil
}

func readPort(c *cell) (any, error) {
	if port, ok := c.v.(int64); ok && port >= 1 && port <= math.MaxUint16 {
		return port, nil
	}
	return nil, fmt.Errorf("%v is not a port from 1 to %d", c.v, math.MaxUint16)
}

func readPath(c *cell) (any, error) {
	s, ok := c.v.(string)
	switch {
	case !ok:
		return nil, errType
	case s == "":
		return nil, errors.New("is empty")
	}
	return absolute(s, c.r.home)
}

// absolute replaces ~ by the home directory. It refuses a relative path, because sessions in
// different directories read the same configuration file.
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

func belowHome(s string) error {
	if !filepath.IsLocal(s) {
		return fmt.Errorf("%s is not a path below HOME", names.Quote(s))
	}
	return nil
}

// readMode reads rights; an empty text means the default.
func readMode(c *cell) (any, error) {
	if c.v == "" {
		return guard.ReadOnly, nil
	}
	return readOwn(c)
}

// CheckSubject refuses a text that cannot be the name of a server.
func CheckSubject(s string) error {
	if !guard.Subject(s).Named() {
		return fmt.Errorf("%s is no name of a server: write 1 to %d bytes without control or invisible characters, no space at either end, or leave the key out for every server", names.Quote(s), rules.MaxSubject)
	}
	return nil
}

// checkSubjects is CheckSubject, but also accepts "*", which stands for every server without a
// block of its own.
func checkSubjects(s string) error {
	if s == "*" {
		return nil
	}
	return CheckSubject(s)
}

// readPattern reads a pattern of the key's list. For a text field it returns the text.
func readPattern(c *cell) (any, error) {
	text, ok := c.v.(string)
	if !ok {
		return nil, errType
	}
	list := []rules.Pattern{{Text: names.Foreign(text)}} // without its line, which the error already has
	p := map[string]guard.Patterns{"deny": {Deny: list}, "protect": {Protect: list}, "allow": {Allow: list}, "hide": {Hide: list}}[c.key.name]
	if c.to.Kind() == reflect.String {
		return text, p.Check()
	}
	return rules.Pattern{Text: names.Foreign(text), File: names.Foreign(c.r.file), Line: c.n.Line}, p.Check()
}

// shifts are the units of ParseSize.
var shifts = map[string]uint{
	"": 0, "B": 0,
	"K": 10, "KB": 10, "KIB": 10,
	"M": 20, "MB": 20, "MIB": 20,
	"G": 30, "GB": 30, "GIB": 30,
	"T": 40, "TB": 40, "TIB": 40,
}

// ParseSize reads a number of bytes: "1048576", "1024K", "1M", "1MiB", "1MB".
// The units K, M, G and T are powers of 1024, in upper or lower case; blanks and tabs may precede
// them. Negative numbers, fractions and numbers of more than 63 bits are errors.
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	shift, known := shifts[strings.ToUpper(s[len(digits):])]
	n, err := strconv.ParseUint(strings.TrimRight(digits, " \t"), 10, 63)
	if err != nil || !known {
		return 0, &names.Error{Kind: names.Invalid, Err: fmt.Errorf(
			"size %s: write a number of bytes, or one with K, M, G or T, as in 10M", names.Quote(s))}
	}
	if n > math.MaxInt64>>shift {
		return 0, &names.Error{Kind: names.Invalid, Err: fmt.Errorf(
			"size %s is beyond the limit of 8388607T", names.Quote(s))}
	}
	return int64(n) << shift, nil
}

// FormatSize formats a number of bytes that is not negative. From 1024 on, the text has one
// decimal and a unit: "1.5K". The units are those of ParseSize, and P and E.
func FormatSize(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	f, u := float64(n)/1024, 0
	for f >= 1024 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + units[u:u+1]
}

// schemaID names the schema, for editors.
const schemaID = "https://github.com/rootsfs/rootsfs/config.schema.json"

// schema is the JSON Schema (draft 2020-12) of the configuration, for editors and
// other tools, made from File. Every document that Load accepts is valid. Load also refuses
// some valid documents, for reasons that a schema cannot express: a relative path, a duplicate
// name, a file of another user. Date-times of TOML count as text.
func schema() *jsonschema.Schema {
	top := schemaOf(reflect.TypeFor[File](), &key{})
	root := top.Properties["root"].Items
	root.OneOf = []*jsonschema.Schema{{Required: []string{"path"}}, {Required: []string{"uri"}}}
	root.Not = &jsonschema.Schema{Required: []string{"for", "expires"}}
	hosts := top.Properties["net"].Items
	hosts.AnyOf = []*jsonschema.Schema{{Required: []string{"hosts"}}, {Required: []string{"ask"}}}
	top.ID, top.Schema = schemaID, "https://json-schema.org/draft/2020-12/schema"
	top.Title, top.Description = "rootsfs configuration", "~/.config/rootsfs/config.toml; see rootsfs config --help"
	return top
}

// SchemaJSON is the schema as text, indented.
func SchemaJSON() ([]byte, error) { return json.MarshalIndent(schema(), "", "  ") }

// CeilingSchemaJSON is the schema of the files of a ceiling as text, indented.
func CeilingSchemaJSON() ([]byte, error) {
	top := schemaOf(reflect.TypeFor[ceilingFile](), &key{})
	top.Schema, top.Title, top.Description = "https://json-schema.org/draft/2020-12/schema", "rootsfs ceiling", CeilingDir+"/ceiling.toml; see rootsfs help ceiling"
	return json.MarshalIndent(top, "", "  ")
}

// schemaOf returns the schema of a field of the type.
func schemaOf(t reflect.Type, k *key) *jsonschema.Schema {
	if kind := kindOf(t, k); kind != nil {
		return leafSchema(kind, k)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), k)
	case reflect.Slice:
		one := *k
		one.meaning = ""
		list := &jsonschema.Schema{Type: "array", Items: schemaOf(t.Elem(), &one), Description: k.meaning}
		if kind := kindOf(t.Elem(), k); kind != nil && kind.most > 0 {
			list.MaxItems = &kind.most
		}
		return list
	case reflect.Map:
		return &jsonschema.Schema{Type: "object", AdditionalProperties: schemaOf(t.Elem(), &key{meaning: k.each}), Description: k.meaning}
	}
	if o, ok := reflect.Zero(t).Interface().(interface{ tableType() reflect.Type }); ok {
		t = o.tableType()
	}
	table := &jsonschema.Schema{Type: "object", Description: k.meaning, Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}} // no other key
	for _, k := range tableKeys(t) {
		table.Properties[k.name] = schemaOf(t.FieldByIndex(k.field).Type, &k)
		table.PropertyOrder = append(table.PropertyOrder, k.name)
		if k.need != "" {
			table.Required = append(table.Required, k.name)
		}
	}
	return table
}

// leafSchema returns the schema of a kind, with the tags of the key.
func leafSchema(kind *kind, k *key) *jsonschema.Schema {
	s := *kind.schema
	s.Description = k.meaning
	for _, w := range k.words {
		s.Enum = append(s.Enum, w)
	}
	if most := mostOf(k); most < math.MaxInt64 {
		s.Maximum = jsonschema.Ptr(float64(most))
	}
	if kind.schema == &durationSchema { // a pattern cannot express a range
		least, most := rangeOf(k)
		s.Description += fmt.Sprintf("; from %v to %v", least, most)
	}
	return &s
}
