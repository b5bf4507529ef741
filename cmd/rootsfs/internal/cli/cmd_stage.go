package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

const stageLong = `List, show, apply and discard what programs changed in staged roots.

Programs change a root of mode stage (--root PATH:stage) as they like, and your files stay
as they are. The changes are its stage, which outlives the session and is continued by the
next one with the same root. Apply or discard it at any time, also while programs run: a
file that is open for writing waits, and a program that has a discarded file open keeps
its copy until it closes it.
`

const stageExamples = `  rootsfs run --root .:stage -- my-agent
  rootsfs stage diff
  rootsfs stage apply src docs/new.md
  rootsfs stage discard --all`

// pathsText explains the PATH arguments of the subcommands of stage.
const pathsText = `A PATH is absolute, ROOT/PATH, or relative to a working directory in the root; it stands
for everything below it.`

func (a *app) newStageCmd() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "stage",
		Short:   "Look at staged changes, and take or drop them",
		Long:    stageLong,
		Example: stageExamples,
	}, newStageListCmd(a), newStageDiffCmd(a), newStageApplyCmd(a), newStageDiscardCmd(a), newStageCheckpointCmd(a))
	a.setUpStageList(cmd)
	return cmd
}

// stageRootFlag adds --root.
func stageRootFlag(cmd *cobra.Command, root *string) {
	cmd.Flags().StringVar(root, "root", "", "only the stage of this `root`: its name, its directory, or the name of the stage")
	completeFlag(cmd, "root", func(*cobra.Command, []string, string) (out []string, _ cobra.ShellCompDirective) {
		for _, s := range everyStage() {
			out = append(out, cobra.CompletionWithDesc(filepath.Base(s.Dir), stageText(&s)))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
}

// everyStage returns all stages, none if they cannot be listed.
func everyStage() []vfs.StageSummary {
	dir, err := session.Stages()
	if err != nil {
		return nil
	}
	all, _ := vfs.Stages(dir)
	return all
}

const stageListLong = `List the stages of all roots: which session has one open, how many names are
changed in it, and when it was changed last. -v lists the checkpoints of each too, which
rootsfs undo can bring back, and stages with nothing but checkpoints.`

const stageListExamples = `  rootsfs stage
  rootsfs stage list -v`

func newStageListCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the stages",
		Long:    stageListLong,
		Example: stageListExamples,
	}
	a.setUpStageList(cmd)
	return cmd
}

// setUpStageList makes cmd the command that lists the stages.
func (a *app) setUpStageList(cmd *cobra.Command) {
	var verbose bool
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "also show where the changes lie, of which kind they are, and the checkpoints")
	a.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := session.Stages()
		if err != nil {
			return err
		}
		all, err := vfs.Stages(dir)
		if err != nil {
			return err
		}
		stop := a.waiting("comparing")
		list, shown := make([]stageEntry, 0, len(all)), []stageEntry{}
		for i := range all {
			e := entryOf(&all[i])
			e.compare(cmd.Context(), &all[i])
			list = append(list, e)
			if verbose || !hasOnlyCheckpoints(&all[i]) {
				shown = append(shown, e)
			}
		}
		stop()
		return a.report(list, func() { a.printStageList(shown, len(list) > len(shown), verbose) })
	}
}

// stageEntry is a stage in the list.
type stageEntry struct {
	Stage   names.Foreign `json:"stage"`             // its name, as `--root` takes it
	Root    names.Foreign `json:"root"`              // name of the root
	Path    names.Foreign `json:"path"`              // directory of the root
	Subject names.Foreign `json:"subject,omitempty"` // the one server that the root is for
	HeldBy  names.Foreign `json:"held_by,omitempty"` // session that has it open
	Changed int           `json:"changed"`           // changes, as `stage diff --json` has them without build output as one; of a stage with very many, or that cannot be compared, the names that were changed, made or removed
	Bytes   int64         `json:"bytes"`             // that it takes on the disk
	Last    time.Time     `json:"last"`              // time of the last change
	Store   names.Foreign `json:"store"`             // directory that the changes lie in
	Damaged names.Foreign `json:"damaged,omitempty"` // what was lost of it, and why

	Checkpoints []control.Checkpoint `json:"checkpoints"` // that `rootsfs undo` can bring back, the oldest first

	kinds string // of the changes; "": none, or not compared
}

// compare counts the changes as `rootsfs stage diff` lists them. If more than mostCompared names
// have changed, or the comparison fails, the number of these names stays.
func (e *stageEntry) compare(ctx context.Context, s *vfs.StageSummary) {
	if s.Changed == 0 || s.Changed > mostCompared {
		return
	}
	c := &chosenStage{StageSummary: *s}
	if list, err := c.list(ctx); err == nil {
		e.Changed = len(list)
		e.kinds = reviewText(vfs.ReviewStage(list, nil))
	}
}

