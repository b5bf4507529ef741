package network

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// Conn is an open connection.
type Conn struct {
	Host           string
	Port           uint16
	Addr           netip.AddrPort
	Sent, Received int64
	Rate           int64 // bytes a second both ways, between the two latest samples; see rateLocked
	Began          time.Time
	// ServerNames are the names in hellos of TLS that differ from Host.
	ServerNames []string
	// Rules are the rules that permit the host, the closed address that the host's name leads to,
	// or a server name.
	Rules   []Rule
	Service *Service // the service that has dialled it; nil: the program has made it
}

// Totals count the work of a gate so far.
type Totals struct {
	Opened         int64 // connections
	Refused        int64 // connections and look-ups of names
	Failed         int64 // connections whose host was not found or not reached
	Sent, Received int64 // bytes from and to the program
}

// totals are the counters behind Totals.
type totals struct{ opened, refused, failed, sent, received atomic.Int64 }

// count counts an event.
func (t *totals) count(e Event) {
	switch e.State {
	case Opened:
		t.opened.Add(1)
	case Refused:
		t.refused.Add(1)
	case Failed:
		t.failed.Add(1)
	}
}

// Totals returns the gate's totals. No figure ever falls.
func (g *Gate) Totals() Totals {
	t := &g.totals
	return Totals{
		Opened: t.opened.Load(), Refused: t.refused.Load(), Failed: t.failed.Load(), Sent: t.sent.Load(), Received: t.received.Load(),
	}
}

// Conns returns the open connections, the oldest first.
func (g *Gate) Conns() []Conn {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]Conn, 0, len(g.conns))
	for c := range g.conns {
		if c.outside == nil {
			continue
		}
		sent, received := c.sent.Load(), c.received.Load()
		list = append(list, Conn{
			Host: c.host, Port: c.port, Addr: c.addr, Sent: sent, Received: received,
			Rate: c.rateLocked(now, sent+received), Began: c.began,
			ServerNames: slices.Clone(c.serverNames), Rules: g.rulesLocked(c), Service: c.service,
		})
	}
	slices.SortFunc(list, func(a, b Conn) int { return a.Began.Compare(b.Began) })
	return list
}

// rateSample is one measurement of a connection's rate.
type rateSample struct {
	at    time.Time
	moved int64 // bytes until then
	rate  int64 // bytes a second since the sample before
}

// rateLocked returns the bytes a second between the two latest samples. It takes another sample
// first if the latest one is at least a second old.
func (c *conn) rateLocked(now time.Time, moved int64) int64 {
	if c.sample.at.IsZero() {
		c.sample.at = c.began
	}
	if spent := now.Sub(c.sample.at); spent >= time.Second {
		c.sample = rateSample{now, moved, int64(float64(moved-c.sample.moved) / spent.Seconds())}
	}
	return c.sample.rate
}
