package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// policyChange is a new policy for a live root.
type policyChange struct {
	policy *Policy // the new policy
	detail string  // for the record and the event
	// narrows: the change may forbid more than before. widens: it may allow more. A change that
	// widens is recorded before it takes effect.
	narrows, widens bool
	// hides: the change may forbid reading files that could be read before.
	hides bool
	// apply, unless nil, is called right after the policy is stored. outers are the live
	// roots around the root.
	apply func(outers []*root)
}

// change changes the policy of a root that is in use. It calls prepare, which returns the
// change, when no other change of the root is under way. When change returns without an error,
// handles and mappings that the new policy forbids are dead, as after a revocation. That includes
// handles and mappings that were handed out through the live roots around the root.
func (g *Registry) change(ctx context.Context, r *root, prepare func(old Policy) (policyChange, error)) error {
	outers, err := g.changeLocked(ctx, r, prepare)
	// Do this only after r's lock was released. Two roots at one directory are around each
	// other: if both were changed, each would wait for the other's lock.
	errs := make([]error, len(outers))
	sideBySide(outers, func(i int, o *root) { errs[i] = g.narrowViews(ctx, o) })
	return errors.Join(append(errs, err)...)
}

// changeLocked is the part of change that holds the lock of the root's changes. It returns
// the roots around the root whose views have to be narrowed, too.
func (g *Registry) changeLocked(ctx context.Context, r *root, prepare func(old Policy) (policyChange, error)) (narrowed []*root, err error) {
	ctx, unlock, err := g.lockLiveChanges(ctx, r)
	if err != nil {
		return nil, err
	}
	defer unlock()
	old := r.policy.Load()
	c, err := prepare(*old)
	if err != nil {
		return nil, err
	}
	if err := g.objection(old, *c.policy); err != nil {
		return nil, err
	}
	record := func() error { return g.recordOwner(r, names.OpSet, c.policy.Rights, c.detail) }
	if c.widens {
		if err := record(); err != nil {
			return nil, errors.Join(errors.New("the change cannot be recorded, so it is not made"), err)
		}
	}
	outers := g.outerRoots(r)
	apply := func() {
		r.policy.Store(c.policy)
		if c.apply != nil {
			c.apply(outers)
		}
		if c.hides {
			for _, o := range append(slices.Clone(outers), r) {
				o.narrowed.Add(1)
			}
		}
	}
	if c.narrows {
		narrowed = outers
		err = g.narrow(ctx, r, outers, apply)
	} else {
		apply()
	}
	if !c.widens {
		err = errors.Join(err, record())
	}
	g.notify(Event{Kind: EventChanged, Root: r.name, Detail: c.detail})
	if !c.narrows && c.policy.Rights != old.Rights {
		err = errors.Join(err, g.invalidateViews(ctx, r.asChange(ChangeWidened)))
	}
	return narrowed, err
}

// narrow calls apply, which puts a policy in force that may forbid more than before. When narrow
// returns without an error, every handle and mapping through r that is forbidden now is dead. For
// outers, the live roots around r, narrow only flushes. The caller has locked r's changes. After
// they are unlocked, narrowViews has to be called for outers (see change).
func (g *Registry) narrow(ctx context.Context, r *root, outers []*root, apply func()) error {
	sideBySide(append(slices.Clone(outers), r), func(_ int, o *root) { g.flush(ctx, o.asChange(ChangeNarrowed), o) })
	apply()
	return errors.Join(r.drainOrCut(ctx), g.invalidateViews(ctx, r.asChange(ChangeNarrowed)), r.settle(ctx))
}

// asChange returns the Change that is passed to views when the root changes.
func (r *root) asChange(kind ChangeKind) Change {
	return Change{Root: r.name, Epoch: r.epoch, Kind: kind}
}

// narrowViews makes views judge again everything that they handed out of r. It is for changes
// outside of r's own policy: a change of a root in r, or the suspension of a subject. If r has
// ended meanwhile, narrowViews does nothing.
func (g *Registry) narrowViews(ctx context.Context, r *root) error {
	return g.whileLive(ctx, r, func(ctx context.Context) error {
		narrowed := r.asChange(ChangeNarrowed)
		g.flush(ctx, narrowed, r)
		return errors.Join(r.drain(ctx), g.invalidateViews(ctx, narrowed), r.settle(ctx))
	})
}

