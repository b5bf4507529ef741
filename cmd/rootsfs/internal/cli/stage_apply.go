package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

const stageApplyLong = `Bring staged changes into your files.
` + pathsText + `

A change is applied only if the file is as it was when the program changed it. If a change
cannot be applied, it is listed, nothing is applied, and the exit code is 6; --partial
applies the rest. Outside of the root's directory, name a path or --root.`

const stageApplyExamples = `  rootsfs stage apply
  rootsfs stage apply --dry-run
  rootsfs stage apply src --partial
  rootsfs stage apply --take stage src/main.go`

// applyFlags are the flags of `rootsfs stage apply`.
type applyFlags struct {
	root    string
	take    string
	partial bool
	links   bool
	dryRun  bool
	verbose bool
}

func newStageApplyCmd(a *app) *cobra.Command {
	f := &applyFlags{}
	cmd := &cobra.Command{
		Use:        "apply [PATH]...",
		SuggestFor: []string{"take", "accept", "merge"},
		Short:      "Bring changes into your files",
		Long:       stageApplyLong,
		Example:    stageApplyExamples,
		Args: func(*cobra.Command, []string) error {
			if f.take != "" && f.take != "stage" && f.take != "source" {
				return usage(fmt.Errorf("--take %s: write stage or source", names.Quote(f.take)))
			}
			return nil
		},
		RunE:              func(cmd *cobra.Command, args []string) error { return a.stageApply(cmd.Context(), f, args) },
		ValidArgsFunction: completeChanges(&f.root),
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.partial, "partial", false, "apply what can be applied, and leave the rest staged")
	fs.StringVar(&f.take, "take", "", "of what you changed too, keep this `side`: stage (yours goes to the trash) or source")
	fs.BoolVar(&f.links, "links", false, "also apply links that leave the root")
	fs.BoolVar(&f.dryRun, "dry-run", false, "show what would be applied, and change nothing")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "list every change that was applied")
	fixedWords(cmd, "take", "stage", "source")
	stageRootFlag(cmd, &f.root)
	a.jsonFlag(cmd)
	return cmd
}

// stageResult is the JSON output of apply and discard.
type stageResult struct {
	Root    names.Foreign    `json:"root"`              // name of the root
	Path    names.Foreign    `json:"path"`              // directory of the root
	DryRun  bool             `json:"dry_run"`           // nothing was done
	Done    []stageDiffEntry `json:"done"`              // changes that were applied, or discarded; as those of `stage diff --json`
	Left    []stageDiffEntry `json:"left"`              // changes that were not, and why
	Dropped []stageDiffEntry `json:"dropped,omitempty"` // changes that `--take source` dropped
	Output  []stageDiffEntry `json:"output,omitempty"`  // `build output` that stays in the stage, because no path names it
}

func resultOf(o *openStage, r *vfs.StageResult, dryRun bool) stageResult {
	out := stageResult{Root: names.Foreign(o.Meta.Root), Path: names.Foreign(o.Meta.Path), DryRun: dryRun, Done: []stageDiffEntry{}, Left: []stageDiffEntry{}}
	for i := range r.Done {
		out.Done = append(out.Done, entryOfChange(&r.Done[i]))
	}
	for i := range r.Left {
		out.Left = append(out.Left, entryOfChange(&r.Left[i]))
	}
	for i := range r.Dropped {
		out.Dropped = append(out.Dropped, entryOfChange(&r.Dropped[i]))
	}
	_, units := vfs.ReviewStage(r.Output, nil)
	out.Output = outputEntries(units)
	return out
}

func (a *app) stageApply(ctx context.Context, f *applyFlags, paths []string) (err error) {
	c, err := chooseStage(f.root, paths)
	if err == nil {
		err = c.mustBeNamed(paths)
	}
	if err != nil {
		return err
	}
	ctx, cancel := interruptible(ctx)
	defer cancel()
	defer a.waiting("applying")()
	o, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close(ctx)) }()
	ans, err := askStage(ctx, o, control.ApplyStage, session.ApplyStage, control.StageApplyRequest{
		StageRequest: o.request(c.paths), Partial: f.partial, Links: f.links, DryRun: f.dryRun, Take: f.take})
	r := ans.Result()
	err = applyError(ctx, err, &r)
	if err != nil && len(r.Done) == 0 {
		return err
	}
	if err == nil && len(c.paths) > 0 && len(r.Done)+len(r.Left)+len(r.Dropped)+len(r.Output) == 0 {
		return &control.Error{Class: control.NoSuch, Text: o.nothingAt(paths)}
	}
	// Changes that were applied before an error are still reported.
	if reportErr := a.report(resultOf(o, &r, f.dryRun), func() { a.printApplied(o, f, &r) }); err != nil || reportErr != nil {
		return errors.Join(err, reportErr)
	}
	if len(r.Left) > 0 {
		return &exitError{Code: exitConflict, Err: leftError(f, &r)}
	}
	return nil
}

