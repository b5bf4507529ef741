package watch

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Programs see a directory of a staged root as the union of two, so both are watched: the one
// in the source, for changes by the owner, and the one in the upper directory, for changes by
// programs and by discard, apply and undo. The upper one may appear later, when the stage raises
// the directory, that is, creates its upper one. The upper one is then watched before the first
// change in it. The stage itself reports changes that inotify does not report, such as a whiteout
// (beneath.Follower).

// stagedDir is the watch of a directory of a staged root: of its two sides, the one in the
// source and the one in the upper directory. The fields after number are guarded by Inotify.mu.
type stagedDir struct {
	w        *SourceWatcher
	dir      any
	follower *follower
	number   int32 // negative, so that it differs from those of inotify
	rel      string
	wds      []int32 // of the sides that are watched
	// copies counts, by name, the copies of the source's files that the stage is about to move
	// into the upper directory.
	copies map[string]int
}

// follower has the watched directories of one staged root. It implements beneath.Follower.
type follower struct {
	in    *Inotify
	stage beneath.Stage
	dirs  map[string][]*stagedDir // by path below the root; guarded by Inotify.mu
}

var _ beneath.Follower = (*follower)(nil)

// maxPosted bounds the events of the stages that wait to be delivered.
const maxPosted = 1 << 16

// delivery is an event that has to be delivered, or a channel that has to be closed (marks).
type delivery struct {
	w  *SourceWatcher
	ev SourceEvent
	// source is set if the event comes from the source's side of a staged root: it is the stage of
	// that root. at is then the path that has changed.
	source *beneath.Stage
	at     string
	// marks is closed at the delivery. It is set by Inotify.mark only, with all other fields zero.
	marks chan struct{}
}

// watchDir watches the directory dir, whose path is rel. open opens it; in a staged root open
// fails if another directory has the path by then.
func (w *SourceWatcher) watchDir(l *guard.Lease, rel string, dir any, open func() (beneath.Dir, error)) (int32, error) {
	stage, staged := beneath.StageOf(l)
	if !staged {
		d, err := open()
		if err != nil {
			return 0, err
		}
		defer d.Close()
		return w.watchOpen(d.FD(), dir)
	}
	// Make the stagedDir first, so that the stage reports if the directory is raised or moved
	// meanwhile.
	t, err := w.in.newStagedDir(w, stage, rel, dir)
	if err != nil {
		return 0, err
	}
	if err = t.watchSides(open); err != nil {
		w.Unwatch(t.number, dir)
		return 0, err
	}
	return t.number, nil
}

func (in *Inotify) newStagedDir(w *SourceWatcher, stage beneath.Stage, rel string, dir any) (*stagedDir, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if _, err := in.openLocked(w); err != nil {
		return nil, err
	}
	f := in.followers[stage]
	if f == nil {
		f = &follower{in: in, stage: stage, dirs: map[string][]*stagedDir{}}
		in.followers[stage] = f
		stage.Follow(f)
	}
	in.lastStaged--
	t := &stagedDir{w: w, dir: dir, follower: f, number: in.lastStaged, rel: rel}
	in.staged[t.number] = t
	f.dirs[rel] = append(f.dirs[rel], t)
	return t, nil
}

func (t *stagedDir) watchSides(open func() (beneath.Dir, error)) error {
	d, err := open()
	if err != nil {
		return err
	}
	defer d.Close()
	up, low := d.Sides()
	t.w.in.mu.Lock()
	defer t.w.in.mu.Unlock()
	for _, fd := range []int{up, low} {
		if fd < 0 {
			continue
		}
		if err := t.watchLocked(fd, fd == up); err != nil {
			return err
		}
	}
	return nil
}

// watchLocked watches one side. If it is watched already, watchLocked does nothing.
func (t *stagedDir) watchLocked(fd int, isUpper bool) error {
	in := t.w.in
	if in.kernel == nil || in.staged[t.number] != t {
		return errors.New("the watch was ended")
	}
	wd, err := in.addLocked(fd, subscriber{t.w, t.dir, t, isUpper})
	if err == nil && !slices.Contains(t.wds, wd) {
		t.wds = append(t.wds, wd)
	}
	return err
}

