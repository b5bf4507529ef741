package network

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// ErrLimit is the reason for refusing or ending a connection beyond a limit.
var ErrLimit = errors.New("a limit of the network is reached")

// These errors make a copying goroutine wait and try again. errPace: the pace permits no bytes now.
// errClaimed: other connections have claimed the last bytes, and may move fewer.
var (
	errPace    = errors.New("bytes must wait")
	errClaimed = errors.New("the last bytes are claimed")
)

// Limits bound a program's use of its network. 0 is no bound.
type Limits struct {
	BytesPerSecond int64 // both ways together; further bytes wait
	Bytes          int64 // both ways together; then every connection is reset
	Connections    int   // open at a time; a further one is reset
}

// meter enforces the limits of a gate, over all its connections together. It does not count a
// connection that a service answers, but the connection that the service dials for it.
type meter struct {
	limits Limits
	pace   *rate.Limiter // nil: no bound
	chunk  int           // bytes moved at a time, if there is a pace

	moved   atomic.Int64 // bytes
	claimed atomic.Int64 // bytes that were moved or are about to be
}

func newMeter(l Limits) *meter {
	m := &meter{limits: l}
	if speed := l.BytesPerSecond; speed > 0 {
		// If a timer fires late, the missed bytes may follow at once, up to those of a tenth of
		// a second.
		burst := int(max(1, speed/10))
		m.pace, m.chunk = rate.NewLimiter(rate.Limit(speed), burst), min(burst, copyBuffer)
	}
	return m
}

// admitLocked returns an error with the limit that one more connection would exceed.
func (g *Gate) admitLocked() error {
	if most := g.meter.limits.Connections; most > 0 && len(g.conns)-g.servedConns >= most {
		return fmt.Errorf("%w: the program holds %d connections already", ErrLimit, most)
	}
	return g.meter.spent()
}

// spent returns ErrLimit if all bytes have been moved.
func (m *meter) spent() error {
	if most := m.limits.Bytes; most > 0 && m.moved.Load() >= most {
		return fmt.Errorf("%w: %d bytes were moved", ErrLimit, most)
	}
	return nil
}

// claim claims n bytes, or fewer if Limits.Bytes permits only fewer. It returns how many.
func (m *meter) claim(n int) int {
	over := m.claimed.Add(int64(n)) - m.limits.Bytes
	if m.limits.Bytes <= 0 || over <= 0 {
		return n
	}
	back := min(over, int64(n))
	m.claimed.Add(-back)
	return n - int(back)
}

// credit limits and counts the bytes that one direction of a connection moves.
type credit struct {
	c            *conn
	m            *meter
	count, total *atomic.Int64 // bytes moved in this direction by c, and by all connections
	left         int           // bytes that the pace permits now
}

// up returns the credit for the bytes that a connection sends to its host, and down the credit for
// the bytes that it receives from its host.
func (g *Gate) up(c *conn) credit {
	return credit{c: c, m: g.meter, count: &c.sent, total: &g.totals.sent}
}

func (g *Gate) down(c *conn) credit {
	return credit{c: c, m: g.meter, count: &c.received, total: &g.totals.received}
}

// grant returns how many of n bytes may be moved now. The caller must then call settle with
// the outcome.
func (k *credit) grant(n int) (int, error) {
	if k.m.pace != nil {
		if k.left == 0 {
			return 0, errPace
		}
		n = min(n, k.left)
	}
	if n = k.m.claim(n); n == 0 {
		return 0, cmp.Or(k.m.spent(), errClaimed)
	}
	return n, nil
}

func (k *credit) settle(granted, moved int) {
	k.m.moved.Add(int64(moved))
	k.m.claimed.Add(int64(moved - granted))
	k.left -= moved
	k.count.Add(int64(moved))
	k.total.Add(int64(moved))
}

// wait waits until a chunk of at most n bytes may be moved. It returns early if the connection ends.
func (k *credit) wait(n int) {
	n = min(n, k.m.chunk)
	now := time.Now()
	k.left = n
	t := time.NewTimer(k.m.pace.ReserveN(now, n).DelayFrom(now))
	defer t.Stop()
	select {
	case <-t.C:
	case <-k.c.ctx.Done():
	}
}

// move moves n bytes as the limits permit, and returns how many. It calls transfer with the number
// of granted bytes and the number of bytes moved before.
func (k *credit) move(n int, transfer func(granted, from int) (int, error)) (moved int, err error) {
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
		m, err := transfer(granted, moved)
		k.settle(granted, m)
		if moved += m; err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// endSpent ends every connection to a host if all bytes have been moved. It leaves connections that a
// service serves.
func (g *Gate) endSpent() {
	err := g.meter.spent()
	if err == nil {
		return
	}
	g.end(func() []*conn {
		return g.endLocked(err, func(c *conn) bool { return !c.isServed() })
	})
}
