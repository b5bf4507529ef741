package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

const stageDiffLong = `Show staged changes as a patch to your files as they are now.
` + pathsText + `

In a pipe, the patch is one that git apply takes; on a terminal, what it would not show is
escaped.`

const stageDiffExamples = `  rootsfs stage diff
  rootsfs stage diff --stat src
  rootsfs stage diff --root code | git apply --stat`

// diffFlags are the flags of `rootsfs stage diff`.
type diffFlags struct {
	root           string
	stat, nameOnly bool
}

func newStageDiffCmd(a *app) *cobra.Command {
	f := &diffFlags{}
	cmd := &cobra.Command{
		Use:     "diff [PATH]...",
		Short:   "Show the changes as a patch",
		Long:    stageDiffLong,
		Example: stageDiffExamples,
		Args: func(*cobra.Command, []string) error {
			if f.stat && f.nameOnly || f.stat && a.JSON || f.nameOnly && a.JSON {
				return usage(errors.New("--stat, --name-only and --json cannot be combined: use one of them"))
			}
			return nil
		},
		RunE:              func(cmd *cobra.Command, args []string) error { return a.stageDiff(cmd.Context(), f, args) },
		ValidArgsFunction: completeChanges(&f.root),
	}
	cmd.Flags().BoolVar(&f.stat, "stat", false, "one line for each change")
	cmd.Flags().BoolVar(&f.nameOnly, "name-only", false, "only the paths")
	stageRootFlag(cmd, &f.root)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) stageDiff(ctx context.Context, f *diffFlags, paths []string) (err error) {
	c, err := chooseStage(f.root, paths)
	if err != nil {
		return err
	}
	ctx, cancel := interruptible(ctx)
	defer cancel()
	defer a.waiting("comparing")()
	o, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close(ctx)) }()
	list, err := o.changes(ctx, c.paths)
	if err != nil {
		return err
	}
	list, units := vfs.ReviewStage(list, c.paths)
	p := &patcher{renamed: map[names.Foreign]names.Foreign{}, read: newStageReader(o, list).read}
	switch {
	case f.nameOnly:
		return a.printChangedNames(o, list, units)
	case f.stat:
		return a.printStat(ctx, o, p, list, units)
	}
	if err := p.findRenames(ctx, list); err != nil {
		return err
	}
	if a.JSON {
		return a.encodeDiff(ctx, p, list, units)
	}
	if len(list)+len(units) == 0 {
		a.say("%s", o.nothingAt(paths))
		return nil
	}
	notes := ""
	for i := range units {
		path := gitQuote(o.displayPath(units[i].Path))
		notes += fmt.Sprintf("# %s: %s; look: %s\n", path, outputText(&units[i]), o.command("diff", o.displayPath(units[i].Path)))
	}
	return a.printPatch(ctx, p, list, notes)
}

// printPatch prints the patch of the changes in list, and after the patch the notes. In a pipe, the
// patch is unchanged. On a terminal, its invisible characters are escaped and its long lines are
// folded.
func (a *app) printPatch(ctx context.Context, p *patcher, list []vfs.StageChange, notes string) error {
	terminal := isTerminal(a.Stdout)
	var shown strings.Builder // on the terminal
	write := func(patch string) error {
		if !terminal {
			_, err := a.Write([]byte(patch))
			return err
		}
		for line := range strings.Lines(patch) {
			shown.WriteString(names.Fold(visibleText(strings.TrimSuffix(line, "\n")), "", columns(a.Stdout)))
			shown.WriteByte('\n')
		}
		return nil
	}
	var ofGit []vfs.StageChange
	for i := range list {
		if isOfGit(list[i].Path) {
			ofGit = append(ofGit, list[i])
			continue
		}
		patch, err := p.patch(ctx, &list[i])
		if err == nil {
			err = write(patch)
		}
		if err != nil {
			return err
		}
	}
	if err := write(gitNotes(ofGit) + notes); err != nil {
		return err
	}
	return a.page(shown.String())
}

// isOfGit reports whether a path is a .git, or lies in one.
func isOfGit(path names.Foreign) bool { return gitOf(path) != "" }

// gitOf returns the path of the .git that is or contains path, "" if there is none.
func gitOf(path names.Foreign) names.Foreign {
	end := 0
	for part := range strings.SplitSeq(path.Raw(), "/") {
		end += len(part)
		if part == ".git" {
			return path[:end]
		}
		end++ // the slash
	}
	return ""
}

// gitNotes describes changes in a .git. Git accepts no patch for these changes, and an apply makes
// them together. gitNotes counts all of them, and lists the removals and the changes that are not
// applied.
func gitNotes(list []vfs.StageChange) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# .git: %s; applied as a whole, listed by --stat\n", countText(list))
	for i := range list {
		c := &list[i]
		if c.Why != "" {
			fmt.Fprintf(&b, "# %s %s: %s\n", classWords[c.Class], gitQuote(c.Path), strings.ReplaceAll(c.Why.Raw(), "\n", " "))
		} else if vfs.StageTakesAway(c) {
			fmt.Fprintf(&b, "# %s %s\n", classWords[c.Class], gitQuote(c.Path))
		}
	}
	return b.String()
}

