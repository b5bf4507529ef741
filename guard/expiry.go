package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A grant ends by itself at a time, or when nothing has used it for a while
// (Limits.Idle), with all that a revocation does. Use is what comes to the gate
// and is not refused: what the kernel answers from its caches is not seen, nor is
// a file that is merely open.

// arm starts the clock of a root's end, or sets it anew.
func (g *Registry) arm(r *root) {
	g.mu.Lock() // shut reads the timer under it
	defer g.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	due, ok := r.due(time.Now())
	if !ok || State(r.state.Load()) != Live {
		return
	}
	r.timer = time.AfterFunc(time.Until(due), func() {
		if !r.over(time.Now()) {
			g.arm(r) // it was used meanwhile
			return
		}
		_, _ = g.end(context.Background(), r, ExpiredState)
	})
}

// due is when the root has to be looked at next; ok is false for never.
func (r *root) due(now time.Time) (at time.Time, ok bool) {
	if n := r.expires.Load(); n != 0 {
		at, ok = time.Unix(0, n), true
	}
	idle := r.policy.Load().Limits.Idle
	if idle <= 0 {
		return at, ok
	}
	from := time.Unix(0, max(r.lastUse.Load(), r.since.Load()))
	if r.inflight[0].Load()+r.inflight[1].Load()+r.waiting.Load() > 0 {
		from = now // what takes long is use
	}
	if by := from.Add(idle); !ok || by.Before(at) {
		return by, true
	}
	return at, true
}

// over reports that the root's time is up.
func (r *root) over(now time.Time) bool {
	due, ok := r.due(now)
	return ok && !due.After(now)
}

// Renew gives a live root another end: the zero time is that of the session. It
// counts as a use. Handles and mappings live on.
func (g *Registry) Renew(ctx context.Context, name RootName, expires time.Time) error {
	refuse := func(kind Kind, format string, args ...any) error {
		return &Error{Op: names.OpSet, Kind: kind, Err: fmt.Errorf(format, args...)}
	}
	r := g.snap.Load().byName[name]
	if r == nil {
		return refuse(names.NotExist, "no root is named %s; one that has ended is granted again with: rootsfs roots add", names.Quote(string(name)))
	}
	now := time.Now()
	if !expires.IsZero() && !expires.After(now) {
		return refuse(names.Invalid, "the new end of root %s is in the past", names.Quote(string(name)))
	}
	_, letGo, err := g.hold(ctx, r)
	if err != nil {
		return err
	}
	defer letGo()
	if State(r.state.Load()) != Live {
		return r.gone()
	}
	detail := "ends " + ending(r.expires.Load()) + " -> "
	at := int64(0)
	if !expires.IsZero() {
		at = expires.UnixNano()
	}
	detail += ending(at)
	p, _ := names.NewPath(r.name, "")
	// A later end is on record before it holds.
	if err := g.record(Record{Time: now, Subject: r.grant.Subject, Via: ViaControl, Op: names.OpSet, Path: p,
		Rights: r.policy.Load().Rights, Verdict: Allowed, Detail: detail}); err != nil {
		return errors.Join(errors.New("the renewal cannot be recorded, so it is not made"), err)
	}
	r.expires.Store(at)
	r.since.Store(now.UnixNano())
	g.arm(r)
	g.notify(Event{Kind: EventChanged, Root: r.name, Detail: detail})
	return nil
}

func ending(at int64) string {
	if at == 0 {
		return "with the session"
	}
	return time.Unix(0, at).Format(time.RFC3339)
}
