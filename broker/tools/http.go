package tools

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/broker/tools/oauth"
	"github.com/rootsfs/rootsfs/guard"
)

// Defaults of HTTPOptions.
const (
	DefaultBody     = 8 << 20
	DefaultSessions = 100
	// DefaultUserSessions applies to each subject of the OAuth issuer.
	DefaultUserSessions = 10
	// SessionRequests is the assumed number of requests that a session has in progress: its
	// stream of events and its calls.
	SessionRequests = 4
	DefaultIdle     = 30 * time.Minute
	DefaultWithin   = 30 * time.Second
)

// HTTPOptions say who may call a server over Streamable HTTP, and how much a client may use.
type HTTPOptions struct {
	// Registry records refusals. It is required.
	Registry *guard.Registry
	// Subject is the subject that clients act for. Each session is a session of this subject
	// (guard.Subject.InSession).
	Subject guard.Subject
	// Token is the bearer token that clients have to send. "" means that no token is required.
	// Only a program that keeps other clients out by itself may leave Token empty.
	Token string
	// Number returns a new number for each session; nil: numbers from 1 on. Front ends that
	// share a registry and a Subject must share one Number.
	Number func() uint64
	// OAuth, unless nil, verifies tokens; Token is then not used. Each subject of the issuer is
	// a subject of its own, oauth:SUB, and a session belongs to one subject and one client.
	OAuth *oauth.Verifier
	// Port is the port at which clients call the server; "": any.
	Port string
	// Hosts are the names, beside those of the loopback, by which clients may call the server, at Port
	// or at a port of their own (NAME:PORT). A request with another Host is refused. So neither a page
	// of a foreign site that resolves its name to this server (DNS rebinding) nor another server of
	// this machine gets through.
	Hosts []string
	// Origins are web origins (scheme://host:port) whose pages may call the server. The
	// server's own origins, by Hosts and Port, may call anyway.
	Origins  []string
	Sessions int // at a time; more are refused
	// UserSessions is how many sessions one OAuth subject may have at a time. The subject may
	// have SessionRequests times as many requests under way. 0: DefaultUserSessions.
	UserSessions int
	// OnAdmitted, unless nil, is called for each authenticated request before the request is
	// served. It must not wait.
	OnAdmitted func(*http.Request)
	Body       int64         // bytes of one request
	Idle       time.Duration // time without requests after which a session ends
	// BodyTimeout is how long a client may take to send a request's body, and how long a request waits
	// for room for its body, and for its answer. It does not bound how long the answer takes, or how
	// long a stream of events stays open.
	BodyTimeout time.Duration
	// ClientReadTimeout is how long a client may take to read the next 64 KiB of an answer, or an event: a
	// client that does not read delays the end of its session, and holds memory.
	ClientReadTimeout time.Duration
	Log               *slog.Logger
}

// HTTP serves tools over Streamable HTTP. Each session has a Server and a subject of its own. HTTP
// may be used concurrently. Each request's Host, Origin and token are checked, in this order,
// before the body is read. Refusals are logged and recorded in the audit. If there are very many,
// only some are, and the log has the number of the others. Requests of revision 2026-07-28 need
// no session. Requests of older revisions belong to a session, whose id has 128 random bits.
type HTTP struct {
	o                HTTPOptions
	handler          http.Handler
	sessions, single http.Handler
	clients          clients
	streams          context.Context // of the streams of events; Withdraw and Close end it
	endStreams       context.CancelFunc
	refusals         *flowcontrol.Tally[int] // by status
	connections      sync.Map                // the keys are the *connection; see Attach
	closing          atomic.Int32            // number of connections whose Close waits for the client
}

// NewHTTP makes an HTTP. The HTTP calls open with the subject of each session, and of each user who
// sends requests without a session, and closes the Servers that open returns. The caller must close
// the HTTP.
func NewHTTP(open func(guard.Subject) *Server, o HTTPOptions) *HTTP {
	setDefault(&o.Sessions, DefaultSessions)
	setDefault(&o.UserSessions, DefaultUserSessions)
	setDefault(&o.Body, DefaultBody)
	setDefault(&o.Idle, DefaultIdle)
	setDefault(&o.BodyTimeout, DefaultWithin)
	setDefault(&o.ClientReadTimeout, DefaultWithin)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Number == nil {
		var n atomic.Uint64
		o.Number = func() uint64 { return n.Add(1) }
	}
	opts := mcp.StreamableHTTPOptions{MaxRequestBodyBytes: o.Body, SessionTimeout: o.Idle, Logger: o.Log,
		DisableLocalhostProtection: true} // check does that, for every name of the server
	single := opts
	single.Stateless, single.PropagateRequestCancellation = true, true
	h := &HTTP{
		o: o, refusals: flowcontrol.NewTally[int](refusalBurst, refusalsPerSecond, refusalInterval),
		clients: clients{
			open: func(who guard.Subject) *Server { return open(who.InSession(o.Number())) },
			most: o.Sessions, mostPerSubject: o.Sessions, patience: o.BodyTimeout, shared: sharedByAll,
			bodies: flowcontrol.Budget{Bytes: allBodies}, answers: flowcontrol.Budget{Bytes: allAnswers}, sessions: map[*Server]identity{}, users: map[identity]*user{}, busy: map[guard.Subject]*load{},
		},
		sessions: mcp.NewStreamableHTTPHandler(serverOf, &opts), single: mcp.NewStreamableHTTPHandler(serverOf, &single),
	}
	h.clients.requests.answers = &h.clients.answers
	h.streams, h.endStreams = context.WithCancel(context.Background())
	var inner http.Handler = http.HandlerFunc(h.serve)
	switch {
	case o.OAuth != nil:
		h.clients.mostPerSubject = min(o.Sessions, o.UserSessions) // otherwise all are one subject
		h.clients.shared = sharedByUser
		inner = o.OAuth.Require(inner)
	case o.Token != "":
		h.clients.shared = sharedByToken
		inner = auth.RequireBearerToken(h.verify, nil)(inner)
	}
	h.handler = h.check(inner)
	o.Registry.AddView(h)
	return h
}

