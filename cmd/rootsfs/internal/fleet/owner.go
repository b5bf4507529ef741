package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Order is an owner's order to machines.
type Order struct {
	Machines []string     // none: all machines, also those that join later
	Revoke   []Revocation // the roots and hosts that end
	Lock     string       // why the machines are locked
	Unlock   bool
	Ceiling  *string // the text of the new ceiling; "": the ceiling is removed; nil: it stays
}

// OrderState says how far a machine has carried out an order.
type OrderState string

// The states of orders.
const (
	OrderDone       OrderState = "done"
	OrderIncomplete OrderState = "incomplete" // new accesses are refused; some calls may still take effect
	OrderNoAnswer   OrderState = "no_answer"
)

// MachineOutcome is the outcome of an order on one machine.
type MachineOutcome struct {
	Name   string        `json:"name"`
	Number uint64        `json:"number"`
	State  OrderState    `json:"state"`
	TookMS float64       `json:"took_ms,omitempty"` // by the machine's clock
	Locked names.Foreign `json:"locked,omitempty"`  // why the machine is locked, by this or another order
	Ended  []Ended       `json:"ended,omitempty"`
	More   int           `json:"more,omitempty"` // further roots that ended
}

// Outcome is the outcome of an order. From DeadBy on, the order holds also on the machines that
// have not answered. DeadBy is nil if that time is unknown, because the fleet has no leases or the
// order gives something back.
type Outcome struct {
	Fleet    string           `json:"fleet"`
	DeadBy   *time.Time       `json:"dead_by,omitempty"`
	Machines []MachineOutcome `json:"machines"`
}

// Done reports whether every machine has carried out the order.
func (o *Outcome) Done() bool {
	return !slices.ContainsFunc(o.Machines, func(m MachineOutcome) bool { return m.State != OrderDone })
}

// The bounds of giving an order.
const (
	pushTime   = time.Second // between two pushes, while some machines have not answered
	leaseSlack = time.Second // for the machine to notice the end of its lease
)

// Give gives an order. It returns when all machines have answered, wait is over or ctx ends. After an
// error, the order may hold on none, some or all of the machines.
func (o *Owner) Give(ctx context.Context, order Order, wait time.Duration) (Outcome, error) {
	recs, err := o.recipients(ctx, order.Machines)
	if err != nil {
		return Outcome{}, err
	}
	acks := make(chan *nats.Msg, (4*len(recs)+64)*len(o.buses))
	for _, b := range o.buses { // a machine acknowledges on every server
		sub, err := b.Conn.ChanSubscribe(o.Names.ofMachines("ack"), acks)
		if err != nil {
			return Outcome{}, err
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	to := order.Machines
	if len(to) == 0 {
		to = []string{allMachines}
	}
	placed := map[string]signedOrder{}
	for _, one := range to {
		if placed[one], err = o.place(ctx, one, order.change); err != nil {
			return Outcome{}, err
		}
	}
	out := Outcome{Fleet: o.Names.Name(), Machines: []MachineOutcome{}}
	// A majority of the keepers has confirmed the order before now. None of these keepers has given
	// a lease to a machine without the order since then.
	if lease := o.Charter.lease(); lease != forever && !order.lifts() {
		// While clocks are corrected slowly, they run too fast or too slow by a thousandth at most,
		// CLOCK_BOOTTIME included.
		by := time.Now().Add(lease + lease/1000 + 2*leaseSlack).UTC().Truncate(time.Second)
		out.DeadBy = &by
	}
	for _, rec := range recs {
		out.Machines = append(out.Machines, MachineOutcome{Name: rec.Name, Number: orderOf(placed, rec.Name).Number, State: OrderNoAnswer})
	}
	o.collect(ctx, placed, recs, acks, wait, &out)
	return out, nil
}

// change writes what the owner orders into s, the next Standing.
func (order *Order) change(s *Standing) {
	for _, r := range order.Revoke {
		r.Number = s.Number
		s.Revoked = append(s.Revoked, r)
	}
	if order.Lock != "" || order.Unlock {
		s.Locked = order.Lock
	}
	if order.Ceiling != nil {
		s.Ceiling = s.Ceiling.next(*order.Ceiling)
	}
}

// lifts reports whether the order gives something back: it unlocks the machines or removes their ceiling.
// A machine that does not hear such an order still follows the previous order.
func (order *Order) lifts() bool {
	return order.Unlock || order.Ceiling != nil && *order.Ceiling == ""
}

// orderOf returns the order that was placed for a machine.
func orderOf(placed map[string]signedOrder, machine string) signedOrder {
	if h, ok := placed[machine]; ok {
		return h
	}
	return placed[allMachines]
}

// recipients returns the named machines, or all machines if none is named.
func (o *Owner) recipients(ctx context.Context, which []string) ([]machineRecord, error) {
	recs, err := o.list(ctx)
	if err != nil || len(which) == 0 {
		return recs, err
	}
	for _, name := range which {
		if !slices.ContainsFunc(recs, func(rec machineRecord) bool { return rec.Name == name }) {
			return nil, &control.Error{Class: control.NoSuch, Text: fmt.Sprintf("there is no machine %s; see: rootsfs fleet machines", names.Quote(name))}
		}
	}
	return slices.DeleteFunc(recs, func(rec machineRecord) bool { return !slices.Contains(which, rec.Name) }), nil
}

func ownCopyError(err error) error {
	return fmt.Errorf("the owner's copy of an order cannot be read: %w", err)
}

// collect notes the answers of the machines in out. It pushes the orders again until all machines
// have answered, wait is over or ctx ends.
func (o *Owner) collect(ctx context.Context, placed map[string]signedOrder, recs []machineRecord, acks <-chan *nats.Msg, wait time.Duration, out *Outcome) {
	timeout, again := time.NewTimer(wait), time.NewTicker(pushTime)
	defer timeout.Stop()
	defer again.Stop()
	for missing := len(recs); missing > 0; {
		select {
		case m := <-acks:
			i, k := o.ackOf(recs, m)
			if i < 0 || out.Machines[i].State != OrderNoAnswer || k.Sum != hashOf(orderOf(placed, k.Machine).signed) {
				continue
			}
			one := &out.Machines[i]
			one.State, one.TookMS, one.Locked, one.Ended, one.More = OrderDone, k.TookMS, k.Locked, k.Ended, k.More
			if slices.ContainsFunc(k.Ended, func(e Ended) bool { return e.Error != "" }) {
				one.State = OrderIncomplete
			}
			missing--
		case <-again.C:
			// The keeper has pushed each order once. A machine that connected later has missed it.
			for to, h := range placed {
				for _, b := range o.buses {
					_ = b.Conn.Publish(o.Names.orders(to), h.signed) // after an error, a machine may miss the order: out then shows no answer
				}
			}
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// ackOf returns the index in recs of the machine that has signed an ack, and the ack; -1: none of
// these machines has signed it.
func (o *Owner) ackOf(recs []machineRecord, m *nats.Msg) (int, ack) {
	var k ack
	by, err := openSigned(m.Data, o.Names.ID, kindAck, anyKey, &k)
	if err != nil {
		return -1, k
	}
	return slices.IndexFunc(recs, func(rec machineRecord) bool { return rec.Name == k.Machine && rec.Signing == by }), k
}
