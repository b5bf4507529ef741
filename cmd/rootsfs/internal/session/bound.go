package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/guard"
)

// Bound is what the command line allows configured roots at most. The zero
// Bound leaves them as they are.
type Bound struct {
	Expires       time.Time    // zero: no end
	Limits        guard.Limits // of each, 0 is no limit
	OneFileSystem bool         // other file systems inside a root are not entered
	// Patterns hide, deny and protect what they match besides what each root
	// has; what they would lift is not lifted.
	Patterns guard.Patterns
	// Trash, if it is on, keeps what is removed in every root.
	Trash guard.Trash
}

// over reports that no root can begin within the bound at the moment now.
func (b Bound) over(now time.Time) bool {
	return !b.Expires.IsZero() && !now.Before(b.Expires)
}

// Apply narrows a grant: of each limit and of the ends, the stricter holds.
func (b Bound) Apply(g guard.Grant) guard.Grant {
	if !b.Expires.IsZero() && (g.Expires.IsZero() || b.Expires.Before(g.Expires)) {
		g.Expires = b.Expires
	}
	if b.OneFileSystem {
		g.Policy.OtherFileSystems = false
	}
	p := &g.Policy.Patterns
	p.Hide = slices.Concat(p.Hide, b.Patterns.Hide)
	p.Deny = slices.Concat(p.Deny, b.Patterns.Deny)
	p.Protect = slices.Concat(p.Protect, b.Patterns.Protect)
	p.Gitignore = p.Gitignore || b.Patterns.Gitignore
	if t := &g.Policy.Trash; b.Trash.On {
		t.On, t.Size, t.Age = true, cmp.Or(b.Trash.Size, t.Size), cmp.Or(b.Trash.Age, t.Age)
	}
	l, m := &g.Policy.Limits, b.Limits
	if m.OpsPerSecond > 0 {
		// A burst that is not given is one second's operations, so the
		// stricter one is known only together with the speed.
		own := burst(*l)
		l.OpsPerSecond = stricter(l.OpsPerSecond, m.OpsPerSecond)
		l.Burst = stricter(own, burst(m))
	}
	l.BytesInFlight = stricter(l.BytesInFlight, m.BytesInFlight)
	l.MaxFile = stricter(l.MaxFile, m.MaxFile)
	l.MaxWritten = stricter(l.MaxWritten, m.MaxWritten)
	l.MaxCreated = stricter(l.MaxCreated, m.MaxCreated)
	if m.Timeout > 0 && l.Timeout == 0 {
		l.Timeout = guard.DefaultTimeout // what 0 means
	}
	l.Timeout = stricter(l.Timeout, m.Timeout)
	l.Idle = stricter(l.Idle, m.Idle)
	return g
}

// burst is what a limit's burst comes to; 0 without a limit of speed.
func burst(l guard.Limits) int {
	switch {
	case l.OpsPerSecond <= 0:
		return 0
	case l.Burst > 0:
		return l.Burst
	}
	return max(1, int(l.OpsPerSecond))
}

// stricter is the smaller of two limits, of which 0 is none.
func stricter[T int | int64 | float64 | time.Duration](a, b T) T {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}
