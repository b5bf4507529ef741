package tools

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/vfs"
)

// maxIgnoreFile is the largest .gitignore that is read, bytes; a larger one counts
// as none, which the answer says.
const maxIgnoreFile = 1 << 20

// ignores knows what the .gitignore files of a tree leave out, on the way down
// through it. They are read as every other file is, through the gate and for the
// same subject: one that the subject may not read leaves nothing out. As with git,
// that of a directory goes before those above it; .git/info/exclude comes before them
// all; in a repository inside another only its own count; and a link is none.
//
// Unlike git it asks for no repository: a root may be a part of one.
type ignores struct {
	c      *call
	levels []ignoring // by the walk's level
	large  int        // files that were too large
}

// ignoring is what holds in one directory.
type ignoring struct {
	dir   string // below its root
	rules []pattern.Rule
	set   *pattern.Set // of the rules; nil: there are none
}

// ignored reports whether an entry of the directory at a level of the walk is left
// out.
func (g *ignores) ignored(level int, e *entry) bool {
	at := &g.levels[level]
	if e.name == ".git" {
		return true // git's own, which holds copies of everything
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

// enter is told of each directory that the walk enters, as its level, with the
// names in it; whole says that these are all.
func (g *ignores) enter(level int, p guard.Path, list []entry, whole bool) error {
	var up ignoring
	if level > 0 {
		up = g.levels[level-1]
	} else {
		var err error
		if up, err = g.above(p); err != nil {
			return err
		}
	}
	at, err := g.load(up, p, list, whole)
	if err == nil && level == 0 && at.set != nil && at.set.At(at.dir).Barrier().Effect != pattern.None {
		// Whoever names an ignored directory wants what is in it.
		at, err = g.load(ignoring{}, p, list, whole)
	}
	g.levels = append(g.levels[:level], at)
	return err
}

// above is what the directories above a walk's start say, as far as they are
// in its root and among the client's own roots.
func (g *ignores) above(start guard.Path) (ignoring, error) {
	scope, all, err := g.c.s.scope(g.c.ctx, g.c.req.Session)
	if err != nil {
		return ignoring{}, err
	}
	var dirs []guard.Path
	for p := start; !p.IsRoot(); {
		p, _ = p.Split()
		if all || slices.ContainsFunc(scope, func(s guard.Path) bool { return s.Has(p) }) {
			dirs = append(dirs, p)
		}
	}
	var up ignoring
	for _, p := range slices.Backward(dirs) {
		if up, err = g.load(up, p, nil, false); err != nil {
			return up, err
		}
	}
	return up, nil
}

// load adds what one directory says to what those above it do.
func (g *ignores) load(up ignoring, p guard.Path, list []entry, whole bool) (ignoring, error) {
	at := ignoring{dir: p.Rel(), rules: up.rules, set: up.set}
	if !whole {
		var err error
		if list, err = g.look(p); err != nil {
			return at, err
		}
	}
	var own []pattern.Rule
	repository := false
	for _, name := range []string{".git", ".gitignore"} { // in the order in which they count
		i := slices.IndexFunc(list, func(e entry) bool { return e.name == name })
		if i < 0 {
			continue
		}
		file := list[i].path
		switch {
		case name == ".gitignore" && list[i].typ != unix.S_IFREG:
			continue
		case name == ".git":
			repository = true
			if !list[i].isDir() {
				continue // of a worktree: what it leads to lies elsewhere
			}
			for _, part := range []string{"info", "exclude"} {
				var err error
				if file, err = file.Join(part); err != nil {
					return at, err
				}
			}
		}
		text, err := g.read(file)
		if err != nil {
			return at, err
		}
		own = append(own, pattern.ParseIgnore(text, file.Rel(), at.dir)...)
	}
	if repository {
		at.rules, at.set = nil, nil
	}
	if len(own) == 0 {
		return at, nil
	}
	at.rules = slices.Concat(at.rules, own)
	set, err := pattern.New(at.rules, pattern.Options{})
	if err != nil { // too many: what was there before is still right
		g.large++
		return ignoring{at.dir, up.rules, up.set}, nil
	}
	at.set = set
	return at, nil
}

// look finds the names that matter in a directory that was not read whole.
func (g *ignores) look(p guard.Path) (list []entry, err error) {
	for cursor := ""; ; {
		page, err := g.c.s.cfg.Tree.List(g.c.ctx, g.c.s.caller, p, vfs.ListOptions{
			Hidden: true, NoInfo: true, Glob: "{.git,.gitignore}", Limit: vfs.MaxListLimit, Cursor: cursor,
		})
		if err != nil {
			return nil, g.passes(err)
		}
		for i := range page.Entries {
			e := &page.Entries[i]
			list = append(list, entry{name: e.Name, path: e.Path, typ: uint32(e.Info.Type()), size: e.Info.Size})
		}
		cursor = page.Next
		if cursor == "" {
			return list, nil
		}
	}
}

// read is the text of a file with patterns, "" where it cannot be had.
func (g *ignores) read(p guard.Path) (string, error) {
	data, _, err := g.c.read(place{Path: p}, 0, maxIgnoreFile+1)
	if err != nil {
		return "", g.passes(err)
	}
	defer giveBack(data)
	if len(data) > maxIgnoreFile {
		g.large++
		return "", nil
	}
	return string(data), nil
}

// passes is nil for an error that says that there are no patterns to be had.
func (g *ignores) passes(err error) error {
	if g.c.ctx.Err() != nil || names.Reason(err) == names.Rate || names.Reason(err) == names.Timeout {
		return err
	}
	return nil
}
