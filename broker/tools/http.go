package tools

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Defaults of HTTPOptions.
const (
	DefaultBody     = 8 << 20
	DefaultSessions = 100
	DefaultIdle     = 30 * time.Minute
	// bodyWithin is how long a client may take to send a request.
	bodyWithin = 30 * time.Second
)

// HTTPOptions say who may reach a server over Streamable HTTP, and how much.
type HTTPOptions struct {
	// Token is the bearer token that clients have to send. "" asks for none,
	// which is for callers that let in nobody but their own.
	Token string
	// Hosts are the names, without port, by which clients may call the server,
	// beside those of the loopback: what else stands in Host is refused, so that
	// a foreign site cannot have its name resolved to us (DNS rebinding).
	Hosts []string
	// Origins are web origins (scheme://host:port) whose pages may call; those
	// of Hosts and the loopback may anyway.
	Origins  []string
	Sessions int           // at a time; more are refused
	Body     int64         // bytes of one request
	Idle     time.Duration // after which a session ends
	Log      *slog.Logger
}

// HTTP serves the tools over Streamable HTTP. Each request is checked for its
// Host, its Origin and its token, in this order, before anything of it is read.
// What is refused is logged. Requests of revision 2026-07-28 need no session;
// those of older ones live in one, whose id holds 128 random bits.
func (s *Server) HTTP(o HTTPOptions) http.Handler {
	if o.Sessions <= 0 {
		o.Sessions = DefaultSessions
	}
	if o.Body <= 0 {
		o.Body = DefaultBody
	}
	if o.Idle <= 0 {
		o.Idle = DefaultIdle
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	get := func(*http.Request) *mcp.Server { return s.mcp }
	opts := mcp.StreamableHTTPOptions{MaxRequestBodyBytes: o.Body, SessionTimeout: o.Idle, Logger: o.Log}
	single := opts
	single.Stateless, single.PropagateRequestCancellation = true, true
	d := &door{o: o, s: s, sessions: mcp.NewStreamableHTTPHandler(get, &opts), single: mcp.NewStreamableHTTPHandler(get, &single)}
	var h http.Handler = http.HandlerFunc(d.serve)
	if o.Token != "" {
		h = auth.RequireBearerToken(d.verify, nil)(h)
	}
	return d.check(h)
}

// door is what stands between the network and the SDK.
type door struct {
	o                HTTPOptions
	s                *Server
	sessions, single http.Handler

	mu      sync.Mutex // guards the field below
	opening int        // sessions that begin just now
}

// sessionless is the revision from which requests stand by themselves.
const sessionless = "2026-07-28"

func (d *door) serve(w http.ResponseWriter, r *http.Request) {
	// A client that sends slowly holds a connection, and no longer than that.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyWithin))
	if r.Header.Get("Mcp-Protocol-Version") >= sessionless {
		d.single.ServeHTTP(w, r)
		return
	}
	if r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "" {
		if !d.open() {
			d.refuse(w, r, http.StatusServiceUnavailable, "too many sessions")
			return
		}
		defer d.opened()
	}
	d.sessions.ServeHTTP(w, r)
}

// open finds room for one more session.
func (d *door) open() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.opening
	for range d.s.mcp.Sessions() {
		n++
	}
	if n >= d.o.Sessions {
		return false
	}
	d.opening++
	return true
}

func (d *door) opened() {
	d.mu.Lock()
	d.opening--
	d.mu.Unlock()
}

func (d *door) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	d.o.Log.Warn("refused a request: "+why, "from", r.RemoteAddr, "host", r.Host, "origin", r.Header.Get("Origin"))
	http.Error(w, why, status)
}

func (d *door) check(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !d.known(r.Host):
			d.refuse(w, r, http.StatusForbidden, "the Host is not one of this server's names")
		case !d.origin(r.Header.Get("Origin")):
			d.refuse(w, r, http.StatusForbidden, "the Origin may not call this server")
		default:
			rec := &watched{ResponseWriter: w}
			next.ServeHTTP(rec, r)
			if rec.status == http.StatusUnauthorized || rec.status == http.StatusNotFound || rec.status == http.StatusRequestEntityTooLarge {
				d.o.Log.Warn("refused a request", "status", rec.status, "from", r.RemoteAddr)
			}
		}
	})
}

// known reports whether a Host, or the host of an Origin, names this server.
func (d *door) known(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if name == "localhost" {
		return true
	}
	if ip := net.ParseIP(name); ip != nil && ip.IsLoopback() {
		return true
	}
	for _, h := range d.o.Hosts {
		if strings.EqualFold(h, name) {
			return true
		}
	}
	return false
}

func (d *door) origin(text string) bool {
	if text == "" {
		return true // no browser
	}
	for _, o := range d.o.Origins {
		if strings.EqualFold(o, text) {
			return true
		}
	}
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && d.known(u.Host)
}

// verify compares digests, so that the time tells nothing of the token.
func (d *door) verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	have, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(d.o.Token))
	if subtle.ConstantTimeCompare(have[:], want[:]) != 1 {
		return nil, errors.Join(auth.ErrInvalidToken, errors.New("the bearer token is not this server's"))
	}
	return &auth.TokenInfo{UserID: string(d.s.cfg.Subject), Expiration: time.Now().Add(time.Hour)}, nil
}

// watched remembers the status of an answer.
type watched struct {
	http.ResponseWriter
	status int
}

func (w *watched) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher, which event streams need.
func (w *watched) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
