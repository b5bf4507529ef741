package guard

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"golang.org/x/sync/semaphore"

	"github.com/rootsfs/rootsfs/guard/builtin"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// A directory is moved only after everything in it has been judged, at the old place and at
// the new. Meanwhile nothing may be made in directories that were looked at already. So
// operations that make names share a lock, and one that moves a directory has it alone.
// Roots without patterns need no lock.
//
// The lock is the directory's, not the root's: roots of several subjects can be
// one directory, or lie in each other, and what one server moves another could
// fill. An operation that makes a name takes the lock of its root's directory. One that
// moves a directory takes those of every root that overlaps with its own, whosever they
// are. The map of locks holds them weakly: a lock lives as long as a root or an operation
// refers to it. So a root that is granted while an ended root of the same directory still
// moves something has the same lock.

// exclusive is the weight of a mover, more than there can be makers.
const exclusive = math.MaxInt64 / 2

type moveLock struct {
	order        uint64 // whoever acquires several locks does it in this order
	sem          *semaphore.Weighted
	unlockMaking func() // gives back what Making took
}

// moveLocks finds the lock of a directory, which lives as long as a root or an
// operation has it.
type moveLocks struct {
	mu    sync.Mutex // guards the fields below
	count uint64
	m     map[Identity]weak.Pointer[moveLock]
}

func (m *moveLocks) of(id Identity) *moveLock {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.m[id].Value(); l != nil {
		return l
	}
	if m.m == nil {
		m.m = map[Identity]weak.Pointer[moveLock]{}
	}
	m.count++
	l := &moveLock{order: m.count, sem: semaphore.NewWeighted(exclusive)}
	l.unlockMaking = func() { l.sem.Release(1) }
	m.m[id] = weak.Make(l)
	runtime.AddCleanup(l, m.forget, id)
	return l
}

func (m *moveLocks) forget(id Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.m[id].Value() == nil { // else the directory has another lock by now
		delete(m.m, id)
	}
}

// overlapping returns the locks of some roots and of all roots that lie in them or around
// them, in the order in which they are taken.
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
		if err := l.wait(ctx, m, 1); err != nil {
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
		unlock, err := l.lockAll(ctx, locks)
		if err != nil {
			return nil, err
		}
		// A root that was granted while this waited may have a lock of its
		// own; a root that is granted later waits for these, see pauseMoves.
		if slices.Equal(locks, l.reg.snap.Load().overlapping(l.root)) {
			return unlock, nil
		}
		unlock()
	}
}

// lockAll takes all of some locks.
func (l *Lease) lockAll(ctx context.Context, locks []*moveLock) (unlock func(), err error) {
	for i, m := range locks {
		if m.sem.TryAcquire(exclusive) {
			continue
		}
		if err := l.wait(ctx, m, exclusive); err != nil {
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
// DefaultTimeout. It ignores the end of ctx: any signal to the caller's thread ends the
// context of a request from the kernel, and rename(2) and mkdir(2) do not return EINTR.
// Others hold the lock only while they make or move one name.
func (l *Lease) wait(ctx context.Context, m *moveLock, weight int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultTimeout)
	defer cancel()
	alive, stop := l.UntilEnd(ctx)
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

// pauseMoves waits until no directory is being moved that overlaps with the new roots, and
// keeps further moves from beginning until release, when the roots are granted. Otherwise
// names could be created through a new root in a directory that is being judged for a move.
func (g *Registry) pauseMoves(ctx context.Context, made []*root) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Deadline)
	defer cancel()
	locks := g.snap.Load().overlapping(made...)
	for i, m := range locks {
		if m.sem.TryAcquire(1) {
			continue // nobody has the lock: it is taken even if ctx has ended
		}
		if err := m.sem.Acquire(ctx, 1); err != nil {
			releaseAll(locks[:i], 1)
			return nil, &Error{Kind: names.Timeout, Err: errors.New("a directory is being moved there; try again in a moment")}
		}
	}
	return func() { releaseAll(locks, 1) }, nil
}

// JudgeMoved judges the new path of the file id, of type t, that is to be moved there from
// another path. What belongs to a repository that the root's users made may come, or come
// back, to a name that is protected where it exists and may be made where it does not.
func (l *Lease) JudgeMoved(from, to string, id Identity, t pattern.Type) error {
	if !l.patterned {
		return nil
	}
	return l.eachRules(to, func(r *root, set *ruleset, rel string) error {
		dir, base := splitRel(rel)
		err := l.judgeIn(r, set, ToMake, dir, base, t)
		var refused *Refusal
		if errors.As(err, &refused) && refused.Rule.Builtin() && refused.Rule.Begins && l.movesMade(r, from, id, t) {
			return nil
		}
		return err
	})
}

// movesMade reports whether a file is remembered as a part of a repository that the users of
// r made themselves, or is the directory of a submodule or worktree in one, which git moves out
// to be the .git of a working copy. path is the file's, below the lease's root.
func (l *Lease) movesMade(r *root, path string, id Identity, t pattern.Type) bool {
	made := false
	_ = l.eachRoot(path, func(o *root, rel string) error {
		f := (*rootFacts)(o)
		made = made || o == r && (o.repos.has(rel, id) ||
			t == pattern.Dir && builtin.IsPart(rel, true, f.bare) && o.repos.around(rel, false, f.identity))
		return nil
	})
	return made
}

// JudgeMove returns a function that judges the names in a directory that is to be moved
// from one path to another: no pattern may be about a name at either. rel is the path of
// the directory that holds the name, below the directory that is moved.
func (l *Lease) JudgeMove(from, to string) func(rel, name string, t pattern.Type) error {
	return func(rel, name string, t pattern.Type) error {
		for _, top := range [...]string{from, to} {
			path := under(top, name)
			if rel != "" {
				path = under(under(top, rel), name)
			}
			err := l.eachRules(path, func(r *root, set *ruleset, path string) error {
				dir, base := splitRel(path)
				facts := pattern.Facts((*rootFacts)(r))
				if top == to && r == l.root {
					facts = movedFacts{facts, to, from}
				}
				if v := set.judge(r, facts, dir, base, t); v.Effect != pattern.None {
					return l.decide(r, dir, base, v, &Error{Kind: names.Permission, Err: &Refusal{Effect: v.Effect, Rule: v.Rule, inMovedDir: true}})
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// movedFacts answers questions about files by their paths after the move, while they still
// lie where they are moved from.
type movedFacts struct {
	pattern.Facts
	to, from string
}

// present is the path that a file has before the move.
func (m movedFacts) present(path string) string {
	if path == m.to || strings.HasPrefix(path, m.to+"/") {
		return m.from + path[len(m.to):]
	}
	return path
}

func (m movedFacts) IsDir(path string) bool { return m.Facts.IsDir(m.present(path)) }
func (m movedFacts) Top(dir string) bool    { return m.Facts.Top(m.present(dir)) }
func (m movedFacts) Made(path string) bool  { return m.Facts.Made(m.present(path)) }
func (m movedFacts) Bare(dir string, kind pattern.Condition) bool {
	return m.Facts.Bare(m.present(dir), kind)
}
func (m movedFacts) Tokens(path string) bool { return m.Facts.Tokens(m.present(path)) }
