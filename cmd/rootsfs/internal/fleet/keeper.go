package fleet

import (
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// keeper gives leases. It confirms an order after the order is on its own disk: from then on it
// gives no lease to a machine that does not have the order.
type keeper struct {
	r    *registrar
	kept store

	mu    sync.Mutex // guards the fields below
	held  map[string]held
	heard map[string]time.Time // when a machine last asked for a lease, unless the bus has repeated an old request
}

// The kinds of requests about leases and orders.
const (
	kindLease = "lease"
	kindOrder = "order"
)

// leaseRequest is a machine's request for a lease: the numbers of the orders that it has, and the
// orders that the keeper lacked.
type leaseRequest struct {
	Heads  map[string]uint64 `json:"heads"`
	Orders map[string][]byte `json:"orders,omitempty"`
}

// leaseAnswer is the lease. It counts from when the machine asked, and only if the machine has
// the orders of Heads.
type leaseAnswer struct {
	Heads   map[string]uint64 `json:"heads"`
	Orders  map[string][]byte `json:"orders,omitempty"`  // those that the machine lacks
	Missing []string          `json:"missing,omitempty"` // orders that the keeper lacks: there is no lease until it has them
	LeaseMS int64             `json:"lease_ms"`
}

// newKeeper answers machines and owners until the connection is closed.
func newKeeper(r *registrar) (*keeper, error) {
	k := &keeper{r: r, kept: store{r.s.dir.file("keeper", "standing")}, held: map[string]held{}, heard: map[string]time.Time{}}
	n := r.s.Names
	for subject, handle := range map[string]nats.MsgHandler{
		n.OfMachines("lease"): k.onLease,
		n.Confirm():           fromOwner(r, kindOrder, k.order),
		n.machines():          fromOwner(r, kindMachines, k.machines),
	} {
		if _, err := r.s.Bus.Conn.QueueSubscribe(subject, "keepers", handle); err != nil {
			return nil, err
		}
	}
	return k, r.s.Bus.Conn.Flush()
}

// of returns the order for a machine or all machines. The caller holds mu.
func (k *keeper) of(c *Charter, to string) (held, error) {
	if h, ok := k.held[to]; ok {
		return h, nil
	}
	h, err := k.kept.load(c, to)
	if err != nil {
		return h, fmt.Errorf("the keeper's copy of an order cannot be read: %w", err)
	}
	k.held[to] = h
	return h, nil
}

// take keeps an order if it is newer than the keeper's. The caller holds mu.
func (k *keeper) take(c *Charter, to string, data []byte) (held, error) {
	old, err := k.of(c, to)
	if err != nil {
		return old, err
	}
	h, isNewer, err := newer(data, c, to, old)
	if err != nil || !isNewer {
		return old, err
	}
	if err := k.kept.save(h); err != nil {
		return old, err
	}
	k.held[to] = h
	k.r.s.log.Info("an order is kept", "for", to, "number", h.Number)
	// A machine that does not hear it now gets it with its next lease.
	return h, k.r.s.Bus.Conn.Publish(k.r.s.Names.Orders(to), data)
}

// orderRequest gives an owner's order to the keeper. Without Order it asks for the keeper's.
type orderRequest struct {
	For   string `json:"for"`
	After uint64 `json:"after,omitempty"` // the number of the order that Order replaces
	Order []byte `json:"order,omitempty"`
}

// orderAnswer is the order that the keeper has. It is the one of the request unless another owner
// was first.
type orderAnswer struct {
	Order []byte `json:"order,omitempty"`
}

// order answers an owner. An order replaces the one that its owner has seen, and no other.
func (k *keeper) order(q orderRequest) (orderAnswer, error) {
	if q.For != allMachines {
		if err := CheckName("a machine", q.For); err != nil {
			return orderAnswer{}, err
		}
	}
	c, err := k.r.charter()
	if err != nil {
		return orderAnswer{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	h, err := k.of(c, q.For)
	if err == nil && len(q.Order) > 0 && h.Number == q.After {
		h, err = k.take(c, q.For, q.Order)
	}
	return orderAnswer{h.signed}, err
}

// machines returns all machines.
func (k *keeper) machines(struct{}) ([]machineRecord, error) {
	c, err := k.r.charter()
	if err != nil {
		return nil, err
	}
	all, err := k.r.list()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range all {
		rec := &all[i]
		rec.Heard, rec.Newest = k.heard[rec.Name], map[string]uint64{}
		for _, to := range []string{allMachines, rec.Name} {
			h, err := k.of(c, to)
			if err != nil {
				return nil, err
			}
			rec.Newest[to] = h.Number
		}
	}
	return all, nil
}

// onLease answers a machine that asks for a lease.
func (k *keeper) onLease(m *nats.Msg) {
	q, rec, err := ofMachine[leaseRequest](k.r, m, kindLease)
	if err != nil {
		k.r.s.log.Warn("a lease was not given", "subject", m.Subject, "error", err)
		return
	}
	out, err := k.lease(rec.Name, q.Body)
	if err != nil {
		k.r.s.log.Error("a lease was not given", "machine", rec.Name, "error", err)
	}
	answer(k.r, m, rec.Name, kindLease, q.Number, out, err)
}

// lease returns what the keeper answers to a machine's request.
func (k *keeper) lease(machine string, q leaseRequest) (leaseAnswer, error) {
	c, err := k.r.charter()
	if err != nil {
		return leaseAnswer{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard[machine] = time.Now().UTC().Truncate(time.Second)
	a := leaseAnswer{Heads: map[string]uint64{}, Orders: map[string][]byte{}, LeaseMS: c.lease().Milliseconds()}
	for _, to := range []string{allMachines, machine} {
		h, err := k.of(c, to)
		if err != nil {
			return leaseAnswer{}, err
		}
		if data := q.Orders[to]; data != nil {
			// This keeper was restored from an older copy, if the machine's order is newer.
			if h, err = k.take(c, to, data); err != nil {
				return leaseAnswer{}, err
			}
		}
		a.Heads[to] = h.Number
		switch {
		case h.Number > q.Heads[to]:
			a.Orders[to] = h.signed
		case h.Number < q.Heads[to]:
			a.Missing = append(a.Missing, to)
		}
		if h.Locked != "" {
			a.LeaseMS = 0
		}
	}
	if len(a.Missing) > 0 {
		a.LeaseMS = 0
	}
	return a, nil
}
