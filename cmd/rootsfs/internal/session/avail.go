package session

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// RecheckEvery is how often the roots' directories are looked at (of more than
// recheckMost roots, that many in turn) even though nothing was reported: a parent further up may have been moved, something may
// have been mounted over a root, and remote file systems report nothing.
const RecheckEvery = 5 * time.Second

// settle is how long events are gathered before the directory is looked at: an
// editor or a package manager that replaces a directory makes several.
const settle = 100 * time.Millisecond

// availability watches that roots are still where they were approved. The
// parent of each root's directory is watched, which reports that the directory
// was removed, moved or got another mode. The directory itself is not: every
// write in it would be an event, and it tells nothing more.
type availability struct {
	s       *Session
	watcher *fsnotify.Watcher // nil: not yet, or none to be had: rechecks only
	done    chan struct{}
	changed chan struct{}
	seen    uint64 // highest epoch that sync has met; of the one goroutine that calls it

	mu      sync.Mutex // guards the fields below
	byPath  map[string][]guard.RootName
	parents map[string]bool
	busy    map[guard.RootName]bool // being looked at
}

// lasting is how long a session has gone on when it is no short run. What only
// longer ones need waits for that: a short one would have to wait for the kernel to
// let go of its watches, which takes longer than all else at its end (10 ms,
// measured).
const lasting = 250 * time.Millisecond

// outlasts waits, and reports whether the session goes on after that.
func outlasts(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func watchRoots(ctx context.Context, s *Session) *availability {
	a := &availability{
		s: s, done: make(chan struct{}), changed: make(chan struct{}, 1),
		busy: map[guard.RootName]bool{}, parents: map[string]bool{},
	}
	for _, st := range s.reg.Roots() {
		a.notePermissions(st)
	}
	go a.run(ctx)
	return a
}

// watch begins to watch, and looks at all that there is.
func (a *availability) watch(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		a.s.log.Warn("roots are only looked at now and then: inotify is not to be had",
			"every", RecheckEvery, "error", err, "remedy", "raise fs.inotify.max_user_instances")
	} else {
		a.watcher = w
	}
	a.resync(ctx)
}

// resync watches what there is now, and looks at what is new.
func (a *availability) resync(ctx context.Context) {
	for _, name := range a.sync() {
		a.recheck(ctx, name) // what happened before it was watched
	}
}

// close waits until nothing of it runs any more. The context must have ended.
func (a *availability) close() { <-a.done }

// update tells that the set of roots has changed.
func (a *availability) update() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func (a *availability) run(ctx context.Context) {
	defer close(a.done)
	if !outlasts(ctx, lasting) {
		return
	}
	a.watch(ctx)
	var events <-chan fsnotify.Event
	var errs <-chan error
	if a.watcher != nil {
		// It waits for an Add, which may hang.
		defer aside(context.Background(), lookPatience, func() { _ = a.watcher.Close() })
		events, errs = a.watcher.Events, a.watcher.Errors
	}
	tick := time.NewTicker(RecheckEvery)
	defer tick.Stop()
	due := map[guard.RootName]bool{}
	next := 0
	timer := time.NewTimer(settle)
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
			a.resync(ctx)
		case e := <-events:
			for _, name := range a.rootsAt(e.Name) {
				if len(due) == 0 {
					timer.Reset(settle)
				}
				due[name] = true
			}
		case err := <-errs:
			// An overflow of the queue: what was lost is not known.
			a.s.log.Debug("watching the roots", "error", err)
			a.recheckAll(ctx)
		case <-timer.C:
			for name := range due {
				a.recheck(ctx, name)
			}
			clear(due)
		case <-tick.C:
			next = a.recheckSome(ctx, next)
		}
	}
}

// sync watches the parents of the roots there are now, and returns the roots
// that are new.
func (a *availability) sync() (fresh []guard.RootName) {
	byPath, parents, live := map[string][]guard.RootName{}, map[string]bool{}, map[uint64]bool{}
	for _, st := range a.s.reg.Roots() {
		live[st.Epoch] = true
		if st.Epoch > a.seen {
			fresh = append(fresh, st.Grant.Root)
		}
		byPath[st.Grant.Resolved] = append(byPath[st.Grant.Resolved], st.Grant.Root)
		if !st.Remote {
			parents[filepath.Dir(st.Grant.Resolved)] = true
		}
	}
	for epoch := range live {
		a.seen = max(a.seen, epoch)
	}
	a.mu.Lock()
	old := a.parents
	a.byPath, a.parents = byPath, parents
	a.mu.Unlock()
	a.s.mu.Lock()
	maps.DeleteFunc(a.s.perms, func(epoch uint64, _ string) bool { return !live[epoch] })
	maps.DeleteFunc(a.s.again, func(epoch uint64, _ bool) bool { return !live[epoch] })
	a.s.mu.Unlock()
	a.s.spaces.forget(live)
	if a.watcher == nil {
		return fresh
	}
	for dir := range parents {
		if old[dir] {
			continue
		}
		aside(a.s.ctx, lookPatience, func() { // the way there may lead through what hangs
			if err := a.watcher.Add(dir); err != nil {
				a.s.log.Warn("a root is only looked at now and then: its parent cannot be watched",
					"directory", dir, "every", RecheckEvery, "error", err)
			}
		})
	}
	for dir := range old {
		if !parents[dir] {
			_ = a.watcher.Remove(dir) // it may have gone with its directory
		}
	}
	return fresh
}

