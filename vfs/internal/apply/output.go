package apply

import (
	"context"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Nobody reviews build output, such as node_modules. So it stays in the stage until the owner
// names it, and is then applied as a whole. Lists only count its new files. But a list shows each
// file of the owner that build output changes, removes or replaces.

// gitignoreWord, as a pattern of build output, stands for the patterns in the source's
// .gitignore files.
const gitignoreWord = ".gitignore"

// DefaultOutput has the patterns of build output that apply if the owner has written none.
var DefaultOutput = []string{"node_modules/", "target/", ".venv/", "dist/", "__pycache__/"}

// Bounds of the .gitignore files that are read for one list of changes. Files beyond these
// bounds are not read, so more changes are listed.
const (
	maxIgnores    = 1000
	maxIgnoreSize = 256 << 10 // bytes of one
)

// Output says which paths are build output.
type Output struct {
	rules     []pattern.Rule
	gitignore bool
}

// NewOutput returns the build output that patterns describe, written as in .gitignore.
func NewOutput(patterns []rules.Pattern) (Output, error) {
	var o Output
	for _, p := range patterns {
		if p.Text == gitignoreWord {
			o.gitignore = true
			continue
		}
		o.rules = append(o.rules, pattern.Rule{List: pattern.OwnHide, Text: p.Text.Raw(), File: p.File.Raw(), Line: p.Line})
	}
	if _, err := pattern.New(o.rules, pattern.Options{}); err != nil {
		return o, &guard.Error{Kind: names.Invalid, Err: err}
	}
	return o, nil
}

// markOutput sets Change.Output in a sorted list of all changes. If the rules cannot be used
// together, no change is build output, so all are listed.
func (a *applier) markOutput(list []Change) {
	set := a.outputSet(list)
	if set == nil {
		return
	}
	gone := map[string]bool{} // directories of the source that the stage has removed
	for i := range list {
		c := &list[i]
		if c.have.isDir() && !c.want.isDir() {
			gone[c.Path.Raw()] = true
		}
		c.Output = names.Foreign(outputOf(set, c, gone))
	}
}

// outputSet returns the rules about build output for a list of changes. It returns nil if there are
// no rules, or if the rules cannot be used together.
func (a *applier) outputSet(list []Change) *pattern.Set {
	rules := a.Output.rules
	if a.Output.gitignore {
		rules = append(a.ignoreRules(list), rules...) // the owner's rules come later, so !PATTERN overrides
	}
	set, err := pattern.New(rules, pattern.Options{})
	if len(rules) == 0 || err != nil {
		return nil
	}
	return set
}

// MarkUndoOutput sets Change.Output in a sorted list of the changes that programs see when the stage
// goes back to a checkpoint. None of these changes takes a file away from the owner, so removals can
// be build output, too.
func (e Env) MarkUndoOutput(ctx context.Context, l *guard.Lease, list []Change) {
	a := e.begin(ctx, l)
	set := a.outputSet(list)
	for i := range list {
		if set != nil {
			list[i].Output = names.Foreign(outputOf(set, &Change{Path: list[i].Path, Class: New}, nil))
		}
	}
}

// outputOf returns the topmost directory or file on a change's path that is build output, "" if
// none is. The contents of a removed directory and a repository's data are never build output. Nor
// is a path that the source has, too, unless a directory above that path is build output.
func outputOf(set *pattern.Set, c *Change, gone map[string]bool) string {
	path := c.Path.Raw()
	if _, isGit := gitUnit(path); isGit {
		return ""
	}
	at := set.At("")
	for end := 0; end < len(path); end++ {
		kind := pattern.Dir
		if n := strings.IndexByte(path[end:], '/'); n >= 0 {
			end += n
		} else if end = len(path); !c.want.isDir() {
			kind = pattern.Other
		}
		unit := path[:end]
		if gone[unit] || unit == path && c.OldMode != 0 {
			return ""
		}
		dir, base := splitRel(unit)
		if at.Judge(dir, base, kind, nil).Effect != pattern.None {
			return unit
		}
		at = at.Enter(dir, base)
	}
	return ""
}

// ignoreRules returns the rules of the .gitignore files around changes. It reads only the source's
// files: with a .gitignore in the stage, a program could decide what the owner sees.
func (a *applier) ignoreRules(list []Change) (rules []pattern.Rule) {
	dirs := map[string]bool{}
	files := 0
	for i := range list {
		for rel := list[i].Path.Raw(); rel != ""; {
			rel, _ = splitRel(rel)
			if dirs[rel] {
				break
			}
			dirs[rel] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) { // a directory comes before those in it
		text := a.sourceText(strings.TrimPrefix(dir+"/"+gitignoreWord, "/"))
		if text == "" {
			continue
		}
		if files++; files > maxIgnores {
			break
		}
		for _, r := range pattern.ParseIgnore(text, gitignoreWord, dir) {
			r.List = pattern.OwnHide
			rules = append(rules, r)
		}
	}
	return rules
}

// sourceText returns the contents of a regular file of the source, or "" if the file cannot be read
// or is larger than maxIgnoreSize.
func (a *applier) sourceText(rel string) string {
	d, err := a.st.Source(a.l).Below(rel, false)
	if err != nil {
		return ""
	}
	defer d.Close()
	info, err := d.Own()
	if err != nil || !info.IsRegular() || info.Size > maxIgnoreSize {
		return ""
	}
	fd, err := beneath.Reopen(d.FD(), unix.O_RDONLY)
	if err != nil {
		return ""
	}
	defer beneath.Close(fd)
	buf := make([]byte, info.Size)
	n, err := beneath.Pread(fd, buf, 0)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// TakesAway reports whether a change removes a file of the owner, or replaces it by another
// kind of file. A list shows all these changes, however many there are.
func TakesAway(c *Change) bool {
	return c.Class == Removed || c.Class == Replaced || c.OldMode != 0 && c.Mode == 0
}

// IsNamed reports whether the change is no build output, or paths name its build output or a path
// in the build output. A directory above the build output does not count.
func (c *Change) IsNamed(paths []string) bool {
	if c.Output == "" {
		return true
	}
	for _, p := range paths {
		if names.Foreign(p) == c.Output || strings.HasPrefix(p, c.Output.Raw()+"/") {
			return true
		}
	}
	return false
}

// OutputUnit counts the changes of one directory or file of build output.
type OutputUnit struct {
	Path  names.Foreign
	Files int   // new files
	Bytes int64 // size of Files in the stage
	Owned int   // the owner's files that are changed, removed or replaced
}

// Review returns the changes that a list shows, and the units of build output that a list only
// counts. Build output that paths name is shown. A change of build output is shown and counted if
// the source has the file: only the owner knows whether a program made the source's file, too.
func Review(list []Change, paths []string) (shown []Change, units []OutputUnit) {
	index := map[names.Foreign]int{}
	for i := range list {
		c := &list[i]
		if c.IsNamed(paths) {
			shown = append(shown, *c)
			continue
		}
		at, ok := index[c.Output]
		if !ok {
			at = len(units)
			index[c.Output] = at
			units = append(units, OutputUnit{Path: c.Output})
		}
		u := &units[at]
		if c.OldMode != 0 {
			u.Owned++
			shown = append(shown, *c)
		} else if c.Mode&unix.S_IFMT != unix.S_IFDIR {
			u.Files++
			u.Bytes += c.Size
		}
	}
	return shown, units
}
