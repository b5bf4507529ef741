package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// pass returns a handler that passes a request to the session that the query names.
func pass[In, Out any](s *Server, v control.Verb[In, Out]) http.HandlerFunc {
	return inSession(s, v.Call)
}

// inSession returns a handler that calls f with a request and a client of the session that the
// query names.
func inSession[In, Out any](s *Server, f func(context.Context, *control.Client, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		do(func(ctx context.Context, req In) (out Out, err error) {
			c, err := s.live.Client(r.URL.Query().Get("session"))
			if err != nil {
				return out, err
			}
			return f(ctx, c, req)
		})(w, r)
	}
}

// revokeRequest is a request to revoke some or all roots of a session, or, with Everything, all
// roots of all sessions.
type revokeRequest struct {
	Session    string   `json:"session"`
	Names      []string `json:"names"`
	All        bool     `json:"all"`
	Everything bool     `json:"everything"`
}

// revocation has the results of a revokeRequest.
type revocation struct {
	Sessions []sessionhub.Revoked `json:"sessions"`
	TookMS   float64              `json:"took_ms"`
}

func (s *Server) revoke(ctx context.Context, in revokeRequest) (revocation, error) {
	which := []string{in.Session}
	switch {
	case in.Everything && (in.Session != "" || len(in.Names) > 0):
		return revocation{}, errors.New("everything, and one session: say one of them")
	case in.Everything:
		which, in.All = s.live.Names(), true
	case !in.All && len(in.Names) == 0:
		return revocation{}, errors.New("no root is named")
	}
	start := time.Now()
	sessions := s.live.Revoke(ctx, which, control.RevokeRequest{Names: in.Names, All: in.All})
	return revocation{sessions, float64(time.Since(start).Microseconds()) / 1000}, nil
}

// applyStaged applies the changes that the owner has looked at. The request must name their paths.
func applyStaged(ctx context.Context, c *control.Client, in control.StageRequest) (control.StageAnswer, error) {
	if len(in.Paths) == 0 {
		return control.StageAnswer{}, errNoPath
	}
	return control.ApplyStage.Call(ctx, c, control.StageApplyRequest{StageRequest: in})
}

// discardStaged discards changes. Like applyStaged, it needs their paths.
func discardStaged(ctx context.Context, c *control.Client, in control.StageRequest) (control.StageAnswer, error) {
	if len(in.Paths) == 0 {
		return control.StageAnswer{}, errNoPath
	}
	return control.DiscardStage.Call(ctx, c, in)
}

var errNoPath = errors.New("no path is named")

// addRequest is a request to approve one more root in a session. The page has fewer options than
// control.AddRequest: it cannot lift the rules about system directories.
type addRequest struct {
	Name  string `json:"name"` // "": the last element of the path
	Path  string `json:"path"` // absolute
	Mode  string `json:"mode"`
	ForMS int64  `json:"for_ms"` // 0: the grant ends with the session
}

func add(ctx context.Context, c *control.Client, in addRequest) (control.AddAnswer, error) {
	rights, err := rules.ParseMode(in.Mode)
	if err != nil {
		return control.AddAnswer{}, err
	}
	name, err := names.ParseRootName(cmp.Or(in.Name, filepath.Base(in.Path)))
	if err != nil && in.Name != "" {
		return control.AddAnswer{}, err
	} else if err != nil {
		return control.AddAnswer{}, fmt.Errorf("name: the path's last element cannot be the root's name; give it one: %w", err)
	}
	if in.ForMS < 0 || in.ForMS > maxAddFor.Milliseconds() {
		return control.AddAnswer{}, fmt.Errorf("for: write a duration between 0 (with the session) and %v", maxAddFor)
	}
	g := guard.Grant{Root: name, Dir: names.Foreign(in.Path), Origin: "console", Policy: guard.Policy{Rights: rights}}
	if in.ForMS > 0 {
		g.Expires = time.Now().Add(time.Duration(in.ForMS) * time.Millisecond)
	}
	return control.AddRoots.Call(ctx, c, control.AddRequest{Roots: []guard.Grant{g}})
}

// maxAddFor bounds the duration of a grant. It is longer than any sensible one.
const maxAddFor = 10 * 365 * 24 * time.Hour
