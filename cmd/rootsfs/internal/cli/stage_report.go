package cli

import (
	"fmt"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// printStages says what lies in the stages of a session's roots.
func (a *app) printStages(roots []control.Root) {
	for _, r := range roots {
		st := r.Stage
		if st == nil {
			continue
		}
		a.say("  %s: %s staged, %s, in %s", quoteIfNeeded(r.Name), plural(st.Changed, "change"), sizeText(st.Bytes), quoteIfNeeded(st.Store))
		if st.Damaged != "" {
			a.say("  %s: %s", quoteIfNeeded(r.Name), names.Escape(st.Damaged))
		}
	}
}

// modeText is a root's mode, and says of a staged one what is there already.
func modeText(st *guard.Status) string {
	mode := st.Grant.Policy.Rights.String()
	if st.Stage != nil && st.Stage.Continued {
		mode += fmt.Sprintf(", with %s of earlier sessions", plural(st.Stage.Changed, "change"))
	}
	return mode
}

// warnContinued says which stages of earlier sessions a session continues.
func (a *app) warnContinued(s *session.Session) {
	for _, st := range s.Registry().Roots() {
		if st.Stage != nil && st.Stage.Continued {
			a.warn("root %s continues its stage: %s of earlier sessions", quoteIfNeeded(string(st.Grant.Root)), plural(st.Stage.Changed, "change"))
		}
		if st.Stage != nil && st.Stage.Damaged != "" {
			a.warn("root %s: %s", quoteIfNeeded(string(st.Grant.Root)), names.Escape(st.Stage.Damaged))
		}
	}
}
