package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Owner is the session as its owner commands it. Methods are called
// concurrently.
type Owner interface {
	Status() Status
	// Add grants all roots or none.
	Add(ctx context.Context, asks []Ask) ([]Root, error)
	// Revoke returns when everything handed out is dead, or says per root
	// what is not.
	Revoke(ctx context.Context, req RevokeRequest) ([]Ended, error)
	Set(ctx context.Context, name, mode string) (Root, error)
	// Renew gives a live root another end.
	Renew(ctx context.Context, req RenewRequest) (Root, error)
	// Resume lets suspended servers go on.
	Resume(req ResumeRequest) (ResumeAnswer, error)
	// Profile switches to another set of roots of the configuration.
	Profile(ctx context.Context, profile string) (ProfileAnswer, error)
	policyOwner
	insideOwner
	denialsOwner
	figuresOwner
	toolsOwner
	httpOwner
	trashOwner
	// Unmount revokes everything and unmounts.
	Unmount(ctx context.Context) (UnmountAnswer, error)
	// Refused is the last refusal that a grant would have avoided, or nil.
	Refused() *Refusal
	// Questions are those that wait for the owner; changed is closed when one
	// comes or goes.
	Questions() (list []Question, changed <-chan struct{})
	Answer(req AnswerRequest) (AnswerAnswer, error)
	// Metrics are the session's figures for GET /metrics.
	Metrics() prometheus.Gatherer
	// Subscribe returns a channel of events, which is closed when the
	// session ends or cancel is called.
	Subscribe() (events <-chan Event, cancel func())
}

// Bounds of requests.
const (
	// maxBody holds an addition of more than 20,000 roots.
	maxBody        = 8 << 20
	maxHeader      = 8 << 10
	headerTimeout  = 5 * time.Second
	bodyTimeout    = 30 * time.Second
	goneAfter      = time.Minute // of an idle connection
	shutdownWithin = 2 * time.Second
)

// Server answers on a session's socket.
type Server struct {
	http   *http.Server
	owner  Owner
	log    *slog.Logger
	fronts sync.Map // Front, by id
}

// Serve answers on the directory's socket until Close.
func (d *Dir) Serve(owner Owner, log *slog.Logger) (*Server, error) {
	l, err := d.listen(log)
	if err != nil {
		return nil, err
	}
	s := &Server{owner: owner, log: log}
	// Made for the first who asks: most short runs end without one.
	routes := sync.OnceValue(s.routes)
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked(r)
			routes().ServeHTTP(w, r)
		}),
		ConnContext:       withConn,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: goneAfter,
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

// Close lets requests in progress end, for a while, and stops answering.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWithin)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
}

// peerUID is the effective uid the other end had when it connected (or, of a
// server, when it listened).
func peerUID(c net.Conn) (int, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return -1, errors.New("not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return -1, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return -1, err
	}
	if credErr != nil {
		return -1, credErr
	}
	return int(cred.Uid), nil
}

