package mount

import (
	"path"
	"strings"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// The kernel resolves a link in the file system of the process that follows it. For a process
// in a sandbox, a link out of its root can lead to nothing but what the sandbox shows.
// Options.Visible says what that is; a link that leads there is shown, and any other is
// refused, so that its text tells of no other host path.

// shows is what the mount shows of links that leave their root; nil: none.
func (m *Mount) shows() vfs.Shows {
	if m.opt.Visible == nil {
		return nil
	}
	return m.showsLink
}

// showsLink judges a target by its text. One that climbs after it has named something
// is refused: what it leads to, and what it tells, is not in its cleaned form.
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
	if m.opt.Layout.ByPath && m.reg.Holds(m.opt.Subject, dest) {
		return m.opt.Visible("", relative)
	}
	return m.opt.Visible(dest, relative)
}

// climbsLater reports whether a target has ".." behind a name.
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
