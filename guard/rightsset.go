package guard

import (
	"context"
	"errors"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Set changes a root's rights while it is in use. What a narrower policy
// forbids is dead when Set returns, as after a revocation.
func (g *Registry) Set(ctx context.Context, name RootName, rights Rights) error {
	r := g.snap.Load().byName[name]
	if r == nil {
		return NoRoot(name)
	}
	if rights == 0 || rights&^ReadWrite != 0 {
		return &Error{Op: names.OpSet, Kind: names.Invalid, Err: errors.New("no rights are left; use revoke to end a root")}
	}
	g.mu.Lock()
	rules := g.rules
	g.mu.Unlock()
	if err := rules.with(&r.grant).Check(r.grant.Resolved, rights); err != nil {
		return err
	}
	ctx, letGo, err := g.lockLiveChanges(ctx, r)
	if err != nil {
		return err
	}
	defer letGo()
	if err := g.noteWritable(r.grant.Resolved, rights); err != nil {
		return err
	}
	return g.set(ctx, r, rights)
}

func (g *Registry) set(ctx context.Context, r *root, rights Rights) error {
	old := r.policy.Load()
	next := *old
	next.Rights = rights
	if err := next.Trash.check(r.src, r.grant.Resolved, rights); err != nil {
		return err
	}
	if err := g.objection(old, next); err != nil {
		return err
	}
	c := Change{Root: r.name, Epoch: r.epoch, Kind: ChangeWidened}
	detail := old.Rights.String() + " -> " + rights.String()
	if old.Rights&^rights != 0 {
		c.Kind = ChangeNarrowed
	}
	if c.Kind == ChangeWidened {
		// A widening is on record before it holds.
		if err := g.recordOwner(r, names.OpSet, rights, detail); err != nil {
			return err
		}
		r.policy.Store(&next)
		g.notify(Event{Kind: EventChanged, Root: r.name, Detail: detail})
		return g.invalidateViews(ctx, c)
	}
	err := g.narrow(ctx, r, func([]*root) { r.policy.Store(&next) })
	err = errors.Join(err, g.recordOwner(r, names.OpSet, rights, detail))
	g.notify(Event{Kind: EventChanged, Root: r.name, Detail: detail})
	return err
}

// narrow puts in force, by put, what may forbid more than before. What it forbids is
// dead then, through the live roots around r, too, which put is told. The caller holds r.
func (g *Registry) narrow(ctx context.Context, r *root, put func(outers []*root)) error {
	c, outers := r.narrowedChange(), g.outerRoots(r)
	g.flush(ctx, c, r)
	for _, o := range outers {
		g.flush(ctx, o.narrowedChange(), o)
	}
	put(outers)
	errs := []error{r.drainOrCut(ctx), g.invalidateViews(ctx, c)}
	for _, o := range outers {
		errs = append(errs, g.narrowViews(ctx, o))
	}
	return errors.Join(append(errs, r.settle(ctx))...)
}

func (r *root) narrowedChange() Change {
	return Change{Root: r.name, Epoch: r.epoch, Kind: ChangeNarrowed}
}

// narrowViews makes views judge a root anew after its fences changed.
func (g *Registry) narrowViews(ctx context.Context, r *root) error {
	ctx, letGo, err := g.lockChanges(ctx, r)
	if err != nil {
		return err
	}
	defer letGo()
	if State(r.state.Load()) != Live {
		return nil
	}
	g.flush(ctx, r.narrowedChange(), r)
	return errors.Join(r.drain(ctx), g.invalidateViews(ctx, r.narrowedChange()), r.settle(ctx))
}
