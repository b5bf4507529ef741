package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Whether a system directory may be writable, and "/" a root, is allowed for
// the session (Options.Rules) or for one root (Ask). The registry knows rules of
// the first kind only; so it is told to allow both, every grant of a session
// passes its approver below, and every change of a mode passes setRights.

// Ask is a grant that the owner asks for, and what is allowed for it alone.
type Ask struct {
	guard.Grant
	AllowSystem  bool // a system directory may be writable
	AllowRootDir bool // it may be "/"
}

// askFor is what a configured root asks for at the moment now.
func askFor(r config.Root, now time.Time) Ask {
	return Ask{Grant: r.Grant(now), AllowSystem: r.AllowSystem}
}

// granted is what is remembered of a grant after its end.
type granted struct {
	Ask
	at time.Time
}

// life is how long the grant was to last; 0: as long as the session.
func (g *granted) life() time.Duration {
	if g.Expires.IsZero() {
		return 0
	}
	// The command counted from when it was run: what is left of a duration by
	// now is a little less than was meant.
	d := g.Expires.Sub(g.at)
	return max(d.Round(time.Second), min(d, time.Second))
}

// asksKey is where grantAll leaves the asks for the approver.
type asksKey struct{}

// grantAll makes grants, all or none.
func (s *Session) grantAll(ctx context.Context, asks []Ask) ([]guard.Grant, error) {
	byName := make(map[guard.RootName]Ask, len(asks))
	grants := make([]guard.Grant, len(asks))
	for i, a := range asks {
		byName[a.Root] = a // a name that comes twice is refused by the registry
		grants[i] = a.Grant
		grants[i].Origin = "" // the approver says who approved
	}
	now := time.Now()
	got, err := s.reg.GrantAll(context.WithValue(ctx, asksKey{}, byName), grants)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range got {
		a := byName[g.Root]
		a.Grant = g
		s.past[g.Root] = granted{a, now}
	}
	return got, err
}

// approver lets pass what grantAll asks for, within the session's rules and
// what is allowed for the root.
type approver struct{ rules guard.Rules }

var _ guard.Approver = approver{}

// Approve implements guard.Approver.
func (p approver) Approve(ctx context.Context, ask guard.Grant) (guard.Grant, error) {
	asks, _ := ctx.Value(asksKey{}).(map[guard.RootName]Ask)
	a, ok := asks[ask.Root]
	if !ok {
		return guard.Grant{}, &guard.Error{Kind: names.NoConsent, Err: errors.New("nobody approved this root, and there is nobody to ask")}
	}
	err := a.within(p.rules).Check(ask.Resolved, ask.Policy.Rights)
	if err != nil && a.Origin == originConfig && ask.Resolved != "/" {
		err = systemDir(ask.Resolved, "write allow_system = true in its [[root]] block")
	}
	ask.Origin = a.Origin
	return ask, err
}

// originConfig is the Origin of configured roots.
const originConfig = "configuration"

// within are the session's rules with what is allowed for the root.
func (a *Ask) within(r guard.Rules) guard.Rules {
	return guard.Rules{AllowSystem: r.AllowSystem || a.AllowSystem, AllowRootDir: r.AllowRootDir || a.AllowRootDir}
}

func systemDir(path, remedy string) error {
	return &guard.Error{Kind: names.Permission, Err: fmt.Errorf(
		"%s is a system directory and may only be read-only (:ro); %s if writing is meant", names.Quote(path), remedy)}
}

// setRights changes a root's rights, within the rules.
func (s *Session) setRights(ctx context.Context, name guard.RootName, rights guard.Rights) error {
	s.mu.Lock()
	a := s.past[name].Ask
	s.mu.Unlock()
	if st, ok := s.reg.Lookup(name); ok && a.within(s.opt.Rules).Check(st.Grant.Resolved, rights) != nil {
		return systemDir(st.Grant.Resolved, "revoke it and add it again with --allow-system")
	}
	return s.reg.Set(ctx, name, rights)
}

// sameDir explains why the first grants of a session exclude each other, if it
// is that two of them lead to one directory; otherwise err says it well.
func sameDir(asks []Ask, err error) error {
	if !errors.Is(err, names.Exist) {
		return err
	}
	first := map[string]Ask{}
	for _, a := range asks {
		dir := resolve(a.Dir)
		b, twice := first[dir]
		if twice && a.Root != b.Root {
			return &guard.Error{Kind: names.Exist, Err: fmt.Errorf(
				"%s is asked for twice: as the root %s (%s) and as %s (%s); leave one of them out",
				names.Quote(dir), names.Quote(string(b.Root)), b.Origin, names.Quote(string(a.Root)), a.Origin)}
		}
		first[dir] = a
	}
	return err
}