func (s *Server) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.owner.Status()) })
	m.HandleFunc("GET /v1/refused", func(w http.ResponseWriter, _ *http.Request) { answer(w, RefusalAnswer{Last: s.owner.Refused()}) })
	m.HandleFunc("GET /v1/events", s.events)
	m.HandleFunc("POST /v1/roots", handle(func(ctx context.Context, req AddRequest) (AddAnswer, error) {
		roots, err := s.owner.Add(ctx, req.Roots)
		return AddAnswer{Roots: roots}, err
	}))
	revoke := handle(func(ctx context.Context, req RevokeRequest) (RevokeAnswer, error) {
		ended, err := s.owner.Revoke(ctx, req)
		return RevokeAnswer{Ended: ended}, err
	})
	m.HandleFunc("DELETE /v1/roots", revoke)
	m.HandleFunc("POST /v1/revoke", revoke)
	m.HandleFunc("POST /v1/set", handle(func(ctx context.Context, req SetRequest) (SetAnswer, error) {
		r, err := s.owner.Set(ctx, req.Name, req.Mode)
		return SetAnswer{Root: r}, err
	}))
	m.HandleFunc("POST /v1/renew", handle(func(ctx context.Context, req RenewRequest) (SetAnswer, error) {
		r, err := s.owner.Renew(ctx, req)
		return SetAnswer{Root: r}, err
	}))
	m.HandleFunc("POST /v1/resume", handle(func(_ context.Context, req ResumeRequest) (ResumeAnswer, error) {
		return s.owner.Resume(req)
	}))
	m.HandleFunc("POST /v1/profile", handle(func(ctx context.Context, req ProfileRequest) (ProfileAnswer, error) {
		return s.owner.Profile(ctx, req.Profile)
	}))
	m.HandleFunc("GET /v1/consent", func(w http.ResponseWriter, _ *http.Request) {
		list, _ := s.owner.Questions()
		answer(w, QuestionsAnswer{Questions: list})
	})
	m.HandleFunc("GET /v1/consent/watch", s.questions)
	m.HandleFunc("POST /v1/consent", handle(func(_ context.Context, req AnswerRequest) (AnswerAnswer, error) {
		return s.owner.Answer(req)
	}))
	m.Handle("GET /metrics", promhttp.HandlerFor(s.owner.Metrics(), promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	}))
	s.policyRoutes(m)
	s.insideRoutes(m)
	s.denialsRoutes(m)
	s.figuresRoutes(m)
	m.HandleFunc("POST /v1/tools", s.tools)
	m.HandleFunc("POST /v1/http", s.front)
	m.HandleFunc("POST /v1/http/client", s.frontClient)
	s.trashRoutes(m)
	m.HandleFunc("POST /v1/unmount", handle(func(ctx context.Context, _ struct{}) (UnmountAnswer, error) {
		return s.owner.Unmount(ctx)
	}))
	return m
}

// handle reads a bounded body without unknown fields, calls f and answers.
func handle[In, Out any](f func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Sending the body has a limit of its own; the answer may take longer.
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
		var in In
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		dec.DisallowUnknownFields()
		err := dec.Decode(&in)
		if err == nil && dec.More() {
			err = errors.New("something follows the request")
		}
		_ = rc.SetReadDeadline(time.Time{})
		if err != nil && !errors.Is(err, io.EOF) {
			fail(w, http.StatusBadRequest, problem{Error: "request not understood: " + err.Error(), Class: Usage, Kind: names.Invalid.String()})
			return
		}
		out, err := f(r.Context(), in)
		if err != nil {
			p := problem{Error: Text(err), Class: Classify(err), Kind: names.Reason(err).String()}
			if ra, ok := any(out).(RevokeAnswer); ok {
				p.Ended = ra.Ended
			}
			fail(w, http.StatusUnprocessableEntity, p)
			return
		}
		answer(w, out)
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a peer that went away wants no answer
}

func fail(w http.ResponseWriter, status int, p problem) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(p)
}

// stream begins an answer of one JSON object a line; send fails when the peer
// has gone or does not read.
func stream(w http.ResponseWriter) (send func(any) error, err error) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	w.WriteHeader(http.StatusOK)
	return func(v any) error {
		_ = rc.SetWriteDeadline(time.Now().Add(bodyTimeout)) // a reader that stopped reading
		if err := enc.Encode(v); err != nil {
			return err
		}
		return rc.Flush()
	}, rc.Flush()
}

// events streams one JSON object a line until the session or the peer ends.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	ch, cancel := s.owner.Subscribe()
	defer cancel()
	send, err := stream(w)
	if err != nil {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case e, ok := <-ch:
			if !ok || send(e) != nil {
				return
			}
		}
	}
}

// questions streams the questions, and the denials that are remembered, anew
// whenever either changes, until the session or the peer ends.
func (s *Server) questions(w http.ResponseWriter, r *http.Request) {
	over, cancel := s.owner.Subscribe()
	defer cancel()
	send, err := stream(w)
	if err != nil {
		return
	}
	for {
		list, changed := s.owner.Questions()
		denials, lifted := s.owner.Denials()
		if send(WaitingAnswer{QuestionsAnswer{list}, DenialsAnswer{denials}}) != nil {
			return
		}
		for waiting := true; waiting; {
			select {
			case <-r.Context().Done():
				return
			case _, ok := <-over: // events themselves are of no concern here
				if !ok {
					return
				}
			case <-changed:
				waiting = false
			case <-lifted:
				waiting = false
			}
		}
	}
}
