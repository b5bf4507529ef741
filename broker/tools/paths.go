package tools

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// place is a path as a client wrote it and what it means. Answers name files in
// the way they were asked for: by root, or absolutely.
type place struct {
	guard.Path
	asked string // as it was written
	host  string // the same, with ~ replaced by the home directory
	abs   bool
}

// shown is a path of the same root, in the way the client writes them.
func (s *Server) shown(at place, p guard.Path) string {
	if at.abs {
		if st, ok := s.cfg.Registry.Lookup(p.Root); ok {
			return path.Join(st.Grant.Resolved, p.Rel())
		}
	}
	return p.String()
}

// place reads a path argument. field is its name, for the error.
func (c *call) place(field, text string) (place, error) {
	if text == "" {
		return place{}, c.missing(field)
	}
	at, err := c.s.parse(text)
	if errors.Is(err, names.NoConsent) && c.s.cfg.Ask != nil && at.abs {
		if err = c.consent(at.host); err == nil {
			at, err = c.s.parse(text)
		}
	}
	if err != nil {
		return place{}, err
	}
	c.use(at.Root)
	if err := c.s.within(c.ctx, c.req.Session, &at); err != nil {
		return place{}, err
	}
	return at, nil
}

// onePlace reads the arguments of a tool that takes one path and nothing else.
func (c *call) onePlace() (place, error) {
	var a struct {
		Path string `json:"path"`
	}
	if err := c.args(&a); err != nil {
		return place{}, err
	}
	return c.place("path", a.Path)
}

// reads reports whether the tool called changes nothing.
func (c *call) reads() bool {
	i := slices.IndexFunc(catalog, func(t tool) bool { return t.def.Name == c.req.Params.Name })
	return i >= 0 && catalog[i].def.Annotations.ReadOnlyHint
}

// parse reads a path: "root/a/b", an absolute path inside a root, a file URI.
// With one root, what begins with no root's name lies in that: it is how clients
// of server-filesystem write paths.
func (s *Server) parse(text string) (place, error) {
	at := place{asked: text}
	if s.cfg.Home != "" && (text == "~" || strings.HasPrefix(text, "~/")) {
		text = s.cfg.Home + text[1:]
	}
	at.host = text
	at.abs = strings.HasPrefix(text, "/") || len(text) >= 5 && strings.EqualFold(text[:5], "file:")
	var err error
	if at.abs {
		at.Path, err = s.cfg.Registry.Parse(s.cfg.Subject, path.Clean("/"+strings.TrimPrefix(text, "/")))
		if !strings.HasPrefix(text, "/") || strings.Contains(text, "/../") || strings.HasSuffix(text, "/..") {
			at.Path, err = s.cfg.Registry.Parse(s.cfg.Subject, text)
		}
	} else {
		at.Path, err = s.parseNamed(text)
	}
	if err != nil {
		return at, err
	}
	return at, nil
}

// sees reports whether there is such a root that is the client's to know of.
func (s *Server) sees(root guard.RootName) bool {
	whose, ok := s.cfg.Registry.SubjectOf(root)
	return ok && whose.Covers(s.cfg.Subject)
}

func (s *Server) parseNamed(text string) (guard.Path, error) {
	first, _, _ := strings.Cut(strings.TrimPrefix(text, "./"), "/")
	if s.sees(guard.RootName(first)) {
		return names.ParsePath(strings.TrimPrefix(text, "./"))
	}
	if all := s.visible(); len(all) == 1 {
		return names.ParsePath(string(all[0].Grant.Root) + "/" + text)
	}
	p, err := names.ParsePath(text)
	if err == nil {
		err = &guard.Error{Path: p, Kind: names.NoConsent}
	}
	return p, err
}

// narrowing knows which sessions' clients have named roots: from then on an
// empty list means that nothing is left. A client that never named any has said
// nothing, as server-filesystem sees it too.
type narrowing struct {
	mu    sync.Mutex // guards the field below
	named map[*mcp.ServerSession]bool
}

func (n *narrowing) begins(ss *mcp.ServerSession, any bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.named[ss] || !any {
		return n.named[ss]
	}
	if n.named == nil {
		n.named = map[*mcp.ServerSession]bool{}
	}
	n.named[ss] = true
	go func() {
		_ = ss.Wait() // how it ended does not matter
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.named, ss)
	}()
	return true
}

// scope is what of the roots the client's own roots leave to a session; all is
// true where they say nothing.
func (s *Server) scope(ctx context.Context, ss *mcp.ServerSession) (scope []guard.Path, all bool, err error) {
	if s.cfg.IgnoreRoots || ss == nil {
		return nil, true, nil
	}
	s.questions.Add(1) // the client may be asked for its roots
	snap, err := s.roots.Snapshot(ctx, ss)
	s.questions.Add(-1)
	switch {
	case errors.Is(err, client.ErrNotSupported):
		return nil, true, nil
	case errors.Is(err, client.ErrInputRequired):
		return nil, false, err
	case err != nil:
		return nil, false, &guard.Error{Kind: names.NoConsent, Err: errors.New("the client's roots cannot be read, so nothing is inside them")}
	}
	if !s.narrow.begins(ss, len(snap.Roots) > 0) {
		return nil, true, nil
	}
	visible := s.visible()
	for _, r := range snap.Roots {
		if p, err := s.cfg.Registry.Parse(s.cfg.Subject, r.URI); err == nil {
			if real, err := s.cfg.Tree.Follow(ctx, s.caller, p, true); err == nil {
				p = real
			}
			scope = append(scope, p)
			continue
		}
		// A client's root around one of ours holds all of it.
		host, err := names.ParseURI(r.URI)
		for i := range visible {
			if err == nil && names.Under(visible[i].Grant.Resolved, host) {
				if p, err := guard.NewPath(visible[i].Grant.Root, ""); err == nil {
					scope = append(scope, p)
				}
			}
		}
	}
	return scope, false, nil
}

// within holds a path to the client's roots: where it leads is judged, and the
// place it names is what the tree is then asked for.
func (s *Server) within(ctx context.Context, ss *mcp.ServerSession, at *place) error {
	scope, all, err := s.scope(ctx, ss)
	if all || err != nil {
		return err
	}
	named, err := s.followed(ctx, at.Path, false)
	if err != nil {
		return err
	}
	leads, err := s.followed(ctx, named, true)
	if err != nil {
		return err
	}
	inside := func(q guard.Path) bool {
		return slices.ContainsFunc(scope, func(p guard.Path) bool { return p.Has(q) })
	}
	if !inside(named) || !inside(leads) {
		return &guard.Error{Path: at.Path, Kind: names.NoConsent, Err: errors.New("the path lies outside the roots that the client names")}
	}
	at.Path = named
	return nil
}

// followed is where a path leads, as far as it exists; last says whether a link
// at its end is followed.
func (s *Server) followed(ctx context.Context, p guard.Path, last bool) (guard.Path, error) {
	var rest []string
	for {
		real, err := s.cfg.Tree.Follow(ctx, s.caller, p, last || len(rest) > 0)
		if err == nil {
			for _, name := range slices.Backward(rest) {
				if real, err = real.Join(name); err != nil {
					return real, err
				}
			}
			return real, nil
		}
		if !errors.Is(err, names.NotExist) || p.IsRoot() {
			return p, err
		}
		dir, base := p.Split()
		p, rest = dir, append(rest, base)
	}
}
