package guard

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// SetCeilings puts other ceilings in force (rules.RootRules.Ceilings). When it returns without an
// error, no live root exceeds them. A live root that they do not allow, or that has lived longer than
// they allow, is revoked. A live root with more rights than they allow has lost the excess rights.
// Nothing is given back when a ceiling is lifted. ended has the reason for each root that was revoked.
func (g *Registry) SetCeilings(ctx context.Context, list []rules.Ceiling) (ended map[RootName]error, err error) {
	g.mu.Lock()
	g.rules.Ceilings = slices.Clone(list)
	live := slices.Collect(maps.Values(g.snap.Load().byName))
	g.mu.Unlock()
	var mu sync.Mutex
	ended = map[RootName]error{}
	errs := make([]error, len(live))
	sideBySide(live, func(i int, r *root) {
		var why error
		if why, errs[i] = g.lower(ctx, r); why != nil {
			mu.Lock()
			defer mu.Unlock()
			ended[r.name] = why
		}
	})
	return ended, errors.Join(errs...)
}

// lower brings a live root within the ceilings. If the root had to be revoked, why is the reason.
func (g *Registry) lower(ctx context.Context, r *root) (why, err error) {
	keeps := errors.New("the root keeps to the ceilings")
	err = g.change(ctx, r, func(next Policy) (policyChange, error) {
		allowed := g.rootRules()
		var rights Rights
		if rights, why = allowed.Within(r.grant.Resolved, next.Rights); why != nil {
			return policyChange{}, why
		}
		had, end := r.life.End(), allowed.End(r.life.End(), r.life.EndSetAt())
		if end.Equal(had) && rights == next.Rights {
			return policyChange{}, keeps
		}
		if !end.IsZero() && !end.After(g.clock.Wall()) {
			why = &Error{Kind: names.Revoked, Err: errors.New("the root is older than the ceiling of this machine allows")}
			return policyChange{}, why
		}
		lost := next.Rights &^ rights
		detail := "ceiling: " + next.Rights.String() + " -> " + rights.String()
		if !end.Equal(had) {
			detail += ", ends " + formatEnd(had) + " -> " + formatEnd(end)
		}
		next.Rights = rights
		return policyChange{policy: &next, detail: detail, narrows: lost != 0, hides: lost&^rules.MutatingRights != 0, apply: func([]*root) {
			r.life.SetEnd(end, g.clock.Now())
			g.startTimer(r)
		}}, nil
	})
	switch {
	case why != nil:
		note := g.Note(names.OpSet, r.name, Allowed, "ceiling: "+why.Error())
		_, err = g.end(ctx, r, RevokedState)
		return why, errors.Join(note, err)
	case errors.Is(err, keeps), State(r.state.Load()) != Live:
		return nil, nil
	}
	return nil, err
}
