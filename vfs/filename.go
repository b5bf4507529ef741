package vfs

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// An open file was judged by the name by which it was opened. The host may have renamed it
// since: an editor writes a temporary file and renames it, a person moves a file away. So in a
// root with patterns, operations on an open file look up its present name, at most every few
// milliseconds, and are judged by that name. A program that had a temporary file open before it
// became .mcp.json does not write to .mcp.json.
//
// The kernel (the link in /proc/self/fd) follows the name that the file was opened by,
// wherever that is moved. A file that lost that name and has another one (link(2), then
// unlink(2)) is looked for in the root before it is changed, see otherName. If the search does not
// find the file, the file can only be read. A file deeper than PATH_MAX that no longer lies where
// it was opened can be neither read nor written, because the kernel does not show its path.
// Programs that have a file open can go on using it after it was moved to a trash or has lost its
// last name.

// recheckAfter is how long a check of a file's name counts. For that time a program can still
// write after the host has renamed the file. It gains little by that: before the rename it
// could write to the file all the time.
const recheckAfter = 10 * time.Millisecond

const (
	// maxSearched bounds the names that a search for another name of a file reads. So many
	// names take about a tenth of a second.
	maxSearched = 100_000
	// searchAgainAfter is the time after an unsuccessful search before the next one.
	searchAgainAfter = time.Second
)

// nameLost is the reason why an operation on an open file is refused.
type nameLost string

func (n nameLost) Error() string { return string(n) }

// Why returns the text for the record.
func (n nameLost) Why() string { return string(n) }

const (
	notFound nameLost = "the file has lost the name that it was opened by, and its other name was not found in the root; open it again by that name"
	outside  nameLost = "the file was moved out of the root after it was opened"
)

// startTime returns when an operation began, in nanoseconds since the tree was created, by a
// clock that cannot be set back.
func (t *Tree) startTime(l *guard.Lease) int64 { return int64(l.Began().Sub(t.began)) }

// judgeNow judges the file by the name it has now, for an access. fd is its descriptor.
func (f *File) judgeNow(l *guard.Lease, fd int, a rules.Access) error {
	if !l.Judge().Patterned() || a == rules.ToLook || f.at.Path.IsRoot() {
		return nil
	}
	now := f.t.startTime(l)
	if now-f.lastCheck.Load() < int64(recheckAfter) {
		return nil
	}
	all, err := f.judgeName(l, fd, a)
	if all {
		f.lastCheck.Store(now)
	}
	return err
}

// judgeName looks up the file's name and judges it. all means that the name allows every
// access, so that the check also counts for the next operation, of any kind.
func (f *File) judgeName(l *guard.Lease, fd int, a rules.Access) (all bool, err error) {
	path, err := beneath.PathOf(fd)
	if err != nil {
		// The path is longer than /proc shows, or the file cannot be reached from this
		// mount namespace. It then has to lie where it was opened.
		if f.isAt(l, f.at.Path.Rel()) {
			return true, nil
		}
		return false, &guard.Error{Kind: names.Permission, Err: notFound}
	}
	if seen := f.lastPath.Load(); seen != nil && *seen == path {
		return true, nil
	}
	info, err := f.h.Stat(l)
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
		if a == rules.ToRead || f.isAt(l, f.at.Path.Rel()) || f.t.trash.MayBeWritten(info.ID()) {
			return a != rules.ToRead, nil
		}
		other, ok := f.otherName(l, strings.TrimSuffix(rel, beneath.Deleted))
		if !ok {
			return false, &guard.Error{Kind: names.Permission, Err: notFound}
		}
		if err := l.Judge().Now(a, other); err != nil {
			return false, err
		}
		return l.Judge().Now(rules.ToChange, other) == nil, nil
	case !below && info.IsDir(): // the host has moved it out of the root
		return false, unix.ESTALE // as walk.StillThere says
	case !below:
		return false, &guard.Error{Kind: names.Permission, Err: outside}
	}
	if rel != f.at.Path.Rel() && !inTrash(l, rel) { // the path that it was opened by is judged with the hold
		if err := l.Judge().Now(a, rel); err != nil {
			return false, err
		}
		if l.Judge().Now(rules.ToChange, rel) != nil {
			return false, nil // it may only be read
		}
	}
	f.lastPath.Store(&path)
	return true, nil
}

// relNow turns a path of the host into a path relative to the present place of the lease's root.
// below is false if the path does not lie below that place.
func relNow(l *guard.Lease, path string) (rel string, below bool, err error) {
	tops, err := beneath.PathsOfRoot(l)
	for _, top := range tops {
		if rel, below = strings.CutPrefix(path, strings.TrimSuffix(top, "/")+"/"); below {
			break
		}
	}
	return rel, below, err
}

// otherName finds another name of the file in the root than the one by which it was opened.
// last is the name that it has lost. otherName tries the name that it found before, then the
// names in the directory of last, then all others of the root.
func (f *File) otherName(l *guard.Lease, last string) (rel string, ok bool) {
	if known := f.alias.Load(); known != nil && f.isAt(l, *known) {
		return *known, true
	}
	now := f.t.startTime(l)
	if miss := f.lastMiss.Load(); l.Source().Remote() || miss != 0 && now-miss < int64(searchAgainAfter) {
		return "", false
	}
	rel, ok = f.search(l, last[:max(strings.LastIndexByte(last, '/'), 0)], false)
	if !ok && !l.HasNested() { // a walk would enter nested roots, and so narrow the operation's rights
		rel, ok = f.search(l, "", true)
	}
	if ok {
		f.alias.Store(&rel)
	} else {
		f.lastMiss.Store(now)
	}
	return rel, ok
}

// search looks for the file in the directory start, which is a path below the root. If deep is
// set, it also looks in all directories below start.
func (f *File) search(l *guard.Lease, start string, deep bool) (rel string, ok bool) {
	w := walk.New(context.Background(), l, walk.Options{})
	defer w.Close()
	if w.Start(start) != nil {
		return "", false
	}
	for range maxSearched {
		e, err := w.Next()
		if e == nil || err != nil {
			return "", false
		}
		name, at := e.Name, strings.TrimPrefix(w.Rel()+"/"+e.Name, "/")
		isDir, mayMatch := e.Type == unix.S_IFDIR, e.Ino == f.at.ID.Ino && e.Type == unix.S_IFREG
		w.Take()
		switch {
		case mayMatch && f.isAt(l, at):
			return at, true
		case isDir && deep:
			if _, err := w.Enter(name); err != nil {
				return "", false
			}
		}
	}
	return "", false
}

// isAt reports whether the file lies at a path below the root.
func (f *File) isAt(l *guard.Lease, rel string) bool {
	p, err := guard.NewPath(f.at.Path.Root, rel)
	if err != nil {
		return false
	}
	d, err := beneath.Node(l, p, rules.ToLook)
	if err != nil {
		return false
	}
	defer d.Close()
	info, err := d.Stat(l)
	return err == nil && info.ID() == f.at.ID
}

// inTrash reports whether a path lies in the trash of the operation's root (Lease.Trash).
func inTrash(l *guard.Lease, rel string) bool {
	_, below, _, ok := l.Trash()
	return ok && strings.HasPrefix(guard.PathBelow(below, rel), rules.TrashName+"/")
}
