package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// errNoLease says that a keeper has answered, and given no lease.
var errNoLease = errors.New("the keeper gives no lease")

// errRetired says that the agent has to begin anew: with a newer charter, or another membership.
var errRetired = errors.New("the fleet has a new charter")

// renew asks the keepers for a lease. The lease counts from the moment of asking: however late the
// answers come, they give no more time.
func (a *agent) renew(ctx context.Context) error {
	a.mu.Lock()
	q := leaseRequest{Charter: a.m.Charter.Number, Heads: a.heads(), Orders: a.missing, Enrolment: a.m.enrolment}
	a.missing, a.sentMissing = nil, a.missing != nil
	a.mu.Unlock()
	asked, err := control.BootTime()
	if err != nil {
		return err
	}
	got, err := a.askKeepers(ctx, q)
	if err != nil {
		return err
	}
	next, splitErr := a.m.Charter.successor(got.of)
	if next != nil {
		return a.retire(next)
	}
	var errs []error
	for _, g := range got.of {
		for _, to := range a.recipients() {
			if data := g.Orders[to]; data != nil {
				errs = append(errs, a.receive(ctx, to, data))
			}
		}
	}
	if err := errors.Join(errs...); err != nil && len(got.of) == 1 {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.show()
	return errors.Join(splitErr, a.extend(ctx, asked, slices.Collect(maps.Values(got.of))...), a.enrol(got.of))
}

// askKeepers sends a request for a lease to all keepers.
func (a *agent) askKeepers(ctx context.Context, q leaseRequest) (got answers[leaseAnswer], err error) {
	c, asked := a.m.Charter, request[leaseRequest]{rand.Text(), q}
	data, err := seal(a.m.key, a.m.ID, kindLease, asked)
	if err != nil {
		return got, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	got = gather[leaseAnswer](ctx, a.buses, c, a.bus.Names.lease(a.m.Machine), kindLease, asked.Number, data)
	return got, got.requireOne()
}

// successor returns the charter that follows c by the answers of keepers of c; nil: none does. The
// charter must come from a keeper of c, because a former owner could sign another one. If the keepers
// bring different charters, the one that a majority brings counts: a keeper can help a former owner.
func (c *Charter) successor(of map[string]leaseAnswer) ([]byte, error) {
	by := map[string]int{}
	for _, g := range of {
		if len(g.Charters) == 0 {
			continue
		}
		if _, err := c.openSuccessor(g.Charters[0]); err == nil {
			by[string(g.Charters[0])]++
		}
	}
	for next, keepers := range by {
		if len(by) == 1 || keepers >= c.majority() {
			return []byte(next), nil
		}
	}
	if len(by) > 0 {
		return nil, errors.New("the keepers have different charters: an owner has to remove the false keeper")
	}
	return nil, nil
}

// retire stores the next charter and marks the agent as retired. It then returns errRetired. The keepers
// of that charter bring the charter after it.
func (a *agent) retire(next []byte) error {
	c, err := a.m.dir.charters().adopt(a.m.Charter, [][]byte{next})
	if c.Number == a.m.Charter.Number {
		return err
	}
	a.log.Info("the fleet has a new charter", "number", c.Number, "owners", len(c.Owners), "keepers", len(c.Keepers))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.retired = true
	return errRetired
}

// enrol keeps the record of this machine that a keeper has signed, unless the machine has a valid one.
// The caller holds mu.
func (a *agent) enrol(got map[string]leaseAnswer) error {
	for _, g := range got {
		if a.m.isEnrolled(a.m.enrolment) || !a.m.isEnrolled(g.Enrolment) {
			continue
		}
		a.m.enrolment = g.Enrolment
		return writeSynced(a.m.dir.enrolment(), g.Enrolment)
	}
	return nil
}

// extend first carries out the orders that are not carried out yet. If the answers have the leases of a
// majority and no order locks the machine, extend then writes the shortest of these leases. The lease
// counts from asked. The caller holds mu.
func (a *agent) extend(ctx context.Context, asked time.Duration, got ...leaseAnswer) error {
	for _, to := range a.recipients() {
		// The agent may have ended while it carried out an order, or a session did not answer.
		if a.applied[to] < a.known[to].Number {
			if err := a.settle(ctx, to); err != nil {
				return err
			}
		}
	}
	var refusals []error
	lease, given := a.m.Charter.lease(), 0
	for _, g := range got {
		one, err := a.leaseOf(g)
		if err != nil {
			refusals = append(refusals, err)
			continue
		}
		lease, given = min(lease, one), given+1
	}
	if a.lockReason() != "" {
		return nil
	}
	if most := a.m.Charter.majority(); given < most {
		if most > 1 {
			refusals = append(refusals, fmt.Errorf("%d of %d keepers give a lease, and %d are needed", given, len(a.m.Charter.Keepers), most))
		}
		return errors.Join(refusals...)
	}
	was := a.until
	a.until = max(a.until, asked+lease)
	if err := a.write(); err != nil {
		a.until = was // the sessions still read the earlier lease
		return err
	}
	return nil
}

// leaseOf returns the length of the lease in one keeper's answer. The caller holds mu.
func (a *agent) leaseOf(got leaseAnswer) (time.Duration, error) {
	for _, to := range a.recipients() {
		if a.known[to].Number < got.Heads[to] {
			return 0, fmt.Errorf("%w: the order %d for %s has not come", errNoLease, got.Heads[to], to)
		}
	}
	if len(got.Missing) > 0 {
		if a.missing == nil {
			a.missing = map[string][]byte{}
		}
		for _, to := range got.Missing {
			a.missing[to] = a.known[to].signed
		}
		if !a.sentMissing { // otherwise the last request had them, and the next one waits for its time
			a.askNow()
		}
		return 0, fmt.Errorf("%w: it lacks orders that this machine has; they are sent to it", errNoLease)
	}
	if got.Restored {
		return 0, fmt.Errorf("%w: it was restored from an older copy, and an owner has to run: rootsfs fleet machines", errNoLease)
	}
	if got.LeaseMS <= 0 {
		return 0, errNoLease
	}
	return time.Duration(got.LeaseMS) * time.Millisecond, nil
}
