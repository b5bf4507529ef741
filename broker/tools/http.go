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

	"github.com/rootsfs/rootsfs/broker/internal/flow"
	"github.com/rootsfs/rootsfs/broker/tools/oauth"
	"github.com/rootsfs/rootsfs/guard"
)

// Defaults of HTTPOptions.
const (
	DefaultBody     = 8 << 20
	DefaultSessions = 100
	// DefaultUserSessions is for each subject of an issuer's.
	DefaultUserSessions = 10
	// SessionRequests is how many requests a session is reckoned to have under way:
	// its stream of events and its calls.
	SessionRequests = 4
	DefaultIdle     = 30 * time.Minute
	DefaultWithin   = 30 * time.Second
)

// HTTPOptions say who may reach a server over Streamable HTTP, and how much.
type HTTPOptions struct {
	// Registry puts refusals on record. It is required.
	Registry *guard.Registry
	// Subject is whom clients are served as: each session as one of its sessions
	// (guard.Subject.InSession).
	Subject guard.Subject
	// Token is the bearer token that clients have to send. "" asks for none,
	// which is for callers that let in nobody but their own.
	Token string
	// Number gives sessions their numbers, none twice; nil: from 1 on. Front ends
	// of one registry and Subject need one that they share.
	Number func() uint64
	// OAuth, unless nil, is asked about tokens in the place of Token. Then each
	// subject of the issuer's is a subject of its own, oauth:SUB, and a session is
	// its subject's and client's.
	OAuth *oauth.Verifier
	// Port is the one that clients call the server at; "": any.
	Port string
	// Hosts are the names by which clients may call the server, at Port, or at their
	// own (NAME:PORT), beside those of the loopback: what else stands in Host is
	// refused, so that a foreign site cannot have its name resolved to us (DNS
	// rebinding), and neither has another server of this machine.
	Hosts []string
	// Origins are web origins (scheme://host:port) whose pages may call; those
	// that the server itself has by Hosts and Port may anyway.
	Origins  []string
	Sessions int // at a time; more are refused
	// UserSessions is how many of them one subject of OAuth has at a time, and
	// SessionRequests times as many requests; 0: DefaultUserSessions.
	UserSessions int
	// Admitted, unless nil, is told of each request that has shown who it is from,
	// before it is served. It must not wait.
	Admitted func(*http.Request)
	Body     int64         // bytes of one request
	Idle     time.Duration // after which a session ends
	// Within is how long a client may take to send a request's body. How long the
	// answer takes, or a stream of events stays open, it does not bound.
	Within time.Duration
	// Taking is how long a client may take to take the next 64 KiB of an answer, or an
	// event: one that does not read holds its session's end, and memory.
	Taking time.Duration
	Log    *slog.Logger
}

// HTTP serves tools over Streamable HTTP, each session by a Server of its own and
// to a subject of its own. It may be used concurrently. Each request is checked for
// its Host, its Origin and its token, in this order, before anything of it is read.
// What is refused is told to the log and to the audit record; of very many, some,
// with their number. Requests of revision 2026-07-28 need no session;
// those of older ones live in one, whose id holds 128 random bits.
type HTTP struct {
	o                HTTPOptions
	handler          http.Handler
	sessions, single http.Handler
	clients          clients
	leaving          context.Context // ends by Withdraw
	leave            context.CancelFunc
	refusals         *flow.Tally[int] // by status
	connections      sync.Map         // its keys are the *connection; see Watch
	closing          atomic.Int32     // how many of them the server has closed
}

