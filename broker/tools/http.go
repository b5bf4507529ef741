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
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Defaults of HTTPOptions.
const (
	DefaultBody     = 8 << 20
	DefaultSessions = 100
	DefaultIdle     = 30 * time.Minute
	DefaultWithin   = 30 * time.Second
)

// Bounds of what refusals, of each status, leave in the log and in the audit
// record: whoever knocks on the door all day fills no disk, and hides nobody else.
const (
	refusalsASecond = 0.2
	refusalsAtOnce  = 20
	maxWhy          = 200 // bytes
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
	// Within is how long a client may take to send a request's body. How long the
	// answer takes, or a stream of events stays open, it does not bound.
	Within time.Duration
	Log    *slog.Logger
}

// HTTP serves the tools over Streamable HTTP. Each request is checked for its
// Host, its Origin and its token, in this order, before anything of it is read.
// What is refused is told to the log and to the audit record; of very many, some,
// with their number. Requests of revision 2026-07-28 need no session;
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
	if o.Within <= 0 {
		o.Within = DefaultWithin
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	get := func(*http.Request) *mcp.Server { return s.mcp }
	opts := mcp.StreamableHTTPOptions{MaxRequestBodyBytes: o.Body, SessionTimeout: o.Idle, Logger: o.Log}
	single := opts
	single.Stateless, single.PropagateRequestCancellation = true, true
	d := &door{o: o, s: s, refused: map[int]*tally{}, sessions: mcp.NewStreamableHTTPHandler(get, &opts), single: mcp.NewStreamableHTTPHandler(get, &single)}
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

	mu      sync.Mutex     // guards the fields below
	opening int            // sessions that begin just now
	refused map[int]*tally // by status
}

// tally is how many refusals were told of.
type tally struct {
	pace   *rate.Limiter
	untold int // since the last that was
}

// due counts a refusal. It reports whether it is to be told of, and how many were
// not since the last that was.
func (d *door) due(status int) (others int, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.refused[status]
	if t == nil {
		t = &tally{pace: rate.NewLimiter(refusalsASecond, refusalsAtOnce)}
		d.refused[status] = t
	}
	if !t.pace.Allow() {
		t.untold++
		return 0, false
	}
	others, t.untold = t.untold, 0
	return others, true
}

// sessionless is the revision from which requests stand by themselves.
const sessionless = "2026-07-28"

func (d *door) serve(w http.ResponseWriter, r *http.Request) {
	// A client that sends slowly holds a connection, and no longer than that.
	// net/http lifts the bound where the body ends. Where there is none it would
	// take the deadline, when it passes, for a client that has gone.
	if r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(d.o.Within))
	}
	if r.Header.Get("Mcp-Protocol-Version") >= sessionless {
		d.single.ServeHTTP(w, r)
		return
	}
	if r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "" {
		if !d.whole(w, r) {
			return
		}
		if !d.open() {
			http.Error(w, "too many sessions", http.StatusServiceUnavailable)
			return
		}
		defer d.opened()
	}
	d.sessions.ServeHTTP(w, r)
}

// whole waits for the whole of a request that begins a session, lest halves of
// requests take all the room there is for sessions.
func (d *door) whole(w http.ResponseWriter, r *http.Request) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, d.o.Body))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(w, fmt.Sprintf("the body is larger than %d bytes", large.Limit), http.StatusRequestEntityTooLarge)
	case err != nil:
		http.Error(w, "the body did not come whole, or not in time", http.StatusBadRequest)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return err == nil
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

// check lets a request in, or not, and tells of what was refused, here or behind.
func (d *door) check(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &watched{ResponseWriter: w}
		switch {
		case !d.known(r.Host):
			http.Error(rec, "the Host is not one of this server's names", http.StatusForbidden)
		case !d.origin(r.Header.Get("Origin")):
			http.Error(rec, "the Origin may not call this server", http.StatusForbidden)
		default:
			next.ServeHTTP(rec, r)
		}
		// 405 is how a client learns that there is no stream of events.
		if rec.status >= http.StatusBadRequest && rec.status != http.StatusMethodNotAllowed {
			d.tell(r, rec)
		}
	})
}

// tell puts a refusal into the log and on record.
func (d *door) tell(r *http.Request, rec *watched) {
	others, ok := d.due(rec.status)
	if !ok {
		return
	}
	why := strings.TrimSpace(rec.why)
	short := func(s string) string { return s[:min(len(s), maxWhy)] }
	d.o.Log.Warn("refused an HTTP request", "why", why, "status", rec.status, "from", r.RemoteAddr,
		"host", short(r.Host), "origin", short(r.Header.Get("Origin")), "others", others)
	kind := names.Permission
	if rec.status == http.StatusBadRequest || rec.status == http.StatusNotFound {
		kind = names.Invalid
	}
	// Of nobody in particular: who was refused has not shown who they are.
	if err := d.s.cfg.Registry.NoteRefusal(guard.Caller{Via: guard.ViaTools}, kind, "HTTP request from "+r.RemoteAddr+": "+why); err != nil {
		d.o.Log.Error("a refusal could not be recorded", "error", err)
	}
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
		return nil, fmt.Errorf("%w: it is not this server's", auth.ErrInvalidToken)
	}
	return &auth.TokenInfo{UserID: string(d.s.cfg.Subject), Expiration: time.Now().Add(time.Hour)}, nil
}

// watched remembers the status of an answer and, of a refusal, its text.
type watched struct {
	http.ResponseWriter
	status int
	why    string
}

func (w *watched) WriteHeader(status int) {
	w.status = status
	if status >= http.StatusBadRequest {
		// Connections are bounded too: they are for those who are let in.
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(p []byte) (int, error) {
	if w.status >= http.StatusBadRequest {
		w.why += string(p[:min(len(p), maxWhy-len(w.why))])
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher, which event streams need.
func (w *watched) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