// mostCompared is the largest number of changed names in a stage that a list of stages still
// compares with its root.
const mostCompared = 10_000

func entryOf(s *vfs.StageSummary) stageEntry {
	e := stageEntry{
		Stage: names.Foreign(filepath.Base(s.Dir)), Root: names.Foreign(s.Meta.Root), Path: names.Foreign(s.Meta.Path), Subject: names.Foreign(s.Meta.Subject),
		Changed: s.Changed, Bytes: s.Bytes, Last: s.Last, Store: names.Foreign(s.Dir), Damaged: names.Foreign(s.Damaged),
		Checkpoints: control.CheckpointsOf(s.Checkpoints),
	}
	if s.Held {
		e.HeldBy = names.Foreign(s.Meta.Session)
	}
	return e
}

// printStageList lists stages. hasKept says that there are further stages, which only keep
// checkpoints.
func (a *app) printStageList(list []stageEntry, hasKept, verbose bool) {
	if len(list) == 0 && hasKept {
		a.say("nothing is staged; what was is in a checkpoint: rootsfs stage list -v")
		return
	}
	if len(list) == 0 {
		a.say("nothing is staged; stage the changes of a program: rootsfs run --root .:stage -- COMMAND")
		return
	}
	rows := [][]string{{"STAGE", "ROOT", "HELD BY", "CHANGED", "SIZE", "AGE"}}
	for _, e := range list {
		held := "-"
		if e.HeldBy != "" {
			held = quoteIfNeeded(e.HeldBy)
		}
		rows = append(rows, []string{quoteIfNeeded(e.Stage), e.where(), held, strconv.Itoa(e.Changed), sizeText(e.Bytes), e.age()})
	}
	a.table(rows)
	for _, e := range list {
		if verbose {
			a.say("  %s lies in %s", quoteIfNeeded(e.Stage), quoteIfNeeded(filepath.Join(e.Store.Raw(), "upper")))
			if e.kinds != "" {
				a.say("    %s", e.kinds)
			}
			a.printCheckpoints(e.Checkpoints)
		}
		if e.Damaged != "" {
			a.say("  %s: %s", quoteIfNeeded(e.Stage), names.Escape(e.Damaged))
		}
	}
}

// where and age describe the root and the time of the last change, "-" if the store cannot be read.
func (e *stageEntry) where() string {
	if e.Path == "" {
		return "-"
	}
	return quoteIfNeeded(e.Path)
}

func (e *stageEntry) age() string {
	if e.Last.IsZero() {
		return "-"
	}
	return ageText(time.Since(e.Last))
}

// The owner may have forgotten a stage that is older or larger than these bounds.
const (
	oldStage   = 30 * 24 * time.Hour
	largeStage = 1 << 30 // bytes
)

// isForgotten reports whether a stage is old or large, and not in use.
func (e *stageEntry) isForgotten() bool {
	return e.HeldBy == "" && (time.Since(e.Last) > oldStage || e.Bytes > largeStage)
}

// checkStages lists stages that the owner may have forgotten, or that are damaged.
func checkStages() []check {
	c := check{Name: "stages"}
	dir, err := session.Stages()
	if err != nil {
		return []check{c.warn("as it says", "%s", oneLine(err))}
	}
	c.Path = dir
	all, err := vfs.Stages(dir)
	if err != nil {
		return []check{c.warn("as it says", "cannot be listed: %s", oneLine(err))}
	}
	var checks []check
	for i := range all {
		e := entryOf(&all[i])
		one := check{Name: "stage", Path: e.Stage.Raw()}
		name := names.ShellWord(e.Stage)
		remedy := "look: rootsfs stage diff --root " + name + "; then apply or discard it"
		if hasOnlyCheckpoints(&all[i]) {
			remedy = "drop its checkpoints: rootsfs stage discard --all --root " + name
		}
		switch {
		case e.Damaged != "":
			remedy := "look at what is left: rootsfs stage diff --root " + name
			if e.Path == "" {
				remedy = "drop it: rootsfs stage discard --all --root " + name
			}
			checks = append(checks, one.warn(remedy, "of %s: %s", e.where(), names.Escape(e.Damaged)))
		case e.isForgotten():
			checks = append(checks, one.warn(remedy,
				"of %s: %s, %s, last changed %s", quoteIfNeeded(e.Path), touchedText(e.Changed), sizeText(e.Bytes), agoText(time.Since(e.Last))))
		}
	}
	return append(checks, c.ok("%d kept", len(all)))
}

// agoText is ageText for a sentence.
func agoText(d time.Duration) string {
	if d < time.Minute {
		return "just now"
	}
	return ageText(d) + " ago"
}

// ageText shows about how long ago something was.
func ageText(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
