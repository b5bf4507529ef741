package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

const stageCheckpointLong = `Keep what is staged now, so that rootsfs undo can bring it back.

Checkpoints are also made by themselves: before each tool call of an MCP client that may
write, each apply, each discard, and each session that continues the stage. A stage has at
most 50; the oldest goes first, one that you asked for last (rootsfs stage list -v).
A name that you give again moves to the new checkpoint.`

const stageCheckpointExamples = `  rootsfs stage checkpoint
  rootsfs stage checkpoint before-refactoring`

func newStageCheckpointCmd(a *app) *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:     "checkpoint [NAME]",
		Short:   "Keep what is staged now for rootsfs undo",
		Long:    stageCheckpointLong,
		Example: stageCheckpointExamples,
		Args:    argCount(0, 1, "write one name, and quote it if it has spaces"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.stageCheckpoint(cmd.Context(), root, firstOf(args))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	stageRootFlag(cmd, &root)
	a.jsonFlag(cmd)
	return cmd
}

func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func (a *app) stageCheckpoint(ctx context.Context, root, name string) (err error) {
	c, err := chooseAnyStage(root)
	if err == nil {
		err = c.mustBeNamed(nil)
	}
	if err != nil {
		return err
	}
	o, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close(ctx)) }()
	ans, err := askStage(ctx, o, control.MakeCheckpoint, session.MakeCheckpoint, control.CheckpointRequest{Store: o.Dir, Name: name})
	if err != nil {
		return err
	}
	return a.report(ans, func() {
		if !ans.Made {
			a.say("nothing has changed since %s", checkpointText(&ans.Checkpoint))
			return
		}
		a.say("%s keeps the stage of %s: %s", checkpointText(&ans.Checkpoint), quoteIfNeeded(o.Meta.Path), touchedText(ans.Checkpoint.Changed))
	})
}

// checkpointText names a checkpoint, for people.
func checkpointText(c *control.Checkpoint) string {
	if c.Cause == vfs.CheckpointStart {
		return "the start"
	}
	text := "checkpoint " + strconv.Itoa(c.Number)
	if c.Name != "" {
		text += " " + names.Quote(c.Name.Raw())
	}
	return text
}

const undoLong = `Bring what is staged back to a checkpoint: its number or name, or without one the latest
that differs from what is staged now. 0 is the start, with nothing staged. Programs see it
at once.

It changes what is staged, never your files. What was applied since stays in them, and the
way back is staged: look with rootsfs stage diff, and apply it. A checkpoint is made
before, so a second undo takes back the first.`

const undoExamples = `  rootsfs undo
  rootsfs undo --dry-run
  rootsfs undo before-refactoring
  rootsfs undo 3`

func (a *app) newUndoCmd() *cobra.Command {
	var root string
	var dryRun bool
	cmd := &cobra.Command{
		Use:     "undo [NUMBER | NAME]",
		Short:   "Bring staged changes back to a checkpoint",
		Long:    undoLong,
		Example: undoExamples,
		Args:    argCount(0, 1, "name one checkpoint of rootsfs stage list -v"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.undo(cmd.Context(), root, firstOf(args), dryRun)
		},
		ValidArgsFunction: completeCheckpoints(&root),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would come back, and change nothing")
	stageRootFlag(cmd, &root)
	a.jsonFlag(cmd)
	return cmd
}

// undoResult is the JSON output of `rootsfs undo`.
type undoResult struct {
	Root    names.Foreign       `json:"root"`             // name of the root
	Path    names.Foreign       `json:"path"`             // directory of the root
	DryRun  bool                `json:"dry_run"`          // nothing was done
	To      control.Checkpoint  `json:"to"`               // that is staged again
	Before  *control.Checkpoint `json:"before,omitempty"` // made before the undo; left out if the latest has the same
	Applied int                 `json:"applied"`          // paths that are staged because changes of them were applied since the checkpoint
	Changes []undoChange        `json:"changes"`          // of what programs see
}

// undoChange is a path at which programs see another file, or none, after an undo.
type undoChange struct {
	Path   names.Foreign `json:"path"`   // below the root
	Change string        `json:"change"` // `new`, `changed` or `removed`
}

func (a *app) undo(ctx context.Context, root, to string, dryRun bool) (err error) {
	c, err := chooseAnyStage(root)
	if err == nil {
		err = c.mustBeNamed(nil)
	}
	if err != nil {
		return err
	}
	ctx, cancel := interruptible(ctx)
	defer cancel()
	o, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close(ctx)) }()
	ans, err := askStage(ctx, o, control.UndoStage, session.UndoStage, control.UndoRequest{Store: o.Dir, To: to, DryRun: dryRun})
	if err != nil {
		return err
	}
	seen := ans.StageChanges()
	r := undoResult{Root: names.Foreign(o.Meta.Root), Path: names.Foreign(o.Meta.Path), DryRun: dryRun, To: ans.To, Before: ans.Before, Applied: ans.Applied, Changes: []undoChange{}}
	for i := range seen {
		r.Changes = append(r.Changes, undoChange{names.Foreign(seen[i].Path), classWords[seen[i].Class]})
	}
	return a.report(r, func() {
		a.printSeen(o, seen)
		a.printUndone(o, &r, seen)
	})
}

