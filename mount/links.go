package mount

import (
	"path"
	"strings"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// The kernel resolves a link in the file system of the process that follows the link. For a
// process in a sandbox, a link that leaves its root can only lead to paths that the sandbox shows.
// A link to a path that Options.Visible allows is shown. Any other link that leaves its root is
// refused, so that its text reveals no other host path.

// linkUse returns the directories that hold a link, from which programs walk its target, and
// the targets that programs may see.
func (m *Mount) linkUse(n *node) vfs.LinkUse {
	where := vfs.LinkUse{Holders: n.holders}
	if m.opt.Visible != nil {
		where.Shows = func(dir guard.Path, target string) bool {
			_, shown := m.opt.ShowsLink(m.reg, dir, target)
			return shown
		}
	}
	return where
}

// holders returns the directories of all names by which the kernel may know the node. A
// directory without a path counts as the root's directory.
func (n *node) holders() (dirs []guard.Path) {
	for _, name := range n.names() {
		at, ok := name.dir.path()
		if !ok {
			at.Path, _ = guard.NewPath(n.view.name, "")
		}
		dirs = append(dirs, at.Path)
	}
	return dirs
}

// ShowsLink reports whether a mount with these options shows a link, although the link's target
// leaves its root. dir is the directory of the link, in a root of the registry. dest is the path
// to which the text of the target leads. Only text is judged. A target with ".." after a name is
// refused, because path.Clean removes the name before Visible judges the path. The name may itself
// be a link, and the text of the target would reveal the name.
func (o *Options) ShowsLink(reg *guard.Registry, dir guard.Path, target string) (dest string, shown bool) {
	dest = path.Clean(target)
	relative := !strings.HasPrefix(target, "/")
	if relative {
		base, ok := reg.Dir(dir.Root)
		if !ok {
			return "", false
		}
		dest = path.Join(base, dir.Rel(), target)
	}
	switch {
	case o.Visible == nil, climbsLater(target), relative && !o.Layout.ByPath:
		return dest, false
	case o.Layout.ByPath && reg.Holds(o.Subject, names.FollowLinks(o.Layout.Links, dest)):
		return dest, o.Visible("", relative)
	}
	return dest, o.Visible(dest, relative)
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
