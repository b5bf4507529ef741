package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// addKeeper adds a keeper, which runs in this process, to the fleet.
func (l *lab) addKeeper() *Server {
	l.Helper()
	free, err := net.Listen("tcp", "localhost:0")
	l.must(err)
	at := fmt.Sprintf("localhost:%d", free.Addr().(*net.TCPAddr).Port)
	l.must(free.Close())
	dir := ServerDir(filepath.Join(l.TempDir(), "keeper"))
	if serves, err := l.owner.AddKeeper(context.Background(), dir, at); serves || err != nil {
		l.Fatalf("a keeper that does not run serves: %v, %v", serves, err)
	}
	s, err := Start(dir, at, slog.New(slog.DiscardHandler))
	l.must(err)
	l.Cleanup(s.Stop)
	var serves bool
	if !testkit.Eventually(func() bool { // a busy keeper answers too late, and the owner is told to repeat
		serves, err = l.owner.AddKeeper(context.Background(), dir, at)
		return serves && err == nil
	}) {
		l.Fatalf("the keeper is not added: %v, %v", serves, err)
	}
	return s
}

// withNewestCharter starts a machine's agent again until it has the newest charter, and returns it.
func (l *lab) withNewestCharter(p *puppet) *puppet {
	l.Helper()
	for range 8 {
		err := p.ask()
		if !errors.Is(err, errRetired) {
			return p
		}
		closeAll(p.buses)
		p.m.Charter, _, err = p.m.dir.charters().load(p.m.ID)
		l.must(err)
		p = l.restart(p.m, filepath.Dir(filepath.Dir(p.copies.dir)))
	}
	l.Fatal("the agent retires again and again")
	return nil
}

// stopServer stops a server, and reconnects the owner.
func (l *lab) stopServer(s *Server) {
	l.Helper()
	s.Stop()
	l.owner.Close()
	l.connectOwner()
}

// startServer starts a stopped server again, and reconnects the owner.
func (l *lab) startServer(s *Server) *Server {
	l.Helper()
	again, err := Start(s.dir, s.Addr, slog.New(slog.DiscardHandler))
	l.must(err)
	l.Cleanup(again.Stop)
	l.owner.Close()
	l.connectOwner()
	return again
}

// waitConnected waits until an agent is connected to exactly the given number of servers.
func (l *lab) waitConnected(p *puppet, servers int) {
	l.Helper()
	testkit.Until(l, fmt.Sprintf("the agent is connected to %d servers", servers), func() bool {
		up := 0
		for _, b := range p.buses {
			if b.Conn.IsConnected() {
				up++
			}
		}
		return up == servers
	})
}

// Of three keepers, one may fail. A machine that joined when there was one keeper learns of the other
// two. One keeper alone gives no lease and takes no order. A machine that reaches a keeper with a lock
// and a keeper without it gets no lease. A removed machine gets no lease, even if one keeper did not run
// at the removal.
func TestThreeKeepers(t *testing.T) {
	l := newLab(t)
	p := l.puppet("m1")
	l.must(p.ask())
	l.give(revokeAll, 10*time.Second) // before there are others
	alone := l.owner.Charter
	second, third := l.addKeeper(), l.addKeeper()
	stale := *l.owner
	stale.Charter = alone
	if _, err := stale.askOrder(context.Background(), orderRequest{For: allMachines, Promise: nextNumber(0), Attempt: "A"}); err == nil {
		t.Error("the first keeper promises a number to an owner who does not know the others")
	}
	p = l.withNewestCharter(p)
	if err := p.ask(); err != nil || len(p.m.Charter.Keepers) != 3 || len(p.buses) != 3 {
		t.Fatalf("with three keepers: %v", err)
	}
	late := l.puppet("m2") // the machine joins through one keeper
	l.must(late.ask())
	if err := late.ask(); err != nil {
		t.Errorf("the others do not know a machine that one has enrolled: %v", err)
	}
	p.takeActions()

	third.Stop() // the third keeper misses an order
	l.stopServer(third)
	if out := l.give(Order{Lock: "fire"}, 10*time.Second); !out.Done() {
		t.Errorf("with two of three keepers: %+v", out)
	}
	l.stopServer(second)
	if _, err := l.owner.Give(context.Background(), Order{Unlock: true}, time.Second); err == nil || !strings.Contains(err.Error(), "1 of 3 keepers answer, and 2 are needed") {
		t.Errorf("one keeper takes an order: %v", err)
	}
	// The machine has missed the order, too. It reaches one keeper that has the order, and one that
	// lacks it.
	l.startServer(third)
	closeAll(p.buses)
	p = l.restart(p.m, t.TempDir())
	l.waitConnected(p, 2)
	l.must(p.ask())
	if did := p.takeActions(); !strings.Contains(did, `locked "fire"`) || strings.Contains(did, "lease of true") {
		t.Errorf("the keeper that has missed the order gives a lease: %s", did)
	}
	if out := l.give(Order{Unlock: true}, 10*time.Second); !out.Done() {
		t.Errorf("with another two: %+v", out)
	}
	l.must(p.ask())
	l.stopServer(l.server)
	l.waitConnected(p, 1)
	if err := p.ask(); err == nil || !strings.Contains(err.Error(), "1 of 3 keepers give a lease, and 2 are needed") {
		t.Errorf("one keeper gives a lease: %v", err)
	}
	// A machine is removed while one keeper that knows it fails.
	l.startServer(second)
	l.must(l.owner.Remove(context.Background(), "m2"))
	l.startServer(l.server)
	if err := late.ask(); err == nil {
		t.Error("a removed machine gets a lease")
	}
	all, err := l.owner.Machines(context.Background(), 50*time.Millisecond) // none answers
	if l.must(err); len(all) != 1 || all[0].Name != "m1" {
		t.Errorf("the machines are %+v", all)
	}
}

