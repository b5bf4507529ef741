package apply

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Order sorts changes so that each can be applied after those before it. Removals come first,
// contents before their directory. Then come new directories, outer ones first, and then files.
// In a repository, a file comes after the files that it refers to. The modes of directories are
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

// IsDir reports whether the stage has a directory at the change's path.
func (c *Change) IsDir() bool { return c.want.isDir() }

// gitUnit returns the path of the outermost .git that contains a path, or is that path.
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

// gitOrder lists the parts of a repository, each after the parts that it refers to.
var gitOrder = []string{"objects", "packed-refs", "refs", "logs", "HEAD", "index"}

// gitRank returns a path's position in gitOrder, or -1, so that all other files come first.
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
// of its contents, and the parts of a repository on each other. A change that is not applied is
// called left. If a change is left, the changes that depend on it are left, too.

// leaveFor makes the change a conflict, because it depends on cause, which is left. If the file
// system refuses cause, the class is Refused.
func (c *Change) leaveFor(cause *Change, format string, args ...any) {
	_ = c.conflict(format, args...)
	if cause.Class == Refused {
		c.Class = Refused
	}
}

// Holder returns the path of the directory that holds the change's file.
func (c *Change) Holder() string {
	dir, _ := splitRel(c.Path.Raw())
	return dir
}

// LeaveRemoval leaves the removal of a directory in which cause was left, and reports true. It
// reports false if cause is nil or the change removes no directory.
func (c *Change) LeaveRemoval(cause *Change) bool {
	if cause == nil || !c.have.isDir() || c.want.isDir() {
		return false
	}
	c.leaveFor(cause, "it holds %s, which stays", names.Quote(cause.Path))
	return true
}

// leaveContents makes changes a conflict if the source does not get their directory. In the sorted
// list the directory comes first.
func leaveContents(list []Change) {
	// causes has, by path, the cause of each left directory: the change of the outermost left
	// directory above it, or its own change if there is none above.
	causes := map[string]*Change{}
	for i := range list {
		c := &list[i]
		parent, _ := splitRel(c.Path.Raw())
		cause := causes[parent]
		if cause != nil && c.Class.Applies() {
			c.leaveFor(cause, "it lies in %s, which is left: %s", names.Quote(cause.Path), cause.Why)
		}
		if c.Class.Blocks() && c.want.isDir() && !c.have.isDir() {
			if cause == nil {
				cause = c
			}
			causes[c.Path.Raw()] = cause
		}
	}
}

// leaveRemovals makes the removal or replacement of a directory a conflict if a file in the
// directory stays. In the sorted list the contents come after their directory.
func leaveRemovals(list []Change) {
	index := map[string]int{}
	for i := range list {
		index[list[i].Path.Raw()] = i
	}
	for i := len(list) - 1; i >= 0; i-- {
		c := &list[i]
		if c.want.exists || c.Class.Applies() {
			continue
		}
		parent, _ := splitRel(c.Path.Raw())
		if at, ok := index[parent]; ok && list[at].Class.Applies() && list[at].have.isDir() && !list[at].want.isDir() {
			list[at].leaveFor(c, "it holds %s, which stays", names.Quote(c.Path))
		}
	}
}

// leaveRepositories leaves all of a repository's data if a part of the data cannot be applied.
func leaveRepositories(list []Change) {
	left := map[string]*Change{} // by the path of a .git: a change in it that is left
	for i := range list {
		if unit, ok := gitUnit(list[i].Path.Raw()); ok && list[i].Class.Blocks() {
			left[unit] = &list[i]
		}
	}
	for i := range list {
		unit, _ := gitUnit(list[i].Path.Raw())
		if c := left[unit]; c != nil && list[i].Class.Applies() {
			list[i].leaveFor(c, "a repository is applied whole, and %s cannot be", names.Quote(c.Path))
		}
	}
}