// NewHTTP serves subjects by the Servers that open makes of them, which it closes.
// Close it.
func NewHTTP(open func(guard.Subject) *Server, o HTTPOptions) *HTTP {
	setDefault(&o.Sessions, DefaultSessions)
	setDefault(&o.UserSessions, DefaultUserSessions)
	setDefault(&o.Body, DefaultBody)
	setDefault(&o.Idle, DefaultIdle)
	setDefault(&o.Within, DefaultWithin)
	setDefault(&o.Taking, DefaultWithin)
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
		o: o, refusals: flow.NewTally[int](refusalBurst, refusalsPerSecond, refusalsCounted),
		clients: clients{
			open: func(who guard.Subject) *Server { return open(who.InSession(o.Number())) },
			most: o.Sessions, mostOfOne: o.Sessions, patience: o.Within, shared: sharedByAll,
			bodies: flow.Budget{Bytes: allBodies}, answers: flow.Budget{Bytes: allAnswers}, sessions: map[*Server]identity{}, users: map[identity]*user{}, busy: map[guard.Subject]*load{},
		},
		sessions: mcp.NewStreamableHTTPHandler(serverOf, &opts), single: mcp.NewStreamableHTTPHandler(serverOf, &single),
	}
	h.clients.requests.answers = &h.clients.answers
	h.leaving, h.leave = context.WithCancel(context.Background())
	var inner http.Handler = http.HandlerFunc(h.serve)
	switch {
	case o.OAuth != nil:
		h.clients.mostOfOne = min(o.Sessions, o.UserSessions) // otherwise all are one subject
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

// setDefault sets a value that is not positive.
func setDefault[T int | int64 | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// ServeHTTP implements http.Handler.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.handler.ServeHTTP(w, r) }

// Metadata tells clients where to get a token (oauth.WellKnown). It asks for none,
// and may be called from any page.
func (h *HTTP) Metadata() http.Handler {
	if h.o.OAuth == nil {
		return http.NotFoundHandler()
	}
	meta := h.o.OAuth.Metadata()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.addressed(r) {
			http.Error(w, foreignHost, http.StatusForbidden)
			return
		}
		meta.ServeHTTP(w, r)
	})
}

// Withdraw takes back every question that waits for a person, lets none be put any
// more, and ends the streams of events: what is left are calls that end by themselves.
// It does not wait, and comes before Close where those are to be waited for.
func (h *HTTP) Withdraw() {
	h.clients.withdraw()
	h.leave()
}

// Close ends every session with what it has under way, and lets none begin. It
// returns when their Servers are closed.
func (h *HTTP) Close() {
	h.leave()
	h.clients.close()
	h.o.Registry.RemoveView(h)
	h.refusals.Flush()
}

// What a person is told of a request without a session: who has what is allowed, for as
// long as the server is not ended. It is what such a request proves.
const (
	sharedByUser  = "every request of this user through this OAuth client"
	sharedByToken = "every such client with the server's bearer token"
	sharedByAll   = "every such client of this server"
)

// sessionless is the revision from which requests stand by themselves.
const sessionless = "2026-07-28"

// serve serves a request that was let in.
func (h *HTTP) serve(w http.ResponseWriter, r *http.Request) {
	if h.o.Admitted != nil {
		h.o.Admitted(r)
	}
	if r.ContentLength > h.o.Body { // and is not waited for
		tooLarge(w, h.o.Body)
		return
	}
	info := auth.TokenInfoFromContext(r.Context())
	whose := identity{subject: h.subject(info)}
	if info != nil {
		whose.user = info.UserID
	}
	most, length := 0, r.ContentLength
	if h.o.OAuth != nil {
		most = SessionRequests * h.clients.mostOfOne
	}
	if length < 0 {
		length = h.o.Body // which it may become
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
	// A client that sends slowly holds a connection, and no longer than that.
	// net/http lifts the bound where the body ends. Where there is none it would
	// take the deadline, when it passes, for a client that has gone.
	if r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.o.Within))
	}
	if !h.well(w, r) { // which waits for the body to begin
		return
	}
	if h.o.OAuth != nil && info != nil {
		// No stream of events outlives the token that it was asked for with.
		ctx, cancel := context.WithDeadline(r.Context(), info.Expiration.Add(oauth.Skew))
		defer cancel()
		r = r.WithContext(ctx)
	}
	if streams(r) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(h.leaving, cancel)()
		r = r.WithContext(ctx)
	}
	h.route(w, r, whose)
}

