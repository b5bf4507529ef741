package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
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

// SetPatterns changes a root's patterns while it is in use. When it returns, what
// the new ones forbid is dead, and what views had kept by the old ones is taken
// back, in both directions: a name that was hidden is there. Open files are
// judged anew at the place they were opened at; one that is not found there any
// more is dead, because nobody can tell what it is called. .gitignore files are
// read again.
func (g *Registry) SetPatterns(ctx context.Context, name RootName, p Patterns) error {
	r := g.snap.Load().byName[name]
	if r == nil {
		return NoRoot(name)
	}
	asked := r.grant.Policy
	asked.Patterns = p
	rules, err := asked.compile(r.src)
	if err != nil {
		return err
	}
	ctx, letGo, err := g.lockLiveChanges(ctx, r)
	if err != nil {
		return err
	}
	defer letGo()
	old := r.policy.Load()
	next := *old
	next.Patterns, next.rules = p, rules
	if err := g.objection(old, next); err != nil {
		return err
	}
	detail := "patterns: " + p.Summary() + lifted(&p)
	// Any change may widen: it is on record before it holds.
	if err := g.recordOwner(r, names.OpSet, next.Rights, detail); err != nil {
		return err
	}
	err = g.narrow(ctx, r, func(outers []*root) {
		g.mu.Lock()
		defer g.mu.Unlock()
		r.policy.Store(&next)
		for _, o := range append(outers, r) {
			f := o.nesting.Load()
			o.nesting.Store(&nesting{gen: f.gen + 1, nested: f.nested, sameDirectory: f.sameDirectory})
		}
	})
	g.notify(Event{Kind: EventChanged, Root: r.name, Detail: detail})
	return err
}

// Current reports whether the patterns are still those the operation was admitted
// under (names.Conflict), for one that took long and is about to take effect.
func (l *Lease) Current() error {
	if l.root.policy.Load().rules != l.policy.rules {
		return &Error{Kind: names.Conflict, Err: errors.New("the root's patterns changed meanwhile; try again")}
	}
	return nil
}

// Summary counts the patterns.
func (p *Patterns) Summary() string {
	text := fmt.Sprintf("%d deny, %d hide, %d protect, %d allow", len(p.Deny), len(p.Hide), len(p.Protect), len(p.Allow))
	if p.Gitignore {
		text += ", .gitignore"
	}
	return text
}

// Rule is one rule in force in a root.
type Rule = pattern.Rule

// RulesOf are the rules in force in a root, in the order they are judged in; nil
// if there is no such root.
func (g *Registry) RulesOf(name RootName) []*Rule {
	r := g.snap.Load().byName[name]
	if r == nil || r.policy.Load().rules == nil {
		return nil
	}
	return r.policy.Load().rules.set.Rules()
}

// Explanation says whether an operation would be admitted, and why not.
type Explanation struct {
	Allowed bool
	// Kind is that of the refusal.
	Kind Kind
	// Lacks are the rights that are missing, if that is the reason.
	Lacks Rights
	// Verdict is what the patterns say. It can name a rule that was lifted.
	Verdict pattern.Verdict
	Root    RootName // whose policy decided: a nested root's may
}

// Explain says what the gate would answer to an operation on a path, without
// asking for it and without a record. It looks at nothing but the policy, and at
// what rules ask of the tree: whether the file exists, or the system allows the
// operation, it does not say. need are the rights the arguments add, as writing
// does to opening.
func (g *Registry) Explain(s Subject, op Op, p Path, need Rights) Explanation {
	l := &Lease{reg: g, req: Request{Caller: Caller{Subject: s, Via: ViaControl}, Op: op, Path: p, Need: need}}
	defer l.endUses(false)
	if err := l.findRoot(); err != nil {
		return Explanation{Kind: names.Reason(err), Root: p.Root}
	}
	defer l.release()
	if lacks, ok := missing(op, need, l.policy.Rights); !ok {
		return Explanation{Kind: names.Reason(denied(lacks, l.policy.Rights)), Lacks: lacks, Root: p.Root}
	}
	out := Explanation{Allowed: true, Root: p.Root}
	if p.IsRoot() || !l.patterned {
		return out
	}
	a := accessOf(op, need, false)
	err := l.eachRules(p.Rel(), func(r *root, set *ruleset, rel string) error {
		if lacks, ok := missing(op, need, r.policy.Load().Rights); !ok {
			out = Explanation{Kind: names.Permission, Lacks: lacks, Root: r.name}
			return &Error{Kind: names.Permission}
		}
		dir, base := splitRel(rel)
		v := set.judge(r, (*rootFacts)(r), dir, base, createdType(op))
		if v.Effect != pattern.None || v.Lifted != nil {
			out.Verdict, out.Root = v, r.name
		}
		if v.Effect == pattern.Protect && l.isException(a, v.Rule, (*rootFacts)(r), rel) {
			return nil
		}
		return refusal(a, v)
	})
	if err != nil {
		out.Allowed, out.Kind = false, names.Reason(err)
	}
	return out
}
