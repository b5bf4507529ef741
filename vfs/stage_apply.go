package vfs

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/apply"
)

// applyRun is the run of a StageApply after its plan.
type applyRun struct {
	t       *Tree
	root    guard.RootName
	r       *StageResult
	partial bool
	done    []*apply.Change
	reached int // changes that were applied, or left
	// leftIn has changes that were left, by the path of the directory that holds the file. A
	// removal of the directory is then left, too.
	leftIn map[string]*apply.Change
	// isEnded says that the file system has refused a change and partial is not set. The changes
	// after it are left.
	isEnded bool
}

// applyAll applies the changes todo, each as an operation of its own. When they are on the disk, it
// drops them from the stage, together with the changes that the source has already.
func (a *applyRun) applyAll(ctx context.Context, todo []*apply.Change, alreadyInSource []StageChange) error {
	var failed error
	for rest := todo; len(rest) > 0 && failed == nil && !a.isEnded; {
		batch := apply.Batch(rest)
		rest = rest[len(batch):]
		failed = a.batch(ctx, batch)
	}
	a.leaveRest(todo)
	last := context.WithoutCancel(ctx) // changes that were applied leave the stage even after a Ctrl-C
	if a.isEnded || ctx.Err() != nil {
		// Remove the prepared files that were not used. If the root has ended, the next command
		// removes them.
		failed = errors.Join(failed, a.t.recoverStage(last, a.root))
	}
	apply.SortPaths(a.r.Done)
	apply.SortPaths(a.r.Left)
	toClear := slices.Concat(alreadyInSource, a.r.Done)
	_, err := asStager(last, a.t, names.OpApply, a.root, "", func(l *guard.Lease, e apply.Env) (struct{}, int64, error) {
		for i := len(a.done) - 1; i >= 0; i-- {
			if a.done[i].IsNewDir() {
				if err := e.Finish(last, l, a.done[i]); err != nil {
					return struct{}{}, 0, err
				}
			}
		}
		return struct{}{}, 0, e.Clear(last, l, toClear)
	})
	if err = errors.Join(failed, err); err != nil || len(a.r.Dropped) == 0 {
		return err
	}
	return a.drop(ctx)
}

// leaveRest adds to the result's Left the changes that were not reached.
func (a *applyRun) leaveRest(todo []*apply.Change) {
	for _, c := range todo[a.reached:] {
		c.Why = "not reached"
		a.r.Left = append(a.r.Left, *c)
	}
}

// drop drops conflicts and unsure changes from the stage, because the owner chose the source's files
// (StageApply.Take). The result's Dropped has these changes.
func (a *applyRun) drop(ctx context.Context) error {
	paths := make([]string, len(a.r.Dropped))
	for i := range paths {
		paths[i] = a.r.Dropped[i].Path.Raw()
	}
	dropped, err := a.t.discard(ctx, a.root, paths)
	a.r.Dropped = dropped.Done
	a.r.Left = append(a.r.Left, dropped.Left...)
	apply.SortPaths(a.r.Left)
	return err
}

// batch prepares changes, and applies each.
func (a *applyRun) batch(ctx context.Context, batch []*apply.Change) error {
	_, err := asStager(ctx, a.t, names.OpApply, a.root, "", func(l *guard.Lease, e apply.Env) (struct{}, int64, error) {
		return struct{}{}, 0, e.Prepare(ctx, l, batch)
	})
	defer func() {
		for _, c := range batch {
			c.Forget()
		}
	}()
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) { // there may be room for one at a time
		for _, c := range batch {
			c.Forget()
		}
		err = a.t.recoverStage(ctx, a.root)
	}
	for _, c := range batch {
		if err = cmp.Or(err, ctx.Err()); err != nil || a.isEnded {
			return err
		}
		if !c.LeaveRemoval(a.leftIn[c.Path.Raw()]) {
			_, err = asStager(ctx, a.t, names.OpApply, a.root, c.Path.Raw(), func(l *guard.Lease, e apply.Env) (struct{}, int64, error) {
				n, err := e.Apply(ctx, l, c)
				return struct{}{}, n, errors.Join(err, e.Release(ctx, l, c))
			})
		}
		if err == nil {
			a.record(c)
		}
	}
	return err
}

// record adds a change that was applied, or left, to the result.
func (a *applyRun) record(c *apply.Change) {
	a.reached++
	if c.Class.Applies() {
		a.r.Done = append(a.r.Done, *c)
		a.done = append(a.done, c)
		return
	}
	a.r.Left = append(a.r.Left, *c)
	a.leftIn[c.Holder()] = c
	a.isEnded = a.isEnded || c.Class == StageRefused && !a.partial
}
