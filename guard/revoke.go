package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Ended reports the end of a root.
type Ended struct {
	Root  RootName
	State State
	Took  time.Duration
	// Err is nil if everything that was handed out is dead, no call that changes the source is in
	// progress, and the end was recorded. Otherwise it says what could not be taken back within
	// the deadline, how many calls may still take effect, or why there is no record.
	Err error
}

// Revoke ends roots. For each root, in this order (see endLocked):
//  1. Views flush dirty data.
//  2. The gate shuts: Admit refuses, and a tombstone is left in the roots around.
//  3. Operations in flight are cancelled, and waited for.
//  4. Views take back what they handed out, also through the roots around.
//  5. Calls that change the source and have begun are waited for.
//  6. The record is written.
//
// Only then Revoke returns. It waits for a root that is already ending.
func (g *Registry) Revoke(ctx context.Context, which ...RootName) ([]Ended, error) {
	snap := g.snap.Load()
	roots := make([]*root, len(which))
	for i, n := range which {
		if roots[i] = snap.byName[n]; roots[i] == nil {
			return nil, &Error{Op: names.OpRevoke, Kind: names.NotExist, Err: fmt.Errorf("no root is named %s", names.Quote(string(n)))}
		}
	}
	return g.endAll(ctx, roots, RevokedState)
}

// RevokeAll ends every root.
func (g *Registry) RevokeAll(ctx context.Context) ([]Ended, error) {
	snap := g.snap.Load()
	roots := make([]*root, 0, len(snap.byName))
	for _, r := range snap.byName {
		roots = append(roots, r)
	}
	return g.endAll(ctx, roots, RevokedState)
}