// Owners exchange an owner's key and a keeper's key: they add the new key and remove the former one. The
// orders of the former owner still hold. Charters and new orders of the former owner are not accepted. A
// machine needs the former keeper no more.
func TestExchangeOfKeys(t *testing.T) {
	l := newLab(t)
	ctx := context.Background()
	p := l.puppet("m1")
	l.must(p.ask())
	l.give(Order{Lock: "fire"}, 10*time.Second)
	former, other := l.owner, t.TempDir()+"/owner"
	_, err := l.owner.AddOwner(ctx, other)
	l.must(err)
	l.home = t.TempDir() // the new owner's
	dir := filepath.Join(l.home, ".local/state/rootsfs/fleet/owner")
	l.must(copyFiles(other, dir))
	l.connectOwner()
	l.must(l.owner.Amend(ctx, RemoveOwner(keyName(former.key.Public()))))
	former.Charter = l.owner.Charter
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := former.order(short, orderRequest{For: allMachines, Promise: nextNumber(0), Attempt: "A"}); err == nil {
		t.Error("a keeper listens to a former owner")
	}
	evil := newTestKey(t)
	l.forge(former, evil)
	p = l.withNewestCharter(p)
	if p.m.Charter.isKeeper(evil.Public()) || p.m.Charter.isOwner(former.key.Public()) {
		t.Error("the machine follows the charter of a former owner")
	}
	late := l.puppet("m2")
	l.must(late.ask())
	if p.lockReason() != "fire" || late.lockReason() != "fire" {
		t.Error("the order of a former owner does not hold")
	}
	if err := p.receive(ctx, allMachines, sealedBy(t, former.key, p, nextNumber(p.known[allMachines].Number))); err == nil {
		t.Error("the machine takes a former owner's order")
	}
	if out := l.give(Order{Unlock: true}, 10*time.Second); !out.Done() {
		t.Errorf("the new owner's order: %+v", out)
	}
	if err := l.owner.Amend(ctx, RemoveOwner(keyName(l.owner.key.Public()))); err == nil {
		t.Error("the last owner is removed")
	}
	first := l.server
	here, err := DefaultServerDir()
	l.must(err)
	l.must(copyFiles(string(first.dir), string(here)))
	l.server = l.addKeeper()
	l.must(l.owner.Amend(ctx, RemoveKeeper(keyName(first.keeperKey(t).Public()))))
	p = l.withNewestCharter(p)
	if err := p.ask(); err != nil || len(p.m.Charter.Keepers) != 1 {
		t.Errorf("a lease of the new keeper: %v", err)
	}
	l.stopServer(first)
	if err := p.ask(); err != nil {
		t.Errorf("without the former keeper: %v", err)
	}
}

