package vfs

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// userShares bounds how many files, directories and references each user of a mount
// may keep open. The bound is what all users have left free: one user alone gets half
// of all descriptors, the next user half of the rest, and nobody gets the last one of
// another. (Switches share packet memory between ports by the same rule: Choudhury
// and Hahne, "Dynamic queue length thresholds", 1998.)
type userShares struct {
	mu    sync.Mutex // guards the fields below
	on    bool
	held  map[uint32]int // by uid
	total int
}

// ShareAmongUsers makes the tree bound what each user of its mounts may keep open. It
// is for mounts that several users may enter.
func (t *Tree) ShareAmongUsers() {
	t.users.mu.Lock()
	t.users.on = true
	t.users.mu.Unlock()
}

// slot is room for one descriptor in a user's share.
type slot struct {
	of    *userShares
	uid   uint32
	taken bool // by a File, which gives it back when it is closed; or given back
}

// noSlot is the slot of those who have no share.
var noSlot = &slot{}

// reserve takes room for one descriptor from the caller's share. Whoever calls it must
// call slot.release, which does nothing once a File has taken the slot. Only callers
// from the kernel have a share: others are bounded by their front end.
func (s *userShares) reserve(c guard.Caller) (*slot, error) {
	if c.Via != guard.ViaFUSE {
		return noSlot, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on {
		return noSlot, nil
	}
	if have := s.held[c.UID]; have >= beneath.MaxKept()-s.total {
		return nil, &guard.Error{Kind: names.IO, Err: fmt.Errorf(
			"%w: user %d has %d files and directories open in this session, and the other users keep room for as many; close some", unix.EMFILE, c.UID, have)}
	}
	if s.held == nil {
		s.held = map[uint32]int{}
	}
	s.held[c.UID]++
	s.total++
	return &slot{of: s, uid: c.UID}, nil
}

// take gives the slot to the File that calls closed when it is closed.
func (p *slot) take() {
	if p.of != nil {
		p.taken = true
	}
}

// release gives the room back, unless a File has it or it has been given back.
func (p *slot) release() {
	if p.of != nil && !p.taken {
		p.taken = true
		p.closed()
	}
}

// closed gives the room back.
func (p *slot) closed() {
	s := p.of
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.held[p.uid]--; s.held[p.uid] == 0 {
		delete(s.held, p.uid)
	}
}
