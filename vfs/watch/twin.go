package watch

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Programs see a directory of a staged root as the union of two, so both are watched: the one in
// the source, for what the owner does, and the one in the upper directory, for what programs do
// and for discard, apply and undo. The upper one may appear later, when the directory is raised:
// then it is watched before the first change is made in it. What inotify does not report, such
// as a whiteout, the stage reports itself (beneath.Follower).

// twin is the watch of a directory of a staged root. The fields below of are guarded by
// Inotify.mu.
type twin struct {
	w      *SourceWatcher
	dir    any
	of     *follower
	number int32 // negative, so that it differs from those of inotify
	rel    string
	wds    []int32 // of the sides that are watched
	// copies counts the names that are about to come into the upper directory as copies of the
	// source's.
	copies map[string]int
}

// follower has the twins of one staged root. It implements beneath.Follower.
type follower struct {
	in    *Inotify
	stage beneath.Stage
	twins map[string][]*twin // by path below the root; guarded by Inotify.mu
}

var _ beneath.Follower = (*follower)(nil)

// maxPosted bounds the events of the stages that wait to be delivered.
const maxPosted = 1 << 16

// due is an event that is to be delivered.
type due struct {
	w  *SourceWatcher
	ev SourceEvent
	// source is set if the event is the source's, of the path at in a staged root.
	source *beneath.Stage
	at     string
	// marks is set instead of the others: see Inotify.mark.
	marks chan struct{}
}

// watchDir watches a directory, of which d is a reference. In a staged root open opens it once
// more, and fails if another directory has its path rel by then.
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
	// The twin comes first: if the directory is raised or moved meanwhile, the twin is told.
	t, err := w.in.newTwin(w, stage, rel, dir)
	if err != nil {
		return 0, err
	}
	if err = t.watchSides(open); err != nil {
		w.Unwatch(t.number, dir)
		return 0, err
	}
	return t.number, nil
}

func (in *Inotify) newTwin(w *SourceWatcher, stage beneath.Stage, rel string, dir any) (*twin, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if _, err := in.openLocked(w); err != nil {
		return nil, err
	}
	f := in.followers[stage]
	if f == nil {
		f = &follower{in: in, stage: stage, twins: map[string][]*twin{}}
		in.followers[stage] = f
		stage.Follow(f)
	}
	in.lastTwin--
	t := &twin{w: w, dir: dir, of: f, number: in.lastTwin, rel: rel}
	in.twins[t.number] = t
	f.twins[rel] = append(f.twins[rel], t)
	return t, nil
}

func (t *twin) watchSides(open func() (beneath.Dir, error)) error {
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
func (t *twin) watchLocked(fd int, isUpper bool) error {
	in := t.w.in
	if in.kernel == nil || in.twins[t.number] != t {
		return errors.New("the watch was ended")
	}
	wd, err := in.addLocked(fd, subscriber{t.w, t.dir, t, isUpper})
	if err == nil && !slices.Contains(t.wds, wd) {
		t.wds = append(t.wds, wd)
	}
	return err
}

// dropLocked ends the watch of a twin.
func (in *Inotify) dropLocked(t *twin) {
	if in.twins[t.number] != t {
		return
	}
	delete(in.twins, t.number)
	for _, wd := range t.wds {
		if len(in.dirs[wd]) == 0 {
			continue // the directory is gone
		}
		in.setLocked(wd, slices.DeleteFunc(in.dirs[wd], func(s subscriber) bool {
			if s.twin == t {
				t.w.watches.Add(-1)
			}
			return s.twin == t
		}))
	}
	f := t.of
	f.setLocked(t.rel, slices.DeleteFunc(f.twins[t.rel], func(other *twin) bool { return other == t }))
	if len(f.twins) == 0 {
		f.stage.Unfollow(f)
		delete(in.followers, f.stage)
	}
}

func (f *follower) setLocked(rel string, all []*twin) {
	if len(all) == 0 {
		delete(f.twins, rel)
		return
	}
	f.twins[rel] = all
}

// takeCopy reports whether a name that has come into the upper directory is a copy.
func (t *twin) takeCopy(name string) bool {
	n := t.copies[name]
	if n > 1 {
		t.copies[name] = n - 1
	} else {
		delete(t.copies, name)
	}
	return n > 0
}

// eventsLocked are the events that one event of inotify is for a subscriber.
func (s *subscriber) eventsLocked(e beneath.NotifyEvent) []due {
	ev := sourceEvent(e, s.dir)
	t := s.twin
	switch {
	case t == nil:
		return []due{{w: s.w, ev: ev}}
	case s.isUpper:
		if ev.Created && ev.Moved && t.takeCopy(ev.Name) {
			ev = SourceEvent{Dir: s.dir, Name: ev.Name, Changed: true, Copied: true, IsDir: ev.IsDir}
		}
		return []due{{w: s.w, ev: ev}}
	}
	at := strings.TrimPrefix(t.rel+"/"+ev.Name, "/")
	all := []due{{w: s.w, ev: ev, source: &t.of.stage, at: at}}
	if ev.IsDir && ev.Name != "" && (ev.Created || ev.Deleted) {
		for _, below := range t.of.belowLocked(at) {
			if below.w == s.w {
				all = append(all, below.stale())
			}
		}
	}
	return all
}

// stale is the event that the directory is to be watched anew.
func (t *twin) stale() due { return due{w: t.w, ev: SourceEvent{Dir: t.dir, Stale: true}} }

// belowLocked returns the twins at a path and below it. Below a path without a twin there is
// none: a directory is watched after the one that it lies in.
func (f *follower) belowLocked(rel string) (all []*twin) {
	if len(f.twins[rel]) == 0 {
		return nil
	}
	for at, list := range f.twins {
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
	for _, t := range f.twins[dir] {
		switch {
		case by < 0:
			t.takeCopy(name)
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
	for _, t := range f.twins[rel] {
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
	moved := map[string][]*twin{}
	for at, list := range f.twins {
		if isAtOrBelow(at, from) {
			moved[at] = list
		}
	}
	for at := range moved {
		delete(f.twins, at)
	}
	for at, list := range moved {
		next := to + strings.TrimPrefix(at, from)
		for _, t := range list {
			t.rel = next
		}
		f.twins[next] = append(f.twins[next], list...)
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
	for _, t := range f.twins[dir] {
		// It may be a directory's.
		f.in.postLocked(due{w: t.w, ev: SourceEvent{Dir: t.dir, Name: name, Created: !isHidden, Deleted: isHidden, IsDir: true}})
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

// postLocked delivers an event soon. A stage must not wait for it.
func (in *Inotify) postLocked(d due) {
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

// deliver passes the event to its watcher, unless it is about a name of the source that no
// program sees.
func (d *due) deliver() {
	if d.marks != nil {
		close(d.marks)
		return
	}
	if d.source == nil || !d.source.IsHidden(d.at) {
		d.w.emit(d.ev)
	}
}

// lostLocked drops expected events after the kernel has dropped events.
func (in *Inotify) lostLocked() {
	for _, t := range in.twins {
		t.copies = nil
	}
}

// closeLocked ends the twins of a watcher, or all of them.
func (in *Inotify) closeLocked(w *SourceWatcher) {
	for _, t := range in.twins {
		if t.w == w {
			in.dropLocked(t)
		}
	}
	in.posted = slices.DeleteFunc(in.posted, func(d due) bool { return d.w == w })
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
	if s.twin == nil || !slices.Contains(in.dirs[wd], s) {
		in.dirs[wd] = append(in.dirs[wd], s)
		s.w.watches.Add(1)
	}
	return wd, nil
}
