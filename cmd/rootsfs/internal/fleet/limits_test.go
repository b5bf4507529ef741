package fleet

import (
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
)

// A machine that floods the keeper with requests gets a bounded number of answers, and another machine
// gets its lease.
func TestFloodOfRequests(t *testing.T) {
	l := newLab(t)
	p1, p2 := l.puppet("m1"), l.puppet("m2")
	n, answered := p2.bus.Names, &atomic.Int64{}
	_, err := p2.bus.Conn.Subscribe(inbox("m2")+".x", func(*nats.Msg) { answered.Add(1) })
	l.must(err)
	for kind, subject := range map[string]string{kindLease: n.lease("m2"), kindRenew: n.renew("m2")} {
		var body any = struct{}{}
		if kind == kindLease {
			body = leaseRequest{Charter: 1}
		}
		data, err := seal(p2.m.key, p2.m.ID, kind, request[any]{"A", body})
		l.must(err)
		const sent = 10 * requestBurst
		answered.Store(0)
		for range sent {
			l.must(p2.bus.Conn.PublishRequest(subject, inbox("m2")+".x", data))
		}
		l.must(p2.bus.Conn.Flush())
		// These requests come after the whole flood, on both subjects.
		l.must(p1.ask())
		_, err = askAsMachine[inviteAnswer](t.Context(), p1.m, p1.bus, n.renew("m1"), kindRenew)
		l.must(err)
		l.must(p2.bus.Conn.Flush())
		if got := answered.Load(); got == 0 || got > sent/2 {
			t.Errorf("%s: the keeper answers %d of %d requests", kind, got, sent)
		}
	}
}
