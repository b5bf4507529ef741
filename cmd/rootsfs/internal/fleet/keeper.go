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

	mu   sync.Mutex // guards the fields below
	held map[string]held
	// restored is a number of this start if the directory is an older copy; "": its orders are all.
	restored string
	heard    map[string]time.Time // when a machine last asked for a lease, unless the bus has repeated an old request
}

// The kinds of what machines and owners ask about leases and orders.
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
	// Restored says that the keeper lacks orders, and gives no lease until an owner has brought them back.
	Restored bool `json:"restored,omitempty"`
}

// newKeeper answers machines and owners until the connection is closed.
func newKeeper(r *registrar) (*keeper, error) {
	k := &keeper{r: r, kept: store{r.s.dir.file("keeper", "standing")}, held: map[string]held{}, heard: map[string]time.Time{}}
	if err := k.begin(); err != nil {
		return nil, err
	}
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
	if k.restored == "" {
		if err := k.r.s.dir.writeMark(k.heads()); err != nil {
			return old, err
		}
	}
	k.r.s.log.Info("an order is kept", "for", to, "number", h.Number)
	// A machine that does not hear it now gets it with its next lease.
	return h, k.r.s.Bus.Conn.Publish(k.r.s.Names.Orders(to), data)
}

// orderRequest is an owner's order, or without one a question for the keeper's.
type orderRequest struct {
	For   string `json:"for"`
	After uint64 `json:"after,omitempty"` // the number of the order that Order replaces
	Order []byte `json:"order,omitempty"`
	// Lost says that the keeper has lost an order which it had confirmed.
	Lost bool `json:"lost,omitempty"`
	// Restored says that the owner has brought back what the keeper with this number lacked.
	Restored string `json:"restored,omitempty"`
}

// orderAnswer is the order that the keeper has. It is the one of the request unless another owner
// was first.
type orderAnswer struct {
	Order    []byte `json:"order,omitempty"`
	Restored string `json:"restored,omitempty"`
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
	if q.Lost {
		k.distrust()
	}
	h, err := k.of(c, q.For)
	if err == nil && len(q.Order) > 0 && h.Number == q.After {
		h, err = k.take(c, q.For, q.Order)
	}
	if err == nil && q.Restored != "" {
		err = k.trust(q.Restored)
	}
	return orderAnswer{h.signed, k.restored}, err
}

// keeperState is what a keeper tells an owner: the machines, and the numbers of its orders.
type keeperState struct {
	Machines []machineRecord   `json:"machines"`
	Heads    map[string]uint64 `json:"heads"`
	Restored string            `json:"restored,omitempty"` // see keeper.restored
}

// machines returns all machines.
func (k *keeper) machines(struct{}) (keeperState, error) {
	c, err := k.r.charter()
	if err != nil {
		return keeperState{}, err
	}
	all, err := k.r.list()
	if err != nil {
		return keeperState{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range all {
		rec := &all[i]
		rec.Heard, rec.Newest = k.heard[rec.Name], map[string]uint64{}
		for _, to := range []string{allMachines, rec.Name} {
			h, err := k.of(c, to)
			if err != nil {
				return keeperState{}, err
			}
			rec.Newest[to] = h.Number
		}
	}
	return keeperState{all, k.heads(), k.restored}, nil
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
			lacked := h.Number
			if h, err = k.take(c, to, data); err != nil {
				return leaseAnswer{}, err
			}
			if h.Number > lacked {
				k.distrust() // machines get their orders from this keeper: it had that one, and perhaps others
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
	a.Restored = k.restored != ""
	if len(a.Missing) > 0 || a.Restored {
		a.LeaseMS = 0
	}
	return a, nil
}