// setDefault sets *v to a default if *v is not positive.
func setDefault[T int | int64 | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// ServeHTTP implements http.Handler.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.handler.ServeHTTP(w, r) }

// Metadata returns the handler that tells clients where to get a token (oauth.WellKnown). The
// handler requires no token, and pages of every origin may call it.
func (h *HTTP) Metadata() http.Handler {
	if h.o.OAuth == nil {
		return http.NotFoundHandler()
	}
	meta := h.o.OAuth.Metadata()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.namesThisServer(r) {
			http.Error(w, foreignHost, http.StatusForbidden)
			return
		}
		meta.ServeHTTP(w, r)
	})
}

// Withdraw withdraws every question to a person, allows no further ones, and ends the streams
// of events. The remaining calls end by themselves. Withdraw does not wait. A caller that wants
// to let these calls finish calls Withdraw before Close.
func (h *HTTP) Withdraw() {
	h.clients.withdraw()
	h.endStreams()
}

// Close ends every session and its calls, and refuses new sessions. It returns when the Servers
// of the sessions are closed.
func (h *HTTP) Close() {
	h.endStreams()
	h.clients.close()
	h.o.Registry.RemoveView(h)
	h.refusals.Flush()
}

// A question about a request without a session says who shares the grant until the server ends:
// all senders whose requests look the same.
const (
	sharedByUser  = "every request of this user through this OAuth client"
	sharedByToken = "every such client with the server's bearer token"
	sharedByAll   = "every such client of this server"
)

// sessionless is the first revision whose requests need no session.
const sessionless = "2026-07-28"

// serve serves a request that check has passed.
func (h *HTTP) serve(w http.ResponseWriter, r *http.Request) {
	if h.o.OnAdmitted != nil {
		h.o.OnAdmitted(r)
	}
	if r.ContentLength > h.o.Body { // such a body is not read
		refuseTooLarge(w, h.o.Body)
		return
	}
	info := auth.TokenInfoFromContext(r.Context())
	whose := identity{subject: h.subject(info)}
	if info != nil {
		whose.user = info.UserID
	}
	most, length := 0, r.ContentLength
	if h.o.OAuth != nil {
		most = SessionRequests * h.clients.mostPerSubject
	}
	if length < 0 {
		length = h.o.Body // the body may become as long
	}
	leave, status, why := h.clients.admit(r, whose.subject, most, length)
	if leave == nil {
		if status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, why, status)
		return
	}
	defer leave()
	// This bounds how long a slow client holds the connection. net/http lifts the deadline at
	// the end of the body. Without a body nothing lifts the deadline, and net/http would take
	// the passed deadline for the hang-up of the client.
	if r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.o.BodyTimeout))
	}
	if !h.checkBody(w, r) { // waits for the body
		return
	}
	if h.o.OAuth != nil && info != nil {
		// No stream of events outlives the token of its request.
		ctx, cancel := context.WithDeadline(r.Context(), info.Expiration.Add(oauth.Skew))
		defer cancel()
		r = r.WithContext(ctx)
	}
	if isStream(r) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(h.streams, cancel)()
		r = r.WithContext(ctx)
	}
	h.route(w, r, whose)
}

// route passes a request to the Server that is responsible for it.
func (h *HTTP) route(w http.ResponseWriter, r *http.Request, whose identity) {
	answers := h.clients.answersOf(whose.subject, responseOf(r).refuse)
	switch {
	case r.Header.Get("Mcp-Protocol-Version") >= sessionless:
		u := h.clients.user(whose)
		if u == nil {
			http.Error(w, "too many clients", http.StatusServiceUnavailable)
			return
		}
		defer h.clients.leave(u)
		defer h.clients.requests.track(r, answers)()
		h.single.ServeHTTP(w, withServer(r, u.srv))
	case r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "":
		if !h.awaitBody(w, r) {
			return
		}
		s, status, why := h.clients.begin(whose)
		if s == nil {
			http.Error(w, why, status)
			return
		}
		defer func() { go h.clients.endWith(s) }() // also if the SDK panics
		defer h.clients.requests.track(r, answers)()
		h.sessions.ServeHTTP(w, withServer(r, s))
	default:
		if r.Method == http.MethodDelete {
			h.clients.cancel(r.Header.Get("Mcp-Session-Id"), whose.user)
		}
		defer h.clients.requests.track(r, answers)()
		h.sessions.ServeHTTP(w, r)
	}
}