// applyError replaces the error of an apply that a signal cut short. The new error says how much
// was applied if r has the changes that were left.
func applyError(ctx context.Context, err error, r *vfs.StageResult) error {
	if _, isOfSession := errors.AsType[*control.Error](err); err == nil || ctx.Err() == nil ||
		!isOfSession && !errors.Is(err, context.Canceled) && !errors.Is(err, unix.EINTR) {
		return err
	}
	if len(r.Left) > 0 {
		return fmt.Errorf("interrupted: %s applied; left staged: %s", plural(len(r.Done), "change"), countText(r.Left))
	}
	return errors.New("interrupted: what was applied stays applied, and the rest stays staged; see rootsfs stage diff --stat")
}

// leftError returns an error about the changes that were not applied.
func leftError(f *applyFlags, r *vfs.StageResult) error {
	left := countText(r.Left)
	if f.partial || len(r.Done) > 0 && !f.dryRun { // a change can be left after others were applied
		return fmt.Errorf("left staged: %s", left)
	}
	if f.dryRun {
		return fmt.Errorf("nothing would be applied: %s; apply the rest with --partial", left)
	}
	return fmt.Errorf("nothing was applied: %s; apply the rest with --partial", left)
}

// printApplied lists the applied changes: removals and replacements by another kind of file
// always, and others only with --verbose or --dry-run. After that it lists the changes that were
// left, and remedies.
func (a *app) printApplied(o *openStage, f *applyFlags, r *vfs.StageResult) {
	for i := range r.Done {
		c := &r.Done[i]
		if f.verbose || f.dryRun || vfs.StageTakesAway(c) {
			a.printChange(o, c)
		}
	}
	a.printLeft(o, r.Left)
	verb, drop := "applied", "dropped"
	if f.dryRun {
		verb, drop = "would apply", "would drop"
	}
	if f.dryRun && len(r.Left) > 0 && !f.partial {
		verb = "with --partial, would apply"
	}
	if len(r.Dropped) > 0 {
		a.say("%s %s, for what the root has", drop, plural(len(r.Dropped), "change"))
	}
	switch {
	case len(r.Done) > 0:
		a.say("%s %s: %s", verb, plural(len(r.Done), "change"), countText(r.Done))
	case len(r.Left) == 0 && len(r.Dropped) == 0 && len(r.Output) == 0:
		a.say("%s", o.nothingAt(nil))
	}
	if _, err := os.Lstat(filepath.Join(o.Meta.Path, rules.TrashName)); err == nil && f.take == "stage" && !f.dryRun && len(r.Done) > 0 {
		a.say("  your files that were replaced: %s", commandWords{"trash", "list", "--root", names.Foreign(o.Meta.Path)}.line())
	}
	_, units := vfs.ReviewStage(r.Output, nil)
	for i := range units {
		path := o.displayPath(units[i].Path)
		a.say("left staged: %s: %s; take it: %s", quoteIfNeeded(path), outputText(&units[i]), o.command("apply", path))
	}
}

// printLeft lists the changes that were left, and remedies. Changes in a .git that were left for the
// same reason have one line. A change that was not reached (see vfs.StageResult) has no line: the
// caller counts it.
func (a *app) printLeft(o *openStage, left []vfs.StageChange) {
	type unit struct {
		git names.Foreign
		why names.Text
	}
	count := map[unit]int{}
	for i := range left {
		count[unit{gitOf(left[i].Path), left[i].Why}]++
	}
	for i := range left {
		c := &left[i]
		u := unit{gitOf(c.Path), c.Why}
		switch n := count[u]; {
		case c.Class.Applies():
		case u.git == "" || n == 1:
			a.printChange(o, c)
		case n > 1:
			count[u] = 0 // its line is printed once
			a.say("%c %s  %s: %s", c.Class, quoteIfNeeded(o.displayPath(u.git)), plural(n, "change"), c.Why)
		}
	}
	a.printChoices(o, left)
}

