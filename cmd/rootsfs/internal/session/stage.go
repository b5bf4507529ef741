package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// Stages is the directory with the stores of all staged roots. It lies in the state directory,
// which no root may touch (ReservedPaths).
func Stages() (string, error) { return config.StateDir("stage") }

// stageOf describes a root's stage for the owner, or returns nil if the root is not staged.
func stageOf(r *guard.Status) *control.Stage {
	st := r.Stage
	if st == nil {
		return nil
	}
	return &control.Stage{Store: names.Foreign(st.Store), Changed: st.Changed, Bytes: st.Bytes, Continued: st.Continued, Damaged: names.Foreign(st.Damaged), Checkpoints: st.Checkpoints}
}

// StageOutput returns which files of a stage are build output: those of the configured patterns, or
// of the default patterns if c is nil or has none.
func StageOutput(c *config.Config) (vfs.StageOutput, error) {
	if c == nil || c.StageOutput == nil {
		return vfs.NewStageOutput(vfs.DefaultStageOutput())
	}
	return vfs.NewStageOutput(c.StageOutput)
}

// setStageOutput sets the configured patterns of build output.
func (s *Session) setStageOutput(c *config.Config) {
	o, err := StageOutput(c)
	if err != nil {
		s.log.Warn("no file is taken for build output", "error", err)
	}
	s.tree.SetStageOutput(o)
}

// closeStages waits until the stores of the staged roots, which have ended, are closed, so that the
// owner's commands can open them. It waits no longer than guard.EndDeadline.
func (s *Session) closeStages() {
	ctx, cancel := context.WithTimeout(context.Background(), guard.EndDeadline)
	defer cancel()
	if err := s.reg.AwaitStages(ctx); err != nil && s.log != nil {
		s.log.Warn("the store of a staged root is still in use; its changes are kept", "error", err)
	}
}

// settleTime bounds how long the answer to an owner's command waits until programs see the changes
// that the command has made. If a program blocks the notice to the kernel, programs may see the
// changes only after the answer.
const settleTime = time.Second

// onStage is onTree for a command that changes what programs see.
func onStage[In, Out any](s *Session, f func(context.Context, *guard.Registry, *vfs.Tree, In) (Out, error)) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (Out, error) {
		out, err := f(ctx, s.reg, s.tree, in)
		if s.mnt != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
			defer cancel()
			s.mnt.Settle(ctx)
		}
		return out, err
	}
}

// stagedRoot returns the root of reg that has its changes in the given store.
func stagedRoot(reg *guard.Registry, store string) (guard.RootName, error) {
	for _, st := range reg.Roots() {
		if st.Stage != nil && st.Stage.Store == store {
			return st.Grant.Root, nil
		}
	}
	return "", &guard.Error{Kind: names.Locked, Err: fmt.Errorf("the stage %s is just being closed: try again", names.Quote(filepath.Base(store)))}
}

// ListStage lists the changes of a stage.
func ListStage(ctx context.Context, reg *guard.Registry, tree *vfs.Tree, req control.StageRequest) (control.StageAnswer, error) {
	root, err := stagedRoot(reg, req.Store)
	if err != nil {
		return control.StageAnswer{}, err
	}
	list, err := tree.StageChanges(ctx, root, req.PathStrings())
	return control.AnswerOf(&vfs.StageResult{Done: list}), err
}

// maxReadAhead is how many bytes StageContents reads in total from the files in
// StageContentsRequest.Next.
const maxReadAhead = 1 << 20