func refuseTooLarge(w http.ResponseWriter, limit int64) {
	http.Error(w, fmt.Sprintf("the body is larger than %d bytes", limit), http.StatusRequestEntityTooLarge)
}

// isStream reports whether the answer to a request is a stream of events, which ends when the
// client closes it.
func isStream(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen"
}

// subject returns the subject of a request, without the request's session.
func (h *HTTP) subject(info *auth.TokenInfo) guard.Subject {
	if h.o.OAuth == nil || info == nil {
		return h.o.Subject
	}
	// A subject may have any name, so the name is escaped: it must not look like a session of
	// another subject ("#"), or hold text that a shell runs when the owner types the name.
	name := strings.NewReplacer("$", "%24", "&", "%26", "=", "%3D", "~", "%7E").Replace(url.PathEscape(oauth.Subject(info)))
	return guard.Subject("oauth:" + name)
}

// awaitBody waits for the whole body of a request, and puts it into memory. If the body does not
// come, awaitBody writes the answer and reports false. A session begins only after its first
// request has come whole: otherwise incomplete requests could take all the room for sessions.
func (h *HTTP) awaitBody(w http.ResponseWriter, r *http.Request) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.o.Body))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuseTooLarge(w, large.Limit)
	case err != nil:
		http.Error(w, "the body did not come whole, or not in time", http.StatusBadRequest)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return err == nil
}

// check returns a handler that refuses a request, or passes it to next. The handler reports every
// refusal, its own and those of next.
func (h *HTTP) check(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, r := h.withConnection(r)
		res := &response{ResponseWriter: w, conn: conn, pieceTimeout: h.o.ClientReadTimeout}
		r = r.WithContext(context.WithValue(r.Context(), responseKey{}, res))
		switch {
		case !h.namesThisServer(r):
			http.Error(res, foreignHost, http.StatusForbidden)
		case !h.mayCall(r.Header.Values("Origin")...):
			http.Error(res, "the Origin may not call this server; its owner can let it: --origin ORIGIN", http.StatusForbidden)
		case h.allowOrigin(res, r):
		default:
			next.ServeHTTP(res, r)
		}
		if conn.recheck() != nil {
			panic(http.ErrAbortHandler) // the client must not take the part for the whole answer
		}
		res.extend() // for the end of the answer
		// 405 is how a client learns that there is no stream of events.
		if res.status >= http.StatusBadRequest && res.status != http.StatusMethodNotAllowed {
			h.report(r, res.status, res.reason)
		}
	})
}

const foreignHost = "the Host is not one of this server's names and ports; its owner can add one: --host NAME:PORT"

// isOwnHost reports whether a host (NAME[:PORT]) names this server. A host without a port means one
// of the default ports.
func (h *HTTP) isOwnHost(host string, defaults ...string) bool {
	name, ports := host, defaults
	if n, p, err := net.SplitHostPort(host); err == nil {
		name = n
		if p != "" {
			ports = []string{p}
		}
	}
	name = strings.Trim(name, "[]")
	own := h.o.Port == "" || slices.Contains(ports, h.o.Port)
	if ip := net.ParseIP(name); own && (strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback()) {
		return true
	}
	return slices.ContainsFunc(h.o.Hosts, func(entry string) bool {
		if n, p, err := net.SplitHostPort(entry); err == nil {
			return strings.EqualFold(n, name) && slices.Contains(ports, p)
		}
		return own && strings.EqualFold(strings.Trim(entry, "[]"), name)
	})
}

// namesThisServer reports whether a request's Host names this server. A missing port means that of
// http or https: an intermediary may have removed it.
func (h *HTTP) namesThisServer(r *http.Request) bool { return h.isOwnHost(r.Host, "80", "443") }

// mayCall reports whether pages of an origin may call this server. A request with two origins
// is refused, because the origin of its page is not known.
func (h *HTTP) mayCall(origins ...string) bool {
	if len(origins) > 1 {
		return false
	}
	text := strings.Join(origins, "")
	if text == "" { // no browser
		return true
	}
	if h.isListed(text) {
		return true
	}
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	port, web := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return web && h.isOwnHost(u.Host, port)
}

// verify compares digests, so that the time it takes reveals nothing about the token.
func (h *HTTP) verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	have, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(h.o.Token))
	if subtle.ConstantTimeCompare(have[:], want[:]) != 1 {
		return nil, fmt.Errorf("%w: it is not this server's", auth.ErrInvalidToken)
	}
	return &auth.TokenInfo{UserID: string(h.o.Subject), Expiration: time.Now().Add(time.Hour)}, nil
}
