package beneath

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Follower gets the changes of a staged root that inotify does not report, or reports
// differently. Its methods are called while the stage is locked, so they must not wait for a
// program, and must not look into the root.
type Follower interface {
	// Copying is called with by = 1 before a copy of a file of the source is moved to its name in the
	// upper directory. The move changes nothing for programs. If the move fails, Copying is called
	// again with by = -1.
	Copying(rel string, by int)
	// Raised says that a directory lies in the upper directory now. fd refers to the directory
	// until Raised returns; -1: the directory could not be opened.
	Raised(rel string, fd int)
	// Moved says that a directory of the upper directory has another path.
	Moved(from, to string)
	// Merged says that the source may show another directory at a path than before.
	Merged(rel string)
	// Hidden says whether a whiteout hides the source's file at a path.
	Hidden(rel string, isHidden bool)
}

// followers are told of the changes of one staged root.
type followers struct {
	mu   sync.RWMutex // guards list
	list []Follower   // Follow and Unfollow replace the slice and never write to it
}

// Follow makes the stage call f for its changes, until Unfollow.
func (s Stage) Follow(f Follower) {
	t := &s.st.followers
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = append(slices.Clone(t.list), f)
}

// Unfollow ends Follow.
func (s Stage) Unfollow(f Follower) {
	t := &s.st.followers
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = slices.DeleteFunc(slices.Clone(t.list), func(other Follower) bool { return other == f })
}

// tell calls f for every follower. It does not hold mu meanwhile, because a follower may hold a
// lock of its own when it calls Follow.
func (t *followers) tell(f func(Follower)) {
	t.mu.RLock()
	list := t.list
	t.mu.RUnlock()
	for _, one := range list {
		f(one)
	}
}

// IsHidden reports whether a whiteout hides the source's file at a path.
func (s Stage) IsHidden(rel string) bool { return s.st.isHidden(rel) }

// tellRaised tells the followers that a directory was raised. The store must already have the
// directory, so that a follower that begins meanwhile finds the directory in the store.
func (st *staged) tellRaised(rel string) {
	st.followers.tell(func(f Follower) {
		fd, err := st.openUpperDir(rel)
		if err != nil {
			fd = -1 // the follower cannot watch it
		}
		f.Raised(rel, fd)
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	})
}

// tellMoved tells the followers that a directory was renamed. The store must already have the new
// path. Programs may see other files in the directory than before if the source has a directory at
// the new path.
func (st *staged) tellMoved(from, to string) {
	st.followers.tell(func(f Follower) { f.Moved(from, to) })
}

// tellMerged tells the followers that a directory has come to a path, if the source shows a
// directory at the path, too. The caller calls tellMerged after the change. If the owner makes a
// directory at the path later, inotify reports it.
func (st *staged) tellMerged(rel string) {
	if st.isHidden(rel) {
		return
	}
	low, err := st.openLowerDir(rel)
	if err != nil {
		return
	}
	_ = unix.Close(low)
	st.followers.tell(func(f Follower) { f.Merged(rel) })
}

// Sides returns the descriptors of a directory of a staged root in the upper directory and in
// the source, -1 for a side that has none. The Dir owns the descriptors and closes them.
func (d Dir) Sides() (up, low int) { return d.union.upDir(), d.union.lowDir() }

// StagedPath returns the directory's path below a staged root.
func (d Dir) StagedPath() string { return d.union.rel }
