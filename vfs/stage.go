package vfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/apply"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// This file has the owner's operations on the changes that programs made in a staged root. The
// operations check neither a caller nor the rights of the root, so a front end must not offer them
// to anybody but the owner.

type (
	// StageSummary describes a stage without opening it.
	StageSummary = draft.Summary
	// StageChange is one change.
	StageChange = apply.Change
	// StageOutput says which files of a stage are build output, which nobody reviews.
	StageOutput = apply.Output
	// StageOutputUnit counts the changes of one directory or file of build output.
	StageOutputUnit = apply.OutputUnit
	// StageClass says what applying a change would do, or why the change is not applied.
	StageClass = apply.Class
)

// The classes.
const (
	StageNew       = apply.New
	StageChanged   = apply.Changed
	StageMode      = apply.Mode
	StageRemoved   = apply.Removed
	StageReplaced  = apply.Replaced
	StageConflict  = apply.Conflict
	StageInUse     = apply.InUse
	StageProtected = apply.Protected
	StageLink      = apply.Link
	StageSpecial   = apply.Special
	StageUnsure    = apply.Unsure
	StageRefused   = apply.Refused
)

// StageApply selects the changes to apply.
type StageApply struct {
	Paths []string // below the root; none: everything
	// Partial applies the other changes if some cannot be applied. Without Partial, nothing is
	// applied then, and an apply that has begun ends at the first change that the file system
	// refuses.
	Partial bool
	Links   bool // also links that leave the root
	DryRun  bool
	// Take decides about conflicts and unsure changes. With "stage" these changes replace the
	// source's files, which go to the root's trash. With "source" the changes are dropped from
	// the stage.
	Take string
}

// StageResult has the changes that were applied or discarded, and the changes that were left,
// both sorted by path. A change in Left that could be applied (Class.Applies) was not reached,
// because the apply ended before.
type StageResult struct {
	Done, Left []StageChange
	// Dropped has the conflicts and unsure changes that were dropped from the stage, because
	// Take is "source".
	Dropped []StageChange
	// Output is build output that StageApply left in the stage, because no path names it.
	Output []StageChange
}

// NewStageOutput returns the build output that patterns describe. The patterns are written as in
// .gitignore. The pattern ".gitignore" stands for the patterns in the .gitignore files of the
// source.
func NewStageOutput(patterns []rules.Pattern) (StageOutput, error) { return apply.NewOutput(patterns) }

// DefaultStageOutput returns the patterns of build output that apply if the owner has written
// none.
func DefaultStageOutput() []rules.Pattern { return guard.Texts(apply.DefaultOutput...) }

// SetStageOutput sets the build output of all staged roots. Initially there is none.
func (t *Tree) SetStageOutput(o StageOutput) { t.output.Store(&o) }

// ReviewStage returns the changes that a list shows, and the units of build output that a list
// only counts. Build output that paths name is shown. A change of build output is shown and
// counted if the source has the file.
func ReviewStage(list []StageChange, paths []string) ([]StageChange, []StageOutputUnit) {
	return apply.Review(list, paths)
}

// StageTakesAway reports whether a change removes a file of the owner, or replaces it by
// another kind of file.
func StageTakesAway(c *StageChange) bool { return apply.TakesAway(c) }

// Stages lists the stages in a directory of stores, the oldest first.
func Stages(dir string) ([]StageSummary, error) { return draft.List(dir) }

// RemoveStage removes a stage with all its changes. If a session or a command holds it, the
// error is Locked.
func RemoveStage(dir string) error {
	return draft.Remove(dir)
}

