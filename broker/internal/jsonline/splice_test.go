package jsonline

import (
	"bytes"
	"encoding/json"
	"testing"
)

var announcement = Patch{Key: "params", Members: []Patch{{Key: "capabilities", Members: []Patch{
	{Key: "roots", Members: []Patch{{Key: "listChanged", Value: []byte("true")}, {Key: "filesystemBrokering", Value: []byte("true")}}},
	{Key: "extensions", Members: []Patch{{Key: "x/y", Value: []byte(`{"a":1}`)}}},
}}}}

// Merge changes the capabilities and no other byte (R168).
func TestSplice(t *testing.T) {
	const roots, ext = `"roots":{"listChanged":true,"filesystemBrokering":true}`, `"extensions":{"x/y":{"a":1}}`
	for _, c := range []struct{ in, want string }{
		{`{"id":1}`, `{"id":1,"params":{"capabilities":{` + roots + `,` + ext + `}}}`},
		{`{}`, `{"params":{"capabilities":{` + roots + `,` + ext + `}}}`},
		{` { "params" : { } } `, ` { "params" : {"capabilities":{` + roots + `,` + ext + `} } } `},
		{`{"params":{"capabilities":null,"z":1e400}}`, `{"params":{"capabilities":{` + roots + `,` + ext + `},"z":1e400}}`},
		{
			`{"params":{"capabilities":{"roots":{"listChanged": false ,"q":9007199254740993},"extensions":{"b":2}}},"id":1.50}`,
			`{"params":{"capabilities":{"roots":{"listChanged": true ,"q":9007199254740993,"filesystemBrokering":true},"extensions":{"b":2,"x/y":{"a":1}}}},"id":1.50}`,
		},
		{ // a key that occurs twice, and another that occurs twice in its value
			`{"params":{"capabilities":{"roots":{},"roots":{"listChanged":1,"listChanged":2}}}}`,
			`{"params":{"capabilities":{` + roots + `,"roots":{"listChanged":true,"listChanged":true,"filesystemBrokering":true},` + ext + `}}}`,
		},
		{ // a value that is no object stays
			`{"params":{"capabilities":[1]}}`, `{"params":{"capabilities":[1]}}`,
		},
		{`{"params":5}`, `{"params":5}`},
		{`{"p\u0061rams":{"capabilities":{"roots":5,"extensions":"e"}}}`, `{"p\u0061rams":{"capabilities":{"roots":5,"extensions":"e"}}}`},
		{"{\"params\":{\"\xff\":\"\xfe\"}}", "{\"params\":{\"\xff\":\"\xfe\",\"capabilities\":{" + roots + "," + ext + "}}}"},
		{`[1]`, `[1]`}, {`{"params":{"a" 1}}`, `{"params":{"a" 1}}`}, {`{"id":1`, `{"id":1`},
	} {
		if got := string(Merge([]byte(c.in), announcement)); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.in, got, c.want)
		}
	}
}

// When a member is removed, its comma is removed, too. Removing a missing member changes nothing.
func TestSplice_Drop(t *testing.T) {
	drop := []Patch{{Key: "c", Members: []Patch{{Key: "r", Drop: true}}}}
	dropAndSet := []Patch{{Key: "c", Members: []Patch{{Key: "r", Drop: true}, {Key: "n", Value: []byte("0")}}}}
	for _, c := range []struct{ in, afterDrop, afterBoth string }{
		{`{"c":{"r":{},"a":1}}`, `{"c":{"a":1}}`, `{"c":{"a":1,"n":0}}`},
		{`{"c":{"a":1, "r":{}}}`, `{"c":{"a":1}}`, `{"c":{"a":1,"n":0}}`},
		{`{"c":{"a":1,"r":2 , "b":3}}`, `{"c":{"a":1 , "b":3}}`, `{"c":{"a":1 , "b":3,"n":0}}`},
		{`{"c":{"r":1}}`, `{"c":{}}`, `{"c":{"n":0}}`},
		{`{"c":{ "r":1,"\u0072":2 , "a":3,"r":4}}`, `{"c":{"a":3}}`, `{"c":{"a":3,"n":0}}`},
		{`{"c":{"r":1,"r":2}}`, `{"c":{}}`, `{"c":{"n":0}}`},
		{`{"x":1}`, `{"x":1}`, `{"x":1,"c":{"n":0}}`}, {`{"c":null}`, `{"c":null}`, `{"c":{"n":0}}`}, {`{"c":{}}`, `{"c":{}}`, `{"c":{"n":0}}`},
		{`{"c":{"n":5,"r":1}}`, `{"c":{"n":5}}`, `{"c":{"n":0}}`}, {`{"c":{"r":1,"n":5}}`, `{"c":{"n":5}}`, `{"c":{"n":0}}`},
	} {
		for want, ps := range map[string][]Patch{c.afterDrop: drop, c.afterBoth: dropAndSet} {
			if got := string(Merge([]byte(c.in), ps...)); got != want || !json.Valid([]byte(got)) {
				t.Errorf("%s became %s, want %s", c.in, got, want)
			}
		}
	}
}

func FuzzSplice(f *testing.F) {
	for _, s := range append(scanSeeds,
		`{"params":{"capabilities":{"roots":{"listChanged":false},"roots":null}},"params":{}}`,
		`{"params":{"capabilities":{"extensions":{"x\/y":0,"z":[]}},"b":{}}}`) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out := Merge(b, announcement)
		if !json.Valid(b) {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%q became %q", b, out)
		}
		if again := Merge(out, announcement); !bytes.Equal(again, out) {
			t.Fatalf("once %q, twice %q", out, again)
		}
		var before, after map[string]json.RawMessage
		if json.Unmarshal(b, &before) != nil || before == nil {
			if !bytes.Equal(b, out) {
				t.Fatalf("%q is no object and became %q", b, out)
			}
			return
		}
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatal(err)
		}
		for key, was := range before {
			if key != "params" && !bytes.Equal(was, after[key]) {
				t.Fatalf("%q became %q", was, after[key])
			}
		}
	})
}

func TestWithout(t *testing.T) {
	for _, c := range []struct {
		in, want string
		ok       bool
	}{
		{`{"a":1,"b":2,"c":3}`, `{"b":2,"n":0}`, true},
		{`{"a":1}`, `{"n":0}`, true}, {`{}`, `{"n":0}`, true},
		{`{"b":1e400,"\u0061":2,"b":3}`, `{"b":1e400,"b":3,"n":0}`, true},
		{`[1]`, ``, false}, {`{"b":1`, ``, false}, {`{"b":1}x`, ``, false},
	} {
		got, ok := Without([]byte(c.in), []string{"a", "c"}, Patch{Key: "n", Value: []byte("0")})
		if ok != c.ok || ok && string(got) != c.want {
			t.Errorf("%s: %s, %v", c.in, got, ok)
		}
	}
}
