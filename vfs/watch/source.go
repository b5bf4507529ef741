package watch

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// SourceEvent is a change of a source directory that inotify reported, or a change of a staged
// root that its stage reported. Changes made through the tree are reported, too; a receiver that
// makes such changes has to recognise its own.
type SourceEvent struct {
	Dir  any    // the argument dir of Watch
	Name string // "" for the directory itself
	// The kind of the change: the name appeared (Created) or disappeared (Deleted), by a rename
	// if Moved is set, or the file's contents or attributes changed.
	Created, Deleted, Moved, Changed bool
	// IsDir is set when the name is, was or (if a stage reports the event) may be a directory's.
	IsDir bool
	// Cookie is the same for both halves of a rename, else 0.
	Cookie uint32
	// Self is set when the directory itself was moved or removed.
	Self bool
	// Copied is set beside Changed when the stage has made a copy of the source's file for a
	// change: a file that had several names is another one under this name from then on.
	Copied bool
	// Stale is set when the source's side of a directory of a staged root may have become another
	// directory, or none, or when the upper side cannot be watched. Anything may have changed in
	// the directory, and it must be watched anew.
	Stale bool
}

func sourceEvent(e beneath.NotifyEvent, dir any) SourceEvent {
	return SourceEvent{
		Dir: dir, Name: e.Name,
		Created: e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0,
		Deleted: e.Mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0,
		Moved:   e.Mask&(unix.IN_MOVED_TO|unix.IN_MOVED_FROM) != 0,
		Changed: e.Mask&(unix.IN_MODIFY|unix.IN_ATTRIB) != 0,
		Self:    e.Mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0,
		IsDir:   e.Mask&unix.IN_ISDIR != 0,
		Cookie:  e.Cookie,
	}
}

// SourceWatcher watches directories of the roots on the source. inotify reports write(2),
// truncation, attributes and names. It reports neither stores of a host's process through a mapping
// nor changes that another machine makes.
type SourceWatcher struct {
	in      *Inotify
	reg     *guard.Registry
	emit    func(SourceEvent)
	onLoss  func()
	limit   int64
	watches atomic.Int64 // number of watches
	refused atomic.Int64 // how often a directory could not be watched; see Counts
}

// The errors of Watch when the user's inotify watches or instances are used up.
var (
	ErrNoWatches   = errors.New("no inotify watches are left; raise fs.inotify.max_user_watches")
	ErrNoInstances = errors.New("no inotify instance is left; raise fs.inotify.max_user_instances")
)

// Watch begins to watch the directory at a path. The root must still have the given epoch,
// and the directory the identity id, unless that is zero. Events of the directory carry dir
// (SourceEvent.Dir). The returned number is for Unwatch.
func (w *SourceWatcher) Watch(ctx context.Context, c guard.Caller, p guard.Path, epoch uint64, id rules.Identity, dir any) (int32, error) {
	if w.watches.Load() >= w.limit {
		w.refused.Add(1)
		return 0, ErrNoWatches
	}
	req := guard.Request{Caller: c, Op: names.OpGetattr, Path: p, Epoch: epoch, Quiet: true}
	drop := func(wd int32) { w.Unwatch(wd, dir) }
	wd, err := gate.Do(ctx, w.reg, req, drop, func(l *guard.Lease) (int32, int64, error) {
		wd, err := w.watchDir(l, p.Rel(), dir, func() (beneath.Dir, error) { return openAs(l, p.Rel(), id) })
		return wd, 0, err
	})
	switch {
	case errors.Is(err, ErrNoWatches):
		w.refused.Add(1)
		return 0, ErrNoWatches // not wrapped: its text has the remedy
	case errors.Is(err, ErrNoInstances):
		w.refused.Add(1)
	}
	return wd, err
}

// openAs opens the directory at a path. The error is ESTALE if the directory does not have the
// identity id, unless id is zero.
func openAs(l *guard.Lease, rel string, id rules.Identity) (beneath.Dir, error) {
	d, err := beneath.OpenDir(l, rel)
	if err != nil {
		return d, err
	}
	info, err := d.Stat(l)
	if err == nil && id != (rules.Identity{}) && info.ID() != id {
		err = unix.ESTALE
	}
	if err != nil {
		d.Close()
	}
	return d, err
}