// printSeen prints the changes that programs see. It prints one line for each .git and each
// directory of build output, and one line for each path outside of them.
func (a *app) printSeen(o *openStage, seen []vfs.StageChange) {
	// units has the changes of each .git and directory of build output; nil: printed already.
	units := map[names.Foreign][]vfs.StageChange{}
	for i := range seen {
		if unit := cmp.Or(gitOf(seen[i].Path), seen[i].Output); unit != "" {
			units[unit] = append(units[unit], seen[i])
		}
	}
	for i := range seen {
		c := &seen[i]
		if _, ok := units[c.Path]; ok && c.Path != cmp.Or(gitOf(c.Path), c.Output) {
			units[c.Path] = append(units[c.Path], *c) // the directory itself
			c.Output = c.Path
		}
	}
	for i := range seen {
		unit := cmp.Or(gitOf(seen[i].Path), seen[i].Output)
		if unit == "" {
			a.printChange(o, &seen[i])
		} else if list := units[unit]; list != nil {
			a.say("  %s: %s", quoteIfNeeded(o.displayPath(unit)), countText(list))
			units[unit] = nil
		}
	}
}

func (a *app) printUndone(o *openStage, r *undoResult, seen []vfs.StageChange) {
	what := checkpointText(&r.To) + ": programs see no change"
	if len(seen) > 0 {
		what = fmt.Sprintf("%s: programs see %s", checkpointText(&r.To), countText(seen))
	}
	switch {
	case r.DryRun:
		a.say("would go back to %s", what)
	case r.Before != nil:
		a.say("back at %s; take this back: %s", what, o.line(commandWords{"undo", names.Foreign(strconv.Itoa(r.Before.Number))}))
	default:
		a.say("back at %s", what)
	}
	if r.Applied > 0 {
		a.say("  what you had applied is in your files until you apply again: %s of it staged the other way round", plural(r.Applied, "path"))
	}
}

// completeCheckpoints offers the checkpoints of the stage of the working directory or of --root,
// the latest first.
func completeCheckpoints(root *string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (out []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := chooseAnyStage(*root)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list := control.CheckpointsOf(c.Checkpoints)
		for i := len(list) - 1; i >= 0; i-- {
			p := &list[i]
			word := cmp.Or(p.Name.Raw(), strconv.Itoa(p.Number))
			out = append(out, cobra.CompletionWithDesc(word, fmt.Sprintf("%s, %s, %s", causeText(p), p.Time.Local().Format("2006-01-02 15:04:05"), touchedText(p.Changed))))
		}
		out = append(out, cobra.CompletionWithDesc("0", "nothing staged"))
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// causeText says why a checkpoint was made.
func causeText(c *control.Checkpoint) string {
	switch c.Cause {
	case vfs.CheckpointAsked:
		return "asked for"
	case vfs.CheckpointSession:
		return "before a session"
	}
	return "before " + names.Escape(c.Cause)
}

// printCheckpoints lists the checkpoints of a stage.
func (a *app) printCheckpoints(list []control.Checkpoint) {
	for i := range list {
		c := &list[i]
		a.say("    %s: %s, %s, %s", checkpointText(c), causeText(c), ageText(time.Since(c.Time)), touchedText(c.Changed))
	}
}
