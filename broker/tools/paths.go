package tools

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// target is a path as a client wrote it, and the path that it means.
type target struct {
	guard.Path
	host string // the text, with ~ replaced by the home directory
	abs  bool   // the text is absolute, or a URI; so answers name files absolutely, too
}

// display returns the text by which an answer names the path p: an absolute path if at is absolute,
// otherwise ROOT/path.
func (s *Server) display(at target, p guard.Path) string {
	if at.abs {
		if dir, ok := s.cfg.Registry.Dir(p.Root); ok {
			return path.Join(dir, p.Rel())
		}
	}
	return p.String()
}

// target parses text, the path in the argument field. If the path is absolute, and no root holds
// it, target asks a person, if there is one to ask.
func (c *call) target(field, text string) (target, error) {
	if text == "" {
		return target{}, missing(field)
	}
	at, err := c.s.parse(c.ctx, text)
	if errors.Is(err, names.NoConsent) && at.abs {
		// scope records other names of the client's own roots. The path may lie below such a name.
		if _, all, scopeErr := c.s.scope(c.ctx, c.req.Session); !all && scopeErr == nil {
			at, err = c.s.parse(c.ctx, text)
		}
	}
	if errors.Is(err, names.NoConsent) && c.s.cfg.Ask != nil && at.abs {
		if err = c.consent(at.host); err == nil {
			at, err = c.s.parse(c.ctx, text)
		}
	}
	if err != nil {
		return target{}, err
	}
	c.stamps.Add(at.Root)
	err = c.s.checkRoots(c.ctx, c.req.Session, &at)
	return at, err
}

// parse reads a path: "root/a/b", an absolute path inside a root, or a file URI. If there is
// only one root, a path that begins with no root's name lies in that root: clients of
// server-filesystem write paths like this. The name of an ended root still means that root, so
// that no path meant for it leads to another root.
func (s *Server) parse(ctx context.Context, text string) (at target, err error) {
	if s.cfg.Home != "" && (text == "~" || strings.HasPrefix(text, "~/")) {
		text = s.cfg.Home + text[1:]
	}
	at.host = text
	at.abs = strings.HasPrefix(text, "/") || isFileURI(text)
	if at.abs {
		at.Path, err = s.cfg.Registry.Parse(s.cfg.Subject, text)
	} else {
		at.Path, err = s.parseNamed(ctx, text)
	}
	return at, err
}

func (s *Server) parseNamed(ctx context.Context, text string) (guard.Path, error) {
	short := strings.TrimPrefix(text, "./")
	first, _, _ := strings.Cut(short, "/")
	root, reg := guard.RootName(first), s.cfg.Registry
	whose, isLive := reg.SubjectOf(root)
	if isLive && whose.Covers(s.cfg.Subject) {
		return names.ParsePath(short)
	}
	if all := s.visible(); len(all) == 1 && (isLive || !reg.WasRevoked(root, s.cfg.Subject)) {
		return names.ParsePath(string(all[0].Grant.Root) + "/" + text)
	}
	p, err := names.ParsePath(short)
	if err == nil {
		// The gate knows whether the root has ended or never was.
		_, err = s.cfg.Tree.Follow(ctx, s.caller, guard.Path{Root: p.Root}, true)
	}
	return p, err
}

// narrowing holds the sessions whose clients have named roots. For such a session, an empty
// list of roots leaves no path. A client that never named roots does not narrow its session;
// server-filesystem does the same.
type narrowing struct {
	sessions sync.Map // of *mcp.ServerSession
}

// applies reports whether a session is narrowed. hasRoots reports whether its client names
// roots now.
func (n *narrowing) applies(ss *mcp.ServerSession, hasRoots bool) bool {
	if !hasRoots {
		_, known := n.sessions.Load(ss)
		return known
	}
	if _, known := n.sessions.LoadOrStore(ss, nil); !known {
		go func() {
			_ = ss.Wait() // how it ended does not matter
			n.sessions.Delete(ss)
		}()
	}
	return true
}