// visibleText returns a line of a file for the terminal, with invisible characters escaped. Tabs
// and spaces stay, because source code is aligned with them. Only a run of more than maxIndent of
// them becomes an escape with its length, because such a run could push the rest of the line out of
// sight.
func visibleText(line string) string {
	var b strings.Builder
	for line != "" {
		blank := len(line) - len(strings.TrimLeft(line, " \t"))
		if blank > maxIndent {
			fmt.Fprintf(&b, `\{%d spaces}`, blank)
		} else {
			b.WriteString(line[:blank])
		}
		line = line[blank:]
		end := strings.IndexAny(line, " \t")
		if end < 0 {
			end = len(line)
		}
		b.WriteString(names.EscapeQuoted(line[:end]))
		line = line[end:]
	}
	return b.String()
}

// printChangedNames prints the paths of changes in the form that the commands take. In a pipe,
// special paths are quoted as git quotes them.
func (a *app) printChangedNames(o *openStage, list []vfs.StageChange, units []vfs.StageOutputUnit) error {
	var paths []names.Foreign
	for i := range list {
		paths = append(paths, list[i].Path)
	}
	for i := range units {
		paths = append(paths, units[i].Path)
	}
	for _, path := range paths {
		line := quoteIfNeeded(o.displayPath(path))
		if !isTerminal(a.Stdout) {
			line = gitQuote(o.displayPath(path))
		}
		if _, err := a.Write([]byte(line + "\n")); err != nil {
			return err
		}
	}
	return nil
}

// widestPath is the largest width of a path, in columns, for which printStat aligns the sizes. The
// size of a wider path follows the path directly.
const widestPath = 80

// printStat prints a line for each change and each unit of build output, and a summary.
func (a *app) printStat(ctx context.Context, o *openStage, p *patcher, list []vfs.StageChange, units []vfs.StageOutputUnit) error {
	rows := make([][]string, 0, len(list))
	for i := range list {
		c := &list[i]
		size, err := p.size(ctx, c)
		if err != nil {
			return err
		}
		row := []string{" " + string(c.Class), quoteIfNeeded(o.displayPath(c.Path)), size}
		if names.Columns(row[1]) > widestPath {
			row = []string{row[0], row[1] + "  " + size}
		}
		rows = append(rows, row)
	}
	for i := range units {
		rows = append(rows, []string{" B", quoteIfNeeded(o.displayPath(units[i].Path)), outputText(&units[i])})
	}
	a.table(rows)
	a.say("%s", reviewText(list, units))
	return a.outputError()
}

// stageDiffEntry is a change for --json.
type stageDiffEntry struct {
	Path    names.Foreign `json:"path"`                   // below the root
	Change  string        `json:"change"`                 // `new`, `changed`, `mode`, `removed` or `replaced`; if it is not applied: `conflict`, `in use`, `protected`, `link`, `special file`, `unsure` or `refused` (by the file system); `build output` counts all that is new in a directory that is not listed
	Mode    string        `json:"mode,omitempty"`         // as git writes it: octal, with the type; left out if it is removed
	OldMode string        `json:"old_mode,omitempty"`     // of the file in the root now; left out if there is none
	Size    int64         `json:"size"`                   // bytes in the stage
	OldSize int64         `json:"old_size"`               // bytes in the root now
	Why     names.Text    `json:"why,omitempty"`          // why it is not applied
	Files   int           `json:"files,omitempty"`        // of `build output`
	From    names.Foreign `json:"renamed_from,omitempty"` // a removed file that had the same contents; only of `stage diff`
	Patch   names.Foreign `json:"patch,omitempty"`        // as `stage diff` prints it; only there
}

func (a *app) encodeDiff(ctx context.Context, p *patcher, list []vfs.StageChange, units []vfs.StageOutputUnit) error {
	out := make([]stageDiffEntry, 0, len(list))
	for i := range list {
		e := entryOfChange(&list[i])
		e.From = p.renamed[e.Path]
		patch, err := p.patch(ctx, &list[i])
		if err != nil {
			return err
		}
		e.Patch = names.Foreign(strings.ToValidUTF8(patch, "\uFFFD"))
		out = append(out, e)
	}
	return a.encode(append(out, outputEntries(units)...), "  ")
}

func outputEntries(units []vfs.StageOutputUnit) (out []stageDiffEntry) {
	for _, u := range units {
		out = append(out, stageDiffEntry{Path: u.Path, Change: "build output", Files: u.Files, Size: u.Bytes})
	}
	return out
}

func entryOfChange(c *vfs.StageChange) stageDiffEntry {
	return stageDiffEntry{
		Path: c.Path, Change: classWords[c.Class], Mode: gitMode(c.Mode), OldMode: gitMode(c.OldMode),
		Size: c.Size, OldSize: c.OldSize, Why: c.Why,
	}
}
