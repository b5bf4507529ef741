package config

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/pelletier/go-toml/v2"
)

// schemaKeys adds the keys of a schema to out, by their paths.
func schemaKeys(s *jsonschema.Schema, path string, out map[string]*jsonschema.Schema) {
	for key, p := range s.Properties {
		at := strings.TrimPrefix(path+"."+key, ".")
		out[at] = p
		schemaKeys(p, at, out)
	}
	if s.Items != nil {
		schemaKeys(s.Items, path, out)
	}
	if a := s.AdditionalProperties; a != nil && a.Type == "object" {
		out[path+".NAME"] = a
		schemaKeys(a, path+".NAME", out)
	}
}

// Every key of the schema is explained.
func TestSchemaIsExplained(t *testing.T) {
	byPath := map[string]*jsonschema.Schema{}
	schemaKeys(schema(), "", byPath)
	keys := slices.Sorted(maps.Keys(byPath))
	for _, k := range keys {
		if byPath[k].Description == "" {
			t.Errorf("%s has no tag jsonschema in file.go", k)
		}
	}
}

// Documents that the reader accepts are valid by the schema. Documents that the reader refuses for
// their keys, types and words are invalid. The test uses the schema as printed text, as other
// programs get it.
func TestSchemaAgreesWithTheReader(t *testing.T) {
	text, err := SchemaJSON()
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	schema, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	const root = "[[root]]\npath = \"/srv/a\"\n"
	for _, tc := range []struct {
		doc   string
		valid bool
	}{
		{"", true}, {fullDocument, true}, {root, true},
		{root + "mode = \"read,list\"\nsubject = \"x\"\npolicy = { hide = [\"a\", \"b\"], defaults = false }\n", true},
		{"[limits]\ntimeout = \"1h30m\"\nidle = \"1.5h\"\nmax_file = \"3 KiB\"\nmax_written = 7\nops_per_second = 3\n", true},
		{"[[subject]]\nname = \"*\"\nmax_created = 1\n", true},
		{"[policy]\nhide = [\"x\"]\nrespect_gitignore = true\n", true},
		{"[profile.p]\nroots = []\n", true},
		{"[mount]\ncahce = \"max\"\n", false}, {"[mounts]\n", false}, {"[mount]\ncache = \"fast\"\n", false},
		{"[mount]\nread_only = \"yes\"\n", false},
		{"[limits]\nburst = 3000000000\n", false}, {"[limits]\nmax_file = \"10 elephants\"\n", false}, {"[limits]\nmax_file = 1.5\n", false},
		{"[limits]\nmax_file = \" 10M\"\n", false}, {"[limits]\nmax_file = \"10\\nM\"\n", false}, {"[limits]\nmax_file = \"10 \\tM\"\n", true},
		{"[limits]\ntimeout = 60\n", false}, {"[limits]\ntimeout = \"soon\"\n", false}, {"[limits]\nops_per_second = -1\n", false},
		{"[files]\nconsent = \"always\"\n", false}, {"[[files.allow]]\nmode = \"ro\"\n", false},
		{"[[root]]\nname = \"a\"\n", false}, {root + "uri = \"file:///b\"\n", false}, {root + "[root.limits]\nx = 1\n", false},
		{root + "for = \"1h\"\nexpires = 2030-01-01T00:00:00Z\n", false}, {"[[subject]]\nmax_file = 1\n", false},
		{"[policy]\nhide = \"x\"\n", false}, {"[profile.p]\nroot = []\n", false}, {"[root]\npath = \"/a\"\n", false},
	} {
		var m map[string]any
		if err := toml.Unmarshal([]byte(tc.doc), &m); err != nil {
			t.Fatalf("%q: %v", tc.doc, err)
		}
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var instance any
		if err := json.Unmarshal(data, &instance); err != nil {
			t.Fatal(err)
		}
		verr := schema.Validate(instance)
		_, perr := parse("/etc/x/config.toml", "/home/me", []byte(tc.doc))
		if (verr == nil) != tc.valid || (perr == nil) != tc.valid {
			t.Errorf("%q: the schema says %v, the reader %v", tc.doc, verr, perr)
		}
	}
}
