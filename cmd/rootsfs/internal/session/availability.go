package session

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// RecheckEvery is how often the roots' directories are looked at (of more than
// recheckMost roots, that many in turn). inotify would tell of some changes sooner,
// not of a parent further up that is moved, nor of what is mounted over a root, and a
// user has 128 instances of it, which are for sessions' sources.
const RecheckEvery = time.Second

// availability looks now and then whether roots are still where they were approved.
type availability struct {
	s       *Session
	done    chan struct{}
	changed chan struct{}
	seen    uint64 // highest epoch that sync has met; of the one goroutine that calls it

	mu   sync.Mutex              // guards the field below
	busy map[guard.RootName]bool // being looked at
}

// lasting is how long a session has gone on when it is no short run. What only
// longer ones need waits for that.
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
		busy: map[guard.RootName]bool{},
	}
	for _, st := range s.reg.Roots() {
		a.notePermissions(st)
	}
	go a.run(ctx)
	return a
}

// resync looks at the roots that are new.
func (a *availability) resync(ctx context.Context) {
	for _, name := range a.sync() {
		a.recheck(ctx, name)
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
	a.resync(ctx)
	tick := time.NewTicker(RecheckEvery)
	defer tick.Stop()
	next := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
			a.resync(ctx)
		case <-tick.C:
			next = a.recheckSome(ctx, next)
		}
	}
}

// sync forgets what was known of roots that have ended, and returns those that are
// new.
func (a *availability) sync() (fresh []guard.RootName) {
	live := map[uint64]bool{}
	for _, st := range a.s.reg.Roots() {
		live[st.Epoch] = true
		if st.Epoch > a.seen {
			fresh = append(fresh, st.Grant.Root)
		}
	}
	for epoch := range live {
		a.seen = max(a.seen, epoch)
	}
	a.s.mu.Lock()
	maps.DeleteFunc(a.s.perms, func(epoch uint64, _ string) bool { return !live[epoch] })
	maps.DeleteFunc(a.s.reappeared, func(epoch uint64, _ bool) bool { return !live[epoch] })
	a.s.mu.Unlock()
	a.s.spaces.forget(live)
	return fresh
}

// recheckMost bounds the looks of one tick: each costs some ten system calls,
// and of thousands of roots nobody wants to pay for all every second.
const recheckMost = 100

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
	was := a.s.reappeared[st.Epoch]
	a.s.reappeared[st.Epoch] = again
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

// spaces knows how much is free where the roots lie. A file system of another machine
// may not answer: so all are asked aside, one question to each at a time, and until one
// answers what it said before counts.
type spaces struct {
	mu     sync.Mutex // guards the fields below
	asking map[uint64]bool
	known  map[uint64]int64 // by epoch
}

// spacePatience is how long the answers of all file systems together are waited for.
const spacePatience = 100 * time.Millisecond

// ask asks how much is free for the owner of some roots; free has the answers.
func (sp *spaces) ask(ctx context.Context, reg *guard.Registry, roots []guard.Status) {
	var local, remote []guard.Status
	for _, r := range roots {
		switch {
		case r.State != guard.Live:
		case r.Remote:
			remote = append(remote, r)
		default:
			local = append(local, r)
		}
	}
	aside(ctx, spacePatience, func() {
		for _, r := range append(local, remote...) {
			sp.askOne(r.Epoch, func() (int64, bool) { return reg.Free(r.Grant.Root) })
		}
	})
}

// askOne asks one file system, unless a question to it is under way.
func (sp *spaces) askOne(epoch uint64, free func() (int64, bool)) {
	sp.mu.Lock()
	busy := sp.asking[epoch]
	if sp.asking == nil {
		sp.asking, sp.known = map[uint64]bool{}, map[uint64]int64{}
	}
	sp.asking[epoch] = true
	sp.mu.Unlock()
	if busy {
		return
	}
	n, ok := free()
	sp.mu.Lock()
	defer sp.mu.Unlock()
	delete(sp.asking, epoch)
	delete(sp.known, epoch)
	if ok {
		sp.known[epoch] = n
	}
}

// free returns the bytes that were free when it was last known, or ok is false.
func (sp *spaces) free(r *guard.Status) (n int64, ok bool) {
	if r.State != guard.Live {
		return 0, false
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	n, ok = sp.known[r.Epoch]
	return n, ok
}

// forget drops what is known of roots that have ended.
func (sp *spaces) forget(live map[uint64]bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for epoch := range sp.known {
		if !live[epoch] {
			delete(sp.known, epoch)
		}
	}
}
