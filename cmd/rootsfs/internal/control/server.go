// Package control connects the commands of rootsfs to live sessions. A session has a directory
// of its own in the user's runtime directory, with session.json (its description) and
// control.sock (HTTP with JSON bodies over a unix socket).
//
// # Promises
//
//   - The server on a session's socket runs as the user of the client, and the client runs as
//     the user of the session or as root. The runtime directory belongs to the user, has mode
//     0700, and is reached without following links below its parent. The socket has mode 0600.
//     Both ends check the uid that the kernel recorded for the other (SO_PEERCRED).
//   - A live session holds a lock on its directory. The kernel drops the lock when the process
//     ends for any reason. So a directory that can be locked belongs to no session, and the
//     next command that lists sessions removes it.
//   - Requests are bounded: size of header and body, time to send them. An unknown field is an
//     error, so that a newer client cannot believe that an older daemon did what it asked.
//
// # Not promised
//
// Every process of the same user outside a sandbox may use the socket: it is as
// powerful as the user's own shell. The wire format is only for rootsfs and its own daemon,
// which should be of the same version.
//
// The exported functions may be called concurrently.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Service serves the requests to a session that are no verbs. Its methods are called
// concurrently.
type Service interface {
	// Metrics are the session's figures for GET /metrics.
	Metrics() prometheus.Gatherer
	// Stream calls send with each update until the session ends, or send fails, or ctx
	// ends.
	Stream(ctx context.Context, req StreamRequest, send func(Update) error) error
	// Tools reserves room for one more MCP client, or refuses. The caller calls serve once.
	// serve serves the client over a connection until either end hangs up or the session ends,
	// and closes the connection.
	Tools(req ToolsRequest) (serve func(conn io.ReadWriteCloser) error, err error)
	// HTTP makes a front end for MCP over HTTP.
	HTTP(ctx context.Context, req HTTPRequest) (Front, error)
}

// Bounds of requests.
const (
	// maxBody is large enough for a request that adds 20,000 roots.
	maxBody        = 8 << 20
	maxHeader      = 8 << 10
	headerTimeout  = 5 * time.Second
	bodyTimeout    = 30 * time.Second
	idleTimeout    = time.Minute // of a connection between requests
	shutdownWithin = 2 * time.Second
)

// Server answers on a session's socket.
type Server struct {
	http    *http.Server
	service Service
	verbs   []Handler
	log     *slog.Logger
}

// Serve answers on the directory's socket until Close.
func (d *Dir) Serve(log *slog.Logger, service Service, verbs ...Handler) (*Server, error) {
	s := &Server{service: service, verbs: verbs, log: log}
	// The routes are made at the first request: most short runs end without one.
	routes := sync.OnceValue(s.routes)
	return d.serve(log, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { routes().ServeHTTP(w, r) }))
}

// serve answers on the directory's socket by a handler.
func (d *Dir) serve(log *slog.Logger, s *Server, handler http.Handler) (*Server, error) {
	l, err := d.listen(log)
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			noteRequest(r)
			handler.ServeHTTP(w, r)
		}),
		ConnContext:       withConn,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the control socket has failed", "error", err)
		}
	}()
	return s, nil
}

func (d *Dir) fdPath(name string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(d.fd), name)
}

// Close accepts no more requests, waits a while for those in progress, and breaks off the rest.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWithin)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
}

func (s *Server) routes() http.Handler {
	m := http.NewServeMux()
	for _, v := range s.verbs {
		m.HandleFunc("POST "+versionPath+v.name, v.serve)
	}
	m.HandleFunc("POST "+WatchPath, s.stream)
	m.Handle("GET "+metricsPath, promhttp.HandlerFor(s.service.Metrics(), promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	}))
	m.HandleFunc("POST /v1/tools", s.tools)
	m.HandleFunc("POST /v1/http", s.front)
	return m
}

// stream streams one update a line until the session or the peer ends.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	var req StreamRequest
	if err := readRequest(w, r, maxHeader, &req); err != nil {
		fail(w, http.StatusBadRequest, notUnderstood(err))
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc, enc := http.NewResponseController(w), json.NewEncoder(w)
	_ = rc.Flush() // the stream has begun
	err := s.service.Stream(r.Context(), req, func(u Update) error {
		_ = rc.SetWriteDeadline(time.Now().Add(bodyTimeout)) // the reader may have stopped reading
		if err := enc.Encode(u); err != nil {
			return err
		}
		return rc.Flush()
	})
	if err != nil {
		s.log.Debug("somebody who watched has gone", "error", err)
	}
}
