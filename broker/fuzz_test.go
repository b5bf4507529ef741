package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
)

// Whatever a peer sends as params, the answer is one JSON object with either a result or an error.
func FuzzParams(f *testing.F) {
	for m := range methods {
		if m == testOnly {
			continue
		}
		f.Add(m, `{"path":"r/f"}`)
	}
	f.Add("files/read", `{"path":"r/f","offset":9223372036854775807,"length":9223372036854775807}`)
	f.Add("files/write", `{"path":"r/\u0000","content":"x","encoding":"base64"}`)
	f.Add("files/list", `{"path":"r","glob":"{a,b}[","cursor":"AA"}`)
	f.Add("files/rename", `{"oldPath":"r/f","newPath":"file:///%2e%2e/"}`)
	l := newLab(f, func(c *Config) { c.Limits = Limits{Consents: -1, Watches: 8} })
	l.root("r", guard.ReadOnly, map[string]string{"f": "text"})
	s := l.b.Session("")
	f.Fuzz(func(t *testing.T, method, params string) {
		done := make(chan []byte, 1)
		fr := wire.Frame{ID: []byte("1"), Method: method, Params: []byte(params)}
		if !s.Handle(fr, len(params), func(_ context.Context, b []byte, _ Recheck) error { done <- append([]byte(nil), b...); return nil }) {
			return
		}
		var m struct {
			Result, Error json.RawMessage
		}
		if b := <-done; json.Unmarshal(b, &m) != nil || (m.Result == nil) == (m.Error == nil) {
			t.Errorf("%s %q: %q", method, params, b)
		}
		for s.Stats().InFlight != 0 { // the next request has the same id
			time.Sleep(10 * time.Microsecond)
		}
	})
}

// The filter passes on the same bytes of an event stream, however the reads divide the stream. The
// bytes that it passes on contain no request that a session answers.
func FuzzEvents(f *testing.F) {
	const ours = `{"jsonrpc":"2.0","id":"a","method":"roots/list"}`
	for _, s := range []string{
		"", "data: x\n\n", "data: " + ours + "\n\n", "id: 1\r\ndata:" + ours + "\r\n\r\ndata: {}\n\n", "data: " + ours + "\r\rdata: y\r\r",
		"data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\"method\":\"files/none\"}\n\n: comment\n\n", ours + "\n\n",
	} {
		f.Add([]byte(s), uint8(1))
	}
	l := newLab(f, nil)
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		pass := func(r io.Reader) (out []byte, answers int) {
			s := l.b.Session("")
			defer s.Close()
			done := make(chan struct{}, len(stream)+1)
			e := newEvents(io.NopCloser(r), s, func(context.Context, []byte, Recheck) error { done <- struct{}{}; return nil })
			out, err := io.ReadAll(e)
			if err != nil {
				t.Fatal(err)
			}
			for s.Stats().InFlight > 0 {
				time.Sleep(10 * time.Microsecond)
			}
			return out, len(done)
		}
		whole, _ := pass(bytes.NewReader(stream))
		pieces, _ := pass(&inPieces{bytes.NewReader(stream), int(size)})
		single, _ := pass(iotest.OneByteReader(bytes.NewReader(stream)))
		if !bytes.Equal(whole, pieces) || !bytes.Equal(whole, single) {
			t.Errorf("of %q the filter passes %q if read whole, %q in pieces of %d bytes, %q byte by byte",
				stream, whole, pieces, 1+int(size), single)
		}
		if again, n := pass(bytes.NewReader(whole)); n != 0 || !bytes.Equal(again, whole) {
			t.Errorf("of %q the filter passes %q; filtered again, that becomes %q, with %d requests answered (want it unchanged, and 0)",
				stream, whole, again, n)
		}
	})
}

type inPieces struct {
	r    io.Reader
	size int
}

func (p *inPieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), 1+p.size)]) }
