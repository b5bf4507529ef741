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

// shows returns the function that decides which links out of their root are shown; nil: none.
func (m *Mount) shows() vfs.Shows {
	if m.opt.Visible == nil {
		return nil
	}
	return m.showsLink
}

// showsLink reports whether a link with a target is shown. It judges the text of the target.
// A target with ".." after a name is refused: cleaning the text removes the name, which may
// itself be a link, and which the text would reveal.
func (m *Mount) showsLink(dir guard.Path, target string, several bool) bool {
	relative := !strings.HasPrefix(target, "/")
	if climbsLater(target) || relative && (several || !m.opt.Layout.ByPath) {
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
