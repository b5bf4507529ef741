package guard

import (
	"context"
	"slices"

	"github.com/rootsfs/rootsfs/guard/ledger"
)

// useOf describes an operation to the ledger.
func useOf(r *Request) ledger.Use {
	return ledger.Use{Op: r.Op, Subject: r.Caller.Subject, Via: r.Caller.Via, Quiet: r.Quiet, Dry: r.Dry != nil}
}

// useOnce admits the operation on a root for one use, or refuses it. If the use begins with
// the operation, the lease notes the root for endUses.
func (c Charges) useOnce(r *root) error {
	if c.l.notes != nil && slices.Contains(c.l.notes.uses, r) {
		return nil // admitted already, before it waited
	}
	began, err := r.once.Admit(useOf(&c.l.req))
	if began {
		c.l.Notes().ensure().uses = append(c.l.notes.uses, r)
	}
	return err
}

// endUses calls once.End for the uses that began with the operation.
func (c Charges) endUses(used bool) {
	if c.l.notes == nil || len(c.l.notes.uses) == 0 {
		return
	}
	for _, r := range c.l.notes.uses {
		if r.once.End(used) {
			c.l.reg.spend(r)
		}
	}
	c.l.notes.uses = nil
}

// countClose counts a file as closed in the roots for one use that the file was opened through.
func (g *Registry) countClose(h *Hold) {
	for _, r := range append([]*root{h.root}, h.crossed...) {
		if r.once != nil && r.once.RemoveOpen() {
			g.spend(r)
		}
	}
}

// spend ends a root whose one use is over. It returns before the root has ended: the end waits for
// operations in flight, and spend may be called by one of them.
func (g *Registry) spend(r *root) {
	go func() { _, _ = g.end(context.Background(), r, SpentState) }() // its failure is in the event and the record
}
