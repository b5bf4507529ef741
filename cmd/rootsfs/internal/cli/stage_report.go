package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// printStages prints how much the stage of each of a session's roots holds, and where the stage is.
func (a *app) printStages(roots []control.Root) {
	for _, r := range roots {
		st := r.Stage
		if st == nil {
			continue
		}
		a.say("  %s: staged: %s, %s, in %s", quoteIfNeeded(r.Name), touchedText(st.Changed), sizeText(st.Bytes), quoteIfNeeded(st.Store))
		if st.Damaged != "" {
			a.say("  %s: %s", quoteIfNeeded(r.Name), names.Escape(st.Damaged))
		}
	}
}

// modeText returns a root's mode, and whether a staged root has changes of earlier sessions.
func modeText(st *guard.Status) string {
	mode := st.Grant.Policy.Rights.String()
	if st.Stage != nil && st.Stage.Continued && st.Stage.Changed > 0 {
		mode += ", with changes of earlier sessions"
	}
	return mode
}

// warnContinued warns about a root of the session s if its stage has changes of earlier sessions, or
// is damaged. It also warns if the stage is new because another session has another stage of the
// same root open.
func (a *app) warnContinued(s *session.Session) {
	for _, st := range s.Registry().Roots() {
		if st.Stage == nil {
			continue
		}
		name := quoteIfNeeded(string(st.Grant.Root))
		if other := heldByOther(&st); st.Stage.Continued && st.Stage.Changed > 0 {
			a.warn("root %s continues its stage, with changes of earlier sessions: rootsfs stage diff", name)
		} else if other != "" {
			a.warn("root %s has a new stage, %s: session %s has the other one open", name, quoteIfNeeded(filepath.Base(st.Stage.Store)), quoteIfNeeded(other))
		}
		if st.Stage.Damaged != "" {
			a.warn("root %s: %s", name, names.Escape(st.Stage.Damaged))
		}
	}
}

// heldByOther names a session that has another stage of the same root open, "" if none has.
func heldByOther(st *guard.Status) string {
	for _, s := range everyStage() {
		if s.Held && s.Dir != st.Stage.Store && s.Meta.Root == st.Grant.Root && s.Meta.Path == st.Grant.Resolved && s.Meta.Subject == st.Grant.Subject {
			return s.Meta.Session
		}
	}
	return ""
}

// isAnyStaged reports whether one of the grants is for a staged root.
func isAnyStaged(list []guard.Grant) bool {
	return slices.ContainsFunc(list, func(g guard.Grant) bool { return g.Policy.Rights.Staged() })
}

// warnStaged prints, after a session has ended, how many changes the session's programs have left
// in stages, and the commands that show, apply and drop these changes.
func (a *app) warnStaged(ctx context.Context, sessionName string) {
	dir, err := workingDir()
	if err != nil {
		return
	}
	all := everyStage()
	for i := range all {
		s := &all[i]
		if s.Meta.Session != sessionName || s.Held || s.Changed == 0 {
			continue
		}
		c := &chosenStage{StageSummary: *s, dir: session.Resolve(dir)}
		if candidates, _ := candidateStages(all, "", c.dir, nil); len(candidates) != 1 || candidates[0].Dir != s.Dir || !c.isInside() {
			c.flag = stageFlag(all, s)
		}
		if text := c.counts(ctx); text != "" {
			a.warn("staged: %s in %s (your files are as they were)", text, quoteIfNeeded(s.Meta.Path))
			a.warn("  look: %s    take: %s    drop: %s", c.command("diff"), c.command("apply"), c.command("discard", "--all"))
		}
	}
}

// stageFlag returns a value of --root that selects exactly this stage.
func stageFlag(all []vfs.StageSummary, s *vfs.StageSummary) string {
	named := 0
	for i := range all {
		if all[i].Meta.Root == s.Meta.Root {
			named++
		}
	}
	if named == 1 {
		return string(s.Meta.Root)
	}
	return filepath.Base(s.Dir)
}

// counts describes how many changes of each class a stage has; "": no changes. If the changes
// cannot be listed, it gives the number of touched names instead.
func (c *chosenStage) counts(ctx context.Context) string {
	list, err := c.list(ctx)
	switch {
	case err != nil:
		return touchedText(c.Changed)
	case len(list) == 0:
		return ""
	}
	return reviewText(vfs.ReviewStage(list, nil))
}

// list opens the stage, lists its changes and closes the stage.
func (c *chosenStage) list(ctx context.Context) ([]vfs.StageChange, error) {
	o, err := c.openNow(ctx)
	if err != nil {
		return nil, err
	}
	list, err := o.changes(ctx, nil)
	return list, errors.Join(err, o.close(ctx))
}

// touchedText describes a number of names that a stage holds. A stage holds at least as many names
// as changes: a program can also write the contents that the file had before, which is no change.
func touchedText(n int) string { return plural(n, "name") + " touched" }

// outputText describes a unit of build output: "4312 files, 61.0MB, build output".
func outputText(u *vfs.StageOutputUnit) string {
	text := plural(u.Files, "file") + ", " + sizeText(u.Bytes) + "B, build output"
	if u.Owned > 0 {
		text += fmt.Sprintf("; %d of yours changed or removed", u.Owned)
	}
	return text
}

// mostUnits is how many units of build output a line names at most.
const mostUnits = 3

// reviewText counts changes by their classes, and names build output.
func reviewText(list []vfs.StageChange, units []vfs.StageOutputUnit) string {
	if len(units) == 0 {
		return countText(list)
	}
	var parts []string
	for i := range units[:min(len(units), mostUnits)] {
		parts = append(parts, fmt.Sprintf("%s (%s)", quoteIfNeeded(units[i].Path), plural(units[i].Files, "file")))
	}
	if more := len(units) - mostUnits; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	text := "build output in " + strings.Join(parts, ", ")
	if len(list) > 0 {
		text = countText(list) + "; " + text
	}
	return text
}
