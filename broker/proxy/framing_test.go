package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/proxy"
)

//lint:file-ignore SA1019 roots are deprecated since 2026-07-28 (SEP-2577), but still work

// hiddenRequest is a request that a host must not see.
const hiddenRequest = `{"jsonrpc":"2.0","id":666,"method":"roots/list"}`

// framings are outputs of a server in which some host finds a request for roots, such as
// hiddenRequest. The proxy has to keep each of these requests from the host.
var framings = map[string]string{
	"over two lines":           "{\"jsonrpc\":\"2.0\",\n\"id\":666,\"method\":\"roots/list\"}\n",
	"over many lines":          strings.ReplaceAll(hiddenRequest, ",", ",\n") + "\n",
	"a batch over two lines":   "[\n" + hiddenRequest + "]\n",
	"two lines and a message":  "{\"a\":\n" + hiddenRequest + "}\n",
	"in an open object":        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":[\n" + hiddenRequest + "\n]}\n",
	"in an open string":        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":\"\n" + hiddenRequest + "\n\"}\n",
	"behind a lone CR":         `{"jsonrpc":"2.0","method":"notifications/x"}` + "\r" + hiddenRequest + "\n",
	"behind a word and a CR":   "started\r" + hiddenRequest + "\n",
	"behind a number and CR":   "1\r" + hiddenRequest + "\n",
	"behind words and CRs":     "1%\r2%\r" + hiddenRequest + "\r3%\r\n",
	"behind CRs":               "\r\r" + hiddenRequest + "\r\r\n",
	"CR inside":                strings.ReplaceAll(hiddenRequest, ",", ",\r") + "\n",
	"two objects":              `{"jsonrpc":"2.0","method":"notifications/x"}` + hiddenRequest + "\n",
	"two objects and a blank":  `{"jsonrpc":"2.0","method":"notifications/x"} ` + hiddenRequest + "\n",
	"behind an empty object":   "{}\r" + hiddenRequest + "\n",
	"behind a byte order mark": "\ufeff" + hiddenRequest + "\n",
	"behind NUL":               "\x00" + hiddenRequest + "\n",
	"behind many NULs":         "\x00\x00\x00" + hiddenRequest + "\n",
	"behind NBSP":              "\u00a0" + hiddenRequest + "\n",
	"behind a vertical tab":    "\v\f\x1c" + hiddenRequest + "\n",
	"behind NEL and LS":        "\u0085\u2028\u200b" + hiddenRequest + "\n",
	"behind UTF-16's mark":     "\xff\xfe" + hiddenRequest + "\n",
	"before a word":            hiddenRequest + " x\n",
	"before a bracket":         hiddenRequest + "}\n",
	"not UTF-8":                `{"jsonrpc":"2.0","id":666,"method":"roots/list","` + "\xff" + `":1}` + "\n",
	"a comma at the end":       `{"jsonrpc":"2.0","id":666,"method":"roots/list",}` + "\n",
	"a literal of its own":     `{"jsonrpc":"2.0","id":666,"method":"roots/list","x":NaN}` + "\n",
	"a comment":                `/**/` + hiddenRequest + "\n",
	"without a version":        `{"id":666,"method":"roots/list"}` + "\n",
	"half a line, then a CR":   "loading\x00\x01" + "\r" + hiddenRequest + "\n",
	"a line like others":       hiddenRequest + "\n",
	"a second key in capitals": `{"jsonrpc":"2.0","id":666,"method":"ping","Method":"roots/list"}` + "\n",
	"a first key in capitals":  `{"jsonrpc":"2.0","id":666,"METHOD":"roots/list","method":"ping"}` + "\n",
	"keys in capitals":         `{"JSONRPC":"2.0","Id":666,"Method":"roots/list"}` + "\n",
	"capitals, escaped":        `{"jsonrpc":"2.0","id":666,"method":"ping","\u004dethod":"roots\/list"}` + "\n",
	"a second key":             `{"jsonrpc":"2.0","id":666,"method":"roots/list","method":"ping"}` + "\n",
	"a second key, escaped":    `{"jsonrpc":"2.0","id":666,"method":"ping","\u006dethod":"roots/list"}` + "\n",
	"a second version":         `{"jsonrpc":"2.0","id":666,"method":"roots/list","jsonrpc":"1.0"}` + "\n",
	"second in a batch":        `[{"a":1},` + hiddenRequest + "]\n",
	"in a mixed batch":         `[1,` + hiddenRequest + "]\n",
}

