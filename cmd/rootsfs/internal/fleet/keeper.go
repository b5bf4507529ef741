package fleet

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// keeper gives leases. It confirms an order after the order is on its own disk: from then on it
// gives no lease to a machine that does not have the order.
type keeper struct {
	r      *registrar
	copies store // of orders

	mu     sync.Mutex             // guards the fields below
	orders map[string]signedOrder // by recipient
	// restored is a random identifier, set while the keeper lacks orders because its directory is an
	// older copy. It is "" if the directory has every order.
	restored string
	push     func(to string, order []byte) error
	// heard says when each machine asked for a lease the last time. A request that the bus repeats
	// counts, too.
	heard map[string]time.Time
}

// The kinds of the requests of machines and owners about leases and orders.
const (
	kindLease = "lease"
	kindOrder = "order"
)

// leaseRequest is a machine's request for a lease: the numbers of its charter and of the orders that
// it has, and the orders that a keeper lacked.
type leaseRequest struct {
	Charter   uint64            `json:"charter"`
	Heads     map[string]uint64 `json:"heads"`
	Orders    map[string][]byte `json:"orders,omitempty"`
	Enrolment []byte            `json:"enrolment,omitempty"` // record of the machine that a keeper has signed, for keepers that do not know the machine
}

// leaseAnswer is a keeper's answer, with the lease. The lease's time runs from the machine's
// request. The lease is valid only if the machine has the keeper's charter and the orders of Heads.
type leaseAnswer struct {
	Charters [][]byte          `json:"charters,omitempty"` // charters that the machine lacks; it gets no lease before it has them
	Heads    map[string]uint64 `json:"heads"`
	Orders   map[string][]byte `json:"orders,omitempty"`  // orders that the machine lacks
	Missing  []string          `json:"missing,omitempty"` // recipients of orders that the keeper lacks; it gives no lease before it has them
	LeaseMS  int64             `json:"lease_ms"`
	// Restored says that the keeper lacks orders, and gives no lease until an owner has brought them back.
	Restored  bool   `json:"restored,omitempty"`
	Enrolment []byte `json:"enrolment,omitempty"`
}

// newKeeper starts a keeper. It answers machines and owners until the connection is closed.
func newKeeper(r *registrar) (*keeper, error) {
	k := &keeper{r: r, copies: store{r.s.dir.file("keeper", "standing")}, orders: map[string]signedOrder{}, heard: map[string]time.Time{}}
	k.push = func(to string, order []byte) error { return r.s.Bus.Conn.Publish(r.s.Names.orders(to), order) }
	if err := k.begin(); err != nil {
		return nil, err
	}
	n := r.s.Names
	for subject, handle := range map[string]nats.MsgHandler{
		n.ofMachines("lease"): r.bounded(k.onLease),
		n.confirm():           fromOwner(r, kindOrder, k.order),
		n.machines():          fromOwner(r, kindMachines, k.machines),
	} {
		if _, err := r.s.Bus.Conn.Subscribe(subject, handle); err != nil {
			return nil, err
		}
	}
	return k, r.s.Bus.Conn.Flush()
}

// orderFor returns the keeper's order for a machine or all machines. The caller holds mu.
func (k *keeper) orderFor(c *Charter, to string) (signedOrder, error) {
	if h, ok := k.orders[to]; ok {
		return h, nil
	}
	h, err := k.copies.load(c, to)
	if err != nil {
		return h, fmt.Errorf("the keeper's copy of an order cannot be read: %w", err)
	}
	k.orders[to] = h
	return h, nil
}

// keep stores an order if it is newer than the keeper's, and pushes it to the machines. It returns the
// order that the keeper then has. The caller holds mu.
func (k *keeper) keep(c *Charter, to string, data []byte) (signedOrder, error) {
	old, err := k.orderFor(c, to)
	if err != nil {
		return old, err
	}
	h, isNewer, err := newer(data, c, to, old)
	if err != nil || !isNewer {
		return old, err
	}
	if err := k.copies.save(h); err != nil {
		return old, err
	}
	k.orders[to] = h
	if k.restored == "" {
		if err := k.r.s.dir.writeMark(k.heads()); err != nil {
			return old, err
		}
	}
	k.r.s.log.Info("an order is kept", "for", to, "number", h.Number)
	// A machine that misses this message gets the order with its next lease.
	return h, k.push(to, data)
}

// orderRequest is an owner's question for the keeper's order, or a step of giving a new one: see
// place.
type orderRequest struct {
	Charter uint64 `json:"charter"` // the number of the owner's charter
	For     string `json:"for"`
	Promise uint64 `json:"promise,omitempty"` // asks the keeper to promise this number to Attempt
	Attempt string `json:"attempt,omitempty"`
	Order   []byte `json:"order,omitempty"` // the order that the keeper has to keep
	Kept    bool   `json:"kept,omitempty"`  // Order was kept by a keeper before
	// Lost says that the keeper has lost an order which it had confirmed.
	Lost bool `json:"lost,omitempty"`
	// Restored has the keeper.restored of each keeper to which the owner has sent the lost orders.
	Restored []string `json:"restored,omitempty"`
	// Promised are the highest numbers that keepers have promised, for the keepers in Restored.
	Promised map[string]uint64 `json:"promised,omitempty"`
}

// orderAnswer is a keeper's answer to an orderRequest: the order that the keeper has, and its promise if
// the request asks for one.
type orderAnswer struct {
	Order    []byte  `json:"order,omitempty"`
	Promised promise `json:"promised"`
	Taken    bool    `json:"taken,omitempty"` // Order is the order of the request: the keeper had promised its number
	Restored string  `json:"restored,omitempty"`
}

