package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// puppet is a machine with a real agent and no sessions: actions records what the agent would do
// to sessions, and the leases that the agent writes.
type puppet struct {
	*agent
	mu          sync.Mutex
	carryOutErr error // of a session that does not answer
	actions     []string
	lease       control.Lease // in the lease file
	recordErr   error         // of an audit log that rejects records
}

// puppet makes a machine that has joined and has not asked for a lease.
func (l *lab) puppet(name string) *puppet {
	l.Helper()
	return l.restart(l.join(name), l.TempDir())
}

// restart starts an agent of a machine with the state in dir.
func (l *lab) restart(m *Member, dir string) *puppet {
	l.Helper()
	l.Setenv("XDG_RUNTIME_DIR", l.TempDir())
	buses, err := m.dialAll(true)
	l.must(err)
	l.Cleanup(func() { closeAll(buses) })
	p, err := newPuppet(m, buses, dir)
	l.must(err)
	l.must(p.listen(context.Background()))
	for _, b := range buses {
		if b.Conn.IsConnected() {
			l.must(b.Conn.Flush())
		}
	}
	return p
}

// newPuppet makes an agent of a machine with the state in dir. The agent does not listen yet.
func newPuppet(m *Member, buses []*Bus, dir string) (*puppet, error) {
	p := &puppet{}
	a, err := newAgent(m, buses, dir, slog.New(slog.DiscardHandler), func(guard.Record) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.recordErr
	})
	if err != nil {
		return nil, err
	}
	p.agent = a
	a.writeLease = func(to control.Lease) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lease = to
		p.actions = append(p.actions, fmt.Sprintf("lease of %v, locked %q", to.Until > 0, to.Locked))
		return nil
	}
	a.carryOut = func(_ context.Context, due []Revocation) ([]Ended, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		var ended []Ended
		for _, r := range due {
			p.actions = append(p.actions, fmt.Sprintf("revoke %s%v", r.Root, r.All))
			ended = append(ended, Ended{"s", control.Ended{Root: "code", State: "revoked"}})
		}
		return ended, p.carryOutErr
	}
	return p, nil
}

// failRecords makes records fail with err; nil: they succeed.
func (p *puppet) failRecords(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recordErr = err
}

// takeActions returns the actions since the last call.
func (p *puppet) takeActions() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	actions := strings.Join(p.actions, "; ")
	p.actions = nil
	return actions
}

// ask requests a lease, and requests it again at once if the keeper lacks orders.
func (p *puppet) ask() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for ctx.Err() == nil && !slices.ContainsFunc(p.buses, func(b *Bus) bool { return b.Conn.IsConnected() }) {
		time.Sleep(5 * time.Millisecond) // the server may have been restarted
	}
	err := p.renew(ctx)
	if p.missing != nil {
		err = p.renew(ctx)
	}
	return err
}

// give gives an order, and returns when all machines have answered or wait is over.
func (l *lab) give(o Order, wait time.Duration) Outcome {
	l.Helper()
	out, err := l.owner.Give(context.Background(), o, wait)
	l.must(err)
	return out
}

var revokeAll = Order{Revoke: []Revocation{{All: true}}}

// A machine carries out an order when the order comes, and reports the outcome. A lease comes after
// the machine has carried out the orders, and counts from the moment of the request. A locked
// machine gets no lease.
func TestOrdersBeforeLeases(t *testing.T) {
	l := newLab(t)
	p := l.puppet("m1")
	l.must(p.ask())
	if did := p.takeActions(); did != `lease of true, locked ""` {
		t.Errorf("the first lease: %s", did)
	}
	out := l.give(revokeAll, 10*time.Second)
	if !out.Done() || len(out.Machines[0].Ended) != 1 {
		t.Errorf("the outcome is %+v", out)
	}
	if did := p.takeActions(); did != `lease of true, locked ""; revoke true` {
		t.Errorf("a revocation: %s", did)
	}
	l.give(Order{Lock: "fire"}, 10*time.Second)
	if did := p.takeActions(); did != `lease of false, locked "fire"` {
		t.Errorf("a lock: %s", did)
	}
	l.must(p.ask())
	if did := p.takeActions(); did != "" || p.lease.Until != 0 {
		t.Errorf("a locked machine asks: %s", did)
	}
	l.give(Order{Unlock: true}, 10*time.Second)
	l.must(p.ask())
	if did := p.takeActions(); did != `lease of false, locked ""; lease of true, locked ""` {
		t.Errorf("unlocked: %s", did)
	}
	asked := p.until - time.Minute
	p.until = 0
	if err := p.extend(context.Background(), asked, leaseAnswer{LeaseMS: time.Hour.Milliseconds()}); err != nil || p.until != asked+time.Minute {
		t.Errorf("the lease ends %v after the request, %v", p.until-asked, err)
	}
}

// If a session does not carry out an order, the agent gets no new lease, and does not report the
// order as carried out: the session's access ends only with the lease. After a restart, the agent
// still has to carry out the order.
func TestNoLeaseBeforeTheOrderIsDone(t *testing.T) {
	l := newLab(t)
	m, dir := l.join("m1"), t.TempDir()
	p := l.restart(m, dir)
	l.must(p.ask())
	until := p.lease.Until
	p.carryOutErr = errors.New("does not answer")
	if out := l.give(revokeAll, 300*time.Millisecond); out.Done() || out.DeadBy == nil {
		t.Errorf("the outcome is %+v", out)
	}
	if err := p.ask(); err == nil || !strings.Contains(err.Error(), "does not answer") || p.lease.Until != until {
		t.Errorf("a lease of %v more, %v", time.Duration(p.lease.Until-until), err)
	}
	if !p.standing().Behind {
		t.Error("the machine does not show that it is behind")
	}
	p.bus.Close()
	again := l.restart(m, dir)
	l.must(again.ask())
	if did := again.takeActions(); !strings.HasPrefix(did, `lease of false, locked ""; revoke true; lease of true`) {
		t.Errorf("after the restart: %s", did)
	}
}