// dropLocked ends the watch of a directory of a staged root.
func (in *Inotify) dropLocked(t *stagedDir) {
	if in.staged[t.number] != t {
		return
	}
	delete(in.staged, t.number)
	for _, wd := range t.wds {
		if len(in.dirs[wd]) == 0 {
			continue // the directory is gone
		}
		in.setLocked(wd, slices.DeleteFunc(in.dirs[wd], func(s subscriber) bool {
			if s.staged == t {
				t.w.watches.Add(-1)
			}
			return s.staged == t
		}))
	}
	f := t.follower
	f.setLocked(t.rel, slices.DeleteFunc(f.dirs[t.rel], func(other *stagedDir) bool { return other == t }))
	if len(f.dirs) == 0 {
		f.stage.Unfollow(f)
		delete(in.followers, f.stage)
	}
}

func (f *follower) setLocked(rel string, all []*stagedDir) {
	if len(all) == 0 {
		delete(f.dirs, rel)
		return
	}
	f.dirs[rel] = all
}

// consumeCopy reports whether a name that has come into the upper directory is an expected copy,
// and then expects one copy less.
func (t *stagedDir) consumeCopy(name string) bool {
	n := t.copies[name]
	if n > 1 {
		t.copies[name] = n - 1
	} else {
		delete(t.copies, name)
	}
	return n > 0
}

// eventsLocked returns the events that a subscriber gets for one event of inotify.
func (s *subscriber) eventsLocked(e beneath.NotifyEvent) []delivery {
	ev := sourceEvent(e, s.dir)
	t := s.staged
	switch {
	case t == nil:
		return []delivery{{w: s.w, ev: ev}}
	case s.isUpper:
		if ev.Created && ev.Moved && t.consumeCopy(ev.Name) {
			ev = SourceEvent{Dir: s.dir, Name: ev.Name, Changed: true, Copied: true, IsDir: ev.IsDir}
		}
		return []delivery{{w: s.w, ev: ev}}
	}
	at := strings.TrimPrefix(t.rel+"/"+ev.Name, "/")
	all := []delivery{{w: s.w, ev: ev, source: &t.follower.stage, at: at}}
	if ev.IsDir && ev.Name != "" && (ev.Created || ev.Deleted) {
		for _, below := range t.follower.belowLocked(at) {
			if below.w == s.w {
				all = append(all, below.stale())
			}
		}
	}
	return all
}

// stale returns the event that says that the directory has to be watched anew.
func (t *stagedDir) stale() delivery {
	return delivery{w: t.w, ev: SourceEvent{Dir: t.dir, Stale: true}}
}

// belowLocked returns the watched directories at a path and below it. If the directory at the path
// is not watched, none below it is, because a directory is watched after its parent.
func (f *follower) belowLocked(rel string) (all []*stagedDir) {
	if len(f.dirs[rel]) == 0 {
		return nil
	}
	for at, list := range f.dirs {
		if isAtOrBelow(at, rel) {
			all = append(all, list...)
		}
	}
	return all
}

func isAtOrBelow(rel, top string) bool {
	return top == "" || rel == top || strings.HasPrefix(rel, top+"/")
}

// Copying implements beneath.Follower.
func (f *follower) Copying(rel string, by int) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	dir, name := splitPath(rel)
	for _, t := range f.dirs[dir] {
		switch {
		case by < 0:
			t.consumeCopy(name)
		case t.copies == nil:
			t.copies = map[string]int{name: 1}
		default:
			t.copies[name]++
		}
	}
}

// Raised implements beneath.Follower.
func (f *follower) Raised(rel string, fd int) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	for _, t := range f.dirs[rel] {
		if fd >= 0 && t.watchLocked(fd, true) == nil {
			continue
		}
		t.w.refused.Add(1)
		f.in.postLocked(t.stale())
	}
}

