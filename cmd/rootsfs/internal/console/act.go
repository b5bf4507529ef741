package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/written"
	"github.com/rootsfs/rootsfs/guard/names"
)

// client finds a session by its exact name: the page names one always.
func (s *Server) client(session string) (*control.Client, error) {
	if c := s.hub.Client(session); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("%w: %s has ended", control.ErrNoSession, names.Quote(session))
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
		var ended []control.Ended
		if ended, err = c.Revoke(ctx, req); len(ended) > 0 {
			out.Ended = ended
		}
		s.hub.Refresh(session)
	}
	if err != nil {
		out.Error = control.Text(err)
	}
	return out
}

// answering decides a question of a session.
type answering struct {
	Session string `json:"session"`
	control.AnswerRequest
}

func (s *Server) answer(ctx context.Context, in answering) (control.AnswerAnswer, error) {
	c, err := s.client(in.Session)
	if err != nil {
		return control.AnswerAnswer{}, err
	}
	if in.Path != "" {
		// Links on the way to it are undone, as they were in what is shown.
		if !filepath.IsAbs(in.Path) {
			return control.AnswerAnswer{}, fmt.Errorf("the narrower path %s is not absolute", names.Quote(in.Path))
		}
		if in.Path, err = written.Resolve(in.Path); err != nil {
			return control.AnswerAnswer{}, fmt.Errorf("the narrower path: %w", err)
		}
	}
	list, err := c.Answer(ctx, in.AnswerRequest)
	s.hub.Refresh(in.Session)
	return control.AnswerAnswer{Answered: list}, err
}

// forgetting lifts a denial of a session.
type forgetting struct {
	Session string `json:"session"`
	control.ForgetRequest
}

func (s *Server) forget(ctx context.Context, in forgetting) (control.ForgetAnswer, error) {
	c, err := s.client(in.Session)
	if err != nil {
		return control.ForgetAnswer{}, err
	}
	list, err := c.Forget(ctx, in.ForgetRequest)
	s.hub.Refresh(in.Session)
	return control.ForgetAnswer{Forgotten: list}, err
}

// adding approves one more root in a session.
type adding struct {
	Session string `json:"session"`
	Name    string `json:"name"` // "": made of the path
	Path    string `json:"path"` // absolute
	Mode    string `json:"mode"`
	ForMS   int64  `json:"for_ms"` // 0: with the session
}

func (s *Server) add(ctx context.Context, in adding) (control.AddAnswer, error) {
	c, err := s.client(in.Session)
	if err != nil {
		return control.AddAnswer{}, err
	}
	ask := control.Ask{Name: in.Name, Path: in.Path, Mode: in.Mode, ApprovedBy: "console"}
	if ask.Name == "" {
		name, err := names.ParseRootName(filepath.Base(in.Path))
		if err != nil {
			return control.AddAnswer{}, fmt.Errorf("name: the path's last element cannot be the root's name; give it one: %w", err)
		}
		ask.Name = string(name)
	}
	if in.ForMS < 0 || in.ForMS > longest.Milliseconds() {
		return control.AddAnswer{}, fmt.Errorf("for: write a duration between 0 (with the session) and %v", longest)
	}
	if in.ForMS > 0 {
		end := time.Now().Add(time.Duration(in.ForMS) * time.Millisecond)
		ask.Expires = &end
	}
	roots, err := c.Add(ctx, []control.Ask{ask})
	s.hub.Refresh(in.Session)
	return control.AddAnswer{Roots: roots}, err
}

// longest is more than anybody means.
const longest = 10 * 365 * 24 * time.Hour

// setting changes a root's mode.
type setting struct {
	Session string `json:"session"`
	Name    string `json:"name"`
	Mode    string `json:"mode"`
}

func (s *Server) set(ctx context.Context, in setting) (control.SetAnswer, error) {
	c, err := s.client(in.Session)
	if err != nil {
		return control.SetAnswer{}, err
	}
	root, err := c.Set(ctx, in.Name, in.Mode)
	s.hub.Refresh(in.Session)
	return control.SetAnswer{Root: root}, err
}

// policy answers with the rules in force in a session.
func (s *Server) policy(w http.ResponseWriter, r *http.Request) {
	c, err := s.client(r.URL.Query().Get("session"))
	if err != nil {
		failWith(w, err)
		return
	}
	a, err := c.Policy(r.Context())
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, a)
}

// inside answers with what lies at an item of a question.
func (s *Server) inside(w http.ResponseWriter, r *http.Request) {
	v := r.URL.Query()
	c, err := s.client(v.Get("session"))
	if err != nil {
		failWith(w, err)
		return
	}
	item, err := strconv.Atoi(v.Get("item"))
	if err != nil {
		fail(w, http.StatusBadRequest, "item: write a number, counted from 1")
		return
	}
	a, err := c.Inside(r.Context(), control.InsideRequest{ID: v.Get("id"), Item: item})
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, a)
}