// watchOpen watches a directory that is open.
func (w *SourceWatcher) watchOpen(fd int, dir any) (int32, error) {
	w.in.mu.Lock() // until dirs has the watch: its first event may come before Add returns
	defer w.in.mu.Unlock()
	if _, err := w.in.openLocked(w); err != nil {
		return 0, err
	}
	return w.in.addLocked(fd, subscriber{w: w, dir: dir})
}

// Unwatch ends one watch.
func (w *SourceWatcher) Unwatch(wd int32, dir any) {
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	if t := w.in.staged[wd]; t != nil && t.w == w && t.dir == dir {
		w.in.dropLocked(t)
		return
	}
	all := w.in.dirs[wd]
	if i := slices.Index(all, subscriber{w: w, dir: dir}); i >= 0 {
		w.watches.Add(-1)
		w.in.setLocked(wd, slices.Delete(all, i, i+1))
	}
}

// Counts returns how many directories are watched, each counted once. In a staged root, the two
// sides of a directory count separately. refused is how often a directory could not be watched:
// Watch found no inotify watch or instance left, or the new upper side of a directory could not be
// watched.
func (w *SourceWatcher) Counts() (watched, refused int64) {
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	for _, all := range w.in.dirs {
		if slices.ContainsFunc(all, w.isOf) {
			watched++
		}
	}
	return watched, w.refused.Load()
}

func (w *SourceWatcher) isOf(s subscriber) bool { return s.w == w }

// Close ends all watches. Neither emit nor onLoss is called after Close has returned.
func (w *SourceWatcher) Close() {
	in := w.in
	in.mu.Lock()
	in.watchers = slices.DeleteFunc(in.watchers, func(u *SourceWatcher) bool { return u == w })
	kernel, closed := in.kernel, in.closed
	in.closeLocked(w)
	isLast := len(in.watchers) == 0
	if isLast {
		in.kernel, in.dirs = nil, nil
	}
	for wd, all := range in.dirs {
		in.setLocked(wd, slices.DeleteFunc(all, w.isOf))
	}
	in.mu.Unlock()
	if isLast && kernel != nil {
		_ = kernel.Close()
		<-closed
	}
	in.delivering.Lock() // waits for a call of emit or onLoss that has begun
	//lint:ignore SA2001 the lock is only waited for
	in.delivering.Unlock()
}

// Inotify is an inotify instance that several watchers share, because a user has few
// (fs.inotify.max_user_instances). It is opened with the first watch, and closed with the last
// watcher. mu is held during inotify_add_watch(2), which a remote file system can delay without
// limit: remote roots use an instance of their own.
type Inotify struct {
	delivering sync.Mutex // held while events are delivered; locked before mu

	mu       sync.Mutex // guards the fields below
	watchers []*SourceWatcher
	dirs     map[int32][]subscriber // of each watched directory; mostly one
	kernel   *beneath.Inotify       // nil: not open
	closed   chan struct{}          // closed when the reading of kernel has ended

	followers  map[beneath.Stage]*follower // of the staged roots with a watched directory
	staged     map[int32]*stagedDir        // by number
	lastStaged int32                       // the latest number
	posted     []delivery                  // events of the stages
	posting    bool                        // a goroutine delivers them
	postsLost  bool
	marks      map[int32]chan struct{} // see mark
}

// subscriber is a watcher of a directory, with its own value for the directory.
type subscriber struct {
	w       *SourceWatcher
	dir     any
	staged  *stagedDir // in a staged root
	isUpper bool       // the directory is in the upper directory
}

// NewWatcher returns a watcher without watches. emit is called for every event, and
// onLoss when events were dropped, so that anything may have changed. These calls are made one at
// a time for all watchers of the instance, so they must not wait for long.
func (in *Inotify) NewWatcher(reg *guard.Registry, emit func(SourceEvent), onLoss func()) *SourceWatcher {
	w := &SourceWatcher{in: in, reg: reg, emit: emit, onLoss: onLoss, limit: mountRoom(userWatches())}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.watchers = append(in.watchers, w)
	return w
}