// route serves a request by the Server that it is for.
func (h *HTTP) route(w http.ResponseWriter, r *http.Request, whose identity) {
	answers := h.clients.unread(whose.subject, responseOf(r).refuse)
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
		if !h.whole(w, r) {
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

func tooLarge(w http.ResponseWriter, limit int64) {
	http.Error(w, fmt.Sprintf("the body is larger than %d bytes", limit), http.StatusRequestEntityTooLarge)
}

// streams reports whether a request is answered by a stream of events that ends
// with the client.
func streams(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen"
}

// subject is whom a request is served as, before it is known which session it is of.
func (h *HTTP) subject(info *auth.TokenInfo) guard.Subject {
	if h.o.OAuth == nil || info == nil {
		return h.o.Subject
	}
	// A subject may call itself as it likes; it is no session of another's ("#"), and
	// nothing that a shell runs when the owner names it.
	name := strings.NewReplacer("$", "%24", "&", "%26", "=", "%3D", "~", "%7E").Replace(url.PathEscape(oauth.Subject(info)))
	return guard.Subject("oauth:" + name)
}

// whole waits for the whole of a request that begins a session, lest halves of
// requests take all the room there is for sessions.
func (h *HTTP) whole(w http.ResponseWriter, r *http.Request) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.o.Body))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		tooLarge(w, large.Limit)
	case err != nil:
		http.Error(w, "the body did not come whole, or not in time", http.StatusBadRequest)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return err == nil
}

// check lets a request in, or not, and tells of what was refused, here or behind.
func (h *HTTP) check(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, r := h.withConnection(r)
		res := &response{ResponseWriter: w, conn: conn, taking: h.o.Taking}
		r = r.WithContext(context.WithValue(r.Context(), responseKey{}, res))
		switch {
		case !h.addressed(r):
			http.Error(res, foreignHost, http.StatusForbidden)
		case !h.mayCall(r.Header.Values("Origin")...):
			http.Error(res, "the Origin may not call this server; its owner can let it: --origin ORIGIN", http.StatusForbidden)
		case h.letIn(res, r):
		default:
			next.ServeHTTP(res, r)
		}
		if conn.recheck() != nil {
			panic(http.ErrAbortHandler) // the client must not take it for the whole answer
		}
		res.extend() // for the end of the answer
		// 405 is how a client learns that there is no stream of events.
		if res.status >= http.StatusBadRequest && res.status != http.StatusMethodNotAllowed {
			h.report(r, res.status, res.reason)
		}
	})
}

const foreignHost = "the Host is not one of this server's names and ports; its owner can add one: --host NAME:PORT"

// known reports whether a host (NAME[:PORT]) is one of this server's. Without a port
// it is at one of the ports that defaults names.
func (h *HTTP) known(host string, defaults ...string) bool {
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

// addressed reports whether a request's Host names this server. Without a port it is
// that of http or of https, which an intermediary may have taken away.
func (h *HTTP) addressed(r *http.Request) bool { return h.known(r.Host, "80", "443") }

// mayCall reports whether pages of an origin may call this server. Of two origins nobody knows
// which one a page has.
func (h *HTTP) mayCall(origins ...string) bool {
	if len(origins) > 1 {
		return false
	}
	text := strings.Join(origins, "")
	if text == "" { // no browser
		return true
	}
	if h.listed(text) {
		return true
	}
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	port, web := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return web && h.known(u.Host, port)
}

// verify compares digests, so that the time tells nothing of the token.
func (h *HTTP) verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	have, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(h.o.Token))
	if subtle.ConstantTimeCompare(have[:], want[:]) != 1 {
		return nil, fmt.Errorf("%w: it is not this server's", auth.ErrInvalidToken)
	}
	return &auth.TokenInfo{UserID: string(h.o.Subject), Expiration: time.Now().Add(time.Hour)}, nil
}
