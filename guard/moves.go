package guard

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"weak"

	"golang.org/x/sync/semaphore"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// A directory is moved only after everything in it has been judged, at the old place and at
// the new. Meanwhile no name may be made in directories that were judged already. So operations
// that make names share a lock, and an operation that moves a directory holds it exclusively.
// Roots without patterns need no lock.
//
// The lock belongs to the directory of a root, not to the root. Roots of several subjects can have
// one directory, or lie in each other, and one server could make names in a directory that another
// one moves. An operation that makes a name takes the lock of its root's directory. An
// operation that moves a directory takes the locks of all roots that overlap with its own, of
// any subject. The map of locks holds them weakly: a lock lives as long as a root or an
// operation refers to it. So a root that is granted while an ended root of the same directory
// still moves something has the same lock.

// exclusive is the weight with which an operation that moves a directory acquires a lock: the
// whole capacity of the lock. An operation that makes names acquires the lock with weight 1.
const exclusive = math.MaxInt64 / 2

type moveLock struct {
	order        uint64 // several locks are acquired in this order
	sem          *semaphore.Weighted
	unlockMaking func() // releases the lock that Making acquired
}

// moveLocks finds the lock of a directory. The lock lives as long as a root or an operation
// refers to it.
type moveLocks struct {
	mu    sync.Mutex // guards the fields below
	count uint64
	m     map[rules.Identity]weak.Pointer[moveLock]
}

func (m *moveLocks) of(id rules.Identity) *moveLock {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.m[id].Value(); l != nil {
		return l
	}
	if m.m == nil {
		m.m = map[rules.Identity]weak.Pointer[moveLock]{}
	}
	m.count++
	l := &moveLock{order: m.count, sem: semaphore.NewWeighted(exclusive)}
	l.unlockMaking = func() { l.sem.Release(1) }
	m.m[id] = weak.Make(l)
	runtime.AddCleanup(l, m.forget, id)
	return l
}

func (m *moveLocks) forget(id rules.Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.m[id].Value() == nil { // else the directory has another lock by now
		delete(m.m, id)
	}
}

// overlapping returns the locks of the given roots and of all roots in them or around them, in the
// order in which the locks have to be acquired.
func (s *snapshot) overlapping(roots ...*root) []*moveLock {
	all := map[*moveLock]bool{}
	for _, r := range roots {
		all[r.moves] = true
		for _, o := range s.byName {
			_, in := o.relativePath(r.grant.Resolved, r.location)
			_, holds := r.relativePath(o.grant.Resolved, o.location)
			if in || holds {
				all[o.moves] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b *moveLock) int { return cmp.Compare(a.order, b.order) })
}

// Making keeps directories from being moved while the operation resolves a directory and
// makes a name in it.
func (l *Lease) Making(ctx context.Context) (unlock func(), err error) {
	if !l.patterned || l.req.Dry != nil {
		return func() {}, nil
	}
	m := l.root.moves
	if !m.sem.TryAcquire(1) {
		if err := m.wait(ctx, l, 1); err != nil {
			return nil, err
		}
	}
	return m.unlockMaking, nil
}

// Moving keeps names from being made, in the root and in all roots that overlap with it,
// while the operation looks at a directory and moves it.
func (l *Lease) Moving(ctx context.Context) (unlock func(), err error) {
	if !l.patterned || l.req.Dry != nil {
		return func() {}, nil
	}
	for {
		locks := l.reg.snap.Load().overlapping(l.root)
		unlock, err := lockAll(ctx, l, locks)
		if err != nil {
			return nil, err
		}
		// A root that was granted while this call waited may have a lock that is not among these.
		// A later grant waits for these locks, see pauseMoves.
		if slices.Equal(locks, l.reg.snap.Load().overlapping(l.root)) {
			return unlock, nil
		}
		unlock()
	}
}

// lockAll acquires all the locks, or none of them.
func lockAll(ctx context.Context, l *Lease, locks []*moveLock) (unlock func(), err error) {
	for i, m := range locks {
		if m.sem.TryAcquire(exclusive) {
			continue
		}
		if err := m.wait(ctx, l, exclusive); err != nil {
			releaseAll(locks[:i], exclusive)
			return nil, err
		}
	}
	return func() { releaseAll(locks, exclusive) }, nil
}

func releaseAll(locks []*moveLock, weight int64) {
	for _, m := range locks {
		m.sem.Release(weight)
	}
}

// wait acquires a lock. It gives up when the operation's root ends, and after
// rules.DefaultTimeout. It ignores the end of ctx: any signal to the caller's thread ends the
// context of a request from the kernel, and rename(2) and mkdir(2) do not return EINTR.
// Others hold the lock only while they make or move one name.
func (m *moveLock) wait(ctx context.Context, l *Lease, weight int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rules.DefaultTimeout)
	defer cancel()
	alive, stop := l.Life().UntilEnd(ctx)
	defer stop()
	err := m.sem.Acquire(alive, weight)
	select {
	case <-l.root.dead:
		if err == nil {
			m.sem.Release(weight)
		}
		return &Error{Kind: names.Revoked}
	default:
	}
	return err
}

// pauseMoves waits until no move of a directory holds the lock of a new root, or of a root that
// overlaps with one. It keeps further such moves from beginning until release is called, after
// the roots are granted. Otherwise names could be created through a new root in a directory that
// is being judged for a move.
func (g *Registry) pauseMoves(ctx context.Context, added []*root) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Deadline)
	defer cancel()
	locks := g.snap.Load().overlapping(added...)
	for i, m := range locks {
		if m.sem.TryAcquire(1) {
			continue // the lock is free, so it is acquired even if ctx has ended
		}
		if err := m.sem.Acquire(ctx, 1); err != nil {
			releaseAll(locks[:i], 1)
			return nil, &Error{Kind: names.Timeout, Err: errors.New("a directory is being moved there; try again in a moment")}
		}
	}
	return func() { releaseAll(locks, 1) }, nil
}
