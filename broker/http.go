package broker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// HTTP returns a filter for the traffic of a Streamable HTTP client. Make it the Transport of an
// http.Client, and give the client to mcp.StreamableClientTransport. The session answers files/*
// requests that the server sends in its event streams. As the protocol demands, each answer is a
// POST of its own. The POST carries the headers (session, revision, authorization) of the HTTP
// request in whose event stream the server sent the files/* request. All other events pass byte
// for byte. The filter adds the broker's capabilities to the client's requests, and does not send
// the SDK's own list_changed. The transport's encryption and authentication are the SDK's
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
	method := ""
	if req.Method == http.MethodPost && req.Body != nil {
		out, name, err := f.rewriteRequest(req)
		if err != nil {
			return nil, err
		}
		if out == nil {
			return &http.Response{
				Status: "202 Accepted", StatusCode: http.StatusAccepted, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
				Header: http.Header{}, Body: http.NoBody, Request: req,
			}, nil
		}
		req, method = out, name
	}
	res, err := f.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	send := f.sender(req, res)
	kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	switch strings.TrimSpace(kind) {
	case "text/event-stream":
		f.s.SetSender(send)
		res.Body = newEvents(res.Body, f.s, send)
		res.ContentLength = -1
		res.Header.Del("Content-Length")
	case "application/json":
		f.s.SetSender(send)
		if method == "initialize" || method == "server/discover" {
			f.s.noteServerInfoOf(res)
		}
	}
	return res, nil
}

// maxGreeting is how many bytes of the answer that names the server are read.
const maxGreeting = 64 << 10

// noteServerInfoOf calls noteServerInfo for the body of a response, which stays readable.
func (s *Session) noteServerInfoOf(res *http.Response) {
	head, _ := io.ReadAll(io.LimitReader(res.Body, maxGreeting)) // the SDK, which reads on, gets the error
	s.noteServerInfo(head, "result")
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), res.Body), res.Body}
}

// rewriteRequest adds the broker's capabilities to a request of the SDK, and returns the
// request and its method. It returns nil for a notification that must not be sent.
func (f *filter) rewriteRequest(req *http.Request) (out *http.Request, method string, err error) {
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return nil, "", err
	}
	if fr, ferr := wire.ReadFrame(body); ferr == nil && fr.Method != "" {
		method = fr.Method
		params, keep := f.s.rewriteParams(fr.Method, fr.Params)
		if !keep {
			return nil, method, nil
		}
		if !bytes.Equal(params, fr.Params) {
			body = jsonline.Merge(body, jsonline.Patch{Key: "params", Value: params})
		}
	}
	out = req.Clone(req.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return out, method, nil
}

const postTimeout = time.Minute

// sender returns a Sender that posts frames to the URL of req. If res has an Mcp-Session-Id, the
// posts carry this id, else the id of req.
func (f *filter) sender(req *http.Request, res *http.Response) Sender {
	header := req.Header.Clone()
	for _, h := range []string{"Last-Event-Id", "Content-Length", "Accept-Encoding"} {
		header.Del(h)
	}
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		header.Set("Mcp-Session-Id", id)
	}
	url := req.URL.String()
	return func(ctx context.Context, frame []byte, recheck Recheck) error {
		// The caller uses the frame's memory again after the return, so post a copy.
		body := &revocableBody{frame: bytes.Clone(frame), recheck: recheck}
		err := f.post(ctx, url, header, body)
		if replacement := body.replacement.Load(); replacement != nil {
			return f.post(ctx, url, header, &revocableBody{frame: *replacement})
		}
		return err
	}
}

