package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// wireHost is the client's end of an initialized line connection. It reads and writes raw JSON.
// Its function answer makes the answer to each files/* request.
type wireHost struct {
	t  *testing.T
	ss *mcp.ServerSession
	f  *client.Files
	w  io.WriteCloser
	mu sync.Mutex

	answer func(id, method string, params json.RawMessage) string // "": the request gets no answer
	stray  chan string                                            // lines that are neither files/* requests nor the answer to initialize
}

func newWireHost(t *testing.T, maxFrame int, answer func(id, method string, params json.RawMessage) string) *wireHost {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	b := client.New(nil)
	h := &wireHost{t: t, w: inW, answer: answer, stray: make(chan string, 100)}
	ready := make(chan error, 1)
	go h.read(outR, ready)
	var err error
	if h.ss, err = newServer().Connect(bg, b.Lines(inR, outW, maxFrame), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inW.Close(); _ = h.ss.Wait() })
	h.writeRaw(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + legacy + `","clientInfo":{"name":"h","version":"1"},"capabilities":` + fullCaps + `}}` + "\r\n")
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	h.writeRaw(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n")
	if h.f, err = b.Files(h.ss); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *wireHost) writeRaw(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := io.WriteString(h.w, text); err != nil {
		h.t.Error(err)
	}
}

func (h *wireHost) read(r io.Reader, ready chan<- error) {
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			h.t.Errorf("a line that is not JSON: %q", line)
		}
		switch {
		case string(m.ID) == "1":
			ready <- nil
		case strings.HasPrefix(m.Method, wire.MethodPrefix):
			var id string
			_ = json.Unmarshal(m.ID, &id)
			go func() {
				if text := h.answer(id, m.Method, m.Params); text != "" {
					h.writeRaw(text)
				}
			}()
		default:
			h.stray <- line
		}
	}
}

const oneByte = `{"content":"eA==","size":1,"mimeType":"text/plain","encoding":"base64","eof":true,"nextOffset":1}`

