package session

import (
	"context"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/sandbox"
	"github.com/rootsfs/rootsfs/vfs"
)

// Explainer returns the answers of the gate for `policy check` and `why`. The verdicts come
// from dry runs of the gate (vfs.Tree.Explain). Explainer also follows links that leave their
// root, as a program that uses the mount would.
type Explainer struct {
	Registry *guard.Registry
	Tree     *vfs.Tree
	Point    string // mountpoint; "": there is none
	// Mount has the options of the mount, which decide which links that leave their root are
	// shown.
	Mount *mount.Options
	// Shows reports whether the confinement of the session's command shows the command a path of
	// the system, outside the roots. nil: the session has no command.
	Shows func(path string) bool
}

func (s *Session) explainer() Explainer {
	x := Explainer{Registry: s.reg, Tree: s.tree, Point: s.Point(), Mount: &s.opt.Mount}
	if server := s.server.Load(); server != nil {
		level, err := sandbox.ParseLevel(server.Confinement)
		x.Shows = func(path string) bool { return err == nil && level.Shows(path) }
	}
	return x
}

// maxLinks is how many links that leave their root are followed for one answer.
const maxLinks = 40

// Check returns the gate's answer to an operation.
func (x Explainer) Check(ctx context.Context, req control.CheckRequest) (control.CheckAnswer, error) {
	op, need, err := parseOp(req.Op)
	if err != nil {
		return control.CheckAnswer{}, err
	}
	// Ask as a program does: the gate ignores suspensions and pauses for the owner.
	ask := guard.Request{Op: op, Need: need, Caller: guard.Caller{Subject: guard.Subject(req.Subject), Via: guard.ViaFUSE}}
	if req.Path2 != "" {
		if ask.Path2, err = x.Registry.Parse(ask.Caller.Subject, req.Path2); err != nil {
			return control.CheckAnswer{}, err
		}
	}
	var passed *control.Link
	for at, links := x.Locate(&req), 0; ; links++ {
		ask.Path, err = x.Registry.Parse(ask.Caller.Subject, at)
		switch {
		case names.Reason(err) == names.NoConsent: // a path outside the roots gets an answer, too
			return x.outside(at, passed, &req, &ask), nil
		case err != nil:
			return control.CheckAnswer{}, err
		}
		if _, ok := x.Registry.Lookup(ask.Path.Root); !ok {
			return control.CheckAnswer{}, guard.NoRoot(ask.Path.Root)
		}
		e := x.Tree.Explain(ctx, ask)
		a := x.answer(&e, req.Op)
		next, shown := x.linkTarget(&e, ask.Path.Root)
		if !shown || links == maxLinks {
			if a.Allowed {
				a.Link = passed
			}
			return a, nil
		}
		passed, at = a.Link, next
	}
}

// Locate returns the path of a request as ROOT/PATH or as an absolute path. It takes a path as
// relative to the working directory (req.Dir) if the path begins with ./ or ../, or if it begins
// with no root's name and then lies in a root or below the mountpoint. It returns any other path as
// it is.
func (x Explainer) Locate(req *control.CheckRequest) string {
	if req.Root != "" {
		return req.Root + "/" + strings.TrimPrefix(req.Path, "/")
	}
	first, _, _ := strings.Cut(req.Path, "/")
	if _, ok := x.Registry.Lookup(guard.RootName(first)); ok || strings.HasPrefix(req.Path, "file:") {
		return req.Path
	}
	full := req.Path
	if !filepath.IsAbs(full) {
		if req.Dir == "" {
			return req.Path
		}
		full = filepath.Join(req.Dir, full)
	}
	full = filepath.Clean(full)
	switch {
	case filepath.IsAbs(x.Point) && full != x.Point && names.Under(full, x.Point):
		return strings.TrimPrefix(full, x.Point+"/")
	case first == "." || first == "..":
		return full
	case !filepath.IsAbs(req.Path) && x.liesInRoot(full):
		return full
	}
	return req.Path
}

// liesInRoot reports whether a path is the directory of a root or lies below one. It compares names
// only, and follows no links.
func (x Explainer) liesInRoot(full string) bool {
	return slices.ContainsFunc(x.Registry.Roots(), func(st guard.Status) bool {
		return names.Under(full, st.Grant.Dir.Raw()) || names.Under(full, st.Grant.Resolved)
	})
}

// outside returns the answer for a path that no root holds. passed, unless nil, is the link
// that led there.
func (x Explainer) outside(at string, passed *control.Link, req *control.CheckRequest, ask *guard.Request) control.CheckAnswer {
	a := control.CheckAnswer{Path: names.Foreign(names.Escape(at)), Op: req.Op, Link: passed, Reason: names.NoConsent.String()}
	at = filepath.Clean(at)
	shown := x.Shows != nil && x.Shows(at) || passed != nil && x.Mount.Visible(at, false)
	if shown && ask.OnlyReads() && filepath.IsAbs(at) {
		a.Allowed, a.Shown, a.Reason = true, true, ""
	}
	return a
}

// answer converts an explanation for the control socket.
func (x Explainer) answer(e *guard.Explanation, op string) control.CheckAnswer {
	p := e.Path
	a := control.CheckAnswer{Path: names.Foreign(p.String()), Op: op, Allowed: e.Allowed, Root: names.Foreign(e.Root)}
	if !e.Allowed {
		a.Reason = e.Kind.String()
	}
	if list := pausesOf(x.Registry); e.Kind == names.Paused && len(list) > 0 {
		a.Paused = &list[0]
	}
	if e.Lacks != 0 {
		a.Lacks = e.Lacks.String()
	}
	if r := e.Verdict.Rule; r != nil {
		a.Rule = &control.Rules([]*pattern.Rule{r})[0]
	}
	if r := e.Verdict.Lifted; r != nil {
		a.Lifted = &control.Rules([]*pattern.Rule{r})[0]
	}
	if at := path.Join(string(e.Root), e.At); !e.Allowed && e.At != "" && at != p.String() {
		a.At = names.Foreign(at)
	}
	if dir, ok := x.Registry.Dir(p.Root); ok && e.Link != nil {
		a.Link = &control.Link{At: names.Foreign(filepath.Join(dir, e.Link.At)), Target: names.Foreign(e.Link.Target)}
	}
	return a
}

// linkTarget returns the path on the host that programs reach by the link that caused the refusal.
// shown is false if programs do not see the link, or if no link caused it.
func (x Explainer) linkTarget(e *guard.Explanation, root guard.RootName) (next string, shown bool) {
	if e.Link == nil {
		return "", false
	}
	p, err := guard.NewPath(root, e.Link.At)
	if err != nil {
		return "", false
	}
	dir, _ := p.Split()
	dest, shown := x.Mount.ShowsLink(x.Registry, dir, e.Link.Target)
	return filepath.Join(dest, e.Link.Rest), shown
}
