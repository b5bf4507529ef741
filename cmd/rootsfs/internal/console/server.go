// Package console serves the owner's page: it shows every live session of the user in a
// browser, with the questions of servers and the events, and can revoke every grant. It speaks
// to the sessions over their control sockets (package sessionhub) and decides nothing itself.
//
// # Who gets in
//
// The page is served on the loopback address, on a port that the kernel chooses. The owner opens a
// link that works once, within LinkFor. The link has 128 random bits behind the #. A browser does
// not send the part behind the #. The page exchanges the bits for two secrets, and every other
// request of the API needs both:
//
//   - a cookie, HttpOnly and SameSite=Strict, which no script can read;
//   - a key, which the browser keeps for this origin alone. The page's own script sends the key
//     in a header. Cookies are not bound to ports. If the owner opens another server
//     on the loopback address, such as one that a confined program runs with --net, that server
//     sees the cookie. The cookie is useless to it without the key.
//
// Connections of other users of the machine (except root) are closed unread. Every request must
// name this host and port (against DNS rebinding). If it names an origin, that must be the
// page's own. Every change is a POST of JSON with that origin.
//
// # Promises
//
//   - The page loads nothing from elsewhere and runs nothing inline: its
//     Content-Security-Policy allows scripts, styles and connections of its own origin only.
//   - Requests are bounded: sizes of header and body, time to send them, number of
//     connections and of event streams. If there are too many connections, those without the
//     secrets are closed first; if there are too many streams, the oldest.
//   - The page approves a question only if the question has been in its place on the screen, and
//     was scrolled to its end, for longer than it takes to aim at something else (web/ask.js).
//   - Without both secrets the API only answers that they are missing, and exchanges a link for
//     them. Every program of the same user can get the files of the page, which are part of the
//     binary.
//
// # Not promised
//
// A program that can read the owner's browser profile or memory can do everything that the page
// can. The text of a server is passed on unchanged; the page shows its invisible characters.
//
// The exported functions may be called concurrently.
package console

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/auditview"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/connlimit"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bounds of requests.
const (
	maxHeader       = 16 << 10
	maxBody         = 64 << 10
	headerTimeout   = 5 * time.Second
	bodyTimeout     = 10 * time.Second
	writeTimeout    = 30 * time.Second // to send an answer, or a part of a stream or an export
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 2 * time.Second
	// maxConns bounds the connections that there are at a time. A browser keeps six connections
	// to a host, and a stream.
	maxConns = 128
)

// Config configures a console.
type Config struct {
	Records *auditview.Store
	Log     *slog.Logger
}

// Server is one console. Make it with New.
type Server struct {
	cfg     Config
	live    *sessionhub.Sessions
	access  *access
	streams streams
	conns   *connlimit.Bound
	search  chan struct{} // holds a token for each search that runs
	l       net.Listener
}

// New listens on the loopback address, on a port that the kernel chooses.
func New(ctx context.Context, cfg Config) (*Server, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on the loopback address: %w", err)
	}
	addr := l.Addr().(*net.TCPAddr)
	return &Server{
		cfg: cfg, live: &sessionhub.Sessions{}, conns: connlimit.New(maxConns, cfg.Log),
		l:      &ownListener{Listener: l, log: cfg.Log, uid: uint32(os.Geteuid())},
		search: make(chan struct{}, maxSearches),
		access: &access{host: addr.String(), cookie: fmt.Sprintf("rootsfs-%d", addr.Port), now: time.Now},
	}, nil
}

// Link makes a link that lets one browser in, once, within LinkFor. An earlier link no longer
// works.
func (s *Server) Link() string { return "http://" + s.access.host + "/#" + s.access.newLink() }

// Serve answers requests until ctx ends or something fails.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
	s.conns.Attach(srv)
	ended := make(chan error, 2)
	go func() { ended <- s.live.Run(ctx) }()
	go func() {
		err := srv.Serve(s.l)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		ended <- err
	}()
	var err error
	left := 2
	select {
	case <-ctx.Done():
	case err = <-ended:
		left--
	}
	cancel()
	last, end := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer end()
	if srv.Shutdown(last) != nil {
		_ = srv.Close()
	}
	for range left {
		err = errors.Join(err, <-ended)
	}
	return err
}

// handler returns the handler of all requests. It checks the host and the origin of a request
// first, and then, for the API except POST /api/enter, the secrets.
func (s *Server) handler() http.Handler {
	open := http.NewServeMux() // for every request from the page's own origin
	open.Handle("/", pages())
	open.HandleFunc("POST /api/enter", s.enter)
	open.Handle("/api/", s.authenticatedAPI())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protect(w.Header())
		if why := s.access.foreign(r); why != "" {
			s.cfg.Log.Warn("a request was turned away", "reason", why, "host", names.QuoteShort(r.Host), "origin", names.QuoteShort(r.Header.Get("Origin")))
			fail(w, http.StatusForbidden, "refused: "+why)
			return
		}
		// Sending a request has a time limit; the answer may take longer.
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		open.ServeHTTP(w, r)
	})
}

