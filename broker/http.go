package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// HTTP filters the traffic of a Streamable HTTP client: give an http.Client with
// it to mcp.StreamableClientTransport. Requests for files/* that the server
// sends in its event streams are answered by the session, each with a POST of
// its own as the protocol has it, carrying the headers (session, revision,
// authorization) of the request whose stream it came in. Everything else passes
// byte for byte. The transport's encryption and authentication are the SDK's
// business, and hold for the answers as well.
func (s *Session) HTTP(inner http.RoundTripper) http.RoundTripper {
	if inner == nil {
		inner = http.DefaultTransport
	}
	return &filter{s: s, inner: inner}
}

type filter struct {
	s     *Session
	inner http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f *filter) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost && req.Body != nil {
		out, drop, err := f.outgoing(req)
		if err != nil {
			return nil, err
		}
		if drop {
			return accepted(req), nil
		}
		req = out
	}
	res, err := f.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	send := f.sender(req, res)
	kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	switch strings.TrimSpace(kind) {
	case "text/event-stream":
		f.s.attach(send)
		res.Body = newEvents(res.Body, f.s, send)
		res.ContentLength = -1
		res.Header.Del("Content-Length")
	case "application/json":
		f.s.attach(send)
		res.Body = &watched{ReadCloser: res.Body, s: f.s}
	}
	return res, nil
}

// outgoing puts our capabilities into what the SDK sends.
func (f *filter) outgoing(req *http.Request) (out *http.Request, drop bool, err error) {
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return nil, false, err
	}
	if fr, ferr := wire.ReadFrame(body); ferr == nil && fr.Method != "" {
		params, keep := f.s.outgoing(fr.Method, fr.Params)
		if !keep {
			return nil, true, nil
		}
		if !bytes.Equal(params, fr.Params) {
			body = edit(body, "params", func([]byte) []byte { return params })
		}
	}
	out = req.Clone(req.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return out, false, nil
}

// accepted is the answer to a notification that is not sent.
func accepted(req *http.Request) *http.Response {
	return &http.Response{
		Status: "202 Accepted", StatusCode: http.StatusAccepted, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}
}

const postTimeout = time.Minute

// sender posts frames to where req went. The session's id is the response's, if
// it is the one that began it.
func (f *filter) sender(req *http.Request, res *http.Response) sender {
	header := req.Header.Clone()
	for _, h := range []string{"Last-Event-Id", "Content-Length", "Accept-Encoding"} {
		header.Del(h)
	}
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		header.Set("Mcp-Session-Id", id)
	}
	url := *req.URL
	return func(ctx context.Context, frame []byte) error {
		ctx, cancel := context.WithTimeout(ctx, postTimeout)
		defer cancel()
		// The frame's memory is used again when send returns.
		post, err := http.NewRequestWithContext(ctx, http.MethodPost, url.String(), bytes.NewReader(bytes.Clone(frame)))
		if err != nil {
			return err
		}
		post.Header = header.Clone()
		if rev := f.revision(); rev != "" && post.Header.Get("Mcp-Protocol-Version") == "" {
			post.Header.Set("Mcp-Protocol-Version", rev)
		}
		res, err := f.inner.RoundTrip(post)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
		if res.StatusCode >= 300 {
			return fmt.Errorf("the server did not take an answer: %s", res.Status)
		}
		return nil
	}
}

func (f *filter) revision() string {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.s.revision
}

// watched looks at the beginning of a JSON answer for the one to initialize.
type watched struct {
	io.ReadCloser
	s    *Session
	seen []byte
	full bool
}

const watchedBytes = 64 << 10

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if !w.full {
		w.seen = append(w.seen, p[:n]...)
		if w.full = len(w.seen) > watchedBytes || err != nil; w.full {
			if f, ferr := wire.ReadFrame(w.seen); ferr == nil && f.Method == "" {
				w.s.incomingFrame(w.seen)
			}
			w.seen = nil
		}
	}
	return n, err
}

// events takes our requests out of an event stream (WHATWG HTML, "Server-sent
// events"); other events pass as they came.
type events struct {
	body  io.ReadCloser
	s     *Session
	send  sender
	limit int
	buf   []byte // read, not yet understood
	scan  eventScan
	ready []byte // to be given out
	err   error
}

func newEvents(body io.ReadCloser, s *Session, send sender) *events {
	return &events{body: body, s: s, send: send, limit: 2 * DefaultFrame}
}

func (e *events) Close() error { return e.body.Close() }

func (e *events) Read(p []byte) (int, error) {
	for len(e.ready) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.fill()
	}
	n := copy(p, e.ready)
	e.ready = e.ready[n:]
	return n, nil
}

// fill reads on and moves whole events out of buf.
func (e *events) fill() {
	chunk := make([]byte, 32<<10)
	n, err := e.body.Read(chunk)
	e.buf = append(e.buf, chunk[:n]...)
	for {
		end := e.scan.end(e.buf)
		if end < 0 {
			break
		}
		event := e.buf[:end]
		if !e.ours(event) {
			e.ready = append(e.ready, event...)
		}
		e.buf, e.scan = e.buf[end:], eventScan{}
	}
	switch {
	case len(e.buf) > e.limit:
		e.err = errors.New("the server sent an event that is too long")
	case err != nil:
		e.ready = append(e.ready, e.buf...)
		e.buf, e.err = nil, err
	}
}

// eventScan is how far an event has been looked at, so that one that comes in
// many pieces is not looked at from its beginning each time.
type eventScan struct{ line, at int } // where the line begins, and the next byte

// end is the length of the event that b begins with, with its blank line, -1 if it
// has not ended: then it is called again with more. Lines end with CR LF, LF or CR.
func (s *eventScan) end(b []byte) int {
	for ; s.at < len(b); s.at++ {
		c, next := b[s.at], s.at+1
		if c != '\n' && c != '\r' {
			continue
		}
		if c == '\r' {
			if next == len(b) {
				return -1 // an LF may follow
			}
			if b[next] == '\n' {
				next++
			}
		}
		if s.at == s.line {
			return next
		}
		s.line, s.at = next, next-1
	}
	return -1
}

// ours handles an event that carries one of our requests.
func (e *events) ours(event []byte) bool {
	var data []byte
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(event))
	for line := range strings.SplitSeq(text, "\n") {
		if v, ok := strings.CutPrefix(line, "data:"); ok {
			data = append(append(data, strings.TrimPrefix(v, " ")...), '\n')
		}
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return false
	}
	f, err := wire.ReadFrame(data)
	if err != nil {
		why := "an event is no message: " + names.Brief(err.Error())
		e.s.NoteRefusal(why)
		id, method := wire.Asked(data)
		if !ours(method) {
			return false // the SDK says what it thinks of it
		}
		e.s.reject(&request{id: id, method: method, send: e.send}, &rpcError{wire.Error{Code: wire.CodeParse, Message: why}})
		return true
	}
	if f.Method == "" {
		e.s.incomingFrame(data)
	}
	return e.s.take(f, len(data), e.send)
}
