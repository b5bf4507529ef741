package vfs

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// An open file was judged by the name it was opened by. The host may have renamed it
// since: an editor writes a temporary file and renames it, a person moves one away. So in
// a root with patterns an operation on an open file looks, every few milliseconds, what
// the file is called now, and is judged by that name. A program that had a temporary file
// open before it became .mcp.json does not write to .mcp.json.
//
// The kernel (the link in /proc/self/fd) follows the name that the file was opened by,
// wherever that is moved. Two kinds of files are not written any more, because nobody can
// tell what they are called: a file that lost that name and has another one (link(2), then
// unlink(2)), and a file deeper than PATH_MAX, whose path the kernel does not show, once
// it does not lie where it was opened. A file that was kept in a trash, or has no name at
// all, belongs to those who have it open.

// recheckAfter is how long a check of a file's name counts. A program can still write for so
// long after the host has renamed the file. That gives it little: before the rename it could
// write to the file all the time.
const recheckAfter = 10 * time.Millisecond

// since is when an operation began, in nanoseconds since the tree was made, by a clock
// that nobody sets back.
func (t *Tree) since(l *guard.Lease) int64 { return int64(l.Began().Sub(t.began)) }

// judgeNow judges the file by the name it has now, for an access. fd is its descriptor.
func (f *File) judgeNow(l *guard.Lease, fd int, a guard.Access) error {
	if !l.Patterned() || a == guard.ToLook || f.at.Path.IsRoot() {
		return nil
	}
	now := f.t.since(l)
	if now-f.lastCheck.Load() < int64(recheckAfter) {
		return nil
	}
	all, err := f.judgeName(l, fd, a)
	if all {
		f.lastCheck.Store(now)
	}
	return err
}

// judgeName looks up the file's name and judges it. all says that the name allows every
// access, so that the check counts for the next operation, whatever that does.
func (f *File) judgeName(l *guard.Lease, fd int, a guard.Access) (all bool, err error) {
	gone := &guard.Error{Kind: names.Revoked}
	path, err := beneath.PathOf(fd)
	if err != nil {
		// The path is longer than /proc shows, or the file cannot be reached from this
		// mount namespace. It then has to lie where it was opened.
		if f.isAt(l, f.at.Path.Rel()) {
			return true, nil
		}
		return false, gone
	}
	if seen := f.lastPath.Load(); seen != nil && *seen == path {
		return true, nil
	}
	info, err := beneath.Stat(fd)
	if err != nil {
		return false, err
	}
	if info.Nlink == 0 {
		return true, nil
	}
	rel, below, err := relNow(l, path)
	switch {
	case err != nil:
		return false, err
	case strings.HasSuffix(path, beneath.Deleted) && !f.isAt(l, rel):
		if a != guard.ToRead && !f.isAt(l, f.at.Path.Rel()) && !f.t.trash.MayBeWritten(info.ID()) {
			return false, gone
		}
		return a != guard.ToRead, nil
	case !below && info.IsDir(): // the host has moved it out of the root
		return false, unix.ESTALE // as walk.StillThere says
	case !below:
		return false, gone
	}
	if rel != f.at.Path.Rel() && !inTrash(l, rel) { // the path that it was opened by is judged with the hold
		if err := l.JudgeNow(a, rel); err != nil {
			return false, err
		}
		if l.JudgeNow(guard.ToChange, rel) != nil {
			return false, nil // it may be read, no more
		}
	}
	f.lastPath.Store(&path)
	return true, nil
}

// relNow turns a path of the host into one below the present path of the lease's root. below
// is false if the path does not lie there.
func relNow(l *guard.Lease, path string) (rel string, below bool, err error) {
	root, err := beneath.PathOf(l.Dir())
	if err != nil {
		return "", false, err
	}
	rel, below = strings.CutPrefix(path, strings.TrimSuffix(root, "/")+"/")
	return rel, below, nil
}

// isAt reports whether the file lies at a path below the root.
func (f *File) isAt(l *guard.Lease, rel string) bool {
	p, err := guard.NewPath(f.at.Path.Root, rel)
	if err != nil {
		return false
	}
	d, err := beneath.Node(l, p, guard.ToLook)
	if err != nil {
		return false
	}
	defer d.Close()
	info, err := beneath.Stat(d.FD)
	return err == nil && info.ID() == f.at.ID
}

// inTrash reports whether a path lies in the trash of the operation's root (Lease.Trash).
func inTrash(l *guard.Lease, rel string) bool {
	_, below, _, ok := l.Trash()
	return ok && strings.HasPrefix(guard.PathBelow(below, rel), guard.TrashName+"/")
}
