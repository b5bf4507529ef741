package apply

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// A file system can refuse a change: for want of a permission, or of room. Then no side is
// newer, and to take the stage's file would be refused as well. So such a change is no conflict.

// isRefused reports whether an error is such a refusal.
func isRefused(err error) bool {
	for _, errno := range []error{unix.EACCES, unix.EPERM, unix.EROFS, unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// writable returns the directory of the source in which a change of a path begins, and the error
// that this process would get for a new name there. If a directory is to be made first, that is
// the one around it.
func (a *applier) writable(path string) (dir string, err error) {
	for dir, _ = splitRel(path); ; dir, _ = splitRel(dir) {
		d, err := a.st.Source(a.l).Below(dir, true)
		if beneath.IsAbsent(err) && dir != "" {
			continue
		}
		if err == nil {
			err = d.Writable()
			d.Close()
		}
		return dir, err
	}
}

// whyClosed says why nothing can be changed in a directory.
func whyClosed(dir string, err error) string {
	if !errors.Is(err, unix.EACCES) {
		return "the file system refuses it: " + err.Error()
	}
	if dir == "" {
		return "permission denied: you may not write in the directory of the root; chmod u+w it"
	}
	return fmt.Sprintf("permission denied: you may not write in directory %s; chmod u+w it", names.Quote(dir))
}

// whyRefused says why the file system refused a change.
func (p *placement) whyRefused(err error) string {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return "no room on the file system; make some"
	}
	if dir, closed := p.writable(p.c.Path.Raw()); closed != nil {
		return whyClosed(dir, closed)
	}
	return "the file system refuses it: " + err.Error()
}

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
