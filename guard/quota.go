package guard

import (
	"context"

	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Quotas at the gate. At admission an operation reserves the most that it may use, and at its
// end it gives back the unused part. It does so on several accounts: the root's, those of the
// nested roots that it enters, and its subject's, which is one account for all roots. A reservation
// counts as use, so that concurrent operations cannot exceed a quota together. An operation whose
// reservation would exceed a quota is refused.

// Charges are the charges of an operation to quotas. They also count the operation as the use of a
// root that is granted for one use.
type Charges struct{ l *Lease }

// Charges returns the charges of the operation.
func (l *Lease) Charges() Charges { return Charges{l} }

// reserve charges the quotas with the most that the operation may use. Settle refunds the part that
// the operation did not use.
func (c Charges) reserve() error {
	req := &c.l.req
	var bytes int64
	if isWrite(req.Op) {
		bytes = req.Bytes
	}
	if bytes == 0 && req.Names == 0 && req.Size == 0 {
		return nil
	}
	if req.Names > 0 || len(c.l.nesting.nested) > 0 || len(c.l.crossed) > 0 {
		c.l.Notes().ensure()
	}
	subject := c.l.reg.quotas.Of(req.Caller.Subject)
	if err := c.charge(&c.l.root.Account, c.l.root.name, bytes, req.Size, req.Names); err != nil {
		return err
	}
	c.l.reserved, c.l.written, c.l.created = true, bytes, req.Names
	if subject != nil {
		if err := c.charge(subject, "", bytes, req.Size, req.Names); err != nil {
			return err
		}
		c.l.subject = subject
	}
	for _, x := range c.l.crossed {
		if err := c.chargeNested(x.root); err != nil {
			return err
		}
	}
	return nil
}

// chargeNested charges the amounts that the lease has reserved to the account of a nested root,
// which the operation has entered.
func (c Charges) chargeNested(r *root) error {
	if !c.l.reserved || c.l.notes == nil {
		return nil // the operation charges nothing, or reserve has yet to run
	}
	if err := c.charge(&r.Account, r.name, c.l.written, c.l.req.Size, c.reservedNames()); err != nil || c.l.req.Dry != nil {
		return err
	}
	c.l.notes.mu.Lock()
	defer c.l.notes.mu.Unlock()
	c.l.notes.chargedNested = append(c.l.notes.chargedNested, &r.Account)
	return nil
}

// charge is Account.Charge. name is the name of the account's root. It is "" for the subject's account,
// and in Add, which does not know whose account it charges.
func (c Charges) charge(a *ledger.Account, name RootName, bytes, size, created int64) error {
	err := a.Charge(bytes, size, created, c.l.req.Dry != nil)
	if err != nil {
		c.l.req.Dry.note(Step{Kind: StepLimit, Root: name, Refused: true})
	}
	return err
}

// reservedNames returns how many names the lease has reserved so far.
func (c Charges) reservedNames() int64 {
	if c.l.notes == nil {
		return c.l.created
	}
	return c.l.created + c.l.notes.chargedNames.Load()
}

// accounts yields every account that the lease has charged.
func (c Charges) accounts(yield func(*ledger.Account) bool) {
	if !c.l.reserved || !yield(&c.l.root.Account) || c.l.subject != nil && !yield(c.l.subject) || c.l.notes == nil {
		return
	}
	c.l.notes.mu.Lock()
	nested := c.l.notes.chargedNested
	c.l.notes.mu.Unlock()
	for _, a := range nested {
		if !yield(a) {
			return
		}
	}
}

// becomeOpen turns the request of a create into that of an opening.
func (r *Request) becomeOpen(need Rights) {
	r.Op, r.Need, r.Names = names.OpOpen, need, 0
}

// isWrite reports whether the bytes of an operation are charged to the quota of bytes
// written. Allocating counts, too, because it takes space on the disk.
func isWrite(op Op) bool {
	return op == names.OpWrite || op == names.OpCopyFileRange || op == names.OpReplace || op == names.OpAllocate
}

// Settle refunds what was reserved and not used. The operation used n bytes.
func (c Charges) Settle(n int64, err error) {
	if err != nil && c.l.req.Op == names.OpAllocate {
		n = 0 // it writes everything or nothing
	}
	reserved, existed := c.l.written, false
	if c.l.notes != nil {
		reserved += c.l.notes.chargedBytes.Load()
		existed = c.l.notes.existed.Load()
	}
	if !isWrite(c.l.req.Op) && n > 0 {
		c.l.root.read.Add(n)
		n = 0
	}
	unusedNames := int64(0)
	if err != nil || existed {
		unusedNames = c.reservedNames()
	}
	for a := range c.accounts {
		a.Refund(reserved-n, unusedNames)
	}
	c.l.req.Quiet = c.l.req.Quiet || existed && c.l.req.Op != names.OpOpen
}

// Add reserves more while the operation runs. It is for operations that do not know the amounts
// before: bytes to write, names to create, or the size of the file. It charges every account of
// the lease, or none. Negative amounts give back.
func (c Charges) Add(bytes, size, created int64) error {
	charged := 0
	for a := range c.accounts {
		if err := c.charge(a, "", bytes, size, created); err != nil {
			for b := range c.accounts {
				if charged == 0 {
					return err
				}
				b.Refund(bytes, created)
				charged--
			}
			return err
		}
		if c.l.req.Dry == nil {
			charged++
		}
	}
	if c.l.notes != nil {
		c.l.notes.chargedBytes.Add(bytes)
		c.l.notes.chargedNames.Add(created)
	}
	return nil
}

// BoundFiles reports whether a limit bounds the size of files. If so, operations that make a
// file longer have to find out its size.
func (c Charges) BoundFiles() bool {
	for a := range c.accounts {
		if a.BoundsFiles() {
			return true
		}
	}
	return false
}

// SetQuotas sets the bounds of subjects over all their roots together, in place of the earlier
// quotas. Earlier use still counts. Callers without a subject are bounded by their roots only.
func (g *Registry) SetQuotas(bounds map[Subject]ledger.Quota) { g.quotas.Set(bounds) }

// Usage lists the subjects that have an account, by name.
func (g *Registry) Usage() []ledger.Usage { return g.quotas.Usage() }

// acquireBytes takes n of the root's budget of bytes in flight. It waits until the budget has
// room, or ctx or the root ends.
func acquireBytes(ctx context.Context, r *root, n int64) error {
	for {
		changed, ok := r.bytes.TryAcquire(n)
		if ok {
			return nil
		}
		if err := waitFor(ctx, r, changed); err != nil {
			return err
		}
	}
}
