package config

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemaID names the schema, for editors.
const schemaID = "https://github.com/rootsfs/rootsfs/config.schema.json"

// schema is the JSON Schema (draft 2020-12) of the configuration, for editors and
// other tools, made from File. A document that Load accepts is valid by it; of those that
// are, Load refuses some that a schema cannot tell: a path that is relative, a name that is
// taken twice, a file in another's hands. Date-times of TOML count as text.
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

// schemaOf describes what a field of the type takes.
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
	if o, ok := reflect.Zero(t).Interface().(interface{ of() reflect.Type }); ok {
		t = o.of()
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

// leafSchema is the schema of a kind, with what the key says.
func leafSchema(kind *kind, k *key) *jsonschema.Schema {
	s := *kind.schema
	s.Description = k.meaning
	for _, w := range k.words {
		s.Enum = append(s.Enum, w)
	}
	if most := mostOf(k); most < math.MaxInt64 {
		s.Maximum = jsonschema.Ptr(float64(most))
	}
	if kind == kinds["duration"] { // a pattern cannot say a range
		least, most := rangeOf(k)
		s.Description += fmt.Sprintf("; from %v to %v", least, most)
	}
	return &s
}