// A message that the bus repeats changes nothing. The repeated message is an order that was already
// carried out, or an answer that nobody waits for.
func TestBusReplays(t *testing.T) {
	l := newLab(t)
	p := l.puppet("m1")
	l.must(p.ask())
	orders := make(chan []byte, 8)
	l.give(Order{Machines: []string{"m1"}, Lock: "fire"}, 10*time.Second)
	orders <- p.known["m1"].signed
	l.give(Order{Machines: []string{"m1"}, Unlock: true}, 10*time.Second)
	l.must(p.ask())
	p.takeActions()
	if err := p.receive(context.Background(), "m1", <-orders); err != nil || p.takeActions() != "" || p.lockReason() != "" {
		t.Errorf("an older order locks: %v", err)
	}
	if err := p.receive(context.Background(), allMachines, p.known["m1"].signed); err == nil {
		t.Error("an order for one machine is accepted as an order for all machines")
	}
	old, err := seal(l.server.keeperKey(t), p.m.ID, kindLease+replySuffix, reply[leaseAnswer]{Number: "1", Body: leaseAnswer{LeaseMS: 1000}})
	l.must(err)
	if _, err := readReply[leaseAnswer](old, p.m.ID, kindLease, "2", p.m.Charter.isKeeper); err == nil {
		t.Error("the answer to another request is accepted as a lease")
	}
}

func (s *Server) keeperKey(t *testing.T) *Key {
	k, err := loadKey(s.dir.signing())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// If owners give orders at the same time, all of the orders are in force. The keeper refuses an
// order by an owner who has not seen the latest order, even if the new order has a higher number.
func TestTwoOwners(t *testing.T) {
	l := newLab(t)
	p := l.puppet("m1")
	first, err := l.owner.place(context.Background(), allMachines, (&Order{Lock: "first"}).change)
	l.must(err)
	late := Standing{For: allMachines, Number: first.Number + 1}
	data, err := seal(l.owner.key, l.owner.Names.ID, kindStanding, late)
	l.must(err)
	got, err := l.owner.order(context.Background(), orderRequest{For: allMachines, Order: data})
	for _, a := range got {
		if err != nil || a.Taken || string(a.Order) != string(first.signed) {
			t.Errorf("the order of an owner who had seen none replaces the first: %v", err)
		}
	}
	var all sync.WaitGroup
	for _, root := range []string{"a", "b", "c"} {
		all.Go(func() {
			if _, err := l.owner.place(context.Background(), allMachines, (&Order{Revoke: []Revocation{{Root: root}}}).change); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	l.must(p.ask())
	did := p.takeActions()
	for _, root := range []string{"a", "b", "c"} {
		if !strings.Contains(did, "revoke "+root) {
			t.Errorf("%s is not revoked: %s", root, did)
		}
	}
}

// A machine whose connection was lost asks for a lease when it is connected again, and not only
// when the next request is due: it may have missed an order. The machine does not wait for the
// answer that the lost connection would have brought.
func TestAsksWhenConnectedAgain(t *testing.T) {
	l := newLab(t)
	p := l.puppet("m1")
	asked := make(chan *nats.Msg, 8)
	_, err := l.owner.Bus.Conn.ChanSubscribe(l.owner.Names.lease("m1"), asked)
	l.must(err)
	l.must(l.owner.Bus.Conn.Flush())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { p.follow(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	for _, when := range []string{"at the start", "after the connection was lost with the answer", "after the connection was lost"} {
		select {
		case <-asked:
		case <-time.After(10 * time.Second): // a third of the lease is 20 s
			t.Fatalf("the machine does not ask %s", when)
		}
		if when != "at the start" {
			testkit.Until(t, "the machine has a lease", func() bool { return p.standing().LeftMS > 0 })
		}
		l.must(p.bus.Conn.ForceReconnect())
	}
}

// An agent whose machine has left the fleet ends. A machine that joins again needs a new agent: the
// old agent would ask for leases with the former membership.
func TestAgentEndsWithTheMembership(t *testing.T) {
	l := newLab(t)
	m := l.join("m1")
	dir, err := stateDir()
	l.must(err)
	begin := func() *agent {
		t.Helper()
		a, err := newAgent(m, []*Bus{l.owner.Bus}, dir, slog.New(slog.DiscardHandler), nil)
		l.must(err)
		return a
	}
	a := begin()
	if a.retireIfLeft(); a.isRetired() {
		t.Error("the agent ends, although the machine is a member")
	}
	isConfirmed, err := m.Leave(context.Background())
	l.must(err)
	if !isConfirmed {
		t.Error("the machine has left, and the keeper has not answered")
	}
	if a.retireIfLeft(); !a.isRetired() {
		t.Error("the agent goes on, although the machine has left")
	}
	m, err = Join(context.Background(), l.invite("m1"), nil)
	l.must(err)
	if a = begin(); a.isRetired() {
		t.Error("the agent of the new membership ends")
	}
}
