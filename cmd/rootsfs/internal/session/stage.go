package session

import (
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
)

// Stages is the directory with the stores of all staged roots. It lies in the state directory,
// which no root may touch (Keeps).
func Stages() (string, error) { return config.StateDir("stage") }

// stageOf is what the owner sees of a root's stage, nil if the root is not staged.
func stageOf(r *guard.Status) *control.Stage {
	st := r.Stage
	if st == nil {
		return nil
	}
	return &control.Stage{Store: st.Store, Changed: st.Changed, Bytes: st.Bytes, Continued: st.Continued, Damaged: st.Damaged}
}
