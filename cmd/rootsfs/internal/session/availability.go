package session

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostwatch"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// availability looks whether roots are still where they were approved, when their paths
// may have changed.
type availability struct {
	s       *Session
	done    chan struct{}
	changed chan struct{}
	looks   asides[guard.RootName]
}

// rootPlace is what is known of the place of a root.
type rootPlace struct {
	stop        func() // ends the watching of the path; nil: it is not watched yet
	permissions string // "": it was not looked at
	reappeared  bool   // something is there, and the root is unavailable
	free        *int64 // bytes that were free when that was last known; nil: it is not known
}

// placeLocked returns what is known of the place of a root, by epoch.
func (s *Session) placeLocked(epoch uint64) *rootPlace {
	if s.places[epoch] == nil {
		s.places[epoch] = &rootPlace{}
	}
	return s.places[epoch]
}

// placeOf is placeLocked for those who only look.
func (s *Session) placeOf(epoch uint64) rootPlace {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[epoch]; p != nil {
		return *p
	}
	return rootPlace{}
}

// lasting is how long a session has gone on when it is no short run. What only
// longer ones need waits for that.
const lasting = 250 * time.Millisecond

// outlasts waits, and reports whether the session goes on after that.
func outlasts(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func watchRoots(ctx context.Context, s *Session) *availability {
	a := &availability{s: s, done: make(chan struct{}), changed: make(chan struct{}, 1)}
	for _, st := range s.reg.Roots() {
		a.notePermissions(st)
	}
	go a.run(ctx)
	return a
}

// close waits until nothing of it runs any more. The context must have ended.
func (a *availability) close() { <-a.done }

// update tells that the set of roots has changed.
func (a *availability) update() { signal(a.changed) }

// signal leaves a token in a channel that holds one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (a *availability) run(ctx context.Context) {
	defer close(a.done)
	if !outlasts(ctx, lasting) {
		return
	}
	for {
		a.sync(ctx)
		select {
		case <-ctx.Done():
			<-a.s.paths.Done()
			return
		case <-a.changed:
		}
	}
}

// sync forgets what was known of roots that have ended, and watches the paths of those
// that are new.
func (a *availability) sync(ctx context.Context) {
	live := map[uint64]bool{}
	for _, st := range a.s.reg.Roots() {
		live[st.Epoch] = true
		if a.s.placeOf(st.Epoch).stop == nil {
			stop := a.s.paths.Watch(st.Grant.Resolved, hostwatch.Path, func() bool { return a.recheck(ctx, st.Grant.Root) })
			a.s.mu.Lock()
			a.s.placeLocked(st.Epoch).stop = stop
			a.s.mu.Unlock()
		}
	}
	var ended []*rootPlace
	a.s.mu.Lock()
	for epoch, p := range a.s.places {
		if !live[epoch] {
			ended = append(ended, p)
			delete(a.s.places, epoch)
		}
	}
	a.s.mu.Unlock()
	for _, p := range ended {
		if p.stop != nil {
			p.stop()
		}
	}
}

// lookPatience is how long a look is waited for before the next begins: looks come
// one after the other, but for those that hang.
const lookPatience = 100 * time.Millisecond

// recheck looks at one root. The look may hang, on a remote file system or where
// one is mounted over the root's path; nothing that ends waits for it. If another look
// hangs, it reports false.
func (a *availability) recheck(ctx context.Context, name guard.RootName) (looked bool) {
	st, ok := a.s.reg.Lookup(name)
	if !ok || st.State != guard.Live && (st.State != guard.UnavailableState || st.Remote) {
		return true
	}
	patience, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	return a.looks.run(patience, name, func() { a.look(ctx, st) })
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

// mostHung bounds the calls that hang at a time, each of which holds a thread.
const mostHung = 256

// asides make calls that may hang, each in a goroutine of its own and one at a time for
// each key.
type asides[K comparable] struct {
	mu   sync.Mutex // guards the field below
	busy map[K]bool
}

// run calls f and waits for its end, or that of ctx. It reports false, and does not call f,
// if a call with the key is under way or too many are.
func (a *asides[K]) run(ctx context.Context, key K, f func()) bool {
	a.mu.Lock()
	begin := !a.busy[key] && len(a.busy) < mostHung
	if a.busy == nil {
		a.busy = map[K]bool{}
	}
	if begin {
		a.busy[key] = true
	}
	a.mu.Unlock()
	if !begin {
		return false
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.busy, key)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return true
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
	p := a.s.placeLocked(st.Epoch)
	was := p.reappeared
	p.reappeared = again
	a.s.mu.Unlock()
	if !again || was {
		return
	}
	why := unavailable(string(st.Grant.Root), true)
	a.s.log.Warn("a root is unavailable", "root", st.Grant.Root, "why", why)
	a.s.hub.Publish(control.Event{Time: time.Now(), Kind: "made again", Root: names.Foreign(st.Grant.Root), Detail: names.Foreign(why)})
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
	p := a.s.placeLocked(st.Epoch)
	was := p.permissions
	p.permissions = now
	a.s.mu.Unlock()
	if was == "" || was == now {
		return
	}
	detail := fmt.Sprintf("%s -> %s", was, now)
	a.s.log.Warn("the permissions of a root's directory have changed", "root", name, "detail", detail)
	a.s.hub.Publish(control.Event{Time: time.Now(), Kind: "permissions", Root: names.Foreign(name), Detail: names.Foreign(detail)})
}

// spacePatience is how long the answers of all file systems together are waited for.
const spacePatience = 100 * time.Millisecond

// askSpaces asks how much is free for the owner of some roots, those of this machine first. A
// file system of another machine may not answer: until it does, what it said before counts.
func (s *Session) askSpaces(roots []guard.Status) {
	ctx, cancel := context.WithTimeout(s.ctx, spacePatience)
	defer cancel()
	for _, remote := range []bool{false, true} {
		for _, r := range roots {
			// Of those that do not answer, each call asks one.
			if r.State == guard.Live && r.Remote == remote && (!remote || ctx.Err() == nil) {
				s.spaces.run(ctx, r.Epoch, func() { s.askSpace(r) })
			}
		}
	}
}

func (s *Session) askSpace(r guard.Status) {
	n, ok := s.reg.Free(r.Grant.Root)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.placeLocked(r.Epoch); ok {
		p.free = &n
	} else {
		p.free = nil
	}
}