// StageChanges lists the changes at and below paths, sorted by path. Without paths it lists
// all. Every name below a removed directory is listed.
func (t *Tree) StageChanges(ctx context.Context, root guard.RootName, paths []string) ([]StageChange, error) {
	// If the lock is held, do not wait: an apply, discard or undo recovers the stage itself. A
	// checkpoint does not: the list then shows the stage as the killed apply has left it.
	if t.stageMu.TryLock() {
		err := t.recoverStage(ctx, root)
		t.stageMu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	p, err := t.planStage(ctx, root, apply.Request{Paths: paths})
	return p.list, err
}

// StageContents returns the contents of a file: those in the stage if staged is set, else those
// in the source. For a link it returns the target. If the contents of a regular file have more bytes
// than the bound most, the error is names.Quota.
func (t *Tree) StageContents(ctx context.Context, root guard.RootName, path string, staged bool, most int64) ([]byte, error) {
	return asStager(ctx, t, names.OpStage, root, path, func(l *guard.Lease, _ apply.Env) ([]byte, int64, error) {
		st, _ := beneath.StageOf(l)
		resolve := st.Source(l).Below
		if staged {
			resolve = st.Upper
		}
		d, err := resolve(path, false)
		if err != nil {
			return nil, 0, err
		}
		defer d.Close()
		text, err := readWhole(l, d, staged, most)
		return text, int64(len(text)), err
	})
}

// readWhole reads a regular file, or the target of a link. staged says that the file lies in the
// stage.
func readWhole(l *guard.Lease, d beneath.Dir, staged bool, most int64) ([]byte, error) {
	info, err := d.Own()
	switch {
	case err != nil:
		return nil, err
	case info.Type() == unix.S_IFLNK:
		target, err := beneath.Readlink(d.FD())
		return []byte(target), err
	case !info.IsRegular():
		return nil, &guard.Error{Kind: names.Invalid, Err: errors.New("it has no contents: it is no regular file and no link")}
	case info.Size > most:
		return nil, &guard.Error{Kind: names.Quota, Err: fmt.Errorf("it has %d bytes, more than %d", info.Size, most)}
	}
	fd := -1
	open := func() (err error) { fd, err = beneath.Reopen(d.FD(), unix.O_RDONLY); return err }
	if st, _ := beneath.StageOf(l); staged {
		err = st.Readable(l, d, &info, open)
	} else {
		err = open()
	}
	if err != nil {
		return nil, err
	}
	defer beneath.Close(fd)
	buf := make([]byte, info.Size)
	n, err := beneath.Pread(fd, buf, 0)
	return buf[:n], err
}

// StageApply brings changes into the source. Unless a.Partial is set, it applies nothing if a
// change would be left. A change of a file that the owner or a program writes during the apply may
// be left nevertheless.
func (t *Tree) StageApply(ctx context.Context, root guard.RootName, a StageApply) (StageResult, error) {
	t.stageMu.Lock()
	defer t.stageMu.Unlock()
	if err := t.recoverStage(ctx, root); err != nil {
		return StageResult{}, err
	}
	plan, err := t.planStage(ctx, root, apply.Request{Paths: a.Paths, TakeStage: a.Take == "stage", Links: a.Links, ForApply: true})
	if err != nil {
		return StageResult{}, err
	}
	var r StageResult
	var todo []*apply.Change
	for i := range plan.list {
		switch c := &plan.list[i]; {
		case !c.IsNamed(a.Paths):
			r.Output = append(r.Output, *c)
		case c.Class.Applies():
			todo = append(todo, c)
		case a.Take == "source" && (c.Class == StageConflict || c.Class == StageUnsure):
			r.Dropped = append(r.Dropped, *c)
		case c.Class.Blocks():
			r.Left = append(r.Left, *c)
		}
	}
	apply.Order(todo)
	if a.DryRun {
		for _, c := range todo {
			r.Done = append(r.Done, *c)
		}
		apply.SortPaths(r.Done)
		return r, nil
	}
	if len(r.Left) > 0 && !a.Partial {
		r.Dropped = nil
		return r, nil
	}
	run := applyRun{t: t, root: root, r: &r, partial: a.Partial, leftIn: map[string]*apply.Change{}}
	err = run.applyAll(ctx, todo, plan.same)
	return r, err
}

// StageDiscard drops the changes at and below paths, or all without paths. Left has the changes
// that cannot be dropped, because the stage has removed or moved a directory above them that is
// not among paths, or because the file system refuses it.
func (t *Tree) StageDiscard(ctx context.Context, root guard.RootName, paths []string) (StageResult, error) {
	t.stageMu.Lock()
	defer t.stageMu.Unlock()
	if err := t.recoverStage(ctx, root); err != nil {
		return StageResult{}, err
	}
	return t.discard(ctx, root, paths)
}

func (t *Tree) discard(ctx context.Context, root guard.RootName, paths []string) (StageResult, error) {
	return asStager(ctx, t, names.OpDiscard, root, "", func(l *guard.Lease, e apply.Env) (r StageResult, n int64, err error) {
		r.Done, r.Left, err = e.Discard(ctx, l, paths)
		l.Notes().Remark(fmt.Sprintf("%d changes dropped from the stage", len(r.Done)))
		return r, 0, err
	})
}

// recoverStage finishes or takes back the steps of a killed apply. The caller holds t.stageMu.
func (t *Tree) recoverStage(ctx context.Context, root guard.RootName) error {
	needed, err := asStager(ctx, t, names.OpStage, root, "", func(l *guard.Lease, _ apply.Env) (bool, int64, error) {
		return apply.NeedsRecovery(l), 0, nil
	})
	if err != nil || !needed {
		return err
	}
	_, err = asStager(ctx, t, names.OpApply, root, "", func(l *guard.Lease, e apply.Env) (struct{}, int64, error) {
		return struct{}{}, 0, e.Recover(ctx, l)
	})
	return err
}

// stagePlan is the result of apply.Env.Plan.
type stagePlan struct {
	list []StageChange
	same []StageChange // the source has these already
}

func (t *Tree) planStage(ctx context.Context, root guard.RootName, req apply.Request) (stagePlan, error) {
	return asStager(ctx, t, names.OpStage, root, "", func(l *guard.Lease, e apply.Env) (p stagePlan, n int64, err error) {
		p.list, p.same, err = e.Plan(ctx, l, req)
		if errors.Is(err, fs.ErrPermission) {
			err = nil // a directory that a program has made unreadable stays in the stage
		}
		return p, 0, err
	})
}

func (t *Tree) stageOutput() (o StageOutput) {
	if set := t.output.Load(); set != nil {
		o = *set
	}
	return o
}

// asStager runs an operation of the owner on a root's stage.
func asStager[T any](ctx context.Context, t *Tree, op guard.Op, root guard.RootName, path string, f func(l *guard.Lease, e apply.Env) (T, int64, error)) (T, error) {
	var none T
	p, err := guard.NewPath(root, path)
	if err != nil {
		return none, err
	}
	e := apply.Env{
		Root: root, Trash: t.trash, IsWritten: t.claims.IsWritten,
		Output:      t.stageOutput(),
		StaysInside: func(l *guard.Lease, dir guard.Path, target string) error { return staysInside(ctx, l, dir, target) },
	}
	return gate.Do(ctx, t.reg, guard.Request{Caller: t.ownerOf(root), Op: op, Path: p}, nil, func(l *guard.Lease) (T, int64, error) {
		if _, ok := beneath.StageOf(l); !ok {
			return none, 0, &guard.Error{Op: op, Kind: names.Invalid, Err: fmt.Errorf("root %s is not staged", names.Quote(string(root)))}
		}
		return f(l, e)
	})
}
