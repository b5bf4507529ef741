package session

import (
	"context"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// Stages is the directory with the stores of all staged roots. It lies in the state directory,
// which no root may touch (Keeps).
func Stages() (string, error) { return config.StateDir("stage") }

// stageOf describes a root's stage for the owner, or returns nil if the root is not staged.
func stageOf(r *guard.Status) *control.Stage {
	st := r.Stage
	if st == nil {
		return nil
	}
	return &control.Stage{Store: names.Foreign(st.Store), Changed: st.Changed, Bytes: st.Bytes, Continued: st.Continued, Damaged: names.Foreign(st.Damaged)}
}

// StageOutput returns what the owner's configuration calls build output in stages. Without a
// configuration, c is nil.
func StageOutput(c *config.Config) (vfs.StageOutput, error) {
	if c == nil || c.StageOutput == nil {
		return vfs.NewStageOutput(vfs.DefaultStageOutput())
	}
	return vfs.NewStageOutput(c.StageOutput)
}

// setStageOutput sets what the configuration calls build output.
func (s *Session) setStageOutput(c *config.Config) {
	o, err := StageOutput(c)
	if err != nil {
		s.log.Warn("no file is taken for build output", "error", err)
	}
	s.tree.SetStageOutput(o)
}

// closeStages waits until the changes of staged roots are on the disk, and the owner's commands
// can open the stores.
func (s *Session) closeStages() {
	ctx, cancel := context.WithTimeout(context.Background(), guard.EndDeadline)
	defer cancel()
	if err := s.reg.AwaitStages(ctx); err != nil && s.log != nil {
		s.log.Warn("the store of a staged root is still in use; its changes are kept", "error", err)
	}
}