// An answer may have spaces, any order of members, or a batch around it. A malformed answer is an
// error of its call, and the connection goes on.
func TestLines_answers(t *testing.T) {
	var answer string // with $ for the id
	h := newWireHost(t, 2000, func(id, _ string, _ json.RawMessage) string { return strings.ReplaceAll(answer, "$", id) + "\n" })
	for _, c := range []struct {
		answer, err string
		kind        names.Kind
	}{
		{answer: `{"jsonrpc":"2.0","id":"$","result":` + oneByte + `}`},
		{answer: `{"jsonrpc":"2.0","id":"$","result":` + oneByte + `}` + "\r"},
		{answer: `{"id":"$","result":` + oneByte + `,"jsonrpc":"2.0"}`},
		{answer: ` { "jsonrpc" : "2.0", "id" : "$", "result" : ` + oneByte + `}`},
		{answer: `[{"jsonrpc":"2.0","id":"$","result":` + oneByte + `}]`},
		{answer: "\n\n" + `{"jsonrpc":"2.0","id":"rootsfs:0:1","result":{}}` + "\n" + `{"jsonrpc":"2.0","id":"$","result":` + oneByte + `}`},
		{answer: `{"jsonrpc":"2.0","id":"$0","result":{}}` + "\n" + `{"jsonrpc":"2.0","id":"$","result":` + oneByte + `}`}, // no request had the first id
		{answer: `{"jsonrpc":"2.0","id":"$","result":` + oneByte + `,"error":{"code":1,"message":"no"}}`, err: "malformed", kind: names.IO},
		{answer: `{"jsonrpc":"2.0","id":"$","result":}`, err: "malformed", kind: names.IO},
		{answer: `{"jsonrpc":"2.0","id":"$","result":{"content":"??","size":1}}`, err: "not base64", kind: names.IO},
		{answer: `{"jsonrpc":"2.0","id":"$","result":{"content":"` + strings.Repeat("A", 4000) + `"}}`, err: "longer than 2000", kind: names.IO},
		{
			answer: `{"jsonrpc":"2.0","id":"$","error":{"code":-31001,"message":"none","data":{"code":"FILE_NOT_FOUND","reason":"not-exist","retryable":false}}}`,
			err:    "none", kind: names.NotExist,
		},
	} {
		answer = c.answer
		chunk, err := h.f.Read(bg, "r/f", client.ReadOptions{})
		switch {
		case c.err == "" && (err != nil || string(chunk.Data) != "x" || chunk.Size != 1 || !chunk.EOF):
			t.Errorf("%s: %+v, %v", c.answer, chunk, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || !errors.Is(err, c.kind)):
			t.Errorf("%.200s: %v, want %q, %v", c.answer, err, c.err, c.kind)
		}
	}
	if err := h.ss.Ping(cancelled(), nil); err == nil { // the SDK's own request ends with its context
		t.Error("a ping that nobody answers succeeded")
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(bg)
	cancel()
	return ctx
}

// A line that is not a message is answered with an error and has no other effect.
func TestLines_mistakes(t *testing.T) {
	h := newWireHost(t, 1000, func(id, _ string, _ json.RawMessage) string {
		return `{"jsonrpc":"2.0","id":"` + id + `","result":` + oneByte + "}\n"
	})
	for line, code := range map[string]int{
		`hello`:                        wire.CodeParse,
		`{"jsonrpc":"2.0","id":`:       wire.CodeParse,
		`{"id":2,"id":3,"method":"x"}`: wire.CodeParse,
		`[`:                            wire.CodeParse,
		`[]`:                           wire.CodeInvalidRequest,
		`{"jsonrpc":"1.0","id":2,"method":"ping"}`:  wire.CodeInvalidRequest,
		`{"x":"` + strings.Repeat("y", 2000) + `"}`: wire.CodeInvalidRequest,
	} {
		h.writeRaw(line + "\n")
		if got := <-h.stray; !strings.Contains(got, `"id":null`) || !strings.Contains(got, fmt.Sprint(code)) {
			t.Errorf("%.50s: %s", line, got)
		}
	}
	h.writeRaw(`[{"jsonrpc":"2.0","id":7,"method":"ping"}]` + "\n")
	if got := <-h.stray; !strings.Contains(got, `"id":7`) || strings.Contains(got, `"error"`) {
		t.Errorf("ping in a batch: %s", got)
	}
	if c, err := h.f.Read(bg, "r/f", client.ReadOptions{}); err != nil || string(c.Data) != "x" {
		t.Errorf("%+v, %v", c, err)
	}
}

// Each of many concurrent calls gets its own answer, also when buffers are reused. The end of the
// stream ends the calls in flight.
func TestLines_concurrent(t *testing.T) {
	hold := make(chan struct{})
	h := newWireHost(t, 0, func(id, method string, params json.RawMessage) string {
		var p wire.ReadParams
		if method == wire.Stat {
			<-hold
			return ""
		}
		if err := json.Unmarshal(params, &p); err != nil {
			return err.Error()
		}
		r, _ := json.Marshal(wire.ReadResult{Content: strings.Repeat("QUJD", int(p.Offset)), Size: 1 << 40, ETag: p.Path})
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":%s}`+"\n", id, r)
	})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				name, n := fmt.Sprintf("r/%d-%d", g, i), (g*i*i)%20_000
				c, err := h.f.Read(bg, name, client.ReadOptions{Offset: int64(n)})
				if err != nil || string(c.Data) != strings.Repeat("ABC", n) || c.ETag != name {
					t.Errorf("%s: %d bytes of %q, %v", name, len(c.Data), c.ETag, err)
				}
			}
		})
	}
	wg.Wait()
	failed := make(chan error)
	go func() { failed <- second(h.f.Stat(bg, "r/f")) }()
	h.writeRaw(`{"jsonrpc":"2.0","id":"half`)
	_ = h.w.Close()
	if err := <-failed; err == nil {
		t.Error("a call survived the connection")
	}
	close(hold)
}

// The transport over lines supports the same revisions as a wrapped one.
func TestLines_revisions(t *testing.T) {
	b := client.New(nil)
	for _, v := range []string{"2024-11-05", legacy, "2026-07-28"} {
		wrapped := b.Transport(&mcp.StdioTransport{}).SupportsProtocolVersion(v)
		if own, ok := b.Stdio().(mcp.ProtocolVersionSupporter); !ok || own.SupportsProtocolVersion(v) != wrapped {
			t.Errorf("%s: %v, want %v", v, ok, wrapped)
		}
	}
}