// whileLive calls f with the lock of the root's changes held. If the root ends first, whileLive
// does nothing.
func (g *Registry) whileLive(ctx context.Context, r *root, f func(ctx context.Context) error) error {
	ctx, unlock, err := g.lockLiveChanges(ctx, r)
	if State(r.state.Load()) != Live && errors.As(err, new(*Error)) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	return f(ctx)
}

// Set changes a root's rights while the root is in use. When Set returns without an error, handles
// and mappings that the new rights forbid are dead, as after a revocation.
func (g *Registry) Set(ctx context.Context, name RootName, rights Rights) error {
	r := g.snap.Load().byName[name]
	if r == nil {
		return NoRoot(name)
	}
	if !rights.Valid() {
		return &Error{Op: names.OpSet, Kind: names.Invalid, Err: errors.New("no rights are left; use revoke to end a root")}
	}
	rights, err := rightsOnSet(name, r.grant.Policy.Rights, rights)
	if err != nil {
		return err
	}
	return g.change(ctx, r, func(next Policy) (policyChange, error) {
		allowed := g.rootRules()
		if err := allowed.With(&r.grant).Check(r.grant.Resolved, rights); err != nil {
			return policyChange{}, err
		}
		lost, gained := next.Rights&^rights, rights&^next.Rights
		detail := next.Rights.String() + " -> " + rights.String()
		next.Rights = rights
		if err := g.noteWritable(r.grant.Resolved, rights); err != nil {
			return policyChange{}, err
		}
		if err := checkTrash(next.Trash, r.src, r.grant.Resolved, rights); err != nil {
			return policyChange{}, err
		}
		return policyChange{policy: &next, detail: detail, narrows: lost != 0, widens: lost == 0 || gained != 0, hides: lost&^rules.MutatingRights != 0}, nil
	})
}

// SetPatterns changes a root's patterns while the root is in use, and reads .gitignore files
// again. When it returns without an error, handles and mappings that the new patterns forbid are
// dead. Views have then dropped everything that they cached under the old patterns: a name that is no
// longer hidden appears, and a name that is hidden now disappears. Open files are judged anew by the
// path they were opened at. An open file that is no longer at that path is dead, because its present
// name is not known.
func (g *Registry) SetPatterns(ctx context.Context, name RootName, p Patterns) error {
	r := g.snap.Load().byName[name]
	if r == nil {
		return NoRoot(name)
	}
	compiled := r.grant.Policy
	compiled.Patterns = p
	if err := compiled.Compile(r.src); err != nil {
		return err
	}
	return g.change(ctx, r, func(next Policy) (policyChange, error) {
		next.ReplacePatterns(&compiled)
		detail := "patterns: " + p.Summary() + lifted(&p)
		return policyChange{policy: &next, detail: detail, narrows: true, widens: true, hides: true, apply: func(outers []*root) {
			g.judgeHoldsAgain(append(slices.Clone(outers), r))
		}}, nil
	})
}

// judgeHoldsAgain makes every Hold of the roots stale, so that each is judged anew.
func (g *Registry) judgeHoldsAgain(roots []*root) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range roots {
		next := *r.nesting.Load()
		next.gen++
		r.nesting.Store(&next)
	}
}

// Renew changes when a live root ends. With the zero time, the root ends with the session. An end
// later than the ceilings allow is moved to the latest that they allow (rules.RootRules.End). Renew
// counts as a use. Handles and mappings stay valid.
func (g *Registry) Renew(ctx context.Context, name RootName, expires time.Time) error {
	refuse := func(kind Kind, format string, args ...any) error {
		return &Error{Op: names.OpSet, Kind: kind, Err: fmt.Errorf(format, args...)}
	}
	r := g.snap.Load().byName[name]
	if r == nil {
		return refuse(names.NotExist, "no root is named %s; one that has ended is granted again with: rootsfs roots add", names.Quote(string(name)))
	}
	if !expires.IsZero() && expires.UnixNano() <= g.clock.Now().Wall {
		return refuse(names.Invalid, "the new end of root %s is in the past", names.Quote(string(name)))
	}
	return g.change(ctx, r, func(old Policy) (policyChange, error) {
		expires := g.rootRules().End(expires, g.clock.Wall())
		detail := "ends " + formatEnd(r.life.End()) + " -> " + formatEnd(expires)
		return policyChange{policy: &old, detail: detail, widens: true, apply: func([]*root) {
			r.life.SetEnd(expires, g.clock.Now())
			g.startTimer(r)
		}}, nil
	})
}

func formatEnd(at time.Time) string {
	if at.IsZero() {
		return "with the session"
	}
	return at.Local().Format(time.RFC3339)
}
