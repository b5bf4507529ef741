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
	top.ID, top.Schema = schemaID, "https://json-schema.org/draft/2020-12/schema"
	top.Title, top.Description = "rootsfs configuration", "~/.config/rootsfs/config.toml; see rootsfs config --help"
	return top
}

// SchemaJSON is the schema as text, indented.
func SchemaJSON() ([]byte, error) { return json.MarshalIndent(schema(), "", "  ") }

// schemaOf describes what a field of the type takes.
func schemaOf(t reflect.Type, k *key) *jsonschema.Schema {
	if kind := kindOf(t, k); kind != nil {
		return described(kind.schema(k), k.meaning)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), k)
	case reflect.Slice:
		one := *k
		one.meaning = ""
		list := &jsonschema.Schema{Type: "array", Items: schemaOf(t.Elem(), &one)}
		if kind := kindOf(t.Elem(), k); kind != nil && kind.most > 0 {
			list.MaxItems = &kind.most
		}
		return described(list, k.meaning)
	case reflect.Map:
		return described(&jsonschema.Schema{Type: "object", AdditionalProperties: schemaOf(t.Elem(), &key{meaning: k.each})}, k.meaning)
	}
	if o, ok := reflect.Zero(t).Interface().(interface{ of() reflect.Type }); ok {
		t = o.of()
	}
	table := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}} // no other key
	for _, k := range tableKeys(t) {
		table.Properties[k.name] = schemaOf(t.FieldByIndex(k.field).Type, &k)
		table.PropertyOrder = append(table.PropertyOrder, k.name)
		if k.need != "" {
			table.Required = append(table.Required, k.name)
		}
	}
	return described(table, k.meaning)
}

// described puts what a key means before what its schema says already.
func described(s *jsonschema.Schema, meaning string) *jsonschema.Schema {
	if s.Description != "" && meaning != "" {
		meaning += "; "
	}
	s.Description = meaning + s.Description
	return s
}

func number(v float64) *float64 { return &v }

func textSchema(*key) *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }

func flagSchema(*key) *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} }

func wordSchema(k *key) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, w := range k.words {
		s.Enum = append(s.Enum, w)
	}
	return s
}

func countSchema(k *key) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "integer", Minimum: number(0)}
	if most := mostOf(k); most < math.MaxInt64 {
		s.Maximum = number(float64(most))
	}
	return s
}

func portSchema(*key) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: number(1), Maximum: number(math.MaxUint16)}
}

func speedSchema(*key) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "number", Minimum: number(0), Maximum: number(maxSpeed)}
}

// sizePattern is what ParseSize reads.
const sizePattern = `^[0-9]+[ \t]*([bB]|[kKmMgGtT]([iI]?[bB])?)?$`

func sizeSchema(*key) *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "integer", Minimum: number(0)}, {Type: "string", Pattern: sizePattern},
	}}
}

// durationSchema says the range in words: a pattern cannot.
func durationSchema(k *key) *jsonschema.Schema {
	least, most := rangeOf(k)
	return &jsonschema.Schema{Type: "string", Pattern: `^[+]?([0-9]*\.?[0-9]+|[0-9]+\.)(ns|us|µs|μs|ms|s|m|h)(([0-9]*\.?[0-9]+|[0-9]+\.)(ns|us|µs|μs|ms|s|m|h))*$`,
		Description: fmt.Sprintf("from %v to %v", least, most)}
}

func momentSchema(*key) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Format: "date-time"}
}
