package proxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
)

// shreds is a reader that returns pieces of random size, and the last piece together with io.EOF.
type shreds struct {
	rest []byte
	r    *rand.Rand
}

func (s *shreds) Read(p []byte) (int, error) {
	n := copy(p, s.rest[:min(len(s.rest), 1+s.r.IntN(200))])
	s.rest = s.rest[n:]
	if len(s.rest) == 0 {
		return n, io.EOF
	}
	return n, nil
}

type sink struct{ bytes.Buffer }

func (*sink) Close() error { return nil }

// carry passes src through one direction of the proxy. It returns the output and the sizes of
// the lines over the limit.
func carry(t testing.TB, src io.Reader, m Mode, fromHost bool, limit int) (out string, long []int) {
	t.Helper()
	var s sink
	u := &pump{
		src: src, dst: newOutlet(&s), auto: newDetector(m), fromHost: fromHost, limit: limit, bytes: &atomic.Int64{},
		look: func(b []byte) ([]byte, bool) {
			if bytes.HasPrefix(b, []byte("drop")) {
				return nil, false
			}
			if bytes.HasPrefix(b, []byte("change")) {
				return []byte("changed"), false
			}
			if bytes.HasPrefix(b, []byte("cut")) { // a part of the line, in the buffer it was read into
				return b[:3], false
			}
			return nil, true
		},
		long: func(h *jsonline.Head) { long = append(long, h.Size) },
	}
	u.auto.onRaw = func() {}
	if err := u.run(); err != nil {
		t.Fatal(err)
	}
	return s.String(), long
}

func TestPump(t *testing.T) {
	big := strings.Repeat("x", 3*readSize)
	for _, c := range []struct {
		name, in, want string
		limit          int
	}{
		{"lines", "a\nb\r\n\nc\n", "a\nb\r\n\nc\n", 10},
		{"no end", "a\nb", "a\nb", 10},
		{"changed", "a\nchange\r\nb\nchange", "a\nchanged\r\nb\nchanged", 10},
		{"cut", "a\ncut\r\nb\ncut it\r\nc\ncut", "a\ncut\r\nb\ncut\r\nc\ncut", 10},
		{"dropped", "drop\na\ndrop it\r\nb\ndrop", "a\nb\n", 10},
		{"long in the buffer", "a\n12345678901\nb\n", "a\nb\n", 10},
		{"exactly at the limit", "a\n1234567890\r\nb\n", "a\n1234567890\r\nb\n", 10},
		{"longer than the buffer", "a\n" + big + "\nb\n", "a\nb\n", readSize},
		{"carried, longer than the buffer", "a\n" + big + "\nb\n" + big, "a\n" + big + "\nb\n" + big, len(big)},
		{"long without end", "a\n" + big, "a\n", readSize},
		{"nothing", "", "", 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, src := range map[string]io.Reader{
				"whole": strings.NewReader(c.in), "byte": iotest.OneByteReader(strings.NewReader(c.in)),
				"shreds": &shreds{[]byte(c.in), rand.New(rand.NewPCG(1, 2))},
			} {
				if name == "byte" && len(c.in) > 1000 {
					continue
				}
				out, long := carry(t, src, On, true, c.limit)
				if out != c.want {
					t.Errorf("%s: %.60q, want %.60q", name, out, c.want)
				}
				if strings.HasPrefix(c.name, "long") != (len(long) == 1) {
					t.Errorf("%s: long lines: %v", name, long)
				}
			}
		})
	}
}

