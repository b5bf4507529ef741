package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/textdiff"
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
	o, err := c.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close(ctx)) }()
	defer a.waiting("comparing")()
	list, err := o.tree.StageChanges(ctx, o.root, c.paths)
	if err != nil {
		return err
	}
	p := &patcher{renamed: map[string]string{}, read: func(ctx context.Context, path string, staged bool) ([]byte, error) {
		return o.tree.StageContents(ctx, o.root, path, staged, mostText)
	}}
	switch {
	case f.nameOnly:
		return a.printChangedNames(o, list)
	case f.stat:
		return a.printStat(ctx, o, p, list)
	}
	if err := p.findRenames(ctx, list); err != nil {
		return err
	}
	if a.JSON {
		return a.encodeDiff(ctx, p, list)
	}
	if len(list) == 0 {
		a.say("nothing has changed in the stage of %s", quoteIfNeeded(c.Meta.Path))
		return nil
	}
	return a.printPatch(ctx, p, list)
}

// printPatch prints a patch: in a pipe as it is, and on a terminal with what a person does
// not see escaped.
func (a *app) printPatch(ctx context.Context, p *patcher, list []vfs.StageChange) error {
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
	if err := write(gitNotes(ofGit)); err != nil {
		return err
	}
	return a.page(shown.String())
}

// isOfGit reports whether a path is that of a .git, or of what is in it.
func isOfGit(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == ".git" {
			return true
		}
	}
	return false
}

// gitNotes tells of changes in a .git, of which git takes no patch, and which are applied
// together. What is not applied, and what is removed, is listed.
func gitNotes(list []vfs.StageChange) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# .git: %s; applied as a whole, listed by --stat\n", countText(list))
	for i := range list {
		c := &list[i]
		if c.Why != "" {
			fmt.Fprintf(&b, "# %s %s: %s\n", classWords[c.Class], gitQuote(c.Path), strings.ReplaceAll(c.Why, "\n", " "))
		} else if takesAway(c) {
			fmt.Fprintf(&b, "# %s %s\n", classWords[c.Class], gitQuote(c.Path))
		}
	}
	return b.String()
}

// visibleText is a line of a file for the terminal. Tabs and spaces stay, as programs align
// their lines with them, but for so many that the rest would not be seen.
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

// printChangedNames prints the paths of changes as the commands take them: in a pipe, one
// that is not plain is quoted as git quotes it.
func (a *app) printChangedNames(o *openStage, list []vfs.StageChange) error {
	for i := range list {
		line := quoteIfNeeded(o.shown(list[i].Path))
		if !isTerminal(a.Stdout) {
			line = gitQuote(o.shown(list[i].Path))
		}
		if _, err := a.Write([]byte(line + "\n")); err != nil {
			return err
		}
	}
	return nil
}

// printStat prints a line for each change, and a sum.
func (a *app) printStat(ctx context.Context, o *openStage, p *patcher, list []vfs.StageChange) error {
	rows := make([][]string, 0, len(list))
	for i := range list {
		c := &list[i]
		size, err := p.size(ctx, c)
		if err != nil {
			return err
		}
		rows = append(rows, []string{" " + string(c.Class), quoteIfNeeded(o.shown(c.Path)), size})
	}
	a.table(rows)
	a.say("%s", countText(list))
	return a.outputError()
}

// stageDiffEntry is a change for --json.
type stageDiffEntry struct {
	Path    string `json:"path"`                   // below the root
	Change  string `json:"change"`                 // `new`, `changed`, `mode`, `removed` or `replaced`; if it is not applied: `conflict`, `in use`, `protected`, `link`, `special file` or `unsure`
	Mode    string `json:"mode,omitempty"`         // as git writes it: octal, with the type; left out if it is removed
	OldMode string `json:"old_mode,omitempty"`     // of the file in the root now; left out if there is none
	Size    int64  `json:"size"`                   // bytes in the stage
	OldSize int64  `json:"old_size"`               // bytes in the root now
	Why     string `json:"why,omitempty"`          // why it is not applied
	From    string `json:"renamed_from,omitempty"` // a removed file that had the same contents; only of `stage diff`
	Patch   string `json:"patch,omitempty"`        // as `stage diff` prints it; only there
}

func (a *app) encodeDiff(ctx context.Context, p *patcher, list []vfs.StageChange) error {
	out := make([]stageDiffEntry, 0, len(list))
	for i := range list {
		e := entryOfChange(&list[i])
		e.From = p.renamed[e.Path]
		patch, err := p.patch(ctx, &list[i])
		if err != nil {
			return err
		}
		e.Patch = strings.ToValidUTF8(patch, "\uFFFD")
		out = append(out, e)
	}
	return a.encode(out, "  ")
}

