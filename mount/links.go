package mount

import (
	"path"
	"strings"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// The kernel resolves a link in the file system of the process that follows it. For a process
// in a sandbox, a link out of its root can only lead to paths that the sandbox shows. A link
// to a path that Options.Visible allows is shown. Any other such link is refused, so that
// its text reveals no other host path.

// linkUsers says from where and to where programs walk the node, which is a link.
func (m *Mount) linkUsers(n *node) vfs.Where {
	where := vfs.Where{Holders: n.holders}
	if m.opt.Visible != nil {
		where.Shows = m.showsLink
	}
	return where
}

// holders returns the directories of all names by which the kernel may know the node. A
// directory without a path counts as the root.
func (n *node) holders() (dirs []guard.Path) {
	t := &n.view.m.nodes
	t.mu.Lock()
	known := n.namesLocked()
	t.mu.Unlock()
	for _, name := range known {
		at, ok := name.dir.path()
		if !ok {
			at.Path, _ = guard.NewPath(n.view.name, "")
		}
		dirs = append(dirs, at.Path)
	}
	return dirs
}

// showsLink reports whether a link with a target is shown. It judges the text of the target.
// A target with ".." after a name is refused: cleaning the text removes the name, which may
// itself be a link, and which the text would reveal.
func (m *Mount) showsLink(dir guard.Path, target string) bool {
	relative := !strings.HasPrefix(target, "/")
	if climbsLater(target) || relative && !m.opt.Layout.ByPath {
		return false
	}
	dest := path.Clean(target)
	if relative {
		base, ok := m.reg.Dir(dir.Root)
		if !ok {
			return false
		}
		dest = path.Join(base, dir.Rel(), target)
	}
	if m.opt.Layout.ByPath && m.reg.Holds(m.opt.Subject, names.FollowLinks(m.opt.Layout.Links, dest)) {
		return m.opt.Visible("", relative)
	}
	return m.opt.Visible(dest, relative)
}

// climbsLater reports whether a target has ".." after a name, or after the leading "/".
func climbsLater(target string) bool {
	named := false
	for elem := range strings.SplitSeq(target, "/") {
		switch elem {
		case "", ".":
		case "..":
			if named || strings.HasPrefix(target, "/") {
				return true
			}
		default:
			named = true
		}
	}
	return false
}
