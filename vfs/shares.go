package vfs

import (
	"fmt"
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/shares"
)

// userShares bounds how many files, directories and references each user of a mount
// may keep open.
type userShares struct {
	on     atomic.Bool
	shares shares.Shares[uint32] // by uid
}

// ShareAmongUsers makes the tree bound what each user of its mounts may keep open. It
// is for mounts that several users may enter.
func (t *Tree) ShareAmongUsers() { t.shares.on.Store(true) }

// slot is room for one descriptor in a user's share. It is nil for callers that are not
// bounded.
type slot struct {
	of      *userShares
	uid     uint32
	settled bool // a File owns the slot, or the room was given back: release does nothing
}

// reserve takes room for one descriptor from the share of c. Its caller must call
// slot.release, which does nothing once a File owns the slot. Only users of a mount
// have a share, and only after a call of ShareAmongUsers. Other callers are bounded by their
// front end.
func (s *userShares) reserve(c guard.Caller) (*slot, error) {
	if c.Via != guard.ViaFUSE || !s.on.Load() {
		return nil, nil
	}
	if limit, ok := s.shares.Acquire(c.UID, int64(beneath.MaxOpen()), math.MaxInt64); !ok {
		return nil, &guard.Error{Kind: names.IO, Err: fmt.Errorf(
			"%w: user %d may keep at most %d files, directories and references open in this session now, because room is kept for other users; close some",
			unix.EMFILE, c.UID, limit)}
	}
	return &slot{of: s, uid: c.UID}, nil
}

// assign gives the slot to a File, which must call free when it is closed.
func (p *slot) assign() {
	if p != nil {
		p.settled = true
	}
}

// release gives the room back, unless a File owns the slot or the room was given back before.
func (p *slot) release() {
	if p != nil && !p.settled {
		p.settled = true
		p.free()
	}
}

// free gives the room back.
func (p *slot) free() {
	if p != nil {
		p.of.shares.Release(p.uid, 1)
	}
}
