package tools

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/vfs"
)

// maxIgnoreFile is the size of the largest .gitignore that is read, in bytes. The rules of a
// larger file do not count, and the answer says so.
const maxIgnoreFile = 1 << 20

// ignores applies the .gitignore files of a tree to a walk of the tree. It reads these files
// through the gate, for the subject of the call, like every other file: the rules of a file that
// the subject may not read do not count. As in git, the rules of a directory override the rules
// from above it, and the rules of .git/info/exclude are the weakest of a repository. In a
// repository inside another one, only the rules of the inner repository count. A .gitignore that is
// a link has no rules.
//
// Unlike git, ignores needs no repository: a root may be a part of a repository.
type ignores struct {
	c      *call
	levels []ignoreRules // by the depth of the directory in the walk
	large  int           // number of files that were too large, and of directories with too many rules
}

// ignoreRules are the rules that hold in one directory.
type ignoreRules struct {
	dir   string // path of the directory below its root
	rules []pattern.Rule
	set   *pattern.Set // of the rules; nil: there are none
}

// isIgnored reports whether the walk leaves out e, an entry of the directory at this depth.
func (g *ignores) isIgnored(depth int, e *entry) bool {
	at := &g.levels[depth]
	if e.name == ".git" {
		return true // git's own directory, which holds copies of all files
	}
	if at.set == nil {
		return false
	}
	t := pattern.Other
	switch e.typ {
	case unix.S_IFDIR:
		t = pattern.Dir
	case unix.S_IFLNK:
		t = pattern.Link
	}
	return at.set.At(at.dir).Judge(at.dir, e.name, t, nil).Effect != pattern.None
}

// enter loads the rules of the directory p, which the walk enters at this depth. list has entries
// of the directory. whole means that list has all of them.
func (g *ignores) enter(depth int, p guard.Path, list []entry, whole bool) (err error) {
	var up ignoreRules
	if depth > 0 {
		up = g.levels[depth-1]
	} else if up, err = g.above(p); err != nil {
		return err
	}
	at, err := g.load(up, p, list, whole)
	if err == nil && depth == 0 && at.set != nil && at.set.At(at.dir).Barrier().Effect != pattern.None {
		// A caller that names an ignored directory wants its contents.
		at, err = g.load(ignoreRules{}, p, list, whole)
	}
	g.levels = append(g.levels[:depth], at)
	return err
}

// above returns the rules of the directories above the start of a walk, in the same root. It leaves
// out directories that are not in the client's own roots.
func (g *ignores) above(start guard.Path) (rules ignoreRules, err error) {
	scope, all, err := g.c.s.scope(g.c.ctx, g.c.req.Session)
	if err != nil {
		return rules, err
	}
	var dirs []guard.Path
	for p := start; !p.IsRoot(); {
		p, _ = p.Split()
		if all || slices.ContainsFunc(scope, func(s guard.Path) bool { return s.Has(p) }) {
			dirs = append(dirs, p)
		}
	}
	for _, p := range slices.Backward(dirs) {
		if rules, err = g.load(rules, p, nil, false); err != nil {
			return rules, err
		}
	}
	return rules, nil
}

// load adds the rules of the directory p to up, the rules from above it. list and whole are those
// of enter.
func (g *ignores) load(up ignoreRules, p guard.Path, list []entry, whole bool) (at ignoreRules, err error) {
	at = ignoreRules{p.Rel(), up.rules, up.set}
	if !whole {
		if list, err = g.list(p); err != nil {
			return at, err
		}
	}
	find := func(name string) *entry {
		if i := slices.IndexFunc(list, func(e entry) bool { return e.name == name }); i >= 0 {
			return &list[i]
		}
		return nil
	}
	var own []pattern.Rule // a later rule overrides an earlier one
	git, ignore := find(".git"), find(".gitignore")
	if git != nil {
		at.rules, at.set = nil, nil
	}
	if git != nil && git.isDir() { // a file .git leads to a repository elsewhere, as in a worktree
		exclude, err := guard.NewPath(p.Root, git.path.Rel()+"/info/exclude")
		if err != nil {
			return at, err
		}
		if own, err = g.read(own, exclude, at.dir); err != nil {
			return at, err
		}
	}
	if ignore != nil && ignore.typ == unix.S_IFREG {
		if own, err = g.read(own, ignore.path, at.dir); err != nil {
			return at, err
		}
	}
	if len(own) == 0 {
		return at, nil
	}
	rules := slices.Concat(at.rules, own)
	set, err := pattern.New(rules, pattern.Options{})
	if err != nil { // too many rules: only the rules from above count; in a nested repository, none
		g.large++
		return at, nil
	}
	return ignoreRules{at.dir, rules, set}, nil
}

// list looks up .gitignore and .git in a directory that was not read completely.
func (g *ignores) list(p guard.Path) (list []entry, err error) {
	for cursor := ""; ; {
		page, err := g.c.s.cfg.Tree.List(g.c.ctx, g.c.s.caller, p, vfs.ListOptions{
			Hidden: true, NoInfo: true, Glob: "{.git,.gitignore}", Limit: vfs.MaxListLimit, Cursor: cursor,
		})
		if err != nil {
			return nil, g.fatal(err)
		}
		for i := range page.Entries {
			e := &page.Entries[i]
			list = append(list, entry{name: e.Name, path: e.Path, typ: uint32(e.Info.Type())})
		}
		if cursor = page.Next; cursor == "" {
			return list, nil
		}
	}
}

// read appends the rules of the file p, which hold in dir. A file that cannot be read has no rules,
// unless the error is fatal.
func (g *ignores) read(rules []pattern.Rule, p guard.Path, dir string) ([]pattern.Rule, error) {
	data, _, err := g.c.readChunk(p, 0, maxIgnoreFile+1)
	if err != nil {
		return rules, g.fatal(err)
	}
	defer putBuffer(data)
	if len(data) > maxIgnoreFile {
		g.large++
		return rules, nil
	}
	return append(rules, pattern.ParseIgnore(string(data), p.Rel(), dir)...), nil
}

// fatal returns an error that ends the search, or nil for an error that only means that there
// are no rules.
func (g *ignores) fatal(err error) error {
	if g.c.ctx.Err() != nil || names.Reason(err).About() == names.AboutMoment {
		return err
	}
	return nil
}