// errRestored says that a restored keeper does not vote.
var errRestored = errors.New("the keeper was restored from an older copy; run: rootsfs fleet machines")

// order answers an orderRequest, after it has taken the step that the request asks for.
func (k *keeper) order(q orderRequest) (a orderAnswer, err error) {
	if q.For != allMachines {
		if err := CheckName("a machine", q.For); err != nil {
			return a, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	c, err := k.r.charter()
	if err != nil {
		return a, err
	}
	if q.Charter != c.Number { // the owner counts the votes of another charter's keepers
		return a, fmt.Errorf("the fleet has the charter %d, and the owner's is %d: give the command again", c.Number, q.Charter)
	}
	if q.Lost {
		k.distrust()
	}
	h, err := k.orderFor(c, q.For)
	if err != nil {
		return a, err
	}
	switch votes := q.Promise > 0 || len(q.Order) > 0 && !q.Kept; {
	case votes && k.restored != "":
		return a, errRestored
	case q.Promise > 0:
		a.Promised, err = k.promise(q.For, promise{q.Promise, q.Attempt}, h)
	case q.Kept:
		h, err = k.keep(c, q.For, q.Order)
	case len(q.Order) > 0:
		h, a.Taken, err = k.accept(c, q, h)
	}
	if err == nil && len(q.Restored) > 0 {
		err = k.trust(q.Restored, q.Promised)
	}
	a.Order, a.Restored = h.signed, k.restored
	return a, err
}

// keeperQuestion asks a keeper for its state.
type keeperQuestion struct {
	Charter uint64 `json:"charter"` // the number of the owner's charter
}

// keeperState is a keeper's answer to an owner: its charter, the machines, and the numbers of its
// orders.
type keeperState struct {
	Charter  uint64            `json:"charter"`
	Charters [][]byte          `json:"charters,omitempty"` // charters that the owner lacks
	Machines []machineRecord   `json:"machines"`
	Removed  []string          `json:"removed,omitempty"` // the invites of machines that were removed
	Heads    map[string]uint64 `json:"heads"`
	Promised map[string]uint64 `json:"promised,omitempty"`
	Restored string            `json:"restored,omitempty"` // see keeper.restored
}

// machines answers a keeperQuestion.
func (k *keeper) machines(q keeperQuestion) (keeperState, error) {
	c, err := k.r.charter()
	if err != nil {
		return keeperState{}, err
	}
	all, err := k.r.list()
	if err != nil {
		return keeperState{}, err
	}
	newer, err := k.r.s.dir.charters().since(q.Charter)
	if err != nil {
		return keeperState{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range all {
		rec := &all[i]
		rec.Heard, rec.Newest = k.heard[rec.Name], map[string]uint64{}
		for _, to := range []string{allMachines, rec.Name} {
			h, err := k.orderFor(c, to)
			if err != nil {
				return keeperState{}, err
			}
			rec.Newest[to] = h.Number
		}
	}
	promised, err := k.promises()
	return keeperState{c.Number, newer, all, k.r.removed(), k.heads(), promised, k.restored}, err
}

// onLease answers a machine that asks for a lease.
func (k *keeper) onLease(m *nats.Msg) {
	if err := k.r.learn(m); err != nil {
		k.r.s.log.Warn("a machine of another keeper is not known here", "subject", m.Subject, "error", err)
	}
	q, rec, err := openMachineRequest[leaseRequest](k.r, m, kindLease)
	if err != nil {
		k.r.s.log.Warn("a lease was not given", "subject", m.Subject, "error", err)
		if name := k.r.s.Names.machineOf(m.Subject); name != "" && rec == nil {
			// The answer ends the machine's waiting for this keeper.
			number, _ := numberOf(m.Data, k.r.s.Names.ID)
			answer(k.r, m, name, kindLease, number, leaseAnswer{}, err)
		}
		return
	}
	out, err := k.lease(rec.Name, q.Body)
	if err == nil {
		out.Enrolment, err = k.r.enrolment(rec, q.Body.Enrolment)
	}
	if err != nil {
		k.r.s.log.Error("a lease was not given", "machine", rec.Name, "error", err)
	}
	answer(k.r, m, rec.Name, kindLease, q.Number, out, err)
}

// lease answers a machine's request for a lease. It first keeps the orders that the request brings.
func (k *keeper) lease(machine string, q leaseRequest) (leaseAnswer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, err := k.r.charter()
	if err != nil {
		return leaseAnswer{}, err
	}
	k.heard[machine] = time.Now().UTC().Truncate(time.Second)
	a := leaseAnswer{Heads: map[string]uint64{}, Orders: map[string][]byte{}, LeaseMS: c.lease().Milliseconds()}
	for _, to := range []string{allMachines, machine} {
		h, err := k.orderFor(c, to)
		if err != nil {
			return leaseAnswer{}, err
		}
		if data := q.Orders[to]; data != nil {
			before := h.Number
			if h, err = k.keep(c, to, data); err != nil {
				return leaseAnswer{}, err
			}
			if h.Number > before && len(c.Keepers) == 1 {
				k.distrust() // this keeper gave the machine the order, has lost it, and may have lost other orders
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
	if len(a.Missing) > 0 || a.Restored || q.Charter != c.Number {
		a.LeaseMS = 0
	}
	a.Charters, err = k.r.s.dir.charters().since(q.Charter)
	return a, err
}