// StageContents reads the contents of one file, in the stage or in the source. It also reads the
// first files in req.Next, up to maxReadAhead bytes in total. The answer has nil for a file in
// req.Next that cannot be read, for example because it is too large.
func StageContents(ctx context.Context, reg *guard.Registry, tree *vfs.Tree, req control.StageContentsRequest) (control.StageContentsAnswer, error) {
	root, err := stagedRoot(reg, req.Store)
	if err != nil {
		return control.StageContentsAnswer{}, err
	}
	text, err := tree.StageContents(ctx, root, string(req.Path), req.Staged, req.Most)
	ans := control.StageContentsAnswer{Contents: text}
	for left := int64(maxReadAhead); err == nil && left > 0 && len(ans.Next) < len(req.Next); {
		f := &req.Next[len(ans.Next)]
		next, nextErr := tree.StageContents(ctx, root, string(f.Path), f.Staged, min(req.Most, left))
		if nextErr != nil {
			next = nil
			err = ctx.Err()
		}
		left -= int64(len(next))
		ans.Next = append(ans.Next, next)
	}
	return ans, err
}

// ApplyStage brings changes into the source.
func ApplyStage(ctx context.Context, reg *guard.Registry, tree *vfs.Tree, req control.StageApplyRequest) (control.StageAnswer, error) {
	root, err := stagedRoot(reg, req.Store)
	if err != nil {
		return control.StageAnswer{}, err
	}
	if !req.DryRun {
		if err := tree.StageCheckpointOf(ctx, root, req.PathStrings(), vfs.CheckpointApply); err != nil {
			return control.StageAnswer{}, fmt.Errorf("no checkpoint can be made before the apply: %w", err)
		}
	}
	r, err := tree.StageApply(ctx, root, vfs.StageApply{Paths: req.PathStrings(), Partial: req.Partial, Links: req.Links, DryRun: req.DryRun, Take: req.Take})
	return control.AnswerOf(&r), err
}

// DiscardStage drops changes.
func DiscardStage(ctx context.Context, reg *guard.Registry, tree *vfs.Tree, req control.StageRequest) (control.StageAnswer, error) {
	root, err := stagedRoot(reg, req.Store)
	if err != nil {
		return control.StageAnswer{}, err
	}
	if err := tree.StageCheckpointOf(ctx, root, req.PathStrings(), vfs.CheckpointDiscard); err != nil {
		return control.StageAnswer{}, fmt.Errorf("no checkpoint can be made before the discard: %w", err)
	}
	r, err := tree.StageDiscard(ctx, root, req.PathStrings())
	return control.AnswerOf(&r), err
}

// listCheckpoints lists the checkpoints of a stage.
func listCheckpoints(ctx context.Context, reg *guard.Registry, tree *vfs.Tree, req control.StageRequest) (control.CheckpointsAnswer, error) {
	root, err := stagedRoot(reg, req.Store)
	if err != nil {
		return control.CheckpointsAnswer{}, err
	}
	list, err := tree.StageCheckpoints(ctx, root)
	return control.CheckpointsAnswer{Checkpoints: control.CheckpointsOf(list)}, err
}

// MakeCheckpoint makes a checkpoint that the owner asks for.
func MakeCheckpoint(ctx context.Context, reg *guard.Registry, tree *vfs.Tree, req control.CheckpointRequest) (control.CheckpointAnswer, error) {
	root, err := stagedRoot(reg, req.Store)
	if err != nil {
		return control.CheckpointAnswer{}, err
	}
	c, made, err := tree.StageCheckpoint(ctx, root, req.Name, vfs.CheckpointAsked)
	return control.CheckpointAnswer{Checkpoint: control.CheckpointOf(&c), Made: made}, err
}

// UndoStage brings a stage back to a checkpoint.
func UndoStage(ctx context.Context, reg *guard.Registry, tree *vfs.Tree, req control.UndoRequest) (control.UndoAnswer, error) {
	root, err := stagedRoot(reg, req.Store)
	if err != nil {
		return control.UndoAnswer{}, err
	}
	u, err := tree.StageUndo(ctx, root, req.To, req.DryRun)
	if ge, ok := errors.AsType[*guard.Error](err); ok && ge.Kind == names.NotExist && ge.Err != nil {
		err = &control.Error{Class: control.NoSuch, Text: ge.Err.Error()}
	}
	return control.UndoAnswerOf(&u), err
}