// openLocked opens the instance, for a watcher that is not closed.
func (in *Inotify) openLocked(w *SourceWatcher) (*beneath.Inotify, error) {
	if !slices.Contains(in.watchers, w) {
		return nil, errors.New("the watcher is closed")
	}
	if in.kernel != nil {
		return in.kernel, nil
	}
	kernel, err := beneath.NewInotify()
	if errors.Is(err, unix.EMFILE) {
		err = ErrNoInstances
	}
	if err != nil {
		return nil, err
	}
	in.kernel, in.closed, in.dirs = kernel, make(chan struct{}), map[int32][]subscriber{}
	in.followers, in.staged, in.marks = map[beneath.Stage]*follower{}, map[int32]*stagedDir{}, map[int32]chan struct{}{}
	go in.run(kernel, in.closed)
	return kernel, nil
}

// setLocked sets the subscribers of a directory. Without subscribers, the kernel's watch ends.
func (in *Inotify) setLocked(wd int32, all []subscriber) {
	if len(all) > 0 {
		in.dirs[wd] = all
		return
	}
	delete(in.dirs, wd)
	in.kernel.Remove(wd)
}

// readPause is a pause between readings of events. Without it the goroutine wakes up for each
// event, and there are several for each file that is changed through the tree: on two
// processors, that took a quarter of the time of a program that writes small files. During the
// pause nothing waits for the descriptor (see beneath.Inotify), so events cost no wake-up. The
// kernel's queue has room for the events of a hundred pauses.
const readPause = 5 * time.Millisecond

// readSize is how many bytes are read at a time: about 2,000 events of short names.
const readSize = 64 << 10

func (in *Inotify) run(kernel *beneath.Inotify, closed chan struct{}) {
	defer close(closed)
	buf := make([]byte, readSize)
	for {
		events, err := kernel.Read(buf)
		if err != nil {
			return
		}
		in.delivering.Lock()
		eachEvent(events, in.deliver)
		in.delivering.Unlock()
		time.Sleep(readPause)
	}
}

// eachEvent calls f for events in their order, but only once for events that merge.
func eachEvent(events []beneath.NotifyEvent, f func(beneath.NotifyEvent)) {
	for i := range events {
		if i+1 == len(events) || !merge(events[i], &events[i+1]) {
			f(events[i])
		}
	}
}

// merge reports whether e need not be delivered, because next, which comes right after it, says
// the same: it is equal to e, or both say that one file may have changed. Then next gets the
// mask of both. A program that unpacks an archive writes each file, and sets its owner, mode and
// times.
func merge(e beneath.NotifyEvent, next *beneath.NotifyEvent) bool {
	const changed = unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_ISDIR
	if e.WD != next.WD || e.Name != next.Name {
		return false
	}
	if (e.Mask|next.Mask)&^changed == 0 {
		next.Mask |= e.Mask
		return true
	}
	return e == *next
}

// deliver passes one event to each watcher that it concerns.
func (in *Inotify) deliver(e beneath.NotifyEvent) {
	var lossy []*SourceWatcher
	var all []delivery
	in.mu.Lock()
	isLoss := e.Mask&unix.IN_Q_OVERFLOW != 0
	reached := in.takeMarksLocked(e, isLoss)
	switch {
	case isLoss:
		lossy = slices.Clone(in.watchers)
		in.forgetCopiesLocked()
	case e.Mask&unix.IN_IGNORED != 0: // the directory is gone
		for _, s := range in.dirs[e.WD] {
			s.w.watches.Add(-1)
		}
		delete(in.dirs, e.WD)
	default:
		for _, s := range in.dirs[e.WD] {
			all = append(all, s.eventsLocked(e)...)
		}
	}
	in.mu.Unlock()
	for _, w := range lossy {
		w.onLoss()
	}
	for i := range all {
		all[i].deliver()
	}
	for _, done := range reached {
		close(done)
	}
}

// The user's inotify watches are divided: one fifth for the user's other programs, one fifth
// for a Hub, and three fifths for a mount. So no server can use up the watches that a mount needs
// to keep the kernel's caches true.
func hubRoom(watches int64) int64   { return watches / 5 }
func mountRoom(watches int64) int64 { return watches / 5 * 3 }

// userWatches is how many inotify watches the user may have.
func userWatches() int64 {
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	if n, bad := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && bad == nil {
		return n
	}
	return 8192 // the kernel's default before 5.11
}
