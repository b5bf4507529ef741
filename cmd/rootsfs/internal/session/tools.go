package session

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// maxShared is how many MCP clients a session serves over its control socket at
// a time.
const maxShared = 64

// sharedSubject is whom grants and records name for those clients, each as a
// session of it.
const sharedSubject guard.Subject = "serve"

// NewTools makes MCP tools on the session's roots, for one subject. The caller
// closes them, before the session.
func (s *Session) NewTools(subject guard.Subject, req control.ToolsRequest) *tools.Server {
	cfg := tools.Config{
		Registry: s.reg, Tree: s.tree, Hub: s.watching, Subject: subject, IgnoreRoots: req.IgnoreRoots, Version: s.opt.Version, Log: s.log,
	}
	cfg.Home, _ = os.UserHomeDir() // without one, ~ means nothing
	if req.Ask {
		cfg.Ask = s.broker.Session(subject)
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
		go func() {
			select {
			case <-s.ending:
				cancel()
			case <-ctx.Done():
			}
		}()
		t := s.NewTools(sharedSubject.InSession(s.sharings.Add(1)), req)
		defer t.Close()
		return t.Run(ctx, conn, conn)
	}, nil
}