// protect sets the headers that restrict the page, and keep other sites from using it.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// authenticatedAPI returns the handler of the API for requests that need both secrets.
func (s *Server) authenticatedAPI() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /api/stream", s.stream)
	m.HandleFunc("GET /api/history", s.history)
	m.HandleFunc("GET /api/verify", s.verify)
	m.HandleFunc("GET /api/export", s.export)
	m.HandleFunc("POST /api/revoke", do(s.revoke))
	m.HandleFunc("POST /api/add", inSession(s, add))
	// The next handlers pass the request on to a verb of the session. The page can use no other
	// verbs than the handlers of this function use.
	m.HandleFunc("POST /api/answer", pass(s, control.AnswerQuestion))
	m.HandleFunc("POST /api/forget", pass(s, control.ForgetDenial))
	m.HandleFunc("POST /api/inside", pass(s, control.PreviewQuestion))
	m.HandleFunc("POST /api/policy", pass(s, control.GetPolicy))
	m.HandleFunc("POST /api/set", pass(s, control.SetMode))
	// The next handlers are about the staged changes of a root. Apply and discard refuse a request
	// without paths, because the session would take such a request for all changes.
	m.HandleFunc("POST /api/stage", inSession(s, sessionhub.StageList))
	m.HandleFunc("POST /api/stage/diff", inSession(s, sessionhub.StageDiff))
	m.HandleFunc("POST /api/stage/apply", inSession(s, applyStaged))
	m.HandleFunc("POST /api/stage/discard", inSession(s, discardStaged))
	m.HandleFunc("POST /api/stage/undo", pass(s, control.UndoStage))
	m.HandleFunc("POST /api/leave", func(w http.ResponseWriter, r *http.Request) {
		s.access.forget(r)
		answer(w, struct{}{})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.access.known(r) {
			fail(w, http.StatusUnauthorized, "this browser is not let in; run: rootsfs console")
			return
		}
		s.conns.Trust(r)
		m.ServeHTTP(w, r)
	})
}

// enter logs in a browser that has a link.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Link string `json:"link"`
	}
	if !read(w, r, &in) {
		return
	}
	cookie, key, ok := s.access.redeem(in.Link)
	if !ok {
		s.cfg.Log.Warn("a link that was used before, is too old or was never given has been tried")
		fail(w, http.StatusUnauthorized, "the link was used already, or is too old; press Enter where rootsfs console runs, for a new one")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.access.cookie, Value: cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	answer(w, map[string]string{"key": key})
}

// read reads a request's body. If ok is false, it has answered with an error.
func read(w http.ResponseWriter, r *http.Request, v any) (ok bool) {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil && dec.Decode(&struct{}{}) != io.EOF {
		err = errors.New("something follows the request")
	}
	if err == nil {
		return true
	}
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		fail(w, http.StatusRequestEntityTooLarge, "the request is too long")
		return false
	}
	fail(w, http.StatusBadRequest, "request not understood: "+err.Error())
	return false
}

// do returns a handler that reads a request, calls f, and answers with the result.
func do[In, Out any](f func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		if !read(w, r, &in) {
			return
		}
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Time{})
		_ = rc.SetWriteDeadline(time.Now().Add(actTimeout + writeTimeout))
		ctx, cancel := context.WithTimeout(r.Context(), actTimeout)
		defer cancel()
		out, err := f(ctx, in)
		if err != nil {
			failWith(w, err)
			return
		}
		answer(w, out)
	}
}

// actTimeout is how long a change may take. A revocation has a shorter deadline of its own.
const actTimeout = time.Minute

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a browser that went away wants no answer
}

func fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text})
}

// failWith answers with the text of an error, and with the status for its class.
func failWith(w http.ResponseWriter, err error) {
	status := http.StatusUnprocessableEntity
	if control.Classify(err) == control.NoSuch {
		status = http.StatusNotFound
	}
	fail(w, status, control.Text(err))
}

// maxStreams bounds the event streams that there are at a time. Each tab has one.
const maxStreams = 16

// streams has the open event streams. If there are too many, it ends the oldest.
type streams struct {
	mu   sync.Mutex // guards the field below
	list []*events.Subscriber
}

func (s *streams) begin(sub *events.Subscriber) {
	s.mu.Lock()
	s.list = append(s.list, sub)
	var old *events.Subscriber
	if len(s.list) > maxStreams {
		old, s.list = s.list[0], s.list[1:]
	}
	s.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

func (s *streams) end(sub *events.Subscriber) {
	s.mu.Lock()
	s.list = slices.DeleteFunc(s.list, func(one *events.Subscriber) bool { return one == sub })
	s.mu.Unlock()
	sub.Close()
}

// stream answers with one update a line until the browser leaves, its login ends, or there are too
// many newer streams.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	sub := s.live.Subscribe()
	s.streams.begin(sub)
	defer s.streams.end(sub)
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // the whole request has been read; the stream has no end
	enc := json.NewEncoder(w)
	for {
		u, ok := s.live.Next(r.Context(), sub)
		if !ok {
			return
		}
		// Wait no longer than writeTimeout for a browser that does not read.
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		if enc.Encode(u) != nil || rc.Flush() != nil {
			return
		}
		if !s.access.known(r) {
			return // its login has ended meanwhile
		}
	}
}

// web holds the page's files as they are in the repository; nothing is generated or bundled.
//
//go:embed web
var web embed.FS

// types are the content types of the page's files, by extension. Other files are not served.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// pages serves the files of the page, which are not secret.
func pages() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			fail(w, http.StatusMethodNotAllowed, "pages are only read")
			return
		}
		name := path.Clean(r.URL.Path)[1:]
		if name == "" {
			name = "index.html"
		}
		kind := types[path.Ext(name)]
		data, err := fs.ReadFile(web, "web/"+name)
		if kind == "" || err != nil {
			fail(w, http.StatusNotFound, "there is no such page")
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(data) // a browser that went away wants no answer
	})
}
