package hostwatch

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// The reasons why a path is not watched, beside watch.ErrNoInstances and watch.ErrNoWatches.
var (
	errRemote     = errors.New("not on a file system that is known to be local")
	errNotify     = errors.New("events of inotify cannot be read")
	errUnreadable = errors.New("a directory on the way cannot be read")
	errLinks      = errors.New("too many links on the way")
	errRelative   = errors.New("the path is relative")
)

// step is a watched directory on a subscription's path, with the next name of the path in it.
type step struct {
	of   *subscription
	at   *watchedFile
	name string // anyName: every name; "": at is the file at the end of the path
}

// anyName stands for every name in a directory. No file can have this name.
const anyName = "/"

// watchedFile is a directory or file, by the path that fsnotify has for it.
type watchedFile struct {
	path  string
	id    fileID
	steps []*step
}

type fileID struct{ dev, ino uint64 }

// fileTable holds the watched files. A file may be watched by several paths (bind mounts, hard
// links). fsnotify then reports events by the first path only, so byID has all paths.
type fileTable struct {
	byPath map[string]*watchedFile
	byID   map[fileID][]*watchedFile
}

func newFileTable() fileTable {
	return fileTable{byPath: map[string]*watchedFile{}, byID: map[fileID][]*watchedFile{}}
}

// subscriptionsOf returns the subscriptions that an event concerns. If the file of the event was
// moved or removed, and is watched itself, subscriptionsOf calls gone with the file.
func (t *fileTable) subscriptionsOf(e fsnotify.Event, gone func(*watchedFile)) (all []*subscription) {
	path := filepath.Clean(e.Name) // in the directory "/" names begin with two slashes
	dir, base := filepath.Dir(path), filepath.Base(path)
	if in := t.byPath[dir]; in != nil {
		for _, same := range t.byID[in.id] {
			for _, step := range same.steps {
				if step.name == base || step.name == anyName {
					all = append(all, step.of)
				}
			}
		}
	}
	f := t.byPath[path]
	if f == nil {
		return all
	}
	for _, same := range t.byID[f.id] {
		for _, step := range same.steps {
			all = append(all, step.of)
		}
	}
	if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		gone(f)
	}
	return all
}

// forget ends the watch of a file. The subscriptions on the file are checked again, also by other
// paths to the same file: fsnotify has one watch for all paths.
func (w *Watcher) forget(f *watchedFile) {
	if w.files.byPath[f.path] != f {
		return
	}
	_ = w.notify.Remove(f.path) // fails if fsnotify has the file by another path, or not at all
	delete(w.files.byPath, f.path)
	rest := slices.DeleteFunc(w.files.byID[f.id], func(o *watchedFile) bool { return o == f })
	if w.files.byID[f.id] = rest; len(rest) == 0 {
		delete(w.files.byID, f.id)
	}
	for _, o := range append(rest, f) {
		for _, step := range o.steps {
			w.check(step.of)
		}
	}
}

// release ends a step. If it was the last step of its file, release ends the watch of the file.
func (w *Watcher) release(s *step) {
	s.at.steps = slices.DeleteFunc(s.at.steps, func(o *step) bool { return o == s })
	if len(s.at.steps) == 0 {
		w.forget(s.at)
	}
}

// acquire watches the directory or file at a path without links, as a step of s.
func (w *Watcher) acquire(s *subscription, path, name string) error {
	if !vfs.LeadsToLocal(path) {
		return errRemote // looking there may hang
	}
	if err := w.openNotify(); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return errUnreadable
	}
	id := fileID{st.Dev, st.Ino}
	f := w.files.byPath[path]
	if f != nil && f.id != id {
		w.forget(f) // another file had this path before
		f = nil
	}
	// Add it even if the file has a watch: the kernel may have ended the watch, for example at
	// an unmount.
	err := w.notify.Add(path)
	switch {
	case errors.Is(err, unix.ENOSPC):
		return watch.ErrNoWatches
	case err != nil:
		return errUnreadable
	}
	if f == nil {
		f = &watchedFile{path: path, id: id}
		w.files.byPath[path] = f
		w.files.byID[id] = append(w.files.byID[id], f)
	}
	one := &step{of: s, at: f, name: name}
	f.steps, s.steps = append(f.steps, one), append(s.steps, one)
	return nil
}

// openNotify opens an inotify instance, unless one is open.
func (w *Watcher) openNotify() error {
	switch {
	case w.notify != nil:
		return nil
	case time.Now().Before(w.retryAt):
		return errNotify
	}
	notify, err := w.open()
	switch {
	case errors.Is(err, unix.EMFILE):
		return watch.ErrNoInstances
	case err != nil:
		return errNotify
	}
	w.notify, w.broken = notify, make(chan struct{}, 1)
	go w.receiveErrors(notify, w.broken)
	return nil
}

// errWatched ends a walk at a file, or at a name that does not exist.
var errWatched = errors.New("the part of the path that exists is watched")

// watchStep watches the directory of a name, and then looks the name up. target is the text of
// the link, or "" if the name is no link.
func (w *Watcher) watchStep(s *subscription, at names.LinkStep) (target string, err error) {
	if err := w.acquire(s, at.Dir, at.Name); err != nil {
		return "", err
	}
	next := at.Path()
	if !vfs.LeadsToLocal(next) {
		return "", errRemote // looking there may hang
	}
	found, err := os.Lstat(next)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errWatched
	case err != nil:
		return "", errUnreadable
	case found.Mode()&fs.ModeSymlink != 0:
		if target, err = os.Readlink(next); err != nil {
			return "", errUnreadable
		}
		return target, nil
	case !found.IsDir():
		return "", cmp.Or(w.acquire(s, next, ""), errWatched)
	}
	return "", nil
}

// walk watches the directories on the path, each before it looks up a name there, and the
// file at its end. The error says why a change may go unnoticed.
func (w *Watcher) walk(s *subscription) error {
	if !filepath.IsAbs(s.path) {
		return errRelative
	}
	dir, err := names.WalkLinks(s.path, func(at names.LinkStep) (string, error) { return w.watchStep(s, at) }, nil)
	switch {
	case errors.Is(err, errWatched):
		return nil
	case errors.Is(err, unix.ELOOP):
		return errLinks
	case err != nil:
		return err
	case s.scope == Entries:
		return w.acquire(s, dir, anyName)
	case len(s.steps) == 0: // the path is "/"
		return w.acquire(s, dir, "")
	}
	return nil
}
