package tools

import (
	"errors"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// uses are the roots that a request names, as they were when it first named them. The
// request calls revoked last, so that what it read before a revocation is in no answer
// after it.
type uses struct {
	registry *guard.Registry
	roots    map[guard.RootName]lifetime
}

// lifetime changes when a root ends, and when one inside it is approved or ends: files of
// that are read through the outer root, too.
type lifetime struct{ epoch, nesting uint64 }

func newUses(r *guard.Registry) uses { return uses{r, map[guard.RootName]lifetime{}} }

func (u *uses) lifetimeOf(root guard.RootName) (l lifetime, ok bool) {
	if l.epoch, ok = u.registry.EpochOf(root); ok {
		l.nesting, ok = u.registry.NestingOf(root)
	}
	return l, ok
}

// use records a root.
func (u *uses) use(root guard.RootName) {
	if _, known := u.roots[root]; !known {
		u.roots[root], _ = u.lifetimeOf(root) // zero, which no root has, if the root has just ended
	}
}

// revoked returns an error if one of the roots, or a root inside one, has ended since.
func (u *uses) revoked() error {
	for root, was := range u.roots {
		now, ok := u.lifetimeOf(root)
		switch {
		case !ok || now.epoch != was.epoch:
			return &guard.Error{Op: names.OpRead, Path: guard.Path{Root: root}, Kind: names.Revoked}
		case now != was:
			return &guard.Error{Op: names.OpRead, Path: guard.Path{Root: root}, Kind: names.Conflict,
				Err: errors.New("a root inside it was approved or revoked")}
		}
	}
	return nil
}
