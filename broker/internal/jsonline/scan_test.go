package jsonline

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// pair is one member of an object, as encoding/json reads it.
type pair struct {
	key string
	val string // raw
}

// pairs reads an object's members in their order, including those with the same key. ok is
// false if the text is not an object.
func pairs(b []byte) (all []pair, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(b))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var val json.RawMessage
		if dec.Decode(&val) != nil {
			return nil, false
		}
		all = append(all, pair{key.(string), string(val)})
	}
	return all, true
}

// scanPairs does what pairs does, with the scanner of this package.
func scanPairs(b []byte) (all []pair, ok bool) {
	w, ok := Object(b, SkipSpace(b, 0))
	if !ok {
		return nil, false
	}
	for w.Next() {
		key := string([]rune(string(Unquote(w.Key.Of(b))))) // replaces invalid UTF-8 as encoding/json does
		all = append(all, pair{key, string(w.Val.Of(b))})
	}
	return all, w.reachedEnd()
}

var long = strings.Repeat("calm ", 40)

var scanSeeds = []string{
	`{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"a":[1,{"b":"}"}],"a":1e400}}`,
	`{"result":{"x":"\"}\\"},"jsonrpc":"2.0","id":"a\u0062"}`,
	` { "id" : null , "error" : { "code" : -1 } } `,
	`{"\u0069d":1,"id":2}`, `{"a":"\\","b":"\\\"","c":"\\\\"}`, `{}`, `{"a":{}}`, `{"a":[]}`, `[{"id":1},{"id":2}]`,
	`{"a":1,}`, `{"a" 1}`, `{"a":}`, `{,}`, `{"a":1}x`, `{"a":1}{"b":2}`, `{"a":"`, `{"a":"\`, `{"`, `{`, `"`, `[`, ``, `nul`,
	`{"a":[}]}`, `{"a":NaN,"b":-Infinity}`, "{\"a\":\"\t\"}", "{\"\xff\":\"\xff\xfe\"}", `{"a":"\ud800","b":"\ud83d\ude00"}`,
	`{"a":"` + long + `\"` + long + `\\","b":"` + long + `\\\"","c":"` + long + `\\`, `{"a":"` + long + `","id":"` + long[:61] + `\""}`,
	"\ufeff{}", `{"a":tru"b":1}`, `{'a':1}`, `{"a"/**/:1}`, `{"ID":1,"Method":"x"}`,
}

func FuzzScan(f *testing.F) {
	for _, s := range scanSeeds {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		if bytes.IndexByte(b, '\n') >= 0 {
			return
		}
		if id, method := HeadOf(b).Request(); (id == nil) != (method == "") || len(id) > longestID {
			t.Errorf("%q of %q", id, method)
		}
		got, ok := scanPairs(b)
		fr, isFrame := Parse(b)
		if isFrame != ok {
			t.Fatalf("an object: %v, a frame: %v", ok, isFrame)
		}
		checkInParts(t, b, int(step)+1, &fr, ok)
		if !json.Valid(b) {
			return // the scanner takes some texts that are not JSON, but reads none past its end
		}
		want, object := pairs(b)
		if ok != object {
			t.Fatalf("an object: %v, for encoding/json: %v", ok, object)
		}
		if len(got) != len(want) {
			t.Fatalf("members %q, want %q", got, want)
		}
		last, keys := map[string]string{}, []string{}
		clash := false
		for i, w := range want {
			if got[i] != w {
				t.Fatalf("member %d is %q, want %q", i, got[i], w)
			}
			clash = clash || slices.ContainsFunc(keys, func(k string) bool { return strings.EqualFold(k, w.key) })
			keys = append(keys, w.key)
			for _, name := range fields {
				if strings.EqualFold(name, w.key) {
					clash = clash || name != w.key
					last[name] = w.val
				}
			}
		}
		if ok && utf8.Valid(b) && !fr.Clash.Absent() != (clash || len(want) > maxKeys) {
			t.Fatalf("clashes: %v, want %v", !fr.Clash.Absent(), clash)
		}
		for key, at := range map[string]Span{"id": fr.ID, "method": fr.Method, "params": fr.Params, "result": fr.Result, "error": fr.Error} {
			if got := string(at.Of(b)); got != last[key] {
				t.Fatalf("%s is %q, want %q", key, got, last[key])
			}
		}
	})
}

// checkInParts reads b in small parts and compares the result with that of the whole.
func checkInParts(t *testing.T, b []byte, step int, f *Frame, ok bool) {
	h := &Head{}
	for rest := b; len(rest) > 0; {
		n := min(step, len(rest))
		h.Feed(rest[:n])
		rest = rest[n:]
	}
	if h.Size != len(b) {
		t.Fatalf("read %d bytes of %d", h.Size, len(b))
	}
	if !ok || !f.Clash.Absent() || len(b) > longestID {
		return
	}
	if h.IsCall() != !f.Method.Absent() {
		t.Fatalf("in parts, a method: %v", h.IsCall())
	}
	var want []byte
	if id := f.ID.Of(b); Answerable(id) {
		want = id
	}
	if got := h.ID(); !bytes.Equal(got, want) {
		t.Fatalf("in parts, the id is %q, want %q", got, want)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in         string
		ok         bool
		id, method string
		clash      string
	}{
		{`{"id":9007199254740993,"method":"a"}`, true, `9007199254740993`, `a`, ""},
		{`{"id":1.5,"method":"files\/read"}`, true, `1.5`, `files/read`, ""},
		{`{"id":null,"m\u0065thod":"a"}`, true, `null`, `a`, ""},
		{`{"Id":1,"method":"a"}`, true, `1`, `a`, `"Id"`},
		{`{"id":1,"method":"a","\u004dethod":"b"}`, true, `1`, `b`, `"\u004dethod"`},
		{`{"id":1,"reſult":{}}`, true, `1`, ``, "\"reſult\""},
		{`{"x":1,"X":2,"id":3}`, true, `3`, ``, `"X"`},
		{`{"id":1,"id":2}`, true, `2`, ``, `"id"`},
		{`{"id":1,"\u0069d":2}`, true, `2`, ``, `"\u0069d"`},
		{`{"x":1,"x":2,"id":3}`, true, `3`, ``, `"x"`},
		{`{"params":{"x":1,"x":2},"id":3}`, true, `3`, ``, ``},
		{`{"id":1}{"id":2}`, false, "1", "", ""},
		{`{"id":1`, false, "1", "", ""},
		{`"id"`, false, "", "", ""},
		{`{"id":1e400,"method":5}`, true, "1e400", "", ""},
		{`{"a":1,"b":2}`, true, "", "", ""},
	} {
		b := []byte(c.in)
		f, ok := Parse(b)
		if ok != c.ok || string(f.ID.Of(b)) != c.id || string(Unquote(f.Method.Of(b))) != c.method || string(f.Clash.Of(b)) != c.clash {
			t.Errorf("%s: %v, id %q, method %q, clash %q", c.in, ok, f.ID.Of(b), f.Method.Of(b), f.Clash.Of(b))
		}
	}
	many := `{"k0":0`
	for i := range maxKeys {
		many += `,"k` + strings.Repeat("x", i+1) + `":0`
	}
	if f, ok := Parse([]byte(many + "}")); !ok || f.Clash.Absent() {
		t.Error("a frame with more than maxKeys keys has no Clash")
	}
}

func TestHead_longParts(t *testing.T) {
	long := strings.Repeat("x", 3*longestID) // longer than a key or id that is kept
	for in, want := range map[string]string{
		`{"result":"` + long + `","jsonrpc":"2.0","id":7}`:           `7`,
		`{"id":"` + long + `","result":1}`:                           ``,
		`{"` + long + `":1,"id":"a"}`:                                `"a"`,
		`{"result":{"id":5,"x":["` + long + `"]},"id":6}`:            `6`,
		`{"a":"\"` + long + `\\","id":8}`:                            `8`,
		`{"id":1,"a":"` + long + `","id":2}`:                         ``,
		`[{"id":1,"a":"` + long + `"}]`:                              ``,
		long:                                                         ``,
		`{"id":{"id":3},"a":"` + long + `"}`:                         ``,
		`{"id" : -1 , "method":"` + long + `"}`:                      `-1`,
		`{"` + strings.Repeat("y", longestID-3) + `id":4,"b":[1,2]}`: ``,
	} {
		h := &Head{}
		h.Feed([]byte(in))
		if got := string(h.ID()); got != want {
			t.Errorf("%.40s…: %q, want %q", in, got, want)
		}
	}
}

// The id and the method of a request that cannot be read are found if the text has exactly one of
// each, and the id can be answered.
func TestHead_Request(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 20_000)
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":7,"method":"files/read","params":{"path":"\ud800"}}`:   "7 files/read",
		"{\"method\":\"files/write\",\"params\":{\"content\":\"\xff\"},\"id\":\"a\"}": `"a" files/write`,
		`{"id":"x","method":"files/read","params":` + deep:                            `"x" files/read`,
		`{"id":1.5,"method":"m","params":{"content":"cut`:                             "1.5 m",
		`{"id":1,"method":"m"} {}`:                                                    "1 m",
		`{"method":"m","params":` + deep:                                              "", // the text ends before an id
		`{"id":1,"id":2,"method":"m"}`:                                                "",
		`{"id":1,"method":"m","method":"n"}`:                                          "",
		`{"id":1,"result":{"a":"\ud800"}}`:                                            "", // an answer
		`{"id":"\ud800","method":"m"}`:                                                "",
		`{"id":{},"method":"m"}`:                                                      "",
		`{"id":null,"method":"m"}`:                                                    "",
		`{"id":"` + strings.Repeat("x", longestID) + `","method":"m"}`:                "",
		`{"id":1,"method":1}`:                                                         "", `[1]`: "", `x`: "", ``: "", `{`: "", `{"id":`: "",
	} {
		id, method := HeadOf([]byte(line)).Request()
		if got := strings.TrimSpace(string(id) + " " + method); got != want {
			t.Errorf("%.60q: %q, want %q", line, got, want)
		}
	}
}