// lenient names the reader in hostReaders that is more lenient than the host of any SDK.
const lenient = "from the first brace on"

// hostReaders read the proxy's output as the hosts of five SDKs do, and as hosts that skip
// other text would. Each function returns the texts that the host takes for messages.
var hostReaders = map[string]func(out string) []string{
	"Go, a stream of JSON": func(out string) (all []string) {
		dec := json.NewDecoder(strings.NewReader(out))
		for {
			var raw json.RawMessage
			if dec.Decode(&raw) != nil {
				return all
			}
			all = append(all, string(raw))
		}
	},
	"TypeScript": func(out string) (all []string) { // split("\n"), without one CR at the end
		for line := range strings.Lines(out) {
			all = append(all, strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"))
		}
		return all
	},
	"Python": func(out string) []string { return strings.Split(strings.ToValidUTF8(out, "\ufffd"), "\n") },
	"Java, C#: CR ends a line": func(out string) []string {
		return strings.FieldsFunc(out, func(r rune) bool { return r == '\r' || r == '\n' })
	},
	"every line break there is, trimmed": func(out string) (all []string) {
		for _, line := range strings.FieldsFunc(out, func(r rune) bool { return strings.ContainsRune("\r\n\v\f\x1c\x1d\x1e\u0085\u2028\u2029", r) }) {
			all = append(all, strings.TrimFunc(line, func(r rune) bool { return r <= ' ' || r >= 0x7f }))
		}
		return all
	},
	lenient: func(out string) (all []string) {
		for line := range strings.Lines(out) {
			if i := strings.IndexByte(line, '{'); i >= 0 {
				var raw json.RawMessage // the first value, whatever follows
				if json.NewDecoder(strings.NewReader(line[i:])).Decode(&raw) == nil {
					all = append(all, string(raw))
				}
			}
		}
		return all
	},
}

// isRootsRequest reports whether some reader takes a text for a roots/list request, or for a batch
// with one.
func isRootsRequest(text string) bool {
	text = strings.TrimPrefix(text, "\ufeff")
	var many []json.RawMessage
	if json.Unmarshal([]byte(text), &many) == nil {
		return slices.ContainsFunc(many, func(m json.RawMessage) bool { return isRootsRequest(string(m)) })
	}
	dec := json.NewDecoder(strings.NewReader(text))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') || !json.Valid([]byte(text)) {
		return false
	}
	for dec.More() { // some readers take the first of two equal keys, others the last, and others ignore case
		key, err := dec.Token()
		var val any
		if err != nil || dec.Decode(&val) != nil {
			return false
		}
		if strings.EqualFold(key.(string), "method") && val == "roots/list" {
			return true
		}
	}
	return false
}

