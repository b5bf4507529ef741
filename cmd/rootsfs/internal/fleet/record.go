package fleet

import (
	"fmt"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// RecordsSession names the session under which a machine's audit log has the acts of its agent. The
// end of a root is also on record in the root's own session.
const RecordsSession = "fleet"

// recordOf begins the record of an act that an order demands.
func (a *agent) recordOf(op names.Op, h signedOrder) guard.Record {
	owner := "owner " + keyName(h.by)
	return guard.Record{
		Time: time.Now(), Via: guard.ViaControl, Op: op, Verdict: guard.Allowed,
		Facts:  guard.Facts{Origin: owner},
		Detail: fmt.Sprintf("order %d for %s by %s", h.Number, h.For, owner),
	}
}

// recordOrder records an order that was carried out, the roots that it ended, and its lock. The agent
// carries the order out first: a full disk must not keep anything alive. The caller holds mu.
func (a *agent) recordOrder(h signedOrder, took time.Duration, ended []Ended) error {
	order := a.recordOf(names.OpSet, h)
	order.Duration = took
	order.Detail += fmt.Sprintf("; roots ended: %d", len(ended))
	if c := h.Ceiling; c.isSet() {
		order.Detail += fmt.Sprintf("; ceiling %d holds", c.Number)
	}
	recs := []guard.Record{order}
	for _, e := range ended {
		r := a.recordOf(names.OpRevoke, h)
		r.Path.Root = guard.RootName(e.Root)
		r.Duration = time.Duration(e.TookMS * float64(time.Millisecond))
		r.Detail = fmt.Sprintf("session %s: %s; %s", e.Session, e.State, r.Detail)
		if e.Error != "" {
			// The text of the error may name files. The record in the session has the text.
			r.Verdict, r.Kind = guard.Failed, names.Timeout
			r.Detail += "; not everything could be taken back"
		}
		recs = append(recs, r)
	}
	if h.Locked != "" {
		r := a.recordOf(names.OpPause, h)
		r.Cause, r.Reason = string(guard.PausedByLease), h.Locked
		r.Detail = fmt.Sprintf("locked: %s; %s", h.Locked, r.Detail)
		recs = append(recs, r)
	}
	for _, r := range recs {
		if err := a.record(r); err != nil {
			return err
		}
	}
	return nil
}

// recordUnlock records the end of the machine's lock, before the lock ends. The caller holds mu.
func (a *agent) recordUnlock() error {
	var newest signedOrder
	for _, h := range a.known {
		if h.Number > newest.Number {
			newest = h
		}
	}
	r := a.recordOf(names.OpResume, newest)
	r.Cause = string(guard.PausedByLease)
	r.Detail = "unlocked; " + r.Detail
	if err := a.record(r); err != nil {
		return fmt.Errorf("the machine stays locked, because the end of the lock cannot be recorded: %w", err)
	}
	return nil
}