// printChange prints a line for a change.
func (a *app) printChange(o *openStage, c *vfs.StageChange) {
	line := fmt.Sprintf("%c %s", c.Class, quoteIfNeeded(o.displayPath(c.Path)))
	if c.Why != "" {
		line += "  " + c.Why.String()
	}
	a.say("%s", line)
}

// mostChoices is how many paths a proposed command has at most.
const mostChoices = 4

// printChoices prints the possible commands for each kind of change that was left.
func (a *app) printChoices(o *openStage, left []vfs.StageChange) {
	choice := func(what string, is func(c *vfs.StageChange) bool, words ...names.Foreign) {
		var paths []names.Foreign
		count := 0
		above := "\x00" // the latest path, which stands for all paths below it
		for i := range left {
			path := cmp.Or(gitOf(left[i].Path), left[i].Path) // a .git is applied as a whole
			if !is(&left[i]) || names.Under(path.Raw(), above) {
				continue
			}
			above = path.Raw()
			if count++; count <= mostChoices {
				paths = append(paths, o.displayPath(path))
			}
		}
		if count > len(paths) {
			what += fmt.Sprintf(" (%d of %d; a directory stands for all below it)", len(paths), count)
		}
		if len(paths) > 0 {
			a.say("  %s: %s", what, o.command(append(words, paths...)...))
		}
	}
	of := func(class vfs.StageClass) func(*vfs.StageChange) bool {
		return func(c *vfs.StageChange) bool { return c.Class == class }
	}
	// A directory in a .git does not count: the .git is applied as a whole, so it does not help to
	// move only this directory away.
	isDir := func(c *vfs.StageChange) bool { return c.OldMode&unix.S_IFMT == unix.S_IFDIR && gitOf(c.Path) == "" }
	choice("keep yours", of(vfs.StageConflict), "discard")
	choice("take the stage's", func(c *vfs.StageChange) bool { return c.Class == vfs.StageConflict && !isDir(c) }, "apply", "--take", "stage")
	choice("move your directory away to take the stage's", func(c *vfs.StageChange) bool { return c.Class == vfs.StageConflict && isDir(c) }, "apply")
	choice("if it is whole", of(vfs.StageUnsure), "apply", "--take", "stage")
	choice("with the links", of(vfs.StageLink), "apply", "--links")
	choice("when nobody writes it any more", of(vfs.StageInUse), "apply")
	choice("when the file system allows it", of(vfs.StageRefused), "apply")
	for i := range left {
		if left[i].Class == vfs.StageProtected {
			a.say("  what is protected you can copy yourself from %s", quoteIfNeeded(filepath.Join(o.Dir, "upper")))
			break
		}
	}
}

// classWords are the words for the classes, in texts and in JSON.
var classWords = map[vfs.StageClass]string{
	vfs.StageNew: "new", vfs.StageChanged: "changed", vfs.StageMode: "mode", vfs.StageRemoved: "removed", vfs.StageReplaced: "replaced",
	vfs.StageConflict: "conflict", vfs.StageInUse: "in use", vfs.StageProtected: "protected", vfs.StageLink: "link",
	vfs.StageSpecial: "special file", vfs.StageUnsure: "unsure", vfs.StageRefused: "refused",
}