// endAll ends roots side by side. Live roots that no other call is changing end together, in few
// snapshots. A snapshot for each root would copy the whole index thousands of times for thousands
// of roots. If another call is changing or ending a root, endAll waits for that call.
func (g *Registry) endAll(ctx context.Context, roots []*root, to State) ([]Ended, error) {
	out := make([]Ended, len(roots))
	errs := make([]error, len(roots))
	var wg sync.WaitGroup
	var locked []*root
	var at []int // indices of these roots in the argument roots
	for i, r := range roots {
		if r.tryLockLive() {
			locked, at = append(locked, r), append(at, i)
			continue
		}
		wg.Go(func() { out[i], errs[i] = g.end(ctx, r, to) })
	}
	change, cancel := g.changeContext(ctx)
	defer cancel()
	for k, ended := range g.endLocked(change, locked, to) {
		out[at[k]], errs[at[k]] = ended, ended.Err
		locked[k].unlockChanges()
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// Recheck ends a root if its path does not lead to the approved directory any more, or the
// directory cannot be read (Source.Check). The grant stays listed as unavailable until it is
// approved again or revoked. Recheck may block if the source hangs. If this process lacks
// descriptors or memory for the check, the root stays as it is, and is checked again a little
// later.
func (g *Registry) Recheck(ctx context.Context, name RootName) error {
	r := g.snap.Load().byName[name]
	if r == nil {
		return nil
	}
	if State(r.state.Load()) == Live {
		err := r.src.Check()
		if err == nil {
			return nil
		}
		if isLocalShortage(err) {
			g.recheckLater(ctx, r)
			return nil
		}
	}
	_, err := g.end(ctx, r, UnavailableState)
	return err
}

// isLocalShortage reports whether an error comes from a shortage in this process or machine, or
// from an interrupted call, and not from the root.
func isLocalShortage(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// recheckLater checks a root once more after g.cfg.Deadline, when the shortage may be over.
// For each root one such check is pending at a time.
func (g *Registry) recheckLater(ctx context.Context, r *root) {
	if !r.recheckPending.CompareAndSwap(false, true) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	time.AfterFunc(g.cfg.Deadline, func() {
		r.recheckPending.Store(false)
		if State(r.state.Load()) == Live && g.snap.Load().byName[r.name] == r {
			// If ending the root fails, the event and the record say so. If the root is
			// still live, another caller was changing it, and the check is repeated later.
			if g.Recheck(ctx, r.name) != nil && State(r.state.Load()) == Live {
				g.recheckLater(ctx, r)
			}
		}
	})
}

// end ends one root, or waits until it has ended.
func (g *Registry) end(ctx context.Context, r *root, to State) (Ended, error) {
	ctx, unlock, err := g.lockChanges(ctx, r, nil)
	if err != nil {
		return Ended{Root: r.name}, err
	}
	defer unlock()
	if State(r.state.Load()) != Live {
		return g.endAgain(ctx, r, to)
	}
	if to == ExpiredState && !r.isExpired(g.clock.Now()) {
		g.startTimer(r) // renewed, or used, at the last moment
		return Ended{Root: r.name}, nil
	}
	ended := g.endLocked(ctx, []*root{r}, to)[0]
	return ended, ended.Err
}

// endLocked ends live roots. Every ending of a live root goes through it. The caller has locked
// the roots' changes.
func (g *Registry) endLocked(ctx context.Context, roots []*root, to State) []Ended {
	if len(roots) == 0 {
		return nil
	}
	start := time.Now()
	errs := make([]error, len(roots))
	outers := g.flushAndShut(ctx, roots, to, func(i int, r *root) {
		errs[i] = errors.Join(r.drainForEnd(ctx), g.invalidateViews(ctx, r.asChange(ChangeEnded)))
		close(r.takenBack)
	})
	outerErrs := make([]error, len(outers))
	sideBySide(outers, func(i int, o *root) { outerErrs[i] = g.narrowViews(ctx, o) })

	out := make([]Ended, len(roots))
	sideBySide(roots, func(i int, r *root) {
		err := errors.Join(errs[i], errors.Join(outerErrs...), r.settle(ctx))
		if recErr := g.recordEnd(r, to, err); recErr != nil {
			err = errors.Join(err, fmt.Errorf("the ending could not be recorded: %w", recErr))
		}
		out[i] = Ended{Root: r.name, State: to, Took: time.Since(start), Err: err}
		r.report = out[i]
		closed := g.noteClosing(r)
		go func() {
			r.closeWhenUnused()
			closed()
		}()
		g.notify(Event{Kind: states[to].event, Root: r.name, Detail: out[i].detail()})
	})
	return out
}

// flushAndShut makes views flush dirty data, and shuts each root as soon as its data and that of
// the roots around it is flushed. So a flush that hangs delays only that root and the roots in it.
// Roots that are ready at the same time are shut in one snapshot. For each root that is shut it
// calls takeBack, and returns when all these calls have returned. outers are the other roots
// around those that are shut.
func (g *Registry) flushAndShut(ctx context.Context, roots []*root, to State, takeBack func(i int, r *root)) (outers []*root) {
	ready, outers := g.flushEach(ctx, roots)
	var takingBack sync.WaitGroup
	for left := len(roots); left > 0; {
		batch := []int{<-ready}
		for range len(ready) {
			batch = append(batch, <-ready)
		}
		left -= len(batch)
		shut := make([]*root, len(batch))
		for k, i := range batch {
			shut[k] = roots[i]
		}
		for _, o := range g.shut(shut, to) {
			if !slices.Contains(roots, o) && !slices.Contains(outers, o) { // granted just now
				outers = append(outers, o)
			}
		}
		for _, i := range batch {
			takingBack.Go(func() { takeBack(i, roots[i]) })
		}
	}
	takingBack.Wait()
	return outers
}

// flushEach makes views flush all roots, and all other roots around them (outers), at the same time.
// It sends the index of a root to ready when that root and the roots around it, through which its
// files can be written, are flushed.
func (g *Registry) flushEach(ctx context.Context, roots []*root) (ready <-chan int, outers []*root) {
	flushed := make(map[*root]chan struct{}, len(roots))
	for _, r := range roots {
		flushed[r] = make(chan struct{})
	}
	around := make([][]*root, len(roots))
	for i, r := range roots {
		around[i] = g.outerRoots(r)
		for _, o := range around[i] {
			if flushed[o] == nil {
				flushed[o] = make(chan struct{})
				outers = append(outers, o)
			}
		}
	}
	flush := func(r *root, kind ChangeKind) { g.flush(ctx, r.asChange(kind), r); close(flushed[r]) }
	for _, o := range outers {
		go flush(o, ChangeNarrowed)
	}
	indices := make(chan int, len(roots))
	for i, r := range roots {
		go func() {
			flush(r, ChangeEnded)
			for _, o := range around[i] {
				<-flushed[o]
			}
			indices <- i
		}()
	}
	return indices, outers
}

// sideBySide calls f for every root at the same time, and returns when all calls have returned.
func sideBySide(roots []*root, f func(i int, r *root)) {
	var wg sync.WaitGroup
	for i, r := range roots {
		wg.Go(func() { f(i, r) })
	}
	wg.Wait()
}

// endAgain handles the second ending of a root. Revoking an unavailable root takes it off the list of
// roots, and leaves a tombstone. In any other case endAgain reports the first ending.
func (g *Registry) endAgain(ctx context.Context, r *root, to State) (Ended, error) {
	if to == RevokedState && State(r.state.Load()) == UnavailableState {
		g.shut([]*root{r}, to)
		rep := Ended{Root: r.name, State: to, Err: r.settle(ctx)}
		rep.Err = errors.Join(rep.Err, g.recordEnd(r, to, rep.Err))
		g.notify(Event{Kind: EventRevoked, Root: r.name})
		return rep, rep.Err
	}
	return r.report, r.report.Err
}

// outerRoots returns the other roots through which the files of r can be reached: roots around r,
// and roots for a wider subject at its directory. Some of them may be unavailable.
func (g *Registry) outerRoots(r *root) (outers []*root) {
	is := func(f nestedRoot) bool { return f.root == r }
	g.snap.Load().eachAround(r.grant.Resolved, r.location, func(o *root) {
		n := o.nesting.Load()
		if o != r && !slices.Contains(outers, o) && (slices.ContainsFunc(n.nested, is) || slices.ContainsFunc(n.sameDirectory, is)) {
			outers = append(outers, o)
		}
	})
	return outers
}

// drainForEnd waits for operations in flight. It leaves half of the time to the views.
func (r *root) drainForEnd(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	return r.drainOrCut(ctx)
}

func (g *Registry) flush(ctx context.Context, c Change, r *root) {
	r.flushing.Add(1)
	defer r.flushing.Add(-1)
	// Data that cannot be flushed within half of the deadline is lost: a revocation must not wait.
	flushCtx, cancel := context.WithTimeout(ctx, g.cfg.Deadline/2)
	defer cancel()
	_ = g.eachView(func(v View) error {
		if f, ok := v.(Flusher); ok {
			return f.Flush(flushCtx, c)
		}
		return nil
	})
}

// shut closes the gate of roots: their states change, their operations are cancelled, and
// they leave the snapshot (unless they are merely unavailable). It returns the live roots around
// them whose nesting has changed, because they have a tombstone inside now.
func (g *Registry) shut(roots []*root, to State) (outers []*root) {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := g.snap.Load().next()
	for _, r := range roots {
		if State(r.state.Swap(uint32(to))) == Live {
			close(r.dead)
		}
		if r.timer != nil {
			r.timer.Stop()
		}
		if to == UnavailableState {
			continue
		}
		next.drop(r)
		g.past[r.name] = r.grant.Subject
		g.tombs = append(g.tombs, tombstone{
			dir: r.grant.Resolved, location: r.location, id: r.src.ID(), file: r.src.File(),
			whose: r.grant.Subject, epoch: g.epochs.Load(),
		})
	}
	g.pruneTombs(next)
	outers = g.updateNesting(next, roots)
	g.snap.Store(next)
	// A root that is not live allows no access that could be narrowed.
	return slices.DeleteFunc(outers, func(o *root) bool { return State(o.state.Load()) != Live })
}

// Forget drops the registry's data about the ended roots of a subject that no caller will have
// again, such as a session that is over (Subject.InSession). Without it the registry would grow
// with every session. No operation of the subject may be under way: afterwards its ended roots
// are as if they had never been granted.
func (g *Registry) Forget(who Subject) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tombs = slices.DeleteFunc(g.tombs, func(t tombstone) bool { return t.whose == who })
	maps.DeleteFunc(g.past, func(_ RootName, whose Subject) bool { return whose == who })
}

// pruneTombs drops the tombstones that no root of s needs: no root contains their directory, or has
// the same directory and a wider subject. The caller holds g.mu.
func (g *Registry) pruneTombs(s *snapshot) {
	g.tombs = slices.DeleteFunc(g.tombs, func(t tombstone) bool {
		needed := false
		s.eachOuter(t.dir, t.location, func(*root) { needed = true })
		s.eachAt(t.dir, t.location, func(o *root) { needed = needed || t.whose.IsNarrowerThan(o.grant.Subject) })
		return !needed
	})
}

func (g *Registry) recordEnd(r *root, to State, cause error) error {
	rec := ownerRecord(r, states[to].op)
	rec.Rights, rec.Detail = r.policy.Load().Rights, r.grant.Resolved
	rec.Read, rec.Written = r.read.Load(), r.Written()
	if to == SpentState {
		rec.Detail += ": its one use was made"
	}
	if cause != nil {
		rec.Verdict, rec.Kind, rec.Detail = Failed, names.Timeout, cause.Error()
	}
	return g.record(rec)
}

func (e Ended) detail() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return "took " + e.Took.Round(10*time.Microsecond).String()
}
