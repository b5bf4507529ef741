package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/broker/tools/oauth"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/connlimit"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/consent"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bounds of connections.
const (
	httpHeader   = 16 << 10
	httpWithin   = 5 * time.Second // of the header
	httpIdle     = 2 * time.Minute
	httpGraceful = 3 * time.Second
)

// Front serves MCP over HTTP on a session's roots.
type Front struct {
	s     *Session
	tools *tools.HTTP
	http  *http.Server
	tls   *tls.Config // nil: there is none
}

// NewFront makes a front end whose clients are sessions of a subject. The caller must close it.
func (s *Session) NewFront(ctx context.Context, subject guard.Subject, req control.HTTPRequest) (*Front, error) {
	bound := connlimit.New(tools.SessionRequests*req.Sessions, s.log)
	opt := tools.HTTPOptions{
		Registry: s.reg, Subject: subject, Number: func() uint64 { return s.clients.Add(1) },
		Token: req.Token, Port: req.Port, Hosts: req.Hosts, Origins: req.Origins, Sessions: req.Sessions, UserSessions: req.UserSessions,
		OnAdmitted: bound.Trust, Log: s.log,
	}
	if req.Issuer != "" {
		v, err := oauth.New(ctx, oauth.Config{Issuer: req.Issuer, Audiences: req.Audiences, Scopes: req.Scopes, Resources: req.Resources})
		if err != nil {
			return nil, fmt.Errorf("--oauth-issuer: %w", err)
		}
		opt.OAuth = v
	}
	f := &Front{s: s}
	if len(req.Certificate) > 0 {
		pair, err := tls.X509KeyPair(req.Certificate, req.Key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		f.tls = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	way := wayOf(&req)
	f.tools = tools.NewHTTP(func(who guard.Subject) *tools.Server { return s.newTools(way, who, req.ToolsRequest) }, opt)
	mux := http.NewServeMux()
	mux.Handle(req.Path, f.tools)
	mux.Handle(oauth.WellKnown, f.tools.Metadata())
	mux.Handle(oauth.WellKnown+req.Path, f.tools.Metadata())
	f.http = &http.Server{Handler: mux, ReadHeaderTimeout: httpWithin, IdleTimeout: httpIdle, MaxHeaderBytes: httpHeader,
		WriteTimeout: tools.DefaultWithin, // package tools extends it while the client reads
		ErrorLog:     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	bound.Attach(f.http)
	return f, nil
}

// wayOf returns the way in of a front end over HTTP.
func wayOf(req *control.HTTPRequest) consent.Way {
	switch {
	case req.Issuer != "":
		return consent.WayOAuth
	case req.Token != "":
		return consent.WayToken
	}
	return consent.WayNoToken
}

// Serve serves on a port until ctx or the session ends. Then it withdraws the questions that wait
// for a person, and gives other calls httpGraceful to end.
func (f *Front) Serve(ctx context.Context, l net.Listener) (err error) {
	l = f.tools.Attach(f.http, l)
	if f.tls != nil {
		l = tls.NewListener(l, f.tls)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.s.ending, cancel)()
	done := make(chan error, 1)
	go func() { done <- f.http.Serve(l) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		f.tools.Withdraw()
		last, cancel := context.WithTimeout(context.Background(), httpGraceful)
		defer cancel()
		if f.http.Shutdown(last) != nil {
			_ = f.http.Close() // a call takes too long, or a client does not read
		}
		err = <-done
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close ends all connections, and the sessions of all clients.
func (f *Front) Close() {
	_ = f.http.Close()
	f.tools.Close()
}

// HTTP implements control.Service.
func (s *Session) HTTP(ctx context.Context, req control.HTTPRequest) (control.Front, error) {
	if s.isEnding() {
		return nil, errEnding
	}
	return s.NewFront(ctx, sharedSubject, req)
}

// maxShared is how many MCP clients a session serves over its control socket at
// a time.
const maxShared = 64

// sharedSubject is the subject of MCP clients on the control socket and over HTTP, in grants and
// records. Each client is a session of it.
const sharedSubject guard.Subject = "serve"

// NewTools makes a server of MCP tools on the session's roots, for the client on the standard
// streams of the calling program. The client becomes a session of the subject. The caller must
// close the server before the session is closed.
func (s *Session) NewTools(subject guard.Subject, req control.ToolsRequest) *tools.Server {
	return s.newTools(consent.WayStdio, subject.InSession(s.clients.Add(1)), req)
}

func (s *Session) newTools(way consent.Way, subject guard.Subject, req control.ToolsRequest) *tools.Server {
	cfg := tools.Config{
		Registry: s.reg, Tree: s.tree, Hub: s.watching, Subject: subject, IgnoreRoots: req.IgnoreRoots, Resolve: s.resolveNamed, Version: s.opt.Version, Log: s.log,
	}
	cfg.Home, _ = os.UserHomeDir() // without one, ~ has no special meaning
	if req.Ask {
		cfg.Ask = s.Connect(way, subject)
		cfg.ClientAnswers = slices.Contains(consent.Answerers(way), consent.StartingHost)
	}
	return tools.New(cfg)
}

// Tools implements control.Service.
func (s *Session) Tools(req control.ToolsRequest) (func(io.ReadWriteCloser) error, error) {
	if s.isEnding() {
		return nil, errEnding
	}
	if s.shared.Add(1) > maxShared {
		s.shared.Add(-1)
		return nil, &guard.Error{Kind: names.Quota, Err: fmt.Errorf("%d MCP clients are served already; let one of them end", maxShared)}
	}
	return func(conn io.ReadWriteCloser) error {
		defer s.shared.Add(-1)
		defer conn.Close()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		defer context.AfterFunc(s.ending, cancel)()
		t := s.NewTools(sharedSubject, req)
		defer t.Close()
		return t.Run(ctx, conn, conn)
	}, nil
}
