package network

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// ErrLimit is why a connection is refused or ended that is beyond a limit.
var ErrLimit = errors.New("a limit of the network is reached")

// These have whoever moves bytes try again: after a wait, or when another connection has moved
// what it has claimed.
var (
	errPace    = errors.New("bytes must wait")
	errClaimed = errors.New("the last bytes are claimed")
)

// Limits bound what a program does with its network. 0 is no bound.
type Limits struct {
	BytesPerSecond int64 // both ways together; more wait
	Bytes          int64 // both ways together; then every connection is reset
	Connections    int   // open at a time; one more is reset
}

// Limited are the limits of some rules: of all connections that one of them permits, together.
type Limited struct {
	Rules  []Rule // nil: of every connection
	Limits Limits
}

// meter keeps to the limits of a Limited.
type meter struct {
	rules  rules // empty: every connection
	limits Limits
	pace   *rate.Limiter // nil: no bound
	chunk  int           // moved at a time, if there is a pace
	open   int           // connections; behind the gate's mutex

	moved   atomic.Int64 // bytes
	claimed atomic.Int64 // bytes that were moved or are about to be
}

// newMeters returns the meters of limits that bound something.
func newMeters(list []Limited) (meters []*meter) {
	for _, l := range list {
		if l.Limits == (Limits{}) {
			continue
		}
		m := &meter{rules: l.Rules, limits: l.Limits}
		if speed := l.Limits.BytesPerSecond; speed > 0 {
			// What a timer wakes up late for is made up for, up to a tenth of a second.
			burst := int(max(1, speed/10))
			m.pace, m.chunk = rate.NewLimiter(rate.Limit(speed), burst), min(burst, copyBuffer)
		}
		meters = append(meters, m)
	}
	return meters
}

// metersOf returns the meters of a connection. One that a service answers has none: what the
// service dials for it has.
func (g *Gate) metersOf(c *conn) (list []*meter) {
	if c.isAnswered() {
		return nil
	}
	for _, m := range g.meters {
		if len(m.rules) == 0 || m.rules.permits(c) {
			list = append(list, m)
		}
	}
	return list
}

// of names the connections of a meter.
func (m *meter) of() string {
	switch len(m.rules) {
	case 0:
		return ""
	case 1:
		return " to " + m.rules[0].String()
	}
	return fmt.Sprintf(" to %s and %d other hosts", m.rules[0], len(m.rules)-1)
}

// openLocked counts a connection, or says which limit it would exceed.
func (g *Gate) openLocked(c *conn) error {
	meters := g.metersOf(c)
	for _, m := range meters {
		if most := m.limits.Connections; most > 0 && m.open >= most {
			return fmt.Errorf("%w: the program holds %d connections%s already", ErrLimit, most, m.of())
		}
		if err := m.spent(); err != nil {
			return err
		}
	}
	c.meters = meters
	for _, m := range meters {
		m.open++
	}
	return nil
}

// spent says that a meter's bytes have been moved.
func (m *meter) spent() error {
	if most := m.limits.Bytes; most > 0 && m.moved.Load() >= most {
		return fmt.Errorf("%w: %d bytes%s were moved", ErrLimit, most, m.of())
	}
	return nil
}

// claim returns how many of n bytes may be moved.
func (m *meter) claim(n int) int {
	over := m.claimed.Add(int64(n)) - m.limits.Bytes
	if m.limits.Bytes <= 0 || over <= 0 {
		return n
	}
	back := min(over, int64(n))
	m.claimed.Add(-back)
	return n - int(back)
}

// credit is what one direction of a connection may move.
type credit struct {
	c       *conn
	count   *atomic.Int64 // of what it has moved
	isPaced bool
	chunk   int // bytes at a time, if it is paced
	left    int // bytes that the pace permits now
}

func (c *conn) credit(count *atomic.Int64) credit {
	k := credit{c: c, count: count, chunk: copyBuffer}
	for _, m := range c.meters {
		if m.pace != nil {
			k.isPaced, k.chunk = true, min(k.chunk, m.chunk)
		}
	}
	return k
}

// grant returns how many of n bytes may be moved now. settle must be told what became of them.
func (k *credit) grant(n int) (int, error) {
	if k.isPaced {
		if k.left == 0 {
			return 0, errPace
		}
		n = min(n, k.left)
	}
	for i, m := range k.c.meters {
		granted := m.claim(n)
		for _, earlier := range k.c.meters[:i] {
			earlier.claimed.Add(int64(granted - n))
		}
		if n = granted; n == 0 {
			return 0, cmp.Or(m.spent(), errClaimed)
		}
	}
	return n, nil
}

func (k *credit) settle(granted, moved int) {
	for _, m := range k.c.meters {
		m.moved.Add(int64(moved))
		m.claimed.Add(int64(moved - granted))
	}
	k.left -= moved
	k.count.Add(int64(moved))
}

// wait waits until a chunk of n bytes may be moved. It returns early if the connection ends.
func (k *credit) wait(n int) {
	n = min(n, k.chunk)
	var longest time.Duration
	now := time.Now()
	for _, m := range k.c.meters {
		if m.pace != nil {
			longest = max(longest, m.pace.ReserveN(now, n).DelayFrom(now))
		}
	}
	k.left = n
	if longest <= 0 {
		return
	}
	t := time.NewTimer(longest)
	defer t.Stop()
	select {
	case <-t.C:
	case <-k.c.ctx.Done():
	}
}

// move moves n bytes as the limits permit, and returns how many.
func (k *credit) move(n int, move func(granted, from int) (int, error)) (moved int, err error) {
	for moved < n {
		if k.c.ctx.Err() != nil {
			return moved, net.ErrClosed
		}
		granted, err := k.grant(n - moved)
		switch {
		case errors.Is(err, errPace):
			k.wait(n - moved)
			continue
		case errors.Is(err, errClaimed):
			time.Sleep(time.Millisecond)
			continue
		case err != nil:
			return moved, err
		}
		m, err := move(granted, moved)
		k.settle(granted, m)
		if moved += m; err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// endSpent ends every connection of the meters whose bytes have been moved.
func (g *Gate) endSpent(c *conn) {
	g.end(func() (ended []*conn) {
		for _, m := range c.meters {
			err := m.spent()
			if err == nil {
				continue
			}
			var list []*conn
			for other := range g.conns {
				if slices.Contains(other.meters, m) {
					list = append(list, other)
				}
			}
			g.endLocked(list, err)
			ended = append(ended, list...)
		}
		return ended
	})
}
