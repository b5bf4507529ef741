// Package shares divides a scarce resource, such as descriptors, among owners that come and go.
//
// # Promises
//
// One owner may hold at most half of the units that the other owners do not hold, rounded up: the
// first owner gets half of the total, the next gets half of the rest. So an owner without a unit
// can get one as long as any unit is free, and no unit has to be taken back. (Switches share packet
// memory between ports by the same rule: Choudhury and Hahne, "Dynamic queue length thresholds",
// 1998.)
//
// # Not promised
//
// The rule is not fair: a late owner may get less than an early one.
package shares

import "sync"

// Shares counts the units of each owner. The zero Shares is ready for use.
type Shares[Owner comparable] struct {
	mu        sync.Mutex // guards the fields below
	held      map[Owner]int64
	heldByAll int64 // the sum of held
}

// Acquire gives an owner one unit. total is the number of units that exist. limit is the number that
// this owner may hold at present, which is never more than most. ok is false, and the owner gets no
// unit, if it holds limit units already.
func (s *Shares[Owner]) Acquire(o Owner, total, most int64) (limit int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held[o]
	limit = min(most, (total-(s.heldByAll-held)+1)/2)
	if held >= limit {
		return limit, false
	}
	if s.held == nil {
		s.held = map[Owner]int64{}
	}
	s.held[o]++
	s.heldByAll++
	return limit, true
}

// Release returns n units of an owner.
func (s *Shares[Owner]) Release(o Owner, n int64) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heldByAll -= n
	if s.held[o] -= n; s.held[o] == 0 {
		delete(s.held, o)
	}
}
