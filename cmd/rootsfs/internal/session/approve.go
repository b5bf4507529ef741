package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// granted is what is remembered of a grant after its end.
type granted struct {
	guard.Grant
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

// grantAll makes grants that the owner has approved (each has an Origin), all
// or none.
func (s *Session) grantAll(ctx context.Context, asks []guard.Grant) ([]guard.Grant, error) {
	now := time.Now()
	got, err := s.reg.GrantAll(ctx, asks)
	s.mu.Lock()
	for _, g := range got {
		s.past[g.Root] = granted{g, now}
	}
	s.mu.Unlock()
	for i := range asks {
		if g := &asks[i]; err != nil && g.Origin == originConfig {
			err = s.systemDir(err, g, Resolve(g.Dir), g.Policy.Rights, "write allow_system = true in its [[root]] block")
		}
	}
	return got, err
}

// originConfig is the Origin of configured roots.
const originConfig = "configuration"

// systemDir puts the remedy that fits into the rules' refusal of a writable
// system directory. Any other error is returned as it is.
func (s *Session) systemDir(err error, g *guard.Grant, resolved string, rights guard.Rights, remedy string) error {
	own := guard.Rules{AllowSystem: s.opt.Rules.AllowSystem || g.AllowSystem, AllowRootDir: true}
	all := guard.Rules{AllowSystem: true, AllowRootDir: true}
	if !errors.Is(err, names.Permission) || resolved == "/" || own.Check(resolved, rights) == nil || all.Check(resolved, rights) != nil {
		return err
	}
	return &guard.Error{Kind: names.Permission, Err: fmt.Errorf(
		"%s is a system directory and may only be read-only (:ro); %s if writing is meant", names.Quote(resolved), remedy)}
}

// setRights changes a root's rights, within the rules.
func (s *Session) setRights(ctx context.Context, name guard.RootName, rights guard.Rights) error {
	err := s.reg.Set(ctx, name, rights)
	if st, ok := s.reg.Lookup(name); ok && err != nil {
		err = s.systemDir(err, &st.Grant, st.Grant.Resolved, rights, "revoke it and add it again with --allow-system")
	}
	return err
}

// sameDir explains why the first grants of a session exclude each other, if it
// is that two of them lead to one directory; otherwise err says it well.
func sameDir(asks []guard.Grant, err error) error {
	if !errors.Is(err, names.Exist) {
		return err
	}
	type place struct {
		dir     string
		subject guard.Subject
	}
	first := map[place]guard.Grant{}
	for _, a := range asks {
		dir := place{Resolve(a.Dir), a.Subject}
		b, twice := first[dir]
		if twice && a.Root != b.Root {
			return &guard.Error{Kind: names.Exist, Err: fmt.Errorf(
				"%s is asked for twice: as the root %s (%s) and as %s (%s); leave one of them out",
				names.Quote(dir.dir), names.Quote(string(b.Root)), b.Origin, names.Quote(string(a.Root)), a.Origin)}
		}
		first[dir] = a
	}
	return err
}

// absent tells which of the first grants of a session is of what is not there, and
// who asked for it, if that is why they failed; otherwise err says it well.
func absent(asks []guard.Grant, err error) error {
	if !errors.Is(err, names.NotExist) {
		return err
	}
	for _, a := range asks {
		if _, gone := os.Stat(a.Dir); errors.Is(gone, fs.ErrNotExist) {
			return &guard.Error{Kind: names.NotExist, Err: fmt.Errorf("the root %s (%s): %w", names.Quote(string(a.Root)), a.Origin, err)}
		}
	}
	return err
}