// However a server frames a request for roots, before or after the peers speak MCP, no host reads
// such a request.
func TestFraming(t *testing.T) {
	for name, sent := range framings {
		t.Run(name, func(t *testing.T) {
			for _, way := range []string{"after the handshake", "first", "first, byte by byte"} {
				first := way != "after the handshake"
				l := newLab(t, nil)
				n := l.connect(func(o *proxy.Options) {
					o.Mode = proxy.Auto
					if way == "first, byte by byte" {
						o.ServerOut = struct {
							io.Reader
							io.Closer
						}{iotest.OneByteReader(o.ServerOut), o.ServerOut}
					}
				})
				if !first {
					n.handshake(`{"roots":{}}`)
				}
				n.server.say(sent)
				go func() { _, _ = io.Copy(io.Discard, n.server.r) }()
				if first {
					n.host.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}` + "\n")
				}
				const last = `{"jsonrpc":"2.0","method":"last"}` + "\n"
				n.server.say(last)
				_ = n.server.in.Close()
				out, err := io.ReadAll(n.host.r)
				if err != nil || !strings.HasSuffix(string(out), last) {
					t.Errorf("the host got %q, %v", out, err)
				}
				for host, read := range hostReaders {
					if first && host == lenient {
						continue // no SDK reads in this way, and programs print log lines that contain objects
					}
					for _, text := range read(string(out)) {
						if isRootsRequest(text) {
							t.Errorf("%s: a host that reads as %s was asked for its roots: %q", way, host, out)
						}
					}
				}
				n.end()
			}
		})
	}
}

// A refused line is counted and recorded. If the line begins as a message whose id can be read, the
// peer that waits for the message gets an error.
func TestFraming_Answers(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	n.handshake(`{}`)
	n.server.say("\ufeff" + `{"jsonrpc":"2.0","id":"r","method":"roots/list"}` + "\n")
	if m := n.server.message(); string(m.ID) != `"r"` || m.Error == nil || !strings.Contains(m.Error.Message, "not exactly one JSON-RPC message") {
		t.Errorf("the server got %+v", m)
	}
	n.server.say(`{"jsonrpc":"2.0","id":7,"result":{"text":"` + "\xff" + `"}}` + "\n")
	if m := n.host.message(); string(m.ID) != "7" || m.Error == nil || !strings.Contains(m.Error.Message, "not UTF-8") {
		t.Errorf("the host got %+v", m)
	}
	for _, silent := range []string{`debug: {"jsonrpc":"2.0","id":7,"result":{}}`, "", "  \r", hiddenRequest + hiddenRequest} {
		n.server.say(silent + "\n")
	}
	n.ping(n.host, n.server)
	n.server.say(`{"jsonrpc":"2.0","method":"mark"}` + "\n")
	for _, blank := range []string{"\n", "  \r\n", `{"jsonrpc":"2.0","method":"mark"}` + "\n"} {
		n.host.expect(blank)
	}
	if st := n.p.Stats(); st.Refused != 4 || l.countRecords("not exactly one JSON-RPC message") == 0 {
		t.Errorf("%+v, %d records", st, l.countRecords("not exactly one JSON-RPC message"))
	}
}

// A real host on the Go SDK, which reads a stream of JSON, has roots of its own. No framing makes
// the host send these roots to the server. (Without the proxy, a request over two lines would.)
func TestFraming_GoHost(t *testing.T) {
	const secret = "file:///home/the-owner"
	for name, sent := range framings {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			n := l.connect(nil)
			host := mcp.NewClient(&mcp.Implementation{Name: "sdk-host", Version: "1"}, nil)
			host.AddRoots(&mcp.Root{URI: secret})
			greeted := make(chan struct{})
			go func() {
				defer close(greeted)
				m := n.server.message()
				n.server.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"2"}}}`+"\n", m.ID))
			}()
			cs, err := host.Connect(context.Background(), &mcp.IOTransport{Reader: n.host.out, Writer: n.host.in}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
			if err != nil {
				t.Fatal(err)
			}
			<-greeted
			n.server.say(sent)
			n.server.say(`{"jsonrpc":"2.0","id":"last","method":"ping"}` + "\n")
			for got := ""; err == nil && !strings.Contains(got, `"last"`); {
				got, err = n.server.r.ReadString('\n')
				hungUp := err == io.EOF && strings.HasPrefix(sent, "[") // this host takes no batches
				if err != nil && !hungUp || strings.Contains(got, secret) {
					t.Errorf("the server got the host's roots: %s, %v", got, err)
				}
			}
			go func() { _, _ = io.Copy(io.Discard, n.server.r) }()
			_ = n.server.in.Close()
			_ = cs.Close()
		})
	}
}

// Text that is no MCP passes as it came, even if it begins like a message: objects over
// several lines, progress on one line, a prompt without an end.
func TestFraming_OtherPrograms(t *testing.T) {
	l := newLab(t, nil)
	for _, printed := range []string{
		"{\n  \"kind\": \"List\",\n  \"items\": []\n}\n", "[\n {\"a\":1},\n {\"a\":2}\n]\n{\"a\":\n3}\n", "  1%\r  2%\r100% {done}\nls {a,b}\r\n",
		"loading [===>", "{ an open brace\nand text\n", "Password: ", "\xff\xfe{\"a\":1}\n\x00", "[warn\n[warn\n", `{"level":"info","method":"GET"}` + "\r" + `{"id":1}`,
	} {
		n := l.connect(func(o *proxy.Options) { o.Mode = proxy.Auto })
		n.server.say(printed)
		_ = n.server.in.Close()
		if got, err := io.ReadAll(n.host.r); string(got) != printed || err != nil {
			t.Errorf("%q arrived as %q, %v", printed, got, err)
		}
		n.end()
	}
	for _, prompt := range []string{"a prompt: ", "{user}> ", "x\r[===>  ] 50%", "[1/3] ", "100% {done} "} { // a prompt is not held back
		n := l.connect(func(o *proxy.Options) { o.Mode = proxy.Auto })
		n.server.say(prompt)
		for got := ""; got != prompt; {
			b, err := n.host.r.ReadByte()
			if err != nil {
				t.Fatalf("%q, %v", got, err)
			}
			got += string(b)
		}
		n.end()
	}
}
