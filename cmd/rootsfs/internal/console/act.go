package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// client finds a session by its exact name: the page names one always.
func (s *Server) client(session string) (*control.Client, error) {
	if c := s.hub.Client(session); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("%w: %s has ended", control.ErrNoSession, names.Quote(session))
}

// pass makes a handler that hands a request on to the session that the query names.
func pass[In, Out any](s *Server, v control.Verb[In, Out]) http.HandlerFunc {
	return inSession(s, v.Call)
}

// inSession makes a handler of a change in the session that the query names.
func inSession[In, Out any](s *Server, f func(context.Context, *control.Client, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		do(func(ctx context.Context, req In) (out Out, err error) {
			c, err := s.client(r.URL.Query().Get("session"))
			if err != nil {
				return out, err
			}
			return f(ctx, c, req)
		})(w, r)
	}
}

// revoking is a request to end roots: some of a session, all of a session, or,
// with Everything, all there are.
type revoking struct {
	Session    string   `json:"session"`
	Names      []string `json:"names"`
	All        bool     `json:"all"`
	Everything bool     `json:"everything"`
}

// revoked tells how it went in one session.
type revoked struct {
	Session string          `json:"session"`
	Ended   []control.Ended `json:"ended"`
	Error   string          `json:"error,omitempty"`
}

// revocation tells how it went.
type revocation struct {
	Sessions []revoked `json:"sessions"`
	TookMS   float64   `json:"took_ms"`
}

func (s *Server) revoke(ctx context.Context, in revoking) (revocation, error) {
	which := []string{in.Session}
	switch {
	case in.Everything && (in.Session != "" || len(in.Names) > 0):
		return revocation{}, errors.New("everything, and one session: say one of them")
	case in.Everything:
		which, in.All = s.hub.Names(), true
	case !in.All && len(in.Names) == 0:
		return revocation{}, errors.New("no root is named")
	}
	start := time.Now()
	out := revocation{Sessions: make([]revoked, len(which))}
	var all sync.WaitGroup
	for i, name := range which {
		all.Go(func() { out.Sessions[i] = s.revokeIn(ctx, name, control.RevokeRequest{Names: in.Names, All: in.All}) })
	}
	all.Wait()
	out.TookMS = float64(time.Since(start).Microseconds()) / 1000
	return out, nil
}

func (s *Server) revokeIn(ctx context.Context, session string, req control.RevokeRequest) revoked {
	out := revoked{Session: session, Ended: []control.Ended{}}
	c, err := s.client(session)
	if err == nil {
		var a control.RevokeAnswer
		if a, err = control.Revoke.Call(ctx, c, req); len(a.Ended) > 0 {
			out.Ended = a.Ended
		}
	}
	if err != nil {
		out.Error = control.Text(err)
	}
	return out
}

// adding approves one more root in a session. The page is given less than
// control.AddRequest: it cannot lift what the rules say of system directories.
type adding struct {
	Name  string `json:"name"` // "": made of the path
	Path  string `json:"path"` // absolute
	Mode  string `json:"mode"`
	ForMS int64  `json:"for_ms"` // 0: with the session
}

func add(ctx context.Context, c *control.Client, in adding) (control.AddAnswer, error) {
	rights, err := guard.ParseMode(in.Mode)
	if err != nil {
		return control.AddAnswer{}, err
	}
	name, err := names.ParseRootName(cmp.Or(in.Name, filepath.Base(in.Path)))
	if err != nil && in.Name != "" {
		return control.AddAnswer{}, err
	} else if err != nil {
		return control.AddAnswer{}, fmt.Errorf("name: the path's last element cannot be the root's name; give it one: %w", err)
	}
	if in.ForMS < 0 || in.ForMS > longest.Milliseconds() {
		return control.AddAnswer{}, fmt.Errorf("for: write a duration between 0 (with the session) and %v", longest)
	}
	g := guard.Grant{Root: name, Dir: in.Path, Origin: "console", Policy: guard.Policy{Rights: rights}}
	if in.ForMS > 0 {
		g.Expires = time.Now().Add(time.Duration(in.ForMS) * time.Millisecond)
	}
	return control.AddRoots.Call(ctx, c, control.AddRequest{Roots: []guard.Grant{g}})
}

// longest is more than anybody means.
const longest = 10 * 365 * 24 * time.Hour