// rootsAt are the roots at a path: several, if each is another subject's.
func (a *availability) rootsAt(path string) []guard.RootName {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byPath[path]
}

func (a *availability) recheckAll(ctx context.Context) {
	for _, st := range a.s.reg.Roots() {
		if st.State == guard.Live && ctx.Err() == nil {
			a.recheck(ctx, st.Grant.Root)
		}
	}
}

// recheckMost bounds the looks of one tick: each costs some ten system calls,
// and of thousands of roots nobody wants to pay for all every few seconds.
const recheckMost = 500

// recheckSome looks at up to recheckMost roots from the one with the number
// from on, and returns where to go on.
func (a *availability) recheckSome(ctx context.Context, from int) int {
	roots := a.s.reg.Roots()
	if len(roots) <= recheckMost || from >= len(roots) {
		from = 0
	}
	to := min(from+recheckMost, len(roots))
	for _, st := range roots[from:to] {
		if ctx.Err() == nil {
			a.recheck(ctx, st.Grant.Root)
		}
	}
	return to
}

// lookPatience is how long a look is waited for before the next begins: looks come
// one after the other, but for those that hang.
const lookPatience = 100 * time.Millisecond

// mostHung bounds the looks that hang at a time, each of which holds a thread.
const mostHung = 256

// recheck looks at one root. The look may hang, on a remote file system or where
// one is mounted over the root's path, so it runs by itself, one at a time for each
// root, and nothing that ends waits for it.
func (a *availability) recheck(ctx context.Context, name guard.RootName) {
	st, ok := a.s.reg.Lookup(name)
	if !ok || st.State != guard.Live && (st.State != guard.UnavailableState || st.Remote) {
		return
	}
	a.mu.Lock()
	begin := !a.busy[name] && len(a.busy) < mostHung
	if begin {
		a.busy[name] = true
	}
	a.mu.Unlock()
	if !begin {
		return
	}
	aside(ctx, lookPatience, func() {
		a.look(ctx, st)
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.busy, name)
	})
}

// look is recheck, wherever that hangs.
func (a *availability) look(ctx context.Context, st guard.Status) {
	if st.State == guard.UnavailableState {
		a.noteAgain(st)
		return
	}
	name := st.Grant.Root
	if err := a.s.reg.Recheck(ctx, name); err != nil && ctx.Err() == nil {
		a.s.log.Error("a root has become unavailable, and not everything could be taken back", "root", name, "error", err)
	}
	if now, ok := a.s.reg.Lookup(name); ok && now.State == guard.Live {
		a.notePermissions(now)
		a.s.reg.LookAtRepos(name)
	} else if ok && !now.Remote {
		a.noteAgain(now)
	}
	if f := a.s.opt.Looked; f != nil {
		f(name)
	}
}

// aside runs f in a goroutine of its own and waits for it, but no longer than
// patience, or until ctx ends.
func aside(ctx context.Context, patience time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// noteAgain tells when there is something again at the place of a root that has
// become unavailable: it is not what was approved, and the owner may approve it.
func (a *availability) noteAgain(st guard.Status) {
	if !vfs.LeadsToLocal(st.Grant.Resolved) {
		return // what was mounted there may hang
	}
	_, err := os.Lstat(st.Grant.Resolved)
	again := err == nil
	a.s.mu.Lock()
	was := a.s.again[st.Epoch]
	a.s.again[st.Epoch] = again
	a.s.mu.Unlock()
	if !again || was {
		return
	}
	why := unavailable(string(st.Grant.Root), true)
	a.s.log.Warn("a root is unavailable", "root", st.Grant.Root, "why", why)
	a.s.hub.publish(control.Event{Time: time.Now(), Kind: "made again", Root: string(st.Grant.Root), Detail: why})
}

// notePermissions tells when the mode or the owner of a root has changed: the
// file system's own permissions go on counting, so what can be done in the root
// has changed with them.
func (a *availability) notePermissions(st guard.Status) {
	fi, err := os.Lstat(st.Grant.Resolved)
	if err != nil {
		return
	}
	now := permissions(fi)
	name := st.Grant.Root
	a.s.mu.Lock()
	was := a.s.perms[st.Epoch]
	a.s.perms[st.Epoch] = now
	a.s.mu.Unlock()
	if was == "" || was == now {
		return
	}
	detail := fmt.Sprintf("%s -> %s", was, now)
	a.s.log.Warn("the permissions of a root's directory have changed", "root", name, "detail", detail)
	a.s.hub.publish(control.Event{Time: time.Now(), Kind: "permissions", Root: string(name), Detail: detail})
}