// An owner who is several charters behind may follow an intermediate charter without giving it to the
// keepers. The owner does so only if a majority of the keepers has answered and none has another charter
// with the same number: a keeper can bring a charter that a former owner has signed.
func TestChartersAreAgreed(t *testing.T) {
	o := &Owner{Charter: &Charter{Keepers: []string{"a", "b", "c"}}}
	second, third, fork := []byte("second"), []byte("third"), []byte("fork")
	knows := func(list ...[]byte) keeperState { return keeperState{Charters: list} }
	for name, c := range map[string]struct {
		state map[string]keeperState
		want  bool
	}{
		"two have it":               {map[string]keeperState{"a": knows(second, third), "b": knows(second)}, true},
		"one is behind":             {map[string]keeperState{"a": knows(second, third), "b": knows()}, true},
		"one has another second":    {map[string]keeperState{"a": knows(second, third), "b": knows(fork, third)}, false},
		"one of three has answered": {map[string]keeperState{"a": knows(second, third)}, false},
	} {
		if got := o.isAgreed(c.state, 0, second); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// An owner who has missed several charters follows them. No owner can remove himself: his orders, such
// as a lock, would hold no more. If another owner removes him, his newest order is still found.
func TestOwnerFollowsCharters(t *testing.T) {
	l := newLab(t)
	ctx := context.Background()
	l.give(Order{Lock: "fire"}, time.Millisecond)
	first, other := l.owner, t.TempDir()+"/owner"
	_, err := first.AddOwner(ctx, other)
	l.must(err)
	for _, name := range []string{"/third", "/fourth"} {
		_, err := first.AddOwner(ctx, t.TempDir()+name)
		l.must(err)
	}
	if err := first.Amend(ctx, RemoveOwner(keyName(first.key.Public()))); err == nil || !strings.Contains(err.Error(), "an owner is removed by another one") {
		t.Errorf("an owner removes himself: %v", err)
	}
	l.home = t.TempDir() // the other owner's
	l.must(copyFiles(other, filepath.Join(l.home, ".local/state/rootsfs/fleet/owner")))
	l.connectOwner()
	if _, err := l.owner.syncKeepers(ctx); err != nil || l.owner.Charter.Number != 4 {
		t.Errorf("the other owner has charter %d: %v", l.owner.Charter.Number, err)
	}
	l.must(l.owner.Amend(ctx, RemoveOwner(keyName(first.key.Public()))))
	if _, err := l.owner.current(ctx, allMachines); err != nil {
		t.Errorf("the newest order, after the owner who gave it was removed: %v", err)
	}
}

// forge answers machines that ask for a lease. The answer has a charter with the number 2 that a former
// owner has signed. The answer is signed by evil, the keeper of that charter.
func (l *lab) forge(former *Owner, evil *Key) {
	l.Helper()
	fork, err := seal(former.key, former.Names.ID, kindCharter, Charter{
		Fleet: former.Names.ID, Number: 2, Owners: []string{former.key.Public()}, Keepers: []string{evil.Public()}, LeaseMS: former.Charter.LeaseMS,
	})
	l.must(err)
	_, err = l.owner.Bus.Conn.Subscribe(l.owner.Names.ofMachines("lease"), func(m *nats.Msg) {
		number, err := numberOf(m.Data, former.Names.ID)
		if err != nil {
			return
		}
		data, err := seal(evil, former.Names.ID, kindLease+replySuffix, reply[leaseAnswer]{Number: number, Body: leaseAnswer{Charters: [][]byte{fork}}})
		if err == nil {
			_ = m.Respond(data)
		}
	})
	l.must(err)
	l.must(l.owner.Bus.Conn.Flush())
}

// A charter is refused if it removes two keepers at once, changes the lease, has a key twice or lacks
// the server of a keeper.
func TestRefusedCharters(t *testing.T) {
	owner := newTestKey(t)
	c := &Charter{Fleet: "acme-a", Number: 3, Owners: []string{owner.Public()}, Keepers: []string{"a", "b", "c"}, Servers: []string{"a:1", "b:1", "c:1"}, LeaseMS: 1000}
	for what, change := range map[string]func(*Charter){
		"":                       func(*Charter) {},
		"removes two keepers":    func(n *Charter) { n.Keepers, n.Servers = n.Keepers[:1], n.Servers[:1] },
		"another lease":          func(n *Charter) { n.LeaseMS = 2000 },
		"a key twice":            func(n *Charter) { n.Keepers = []string{"a", "b", "b"} },
		"a keeper has no server": func(n *Charter) { n.Servers = n.Servers[:2] },
	} {
		next := *c
		next.Number++
		change(&next)
		data, err := seal(owner, c.Fleet, kindCharter, next)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.openSuccessor(data); (err == nil) != (what == "") {
			t.Errorf("%q: %v", what, err)
		}
	}
}

// sealedBy returns an order for all machines that a key has signed.
func sealedBy(t *testing.T, k *Key, p *puppet, number uint64) []byte {
	data, err := seal(k, p.m.ID, kindStanding, Standing{For: allMachines, Number: number})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// newTestKeeper returns a keeper of a charter, without a bus.
func newTestKeeper(t *testing.T, c *Charter, owner *Key) *keeper {
	dir := ServerDir(t.TempDir())
	r := &registrar{s: &Server{Names: Names{c.Fleet}, dir: dir, log: slog.New(slog.DiscardHandler)}}
	data, err := seal(owner, c.Fleet, kindCharter, c)
	if err := errors.Join(err, writeSynced(dir.charters().newest(), data), dir.writeMark(nil)); err != nil {
		t.Fatal(err)
	}
	return &keeper{r: r, copies: store{dir.file("keeper", "standing")}, orders: map[string]signedOrder{}, push: func(string, []byte) error { return nil }}
}

// Owners give orders to keepers at the same time, and some of the requests and answers are lost. In the
// end, the order of each keeper contains every confirmed order with the same or a lower number.
func TestPromises(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &Charter{Fleet: "acme-aaaaaaaaaaaa", Number: 1, LeaseMS: 1000}
	var keepers []*keeper
	key := newTestKey(t)
	c.Owners = []string{key.Public()}
	for i := range 3 {
		c.Keepers = append(c.Keepers, fmt.Sprint("keeper ", i))
	}
	for range c.Keepers {
		keepers = append(keepers, newTestKeeper(t, c, key))
	}
	type confirmed struct {
		number uint64
		root   string
	}
	var mu sync.Mutex
	var all []confirmed
	var wait sync.WaitGroup
	for owner := range 3 {
		r := rand.New(rand.NewPCG(seed, uint64(owner)))
		o := &Owner{Names: Names{c.Fleet}, Charter: c, key: key, copies: store{t.TempDir()}}
		o.order = func(_ context.Context, q orderRequest) (map[string]orderAnswer, error) {
			q.Charter = c.Number
			got := answers[orderAnswer]{of: map[string]orderAnswer{}, errNone: errors.New("nobody answers")}
			for _, i := range r.Perm(len(keepers)) {
				heard, answered := r.IntN(10) > 0, r.IntN(10) > 0
				if !heard {
					continue
				}
				if a, err := keepers[i].order(q); err == nil && answered {
					got.of[c.Keepers[i]] = a
				}
				time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
			}
			return got.of, got.requireMajority(c)
		}
		wait.Go(func() {
			for i := range 8 {
				root := fmt.Sprintf("%d-%d", owner, i)
				h, err := o.place(context.Background(), allMachines, (&Order{Revoke: []Revocation{{Root: root}}}).change)
				if err == nil {
					mu.Lock()
					all = append(all, confirmed{h.Number, root})
					mu.Unlock()
				}
				if r.IntN(3) == 0 { // an owner may bring the keepers the newest order at any time
					_, _ = o.current(context.Background(), allMachines)
				}
			}
		})
	}
	wait.Wait()
	if len(all) < 6 {
		t.Fatalf("only %d orders were confirmed", len(all))
	}
	for i, k := range keepers {
		h := k.orders[allMachines]
		for _, one := range all {
			has := slices.ContainsFunc(h.Revoked, func(r Revocation) bool { return r.Root == one.root })
			if h.Number >= one.number && !has {
				t.Errorf("keeper %d has the order %d, without %q of the confirmed order %d", i, h.Number, one.root, one.number)
			}
		}
	}
}