// The host's first visible text decides the mode. In a server's output only a message decides.
func TestPump_Auto(t *testing.T) {
	const rpc = `{"jsonrpc":"2.0","method":"x"}` + "\n"
	for _, c := range []struct {
		in         string
		host, serv state
	}{
		{"ls\n", isRaw, undecided}, {rpc, isMCP, isMCP}, {"\n\r\n " + rpc, isMCP, isMCP},
		{"hello\n" + rpc, isRaw, isMCP}, {`{"a":1}` + "\n" + rpc, isRaw, isMCP}, {"[" + rpc[:len(rpc)-1] + "]\n", isMCP, isMCP},
		{`[]` + "\n", isRaw, undecided}, {`[1]` + "\n", isRaw, undecided}, {`{"a":1}`, isRaw, undecided}, {"{", isRaw, undecided},
		{rpc[:len(rpc)-1], isMCP, isMCP}, {"  ", undecided, undecided}, {"{" + strings.Repeat("a", 300), isRaw, undecided},
		{`{"jsonrpc":"1.0","method":"x"}` + "\n", isRaw, undecided}, {"hello" + rpc, isRaw, undecided},
	} {
		for _, host := range []bool{true, false} {
			var s sink
			u := &pump{
				src: iotest.OneByteReader(strings.NewReader(c.in)), dst: newOutlet(&s), auto: newDetector(Auto), fromHost: host, limit: 200,
				bytes: &atomic.Int64{}, look: func([]byte) ([]byte, bool) { return nil, true }, long: func(*jsonline.Head) { t.Error("long") },
			}
			u.auto.onRaw = func() {}
			if err := u.run(); err != nil {
				t.Fatal(err)
			}
			want := c.serv
			if host {
				want = c.host
			}
			if got := u.auto.state(); got != want || s.String() != c.in {
				t.Errorf("%q from the host %v: decided %d, want %d; carried %q", c.in, host, got, want, s.String())
			}
		}
	}
}

// lineSeeds are lines with messages, near-messages and other text.
var lineSeeds = []string{
	`{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"a":[1,{"b":"}"}],"a":1e400}}`,
	`{"result":{"x":"\"}\\"},"jsonrpc":"2.0","id":"a\u0062"}`, ` { "id" : null , "error" : { "code" : -1 } } `, `{"\u0069d":1,"id":2}`,
	`{}`, `{"a":{}}`, `[{"id":1},{"id":2}]`, `{"a":1,}`, `{"a" 1}`, `{"a":}`, `{,}`, `{"a":1}x`, `{"a":1}{"b":2}`, `{"a":"`, `{"a":"\`,
	`{"`, `{`, `"`, `[`, ``, `nul`, `{"a":[}]}`, `{"a":NaN,"b":-Infinity}`, "{\"a\":\"\t\"}", "{\"\xff\":\"\xff\xfe\"}", `{"a":"\ud800"}`,
	"\ufeff{}", `{"a":tru"b":1}`, `{'a':1}`, `{"a"/**/:1}`, `{"ID":1,"Method":"x"}`, `{"a":"` + strings.Repeat(`calm \" \\`, 40) + `"}`,
}

// isUnchanged reports whether the pump passed its input on unchanged. One change is allowed
// while the mode is undecided. If part of a server's line has passed, and a CR and a message
// follow, the pump puts a newline before the CR, so that the message begins a line.
func isUnchanged(in, out string, undecided bool) bool {
	if in == out {
		return true
	}
	at := 0
	for at < min(len(in), len(out)) && in[at] == out[at] {
		at++
	}
	return undecided && strings.HasPrefix(in[at:], "\r") && in[:at]+"\n"+in[at:] == out
}

// Any input, in any pieces, is passed on unchanged, apart from the change that isUnchanged allows.
func FuzzPump(f *testing.F) {
	for _, s := range lineSeeds {
		f.Add([]byte(s+"\n"+s), uint64(1))
	}
	f.Add([]byte("a\r\n\xff\xfe\n\n{\"a\":1}"), uint64(2))
	for seed := range uint64(10) {
		f.Add([]byte(strings.Repeat("progress ", 20)+"\r{\"method\":\"files/read\"}\r\n{}"), seed)
	}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		if bytes.Contains(b, []byte("drop")) || bytes.Contains(b, []byte("change")) || bytes.Contains(b, []byte("cut")) || len(b) == 0 {
			return
		}
		for _, m := range []Mode{Auto, On, Off} {
			for _, fromHost := range []bool{true, false} {
				out, _ := carry(t, &shreds{b, rand.New(rand.NewPCG(seed, 0))}, m, fromHost, 1<<20)
				if !isUnchanged(string(b), out, m == Auto && !fromHost) {
					t.Fatalf("mode %v, from the host %v: %q", m, fromHost, out)
				}
			}
		}
	})
}