// post posts one frame.
func (f *filter) post(ctx context.Context, url string, header http.Header, body *revocableBody) error {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body.reader())
	if err != nil {
		return err
	}
	post.ContentLength = int64(len(body.frame))
	post.GetBody = func() (io.ReadCloser, error) { return body.reader(), nil }
	post.Header = header.Clone()
	f.s.mu.Lock()
	revision := f.s.revision
	f.s.mu.Unlock()
	if revision != "" && post.Header.Get("Mcp-Protocol-Version") == "" {
		post.Header.Set("Mcp-Protocol-Version", revision)
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

// revocableBody is the body of a POST that is rechecked while it is sent. If recheck refuses the
// rest, Read fails, which ends the POST. The field replacement then holds the frame to send in
// place of this one, or nil.
type revocableBody struct {
	frame       []byte
	recheck     Recheck // nil: the peer may have the whole frame
	replacement atomic.Pointer[[]byte]
}

var errRevokedBody = errors.New("what may be read has changed, so the answer is not sent any further")

func (t *revocableBody) reader() io.ReadCloser {
	return io.NopCloser(&revocableReader{t, bytes.NewReader(t.frame)})
}

type revocableReader struct {
	body *revocableBody
	rest *bytes.Reader
}

// Read implements io.Reader.
func (r *revocableReader) Read(p []byte) (int, error) {
	if r.body.recheck != nil && r.rest.Len() > 0 {
		if ok, replacement := r.body.recheck(); !ok {
			if replacement != nil {
				r.body.replacement.Store(&replacement)
			}
			return 0, errRevokedBody
		}
	}
	return r.rest.Read(p[:min(len(p), jsonline.Piece)])
}

// events reads an event stream (WHATWG HTML, "Server-sent events"), and removes the messages that the
// session handles. Other events pass byte for byte.
type events struct {
	body  io.ReadCloser
	r     *bufio.Reader
	s     *Session
	send  Sender
	limit int    // the maximum size of an event, in bytes
	ready []byte // bytes that Read returns before err
	err   error
}

func newEvents(body io.ReadCloser, s *Session, send Sender) *events {
	return &events{body: body, r: bufio.NewReaderSize(body, 32<<10), s: s, send: send, limit: 2 * DefaultFrame}
}

func (e *events) Close() error { return e.body.Close() }

func (e *events) Read(p []byte) (int, error) {
	for len(e.ready) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		var data []byte
		if e.ready, data, e.err = e.next(); e.err == nil && e.handle(data) {
			e.ready = nil
		}
	}
	n := copy(p, e.ready)
	e.ready = e.ready[n:]
	return n, nil
}

// next reads an event, with its blank line, and returns it and the data in it. Lines
// end with CR LF, LF or CR. If the stream ends or fails, event holds the part that was read. If
// the event is too long, next returns no part of it.
func (e *events) next() (event, data []byte, err error) {
	line := 0 // the beginning of the current line
	for len(event) <= e.limit {
		if _, err := e.r.Peek(1); err != nil {
			return event, nil, err
		}
		part, _ := e.r.Peek(e.r.Buffered())
		end := bytes.IndexAny(part, "\r\n")
		if end >= 0 {
			part = part[:end+1]
		}
		event = append(event, part...)
		_, _ = e.r.Discard(len(part))
		if end < 0 {
			continue
		}
		if event[len(event)-1] == '\r' {
			if next, _ := e.r.Peek(1); string(next) == "\n" {
				_, _ = e.r.Discard(1)
				event = append(event, '\n')
			}
		}
		text := bytes.TrimRight(event[line:], "\r\n")
		if len(text) == 0 {
			return event, data, nil
		}
		if v, ok := bytes.CutPrefix(text, []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(v, []byte(" "))...), '\n')
		}
		line = len(event)
	}
	return nil, nil, errors.New("the server sent an event that is too long")
}

// handle gives the data of an event to the session, and reports whether the session has handled
// it. Such an event does not pass on to the SDK.
func (e *events) handle(data []byte) bool {
	if len(bytes.TrimSpace(data)) == 0 {
		return false
	}
	f, err := wire.ReadFrame(data)
	if err != nil {
		why := "an event is no message: " + names.Brief(err.Error())
		e.s.NoteRefusal(why)
		id, method := jsonline.HeadOf(data).Request()
		if !IsFilesMethod(method) {
			return false // the SDK reports the error
		}
		e.s.reject(&request{id: id, method: method, send: e.send}, &wire.Error{Code: wire.CodeParse, Message: why})
		return true
	}
	if f.Method == "" {
		e.s.noteServerInfo(data, "result")
	}
	return e.s.Handle(f, len(data), e.send)
}