func entryOfChange(c *vfs.StageChange) stageDiffEntry {
	return stageDiffEntry{
		Path: c.Path, Change: classWords[c.Class], Mode: gitMode(c.Mode), OldMode: gitMode(c.OldMode),
		Size: c.Size, OldSize: c.OldSize, Why: c.Why,
	}
}

// patcher makes patches of the changes of a stage.
type patcher struct {
	// read returns what a file has, in the stage or in the root. If it is more than mostText,
	// the error is names.Quota.
	read    func(ctx context.Context, path string, staged bool) ([]byte, error)
	renamed map[string]string // the old path of each new one
}

// mostText is how much of a file is compared, bytes. More is called binary.
const mostText = 8 << 20

// contents is what a file has on one side, "" if there is none. isText is false for what is
// not compared line by line.
func (p *patcher) contents(ctx context.Context, c *vfs.StageChange, staged bool) (text string, isText bool, err error) {
	mode := c.OldMode
	if staged {
		mode = c.Mode
	}
	if mode == 0 || mode&unix.S_IFMT == unix.S_IFDIR {
		return "", true, nil
	}
	data, err := p.read(ctx, c.Path, staged)
	if errors.Is(err, names.Quota) {
		return "", false, nil
	}
	return string(data), !isBinary(data), err
}

// isBinary reports whether git would call contents binary: they have a NUL byte near the
// beginning.
func isBinary(data []byte) bool {
	return bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0
}

// isFile reports whether a mode is that of what git keeps: a file or a link.
func isFile(mode uint32) bool {
	kind := mode & unix.S_IFMT
	return kind == unix.S_IFREG || kind == unix.S_IFLNK
}

// findRenames finds new files with the contents of removed ones.
func (p *patcher) findRenames(ctx context.Context, list []vfs.StageChange) error {
	sum := func(c *vfs.StageChange, staged bool) ([32]byte, bool, error) {
		data, err := p.read(ctx, c.Path, staged)
		if errors.Is(err, names.Quota) {
			return [32]byte{}, false, nil
		}
		return sha256.Sum256(data), err == nil, err
	}
	added := map[int64][]*vfs.StageChange{}
	for i := range list {
		if c := &list[i]; c.Class == vfs.StageNew && isFile(c.Mode) && c.Size > 0 {
			added[c.Size] = append(added[c.Size], c)
		}
	}
	for i := range list {
		old := &list[i]
		if old.Class != vfs.StageRemoved || !isFile(old.OldMode) || len(added[old.OldSize]) == 0 {
			continue
		}
		want, ok, err := sum(old, false)
		if err != nil {
			return err
		}
		for _, c := range added[old.OldSize] {
			if !ok || p.renamed[c.Path] != "" || c.Mode&unix.S_IFMT != old.OldMode&unix.S_IFMT {
				continue
			}
			have, same, err := sum(c, true)
			if err != nil {
				return err
			}
			if same && have == want {
				p.renamed[c.Path] = old.Path
				break
			}
		}
	}
	return nil
}

// patch is the patch of one change, as git writes it.
func (p *patcher) patch(ctx context.Context, c *vfs.StageChange) (string, error) {
	var b strings.Builder
	if c.Why != "" {
		fmt.Fprintf(&b, "# %s: %s\n", classWords[c.Class], strings.ReplaceAll(c.Why, "\n", " "))
	}
	if c.Mode&unix.S_IFMT == unix.S_IFDIR || c.OldMode&unix.S_IFMT == unix.S_IFDIR {
		fmt.Fprintf(&b, "# %s\n", directoryLine(c))
	}
	if from, ok := p.renamed[c.Path]; ok {
		fmt.Fprintf(&b, "# renamed from %s\n", gitQuote(from))
	}
	// Git has no patch from one kind to another: it removes the old and makes the new.
	if isFile(c.OldMode) && isFile(c.Mode) && c.OldMode&unix.S_IFMT != c.Mode&unix.S_IFMT {
		before, after := *c, *c
		before.Mode, after.OldMode = 0, 0
		if err := p.filePatch(ctx, &b, &before); err != nil {
			return "", err
		}
		err := p.filePatch(ctx, &b, &after)
		return b.String(), err
	}
	err := p.filePatch(ctx, &b, c)
	return b.String(), err
}

