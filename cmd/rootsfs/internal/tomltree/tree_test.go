package tomltree

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

var limits = Limits{Depth: 8, Keys: 100}

// tables is a document with tables and lists that are written in different ways.
const tables = `top = 1
a.b = "x" # dotted
a.c.d = [1, "two",
  [ 3 ], { e = true, f.g = 1.5 },
]
[t] # its own header
u = { v = '''w''' }
[t.x.y]
z = 2027-01-31T18:00:00+01:00
[t.x]
[[l]]
[l.m]
n = 1
[[l]]
"o p" = 0x1_0
`

// Every node has its line and the path that a person would write. The offsets of a scalar or list
// behind "=" enclose the text of the value, and the offsets of a scalar item enclose the item.
func TestPlaces(t *testing.T) {
	top, err := Parse([]byte(tables), limits)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var walk func(n *Node)
	walk = func(n *Node) {
		text := ""
		if n.Kind != Table && n.To > 0 {
			text, _, _ = strings.Cut(" "+tables[n.From:n.To], "\n")
		}
		got = append(got, fmt.Sprintf("%d:%s%s", n.Line, n.Path(), text))
		for _, child := range n.Children {
			walk(child)
		}
	}
	walk(top)
	want := []string{"0:", "1:top 1", "2:a", `2:a.b "x"`, "3:a.c", `3:a.c.d [1, "two",`, "3:a.c.d 1", `3:a.c.d "two"`, "3:a.c.d", "4:a.c.d 3",
		"4:a.c.d", "4:a.c.d.e true", "4:a.c.d.f", "4:a.c.d.f.g 1.5", "6:t", "7:t.u", "7:t.u.v '''w'''", "8:t.x", "8:t.x.y",
		"9:t.x.y.z 2027-01-31T18:00:00+01:00", "11:l", "11:l", "12:l.m", "13:l.m.n 1", "14:l", "15:l.o p 0x1_0"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The error for an invalid document has the line, and the key unless the syntax is wrong.
func TestErrors(t *testing.T) {
	for doc, want := range map[string]string{
		"a = 1\nb = ?":                  "2  unexpected character",
		"a = \"\\x\"":                   "1  ",
		"":                              "",
		"a = 1\n\na = 2":                `3 a the key "a" is given twice, first in line 1; remove one of them`,
		"[t]\n[t]":                      "2 t the key",
		"t.a = 1\n[t]":                  "2 t the key",
		"[t.a]\n[t]\na.b = 1":           "3 t.a the key",
		"t = {}\n[t.a]":                 "2 t the key",
		"t = [{}]\n[[t]]":               "2 t the key",
		"t = {a = 1, a = 2}":            "1 t.a the key",
		"[t]\n[[t]]":                    `2 t "t" is both a table and a list of tables; remove one of them`,
		"[[t]]\n[t]":                    `2 t "t" is both`,
		"[[t]]\na = 1\n[[t]]\na = 1":    "",
		"[t.a]\n[t]\n[t.b]":             "",
		"x = 1\na.b.c.d.e.f.g.h.i = 1":  "2 a.b.c.d.e.f.g.h is nested too deeply",
		"a = [[[[[[[]]]]]]]":            "",
		"a = [[[[[[[[]]]]]]]]":          "1 a is nested too deeply",
		strings.Repeat("\n", 9) + many:  "110 k100 is beyond the limit of 100 keys in one table",
		"[[t]]\n[[t]]\n[[t]]\n[t.a]\n{": "5  ",
	} {
		_, err := Parse([]byte(doc), limits)
		got := ""
		var e *Error
		if errors.As(err, &e) {
			got = fmt.Sprintln(e.Line, e.Key, e.Err)
		}
		if want == "" && err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%.40q: %q, want %q", doc, got, want)
		}
	}
}

// many is a document with more keys than the limits allow.
var many = func() string {
	var b strings.Builder
	for i := range limits.Keys + 1 {
		fmt.Fprintf(&b, "k%d = 1\n", i)
	}
	return b.String()
}()

// Value, not Parse, refuses a number that does not fit into an int64.
func TestValue(t *testing.T) {
	top, err := Parse([]byte("a = 99999999999999999999\nb = 1\nc = []"), limits)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := top.Get("a").Value(); v != nil || err == nil || !strings.Contains(err.Error(), "decimal number is too large to fit") {
		t.Errorf("%v, %v", v, err)
	}
	if v, err := top.Get("b").Value(); v != int64(1) || err != nil {
		t.Errorf("%v, %v", v, err)
	}
	if v, err := top.Get("c").Value(); v != nil || err != nil {
		t.Errorf("%v, %v", v, err)
	}
}

// FuzzParse checks that the tree has the values that go-toml decodes, and that Parse or Value
// refuses exactly the documents that go-toml refuses.
func FuzzParse(f *testing.F) {
	for _, doc := range []string{tables, "", "a = nan\nb = -0.0\nc = 1979-05-27 07:32Z\nd = 07:32:00", "\xef\xbb\xbfa=1", "a = \"\\u00e9\"", "a=1\r\nb=2", "[a.b]\nx.y=1\n[a.c]\n[a]"} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		var want map[string]any
		derr := toml.Unmarshal(doc, &want)
		top, err := Parse(doc, Limits{Depth: 1 << 20})
		var got any
		if err == nil {
			got, err = decoded(top)
		}
		if (err == nil) != (derr == nil) {
			t.Fatalf("tree: %v\ngo-toml: %v", err, derr)
		}
		if g, w := fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", any(want)); err == nil && len(want) > 0 && g != w {
			t.Fatalf("tree: %s\ngo-toml: %s", g, w)
		}
	})
}

// decoded returns the value that go-toml would decode.
func decoded(n *Node) (any, error) {
	if n.Kind == Scalar {
		return n.Value()
	}
	table, list := map[string]any{}, []any{}
	for _, child := range n.Children {
		v, err := decoded(child)
		if err != nil {
			return nil, err
		}
		table[child.Name] = v
		list = append(list, v)
	}
	if n.Kind == List {
		return list, nil
	}
	return table, nil
}
