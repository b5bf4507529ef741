package wire

import (
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	good := map[string]WriteParams{
		`{"path":"a/b","content":"x","create":true}`: {Path: "a/b", Content: "x", Create: true},
		`{"path":"a","content":"\ud83d\ude00"}`:      {Path: "a", Content: "😀"},
		`null`:                                       {}, ``: {}, ` {} `: {},
	}
	for in, want := range good {
		var got WriteParams
		if err := Decode([]byte(in), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	// R091: the error names the field, if a field is unknown, repeated or of a wrong type.
	for in, want := range map[string]string{
		`{"path":1}`:                      "path must be a string, not number",
		`{"path":"a","offset":"5"}`:       "offset must be an integer in range, not string",
		`{"path":"a","offset":1.5}`:       "offset must be an integer in range, not number",
		`{"path":"a","offset":1e30}`:      "offset must be an integer in range, not number",
		`{"path":"a","create":1}`:         "create must be true or false, not number",
		`{"path":"a","Path":"b"}`:         `no field "Path"`,
		`{"path":"a","path":"b"}`:         `duplicate field "path"`,
		`{"path":"a","content":"\ud800"}`: "invalid",
		"{\"path\":\"a\xff\"}":            "invalid UTF-8",
		`{"path":"a"} {}`:                 "byte",
		`{"path":"a"`:                     "EOF",
		`[]`:                              "must be an object",
		`"x"`:                             "must be an object",
		`{"_meta":1}`:                     "_meta",
		`{"_meta":{"progressToken":{}}}`:  "progressToken must be a string or an integer",
		`{"_meta":{"progressToken":[1]}}`: "progressToken must be a string or an integer",
		`{"_meta":{"progressToken":"` + strings.Repeat("x", maxToken) + `"}}`: "progressToken is longer than 1024 bytes",
	} {
		var got WriteParams
		if err := Decode([]byte(in), &got); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
	var r ReadParams
	if err := Decode([]byte(`{"path":"a","length":0,"_meta":{"progressToken":7,"x":[1]}}`), &r); err != nil || r.Length == nil || *r.Length != 0 || string(r.Meta.ProgressToken) != "7" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestReadFrame(t *testing.T) {
	f, err := ReadFrame([]byte(`{"jsonrpc":"2.0","id":9007199254740993,"method":"files/read","params":{"a":[1,{"b":2}]},"x":1}` + "\n"))
	if err != nil || string(f.ID) != "9007199254740993" || f.Method != "files/read" || string(f.Params) != `{"a":[1,{"b":2}]}` || !f.Call() {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := ReadFrame([]byte(`{"id":null,"method":"m"}`)); err != nil || f.Call() {
		t.Errorf("a null id makes no call: %+v, %v", f, err)
	}
	for _, in := range []string{
		``, `x`, `[]`, `{`, `{"id":1`, `{"method":"a","method":"b"}`, `{"id":1,"id":2}`, `{"params":1,"params":2}`,
		`{"method":1}`, `{} {}`, `{}x`, `{"method":"a"}\`, "{}\x00", `{},`, `{"a":"` + "\xff" + `"}`, `{"a":01}`,
	} {
		if f, err := ReadFrame([]byte(in)); err == nil {
			t.Errorf("%q was read: %+v", in, f)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"path":"a/b","content":"x"}`, `{"path":"a","offset":9223372036854775807}`, `{"path":"\u0000"}`, `{"_meta":{"progressToken":"t"}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var w WriteParams
		err := Decode(b, &w)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %q", err)
		}
		if fr, err := ReadFrame(b); err == nil && fr.Method != "" && !strings.Contains(string(b), "method") && !strings.Contains(string(b), `\`) {
			t.Errorf("a method that the input does not have: %+v", fr)
		}
	})
}
