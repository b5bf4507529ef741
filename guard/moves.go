package guard

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/semaphore"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// A directory is moved only after everything in it has been judged, at the old
// place and at the new. Nothing may be made meanwhile in what was looked at
// already, so operations that make names share a lock with each other, and one
// that moves a directory has it alone. Roots without patterns do without.

// everybody is the weight of a mover, more than there are makers.
const everybody = math.MaxInt64 / 2

type moveLock struct{ sem *semaphore.Weighted }

func newMoveLock() moveLock { return moveLock{semaphore.NewWeighted(everybody)} }

// Making holds off the moving of directories while the operation resolves a
// directory and makes a name in it.
func (l *Lease) Making(ctx context.Context) (unlock func(), err error) {
	return l.hold(ctx, 1, []*root{l.root})
}

// Moving holds off the making of names, in the root and in those nested in it,
// while the operation looks at a directory and moves it.
func (l *Lease) Moving(ctx context.Context) (unlock func(), err error) {
	all := []*root{l.root}
	for _, f := range slices.Concat(l.fences.list, l.fences.peers) {
		if f.root != nil && !slices.Contains(all, f.root) {
			all = append(all, f.root)
		}
	}
	// Everybody takes them in the same order.
	slices.SortFunc(all, func(a, b *root) int { return cmp.Compare(a.epoch, b.epoch) })
	return l.hold(ctx, everybody, all)
}

func (l *Lease) hold(ctx context.Context, weight int64, roots []*root) (unlock func(), err error) {
	if !l.patterned {
		return func() {}, nil
	}
	for i, r := range roots {
		if r.moves.sem.TryAcquire(weight) {
			continue
		}
		if err := l.wait(ctx, r, weight); err != nil {
			give(roots[:i], weight)
			return nil, err
		}
	}
	return func() { give(roots, weight) }, nil
}

func give(roots []*root, weight int64) {
	for _, r := range roots {
		r.moves.sem.Release(weight)
	}
}

// wait waits until the operation's root ends, but not for ever. That ctx ends
// counts for nothing: any signal to the caller's thread ends that of a request of
// the kernel, and rename(2) and mkdir(2) know no EINTR. Others hold the lock only
// while they make or move one name.
func (l *Lease) wait(ctx context.Context, r *root, weight int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultTimeout)
	defer cancel()
	dead := l.root.dead
	go func() {
		select {
		case <-dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := r.moves.sem.Acquire(ctx, weight)
	select {
	case <-dead:
		if err == nil {
			r.moves.sem.Release(weight)
		}
		return &Error{Kind: names.Revoked}
	default:
	}
	return err
}

// JudgeMove returns what judges the names in a directory that is to be moved from
// one path to another: each must be free of patterns at both. rel is the path of
// the directory that holds the name, below the one that is moved.
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
					return &Error{Kind: names.Permission, Err: &Refusal{Effect: v.Effect, Rule: v.Rule, moves: true}}
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

// movedFacts answers for files that are still where they are to be moved from.
type movedFacts struct {
	pattern.Facts
	to, from string
}

func (m movedFacts) now(path string) string {
	if path == m.to || strings.HasPrefix(path, m.to+"/") {
		return m.from + path[len(m.to):]
	}
	return path
}

func (m movedFacts) IsDir(path string) bool  { return m.Facts.IsDir(m.now(path)) }
func (m movedFacts) Top(dir string) bool     { return m.Facts.Top(m.now(dir)) }
func (m movedFacts) Made(path string) bool   { return m.Facts.Made(m.now(path)) }
func (m movedFacts) Tokens(path string) bool { return m.Facts.Tokens(m.now(path)) }