// scope returns the part of the roots that the client's own roots leave to its session. If all
// is true, the client's roots do not narrow the session.
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
		return nil, false, &guard.Error{Kind: names.NoConsent, Err: errors.New("the client's roots cannot be read, so nothing is inside them; " + ignoreRoots)}
	}
	if !s.narrow.applies(ss, len(snap.Roots) > 0) {
		return nil, true, nil
	}
	for _, r := range snap.Roots {
		p, err := s.cfg.Registry.Parse(s.cfg.Subject, r.URI)
		if errors.Is(err, names.NoConsent) {
			p, err = s.otherName(ctx, r.URI)
		}
		if err == nil {
			if real, err := s.cfg.Tree.Follow(ctx, s.caller, p, true); err == nil {
				p = real
			}
			scope = append(scope, p)
		} else if host, err := names.ParseURI(r.URI); err == nil {
			scope = append(scope, s.rootsIn(s.resolveHost(ctx, host))...)
		}
	}
	return scope, false, nil
}

// otherName resolves the URI of a client's root on the host and parses the result. It records the
// path of the URI as another name for the resolved path.
func (s *Server) otherName(ctx context.Context, uri string) (guard.Path, error) {
	host, err := names.ParseURI(uri)
	if err != nil {
		return guard.Path{}, err
	}
	real := s.resolveHost(ctx, host)
	p, err := s.cfg.Registry.Parse(s.cfg.Subject, real)
	if err == nil && real != host {
		s.cfg.Registry.NoteLink(host, real)
	}
	return p, err
}

// resolveWait is how long resolveHost waits: the path may lie on a file server that does not
// answer.
const resolveWait = 2 * time.Second

// resolveHost returns the path to which the links in a path of the host lead (Config.Resolve). It
// returns the path itself if it cannot resolve the path, or not in time.
func (s *Server) resolveHost(ctx context.Context, host string) string {
	if s.cfg.Resolve == nil {
		return host
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWait)
	defer cancel()
	found := make(chan string, 1)
	go func() {
		real, err := s.cfg.Resolve(host)
		if err != nil {
			real = host
		}
		found <- real
	}()
	select {
	case real := <-found:
		return real
	case <-ctx.Done():
		return host
	}
}

// rootsIn returns the visible roots that lie in a directory of the host.
func (s *Server) rootsIn(dir string) (tops []guard.Path) {
	for _, st := range s.visible() {
		if names.Under(st.Grant.Resolved, dir) {
			tops = append(tops, guard.Path{Root: st.Grant.Root})
		}
	}
	return tops
}

// ignoreRoots tells the owner how to ignore a client's own roots.
const ignoreRoots = "the owner can start rootsfs serve with --client-roots ignore"

// checkRoots refuses a target if its path, or the path to which the links in it lead, is outside
// the client's roots. Otherwise it replaces the target's path by the checked path, in which only
// the last name may be a link. So the tree is asked for the path that was checked.
func (s *Server) checkRoots(ctx context.Context, ss *mcp.ServerSession, at *target) error {
	scope, all, err := s.scope(ctx, ss)
	if all || err != nil {
		return err
	}
	named, err := s.resolve(ctx, at.Path, false)
	if err != nil {
		return err
	}
	leads, err := s.resolve(ctx, named, true)
	if err != nil {
		return err
	}
	if len(scope) == 0 {
		return &guard.Error{Path: at.Path, Kind: names.NoConsent, Err: errors.New("the roots that the client names hold nothing that is approved; " + ignoreRoots)}
	}
	isInside := func(q guard.Path) bool {
		return slices.ContainsFunc(scope, func(p guard.Path) bool { return p.Has(q) })
	}
	if !isInside(named) || !isInside(leads) {
		return &guard.Error{Path: at.Path, Kind: names.NoConsent, Err: errors.New("the path lies outside the roots that the client names")}
	}
	at.Path = named
	return nil
}

// resolve follows the links in a path, as far as the path exists. last is set if a link at the end
// of the path is to be followed, too.
func (s *Server) resolve(ctx context.Context, p guard.Path, last bool) (guard.Path, error) {
	var rest []string // the names at the end of the path that do not exist
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
