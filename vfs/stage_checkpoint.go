package vfs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"unicode"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/apply"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// Checkpoint describes a checkpoint of a stage.
type Checkpoint = draft.Checkpoint

// The causes of checkpoints: the operation before which one is made, or CheckpointAsked if the
// owner asked for it.
const (
	CheckpointAsked   = draft.CauseAsked
	CheckpointApply   = "apply"
	CheckpointDiscard = "discard"
	CheckpointUndo    = beneath.CauseUndo
	CheckpointSession = beneath.CauseSession
	CheckpointStart   = draft.CauseStart // checkpoint 0: nothing is staged
)

// MaxCheckpoints is how many checkpoints a stage has at most.
const MaxCheckpoints = draft.MaxCheckpoints

// maxCheckpointName bounds the name of a checkpoint, in bytes.
const maxCheckpointName = 64

// StageUndone describes an undo, done or only planned.
type StageUndone struct {
	To Checkpoint
	// Before is the checkpoint that was made before the undo; nil: the latest was equal, or the
	// undo is only planned.
	Before *Checkpoint
	// Applied is how many paths are staged because the owner has applied their changes since
	// the checkpoint. The source keeps these changes until the owner applies the stage again.
	Applied int
	// Changes has the changes that programs see: StageNew, StageChanged or StageRemoved.
	Changes []StageChange
}

// StageCheckpoints lists the checkpoints of a root's stage, the oldest first.
func (t *Tree) StageCheckpoints(ctx context.Context, root guard.RootName) ([]Checkpoint, error) {
	return asStager(ctx, t, names.OpStage, root, "", func(l *guard.Lease, _ apply.Env) ([]Checkpoint, int64, error) {
		st, _ := beneath.StageOf(l)
		return st.Store().Checkpoints(), 0, nil
	})
}

// StageCheckpoint makes a checkpoint of a root's stage. Without a name it makes none if the
// latest is equal: then isNew is false, and the result is the latest.
func (t *Tree) StageCheckpoint(ctx context.Context, root guard.RootName, name, cause string) (c Checkpoint, isNew bool, err error) {
	if err := checkCheckpointName(name); err != nil {
		return c, false, err
	}
	return t.checkpoint(ctx, root, Checkpoint{Name: name, Cause: cause})
}

// StageCheckpointOf makes a checkpoint before an apply or a discard of paths. The checkpoint has
// only the names that such an operation can change. So the rest of the stage is not read, and
// files in the rest are not copied when programs write to them later. Without paths the
// checkpoint is one of the whole stage.
func (t *Tree) StageCheckpointOf(ctx context.Context, root guard.RootName, paths []string, cause string) error {
	c := Checkpoint{Cause: cause}
	c.SetScope(apply.Needed(paths))
	_, _, err := t.checkpoint(ctx, root, c)
	return err
}

func (t *Tree) checkpoint(ctx context.Context, root guard.RootName, c Checkpoint) (made Checkpoint, isNew bool, err error) {
	t.stageMu.Lock()
	defer t.stageMu.Unlock()
	made, err = asStager(ctx, t, names.OpStage, root, "", func(l *guard.Lease, _ apply.Env) (Checkpoint, int64, error) {
		st, _ := beneath.StageOf(l)
		var err error
		made, isNew, err = st.Checkpoint(l, c)
		return made, 0, err
	})
	return made, isNew, err
}

func checkCheckpointName(name string) error {
	_, numberErr := strconv.Atoi(name)
	isUnprintable := false
	for _, r := range name {
		isUnprintable = isUnprintable || !unicode.IsPrint(r) || r == unicode.ReplacementChar
	}
	if name != "" && (numberErr == nil || isUnprintable || len(name) > maxCheckpointName) {
		return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("the name of a checkpoint is at most %d printable characters, and no number", maxCheckpointName)}
	}
	return nil
}

// StageBeforeCall makes a checkpoint of each staged root that a subject can use, before the subject
// calls a tool that may write. It makes none while an apply, discard, undo or other checkpoint of any
// stage is running, none of a stage with very many changes, and none of a stage that has not changed
// since its latest checkpoint.
func (t *Tree) StageBeforeCall(ctx context.Context, who guard.Subject, tool string) error {
	roots := t.reg.StagedFor(who)
	if len(roots) == 0 || !t.stageMu.TryLock() {
		return nil // no root is staged, or another operation on a stage holds the lock
	}
	defer t.stageMu.Unlock()
	cause := "tool call"
	if tool != "" && checkCheckpointName(tool) == nil {
		cause += " " + tool
	}
	var failed error
	for _, root := range roots {
		_, err := asStager(ctx, t, names.OpStage, root, "", func(l *guard.Lease, _ apply.Env) (none struct{}, n int64, err error) {
			st, _ := beneath.StageOf(l)
			if !st.Store().IsTouched() {
				return none, 0, nil
			}
			if changed, _ := st.Store().Size(); changed > beneath.MostAutomatic {
				return none, 0, nil
			}
			_, _, err = st.Checkpoint(l, draft.Checkpoint{Cause: cause})
			return none, 0, err
		})
		failed = errors.Join(failed, err)
	}
	return failed
}

// StageUndo brings a root's stage back to a checkpoint: its number or name, or "" for the
// latest that differs from the present stage. The source does not change.
func (t *Tree) StageUndo(ctx context.Context, root guard.RootName, to string, dryRun bool) (StageUndone, error) {
	t.stageMu.Lock()
	defer t.stageMu.Unlock()
	if err := t.recoverStage(ctx, root); err != nil {
		return StageUndone{}, err
	}
	op := names.OpUndo
	if dryRun {
		op = names.OpStage
	}
	return asStager(ctx, t, op, root, "", func(l *guard.Lease, e apply.Env) (out StageUndone, n int64, err error) {
		st, _ := beneath.StageOf(l)
		u, err := st.Undo(l, to, dryRun)
		if err != nil {
			return out, 0, err
		}
		l.Notes().Remark(fmt.Sprintf("the stage is as at checkpoint %d", u.To.Number))
		out = undoneOf(&u)
		e.MarkUndoOutput(ctx, l, out.Changes)
		return out, 0, nil
	})
}

func undoneOf(u *beneath.Undone) StageUndone {
	out := StageUndone{To: u.To, Before: u.Before, Applied: u.Applied}
	for _, c := range u.Seen {
		class := StageChanged
		switch {
		case !c.Before:
			class = StageNew
		case !c.After:
			class = StageRemoved
		}
		out.Changes = append(out.Changes, StageChange{Path: names.Foreign(c.Path), Class: class})
	}
	return out
}
