package client

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/broker/wire"
)

const sessionHeader = "Mcp-Session-Id"

// HTTPOptions are the options of an HTTPHandler. The zero value of each field means its default.
type HTTPOptions struct {
	// MaxBody bounds the body of a request, in bytes. It must leave room for a chunk
	// in base64 and its frame. Default 8 MiB.
	MaxBody int64
	// IdleTimeout ends a session that has had no POST request open for this long.
	// An open event stream (GET) does not keep a session alive. Default: never.
	IdleTimeout time.Duration
	// EventStore lets streams be resumed, as in the SDK.
	EventStore mcp.EventStore
	// AnyHost serves requests that reached a loopback address under another
	// host's name. By default they are refused: a page in a browser could send
	// them (DNS rebinding).
	AnyHost bool
}

// HTTPHandler serves Streamable HTTP with sessions, as mcp.NewStreamableHTTPHandler does, over
// connections of the Broker. It exists because the SDK's handler makes its own transports, which
// cannot be wrapped. Revision 2026-07-28 has no sessions over HTTP, and so no files/*: a request
// of this revision gets the error that makes clients fall back to an earlier revision. Methods
// that a server added itself (mcp.AddReceivingCustomMethod) are not served here, because the SDK
// tells only its own handler about them.
type HTTPHandler struct {
	broker    *Broker
	getServer func(*http.Request) *mcp.Server
	opts      HTTPOptions

	bodies   flowcontrol.Budget // of requests that have no answer yet
	sessions sync.Map           // of *httpSession, by id
}

type httpSession struct {
	session *mcp.ServerSession
	inner   *mcp.StreamableServerTransport
	conn    *conn
	user    string // of the token the session was made with; "" for none

	mu        sync.Mutex  // guards the fields below
	open      int         // number of POST requests in progress
	idleTimer *time.Timer // ends the session; nil: the session may be idle forever
}

// Bounds of the bodies of all requests that have no answer yet.
const (
	mostBodies  = 32               // there is room for this number of bodies of MaxBody bytes
	smallBody   = 64 << 10         // a body up to this size is not counted: an open call may wait for it
	roomTimeout = 30 * time.Second // how long a request waits for room before it is refused
)

// HTTPHandler makes a handler; getServer returns the server for a new session,
// nil to refuse it.
func (b *Broker) HTTPHandler(getServer func(*http.Request) *mcp.Server, opts *HTTPOptions) *HTTPHandler {
	h := &HTTPHandler{broker: b, getServer: getServer}
	if opts != nil {
		h.opts = *opts
	}
	h.opts.MaxBody = positiveOr(h.opts.MaxBody, 8<<20)
	h.bodies.Bytes = mostBodies * h.opts.MaxBody
	return h
}

// ServeHTTP implements http.Handler.
func (h *HTTPHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	req.Body = http.MaxBytesReader(w, req.Body, h.opts.MaxBody)
	id := req.Header.Get(sessionHeader)
	value, _ := h.sessions.Load(id)
	s, _ := value.(*httpSession)
	switch {
	case !h.opts.AnyHost && isRebound(req):
		http.Error(w, "the Host header names another host than this one", http.StatusForbidden)
	case req.Method == http.MethodPost && !isJSON(req.Header.Get("Content-Type")):
		// A form of a web page cannot send this type, so a form cannot pass for a request.
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
	case id == "" && req.Method == http.MethodPost:
		h.begin(w, req)
	case id == "":
		http.Error(w, "a session is needed; begin one with POST", http.StatusBadRequest)
	case s == nil:
		http.Error(w, "session not found", http.StatusNotFound)
	case s.user != "" && s.user != userOf(req):
		http.Error(w, "the session is another user's", http.StatusForbidden)
	case req.Method == http.MethodPost:
		h.post(w, req, s)
	case req.Method == http.MethodGet:
		s.inner.ServeHTTP(w, req)
	case req.Method == http.MethodDelete:
		_ = s.session.Close()
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

func isJSON(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && t == "application/json"
}

// isRebound reports whether a request reached a loopback address under the name of another host.
func isRebound(req *http.Request) bool {
	addr, ok := req.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && addr != nil && isLoopback(addr.String()) && !isLoopback(req.Host)
}

func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func userOf(req *http.Request) string {
	if t := auth.TokenInfoFromContext(req.Context()); t != nil {
		return t.UserID
	}
	return ""
}

// begin makes a session and passes it its first request. If the request does not initialize the
// session, begin closes the session.
func (h *HTTPHandler) begin(w http.ResponseWriter, req *http.Request) {
	server := h.getServer(req)
	if server == nil {
		http.Error(w, "no server for this request", http.StatusBadRequest)
		return
	}
	inner := &mcp.StreamableServerTransport{SessionID: rand.Text(), EventStore: h.opts.EventStore}
	t := h.broker.Transport(inner)
	session, err := server.Connect(req.Context(), t, nil)
	if err != nil {
		http.Error(w, "the session could not be made", http.StatusInternalServerError)
		return
	}
	s := &httpSession{session: session, inner: inner, conn: t.conn, user: userOf(req)}
	if h.opts.IdleTimeout > 0 {
		s.idleTimer = time.AfterFunc(h.opts.IdleTimeout, func() { _ = session.Close() })
	}
	h.sessions.Store(inner.SessionID, s)
	go func() {
		_ = session.Wait() // how it ended does not matter
		h.sessions.Delete(inner.SessionID)
	}()
	h.post(w, req, s)
	if session.InitializeParams() == nil {
		_ = session.Close() // the request did not initialize the session
	}
}

// post handles notifications/files/changed, which the SDK would refuse, and passes everything
// else to the SDK.
func (h *HTTPHandler) post(w http.ResponseWriter, req *http.Request, s *httpSession) {
	s.countRequest(1, h.opts.IdleTimeout)
	defer s.countRequest(-1, h.opts.IdleTimeout)
	n := req.ContentLength
	if n < 0 || n > h.opts.MaxBody {
		n = h.opts.MaxBody
	}
	if n > smallBody {
		room, err := h.bodies.Acquire(n, req.Context().Done(), flowcontrol.WaitFor(roomTimeout))
		if err != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests, or too large ones, have no answer yet; repeat this one later", http.StatusServiceUnavailable)
			return
		}
		defer room.Release()
	}
	body, err := io.ReadAll(req.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	if bytes.Contains(body, []byte(wire.Changed)) {
		msg, _ := jsonrpc.DecodeMessage(body) // the SDK refuses a malformed message below
		if r, ok := msg.(*jsonrpc.Request); ok && !r.IsCall() && r.Method == wire.Changed {
			s.conn.handleChanged(r.Params)
			w.WriteHeader(http.StatusAccepted)
			return
		}
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	s.inner.ServeHTTP(w, req)
}

// countRequest counts a request that begins (n is 1) or ends (n is -1). The idle timer runs while
// no request is open.
func (s *httpSession) countRequest(n int, idle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
	switch {
	case s.idleTimer == nil:
	case s.open > 0:
		s.idleTimer.Stop()
	default:
		s.idleTimer.Reset(idle)
	}
}

// Close ends all sessions.
func (h *HTTPHandler) Close() {
	h.sessions.Range(func(_, s any) bool {
		_ = s.(*httpSession).session.Close()
		return true
	})
}

var _ http.Handler = (*HTTPHandler)(nil)
