package apply

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// takeStage makes a conflict, or an unsure change, replace the owner's file, which goes to the
// trash. It reports false for a directory of the owner, which cannot be replaced.
func (c *Change) takeStage() bool {
	switch {
	case !c.want.is:
		return c.takeRemoval()
	case c.Class != Unsure && c.Class != Conflict || c.have.isDir() || c.want.info.Special():
		return false
	}
	c.isTaken, c.mode, c.Why = c.have.is, c.Mode, ""
	switch {
	case !c.have.is:
		c.Class = New
	case c.want.info.Type() != c.have.info.Type():
		c.Class = Replaced
	default:
		c.Class = Changed
	}
	return true
}

// takeRemoval is takeStage for a name that the stage has removed.
func (c *Change) takeRemoval() bool {
	if c.have.isDir() || c.Class != Conflict && c.Class != Unsure {
		return false
	}
	c.isTaken, c.Class, c.Why = c.have.is, Removed, ""
	return true
}

// Order sorts changes so that each can be applied after those before it. Removals come first,
// contents before their directory. Then come new directories, outer ones first, and then files.
// In a repository, a file comes after those that it refers to. The modes of directories are
// last.
func Order(list []*Change) {
	slices.SortStableFunc(list, func(a, b *Change) int {
		x, y := a.phase(), b.phase()
		if x != y {
			return cmp.Compare(x, y)
		}
		if x == removing {
			return strings.Compare(b.Path.Raw(), a.Path.Raw())
		}
		return cmp.Or(cmp.Compare(gitRank(a.Path.Raw()), gitRank(b.Path.Raw())), strings.Compare(a.Path.Raw(), b.Path.Raw()))
	})
}

// The phases of an apply.
const (
	removing = iota
	makingDirs
	placing
	settingModes
)

func (c *Change) phase() int {
	switch {
	case c.Class == Removed:
		return removing
	case c.Class == Mode && c.want.isDir():
		return settingModes
	case c.want.isDir():
		return makingDirs
	}
	return placing
}

// IsNewDir reports whether Apply makes a directory for the change.
func (c *Change) IsNewDir() bool { return c.phase() == makingDirs }

// IsDir reports whether the stage has a directory there.
func (c *Change) IsDir() bool { return c.want.isDir() }

// gitUnit returns the path of the .git that contains a path, or is that path.
func gitUnit(path string) (unit string, ok bool) {
	for at := 0; ; {
		end := strings.IndexByte(path[at:], '/')
		name := path[at:]
		if end >= 0 {
			name = path[at : at+end]
		}
		if name == ".git" {
			return path[:at+len(name)], true
		}
		if end < 0 {
			return "", false
		}
		at += end + 1
	}
}

// gitOrder are the parts of a repository, each after those that it refers to.
var gitOrder = []string{"objects", "packed-refs", "refs", "logs", "HEAD", "index"}

// gitRank returns a path's position in gitOrder. Other files come before.
func gitRank(path string) int {
	unit, ok := gitUnit(path)
	if !ok {
		return -1
	}
	part, _, _ := strings.Cut(strings.TrimPrefix(path[len(unit):], "/"), "/")
	return slices.Index(gitOrder, part)
}

// SortPaths sorts changes by path.
func SortPaths(list []Change) {
	slices.SortFunc(list, func(a, b Change) int { return strings.Compare(a.Path.Raw(), b.Path.Raw()) })
}

// A change can depend on another: a file on its new directory, the removal of a directory on that
// of its contents, and the parts of a repository on each other. If one is left, so is the other.

// waitFor leaves a change because another one is left.
func (c *Change) waitFor(cause *Change, format string, args ...any) {
	_ = c.conflict(format, args...)
	if cause.Class == Refused {
		c.Class = Refused
	}
}

// Holder is the directory of a change that was left.
func (c *Change) Holder() string {
	dir, _ := splitRel(c.Path.Raw())
	return dir
}

// StaysFor leaves the removal of a directory, because a change in it was left, and reports true.
// cause is that change; nil: there is none.
func (c *Change) StaysFor(cause *Change) bool {
	if cause == nil || !c.have.isDir() || c.want.isDir() {
		return false
	}
	c.waitFor(cause, "it holds %s, which stays", names.Quote(cause.Path))
	return true
}

// keepBelow makes changes a conflict if the source does not get their directory. In the sorted
// list the directory comes first.
func keepBelow(list []Change) {
	causes := map[string]*Change{} // by directory: the outermost change that is left, of it or a directory above it
	for i := range list {
		c := &list[i]
		parent, _ := splitRel(c.Path.Raw())
		cause := causes[parent]
		if cause != nil && c.Class.Applies() {
			c.waitFor(cause, "it lies in %s, which is left: %s", names.Quote(cause.Path), cause.Why)
		}
		if c.Class.Blocks() && c.want.isDir() && !c.have.isDir() {
			if cause == nil {
				cause = c
			}
			causes[c.Path.Raw()] = cause
		}
	}
}

// keepWithContents makes the removal of a directory a conflict if a file in it stays. In the
// sorted list the contents come after their directory.
func keepWithContents(list []Change) {
	index := map[string]int{}
	for i := range list {
		index[list[i].Path.Raw()] = i
	}
	for i := len(list) - 1; i >= 0; i-- {
		c := &list[i]
		if c.want.is || c.Class.Applies() {
			continue
		}
		parent, _ := splitRel(c.Path.Raw())
		if at, ok := index[parent]; ok && list[at].Class.Applies() && list[at].have.isDir() && !list[at].want.isDir() {
			list[at].waitFor(c, "it holds %s, which stays", names.Quote(c.Path))
		}
	}
}

// keepGitWhole keeps all of a repository's data from being applied if a part of it cannot be.
func keepGitWhole(list []Change) {
	waits := map[string]*Change{} // by unit: a change that has to wait
	for i := range list {
		if unit, ok := gitUnit(list[i].Path.Raw()); ok && list[i].Class.Blocks() {
			waits[unit] = &list[i]
		}
	}
	for i := range list {
		unit, _ := gitUnit(list[i].Path.Raw())
		if c := waits[unit]; c != nil && list[i].Class.Applies() {
			list[i].waitFor(c, "a repository is applied whole, and %s cannot be", names.Quote(c.Path))
		}
	}
}