var kindWords = map[uint32]string{0: "nothing", unix.S_IFDIR: "directory", unix.S_IFREG: "file", unix.S_IFLNK: "link"}

// directoryLine tells of a change of a directory, of which git knows nothing.
func directoryLine(c *vfs.StageChange) string {
	before, after := kindWords[c.OldMode&unix.S_IFMT], kindWords[c.Mode&unix.S_IFMT]
	switch {
	case c.OldMode == 0:
		return "new directory " + gitQuote(c.Path)
	case c.Mode == 0:
		return "removed directory " + gitQuote(c.Path)
	case before == after:
		return fmt.Sprintf("directory %s: mode %s, was %s", gitQuote(c.Path), gitMode(c.Mode), gitMode(c.OldMode))
	}
	return fmt.Sprintf("%s: %s, was %s", gitQuote(c.Path), cmp.Or(after, "special file"), cmp.Or(before, "special file"))
}

// filePatch writes the patch of a file or link.
func (p *patcher) filePatch(ctx context.Context, b *strings.Builder, c *vfs.StageChange) error {
	before, after := isFile(c.OldMode), isFile(c.Mode)
	if !before && !after {
		return nil
	}
	one := *c
	if !before {
		one.OldMode = 0
	}
	if !after {
		one.Mode = 0
	}
	old, oldText, err := p.contents(ctx, &one, false)
	if err != nil {
		return err
	}
	text, isText, err := p.contents(ctx, &one, true)
	if err != nil {
		return err
	}
	from, to := gitQuote("a/"+c.Path), gitQuote("b/"+c.Path)
	fmt.Fprintf(b, "diff --git %s %s\n", from, to)
	switch {
	case !before:
		fmt.Fprintf(b, "new file mode %s\n", gitMode(c.Mode))
		from = "/dev/null"
	case !after:
		fmt.Fprintf(b, "deleted file mode %s\n", gitMode(c.OldMode))
		to = "/dev/null"
	case gitMode(c.OldMode) != gitMode(c.Mode):
		fmt.Fprintf(b, "old mode %s\nnew mode %s\n", gitMode(c.OldMode), gitMode(c.Mode))
	}
	if !oldText || !isText {
		fmt.Fprintf(b, "Binary files %s and %s differ\n", from, to)
		return nil
	}
	changes, err := textdiff.Lines(ctx, old, text, 1<<30)
	if err != nil || len(changes) == 0 {
		return err
	}
	end := "" // which tells that a space belongs to the name
	if strings.Contains(c.Path, " ") {
		end = "\t"
	}
	fmt.Fprintf(b, "--- %s%s\n+++ %s%s\n", from, end, to, end)
	textdiff.WriteHunks(b, old, changes, 3)
	return nil
}

// size tells how much of a file changes: lines of a text, bytes of anything else.
func (p *patcher) size(ctx context.Context, c *vfs.StageChange) (string, error) {
	if !isFile(c.Mode) && !isFile(c.OldMode) {
		return cmp.Or(kindWords[(c.Mode|c.OldMode)&unix.S_IFMT], "special file"), nil
	}
	old, oldText, err := p.contents(ctx, c, false)
	if err != nil {
		return "", err
	}
	text, isText, err := p.contents(ctx, c, true)
	if err != nil {
		return "", err
	}
	if !oldText || !isText {
		return fmt.Sprintf("%s -> %s", sizeText(c.OldSize), sizeText(c.Size)), nil
	}
	changes, err := textdiff.Lines(ctx, old, text, 1<<30)
	if err != nil {
		return "", err
	}
	minus, plus := 0, 0
	for _, e := range changes {
		minus += lineCount(old[e.Start:e.End])
		plus += lineCount(e.New)
	}
	return fmt.Sprintf("+%d -%d", plus, minus), nil
}

func lineCount(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

// gitMode is a mode as git writes it, "" if there is none.
func gitMode(mode uint32) string {
	if mode == 0 {
		return ""
	}
	switch mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return "120000"
	case unix.S_IFREG:
		if mode&0o111 != 0 {
			return "100755"
		}
		return "100644"
	}
	return fmt.Sprintf("%06o", mode)
}

// gitQuote is a path as git writes it in a patch: quoted as in C, if it has to be.
func gitQuote(path string) string {
	var b strings.Builder
	quote := false
	for _, c := range []byte(path) {
		switch {
		case c == '"' || c == '\\':
			quote = true
			b.Write([]byte{'\\', c})
		case c < 0x20 || c >= 0x7f:
			quote = true
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	if !quote {
		return path
	}
	return `"` + b.String() + `"`
}