// Moved implements beneath.Follower.
func (f *follower) Moved(from, to string) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	moved := map[string][]*stagedDir{}
	for at, list := range f.dirs {
		if isAtOrBelow(at, from) {
			moved[at] = list
		}
	}
	for at := range moved {
		delete(f.dirs, at)
	}
	for at, list := range moved {
		next := to + strings.TrimPrefix(at, from)
		for _, t := range list {
			t.rel = next
		}
		f.dirs[next] = append(f.dirs[next], list...)
	}
}

// Merged implements beneath.Follower.
func (f *follower) Merged(rel string) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	for _, t := range f.belowLocked(rel) {
		f.in.postLocked(t.stale())
	}
}

// Hidden implements beneath.Follower. inotify reports no whiteout.
func (f *follower) Hidden(rel string, isHidden bool) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	dir, name := splitPath(rel)
	for _, t := range f.dirs[dir] {
		// The name may be a directory.
		f.in.postLocked(delivery{w: t.w, ev: SourceEvent{Dir: t.dir, Name: name, Created: !isHidden, Deleted: isHidden, IsDir: true}})
	}
	if !isHidden {
		for _, t := range f.belowLocked(rel) {
			f.in.postLocked(t.stale())
		}
	}
}

// splitPath splits a path into its directory and its last name.
func splitPath(rel string) (dir, name string) {
	i := strings.LastIndexByte(rel, '/')
	return rel[:max(i, 0)], rel[i+1:]
}

// postLocked queues an event for deliverPosted: a stage must not wait for the delivery.
func (in *Inotify) postLocked(d delivery) {
	if in.kernel == nil {
		return
	}
	if len(in.posted) < maxPosted {
		in.posted = append(in.posted, d)
	} else {
		in.postsLost = true
	}
	if !in.posting {
		in.posting = true
		go in.deliverPosted()
	}
}

func (in *Inotify) deliverPosted() {
	in.delivering.Lock()
	defer in.delivering.Unlock()
	for {
		in.mu.Lock()
		batch, lossy := in.posted, []*SourceWatcher(nil)
		if in.postsLost {
			lossy = slices.Clone(in.watchers)
		}
		in.posted, in.postsLost = nil, false
		if len(batch) == 0 {
			in.posting = false
			in.mu.Unlock()
			return
		}
		in.mu.Unlock()
		for _, w := range lossy {
			w.onLoss()
		}
		for _, d := range batch {
			d.deliver()
		}
	}
}

// deliver closes marks if that is set. Otherwise it passes the event to its watcher, unless the
// event is about a name of the source that no program sees.
func (d *delivery) deliver() {
	if d.marks != nil {
		close(d.marks)
		return
	}
	if d.source == nil || !d.source.IsHidden(d.at) {
		d.w.emit(d.ev)
	}
}

// forgetCopiesLocked drops the counts of expected copies, because the kernel has dropped events.
func (in *Inotify) forgetCopiesLocked() {
	for _, t := range in.staged {
		t.copies = nil
	}
}

// closeLocked ends the watches of a watcher in staged roots.
func (in *Inotify) closeLocked(w *SourceWatcher) {
	for _, t := range in.staged {
		if t.w == w {
			in.dropLocked(t)
		}
	}
	in.posted = slices.DeleteFunc(in.posted, func(d delivery) bool { return d.w == w })
}

// addLocked begins to watch an open directory for a subscriber.
func (in *Inotify) addLocked(fd int, s subscriber) (int32, error) {
	wd, err := in.kernel.Add(fd, beneath.NotifyMask)
	if errors.Is(err, unix.ENOSPC) {
		err = ErrNoWatches
	}
	if err != nil {
		return 0, err
	}
	if s.staged == nil || !slices.Contains(in.dirs[wd], s) {
		in.dirs[wd] = append(in.dirs[wd], s)
		s.w.watches.Add(1)
	}
	return wd, nil
}