// countText counts changes by their classes: "3 changed, 1 new".
func countText(list []vfs.StageChange) string {
	order := []vfs.StageClass{
		vfs.StageChanged, vfs.StageMode, vfs.StageNew, vfs.StageRemoved, vfs.StageReplaced, vfs.StageConflict,
		vfs.StageInUse, vfs.StageRefused, vfs.StageProtected, vfs.StageLink, vfs.StageSpecial, vfs.StageUnsure,
	}
	count := map[vfs.StageClass]int{}
	for i := range list {
		count[list[i].Class]++
	}
	var parts []string
	for _, class := range order {
		switch n := count[class]; {
		case n == 0:
		case class == vfs.StageConflict || class == vfs.StageSpecial:
			parts = append(parts, plural(n, classWords[class]))
		case class == vfs.StageLink:
			parts = append(parts, plural(n, "link")+" out of the root")
		case class == vfs.StageMode:
			parts = append(parts, fmt.Sprintf("%d with another mode", n))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, classWords[class]))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

const stageDiscardLong = `Drop staged changes; programs see your files again.
` + pathsText + `

--all drops everything, and asks first. rootsfs undo brings back what was dropped. If
nothing is staged, --all drops the checkpoints. Outside of the root's directory,
name a path or --root.`

const stageDiscardExamples = `  rootsfs stage discard src/main.go
  rootsfs stage discard --all`

func newStageDiscardCmd(a *app) *cobra.Command {
	var root string
	var all, yes bool
	cmd := &cobra.Command{
		Use:        "discard [PATH]... | --all",
		Short:      "Drop changes",
		SuggestFor: []string{"drop", "revert", "reset"},
		Long:       stageDiscardLong,
		Example:    stageDiscardExamples,
		Args: func(_ *cobra.Command, args []string) error {
			return oneOf("paths and --all", "name what to drop, or use --all; see: rootsfs stage diff --stat", len(args) > 0, all)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.stageDiscard(cmd.Context(), root, args, yes)
		},
		ValidArgsFunction: completeChanges(&root),
	}
	cmd.Flags().BoolVar(&all, "all", false, "everything that is staged of the root")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	stageRootFlag(cmd, &root)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) stageDiscard(ctx context.Context, root string, paths []string, yes bool) (err error) {
	c, err := chooseStage(root, paths)
	if kept, keptErr := chooseAnyStage(root); err != nil && len(paths) == 0 && keptErr == nil {
		c, err = kept, nil
	}
	if err == nil {
		err = c.mustBeNamed(paths)
	}
	if err != nil {
		return err
	}
	ctx, cancel := interruptible(ctx)
	defer cancel()
	if len(c.paths) == 0 && !yes {
		what := fmt.Sprintf("in the stage of %s: %s", quoteIfNeeded(c.Meta.Path), cmp.Or(c.counts(ctx), "nothing that differs"))
		if c.Meta.Path == "" {
			what = fmt.Sprintf("the stage %s cannot be read: %s", quoteIfNeeded(filepath.Base(c.Dir)), names.Escape(names.Foreign(c.Damaged)))
		}
		if hasOnlyCheckpoints(&c.StageSummary) {
			what += ", and " + plural(len(c.Checkpoints), "checkpoint")
		}
		if err := confirm(what, "drop all of it?"); err != nil {
			return err
		}
	}
	if len(c.paths) == 0 && (hasOnlyCheckpoints(&c.StageSummary) || c.Meta.Path == "") {
		return a.removeStage(c)
	}
	o, err := c.open(ctx)
	if len(c.paths) == 0 && isRootGone(err) {
		return a.removeStage(c)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close(ctx)) }()
	ans, err := askStage(ctx, o, control.DiscardStage, session.DiscardStage, o.request(c.paths))
	if err != nil {
		return err
	}
	r := ans.Result()
	if len(c.paths) > 0 && len(r.Done)+len(r.Left) == 0 {
		return &control.Error{Class: control.NoSuch, Text: o.nothingAt(paths)}
	}
	if err := a.report(resultOf(o, &r, false), func() { a.printDiscarded(o, &r) }); err != nil {
		return err
	}
	if len(r.Left) > 0 {
		return &exitError{Code: exitFailure, Err: fmt.Errorf("left staged: %s", plural(len(r.Left), "change"))}
	}
	return nil
}

// removeStage drops a stage without opening it: its root no longer exists, its record cannot be
// read, or it only keeps checkpoints.
func (a *app) removeStage(c *chosenStage) error {
	if err := vfs.RemoveStage(c.Dir); err != nil {
		return err
	}
	r := stageResult{Root: names.Foreign(c.Meta.Root), Path: names.Foreign(c.Meta.Path), Done: []stageDiffEntry{}, Left: []stageDiffEntry{}}
	return a.report(r, func() {
		if c.Meta.Path == "" {
			a.say("dropped the stage %s, which could not be read", quoteIfNeeded(filepath.Base(c.Dir)))
			return
		}
		if c.Changed == 0 {
			a.say("dropped %s of %s", plural(len(c.Checkpoints), "checkpoint"), quoteIfNeeded(c.Meta.Path))
			return
		}
		a.say("discarded %s; %s is gone, or another directory now", plural(c.Changed, "change"), quoteIfNeeded(c.Meta.Path))
	})
}

func (a *app) printDiscarded(o *openStage, r *vfs.StageResult) {
	for i := range r.Left {
		a.printChange(o, &r.Left[i])
	}
	a.say("discarded %s", plural(len(r.Done), "change"))
}
