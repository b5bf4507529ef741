package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A subject that is refused again and again may be trying to break out. The gate counts each
// subject's escapes (attempts to leave a root) and refusals. More of them in a minute than the
// bound raise an event, leave a record, and may suspend the subject. Every operation of a
// suspended subject is refused until the owner resumes it. Everything that was handed out to the
// subject is taken back, as when rights are taken away, so that the kernel does not answer from
// its caches. Data that the subject has stored in mappings and not synced is refused, too.
//
// These refusals are not counted:
//   - those of the owner's own operations, and of network connections
//   - refusals that hold only for a time: by a speed limit, or during a pause
//   - those of a subject that is suspended already
//   - those that report a hidden name as missing (names.Hidden), because git status and every shell
//     look up names that do not exist
//
// The subject "" stands for all callers without a name: the users of a mount that is not for one
// subject.

// SetAbuse puts bounds in force. If they differ from the earlier ones, counting begins anew.
// Suspended subjects stay suspended.
func (g *Registry) SetAbuse(a ledger.Abuse) { g.offenders.SetBounds(a) }

// countRefusal counts a refusal. It is called in the middle of operations.
func (g *Registry) countRefusal(rec *Record) {
	if rec.Via == ViaControl || rec.Via == ViaNet || rec.Kind.About() == names.AboutMoment || rec.Kind == names.Suspended || rec.Kind == names.Hidden {
		return
	}
	why, suspend := g.offenders.Count(rec.Subject, rec.Kind == names.Escaped)
	switch {
	case why == "":
	case suspend:
		g.suspend(rec.Subject.WithoutSession(), why)
	default:
		g.notify(Event{Kind: EventAbuse, Detail: subjectPrefix(rec.Subject) + why})
		_ = g.recordSubject(rec.Subject, names.OpAbuse, why)
	}
}

func subjectPrefix(s Subject) string { return subjectText(s) + ": " }

func subjectText(s Subject) string {
	if s == "" {
		return "callers without a name"
	}
	return names.Quote(string(s))
}

// suspend shuts the gate to a subject at once. Another goroutine takes back everything that was
// handed out to the subject, because taking back waits for the subject's operations, and suspend
// is called in one of them.
func (g *Registry) suspend(s Subject, why string) {
	if !g.offenders.Suspend(s, why) {
		return
	}
	g.notify(Event{Kind: EventSuspended, Detail: subjectPrefix(s) + why})
	_ = g.recordSubject(s, names.OpSuspend, why)
	go func() { _ = g.Rejudge(context.Background(), s) }() // Rejudge records its failure
}

// Rejudge makes views judge again everything that they handed out to a subject, from its own
// roots and from those for everybody. When Rejudge returns without an error, every handle and
// mapping that the gate refuses to the subject is dead.
func (g *Registry) Rejudge(ctx context.Context, s Subject) error {
	var errs []error
	for _, r := range g.snap.Load().byName {
		if r.grant.Subject.Covers(s) || s.Covers(r.grant.Subject) {
			errs = append(errs, g.narrowViews(ctx, r))
		}
	}
	err := errors.Join(errs...)
	if err != nil {
		_ = g.record(Record{Time: time.Now(), Subject: s, Via: ViaControl, Op: names.OpSuspend, Verdict: Failed, Kind: names.Timeout,
			Detail: "not everything it was shown could be taken back: " + err.Error()})
	}
	return err
}

// Barred returns the error with which all requests of a subject are refused while the registry is
// paused or the subject is suspended, else nil. Admit makes this check itself; Barred is for
// requests that do not pass the gate.
func (g *Registry) Barred(s Subject) error {
	if err := g.barred(s, time.Now(), false); err != nil {
		return err
	}
	return nil
}

func (g *Registry) barred(s Subject, now time.Time, dry bool) *Error {
	if g.IsSuspended(s) {
		return &Error{Kind: names.Suspended}
	}
	return g.pausedAt(now, dry)
}

// Suspended lists the subjects that are suspended, by name.
func (g *Registry) Suspended() []ledger.Suspension { return g.offenders.Suspended() }

// IsSuspended reports whether a subject is suspended.
func (g *Registry) IsSuspended(s Subject) bool {
	_, ok := g.offenders.Suspension(s)
	return ok
}

// Resume lets a suspended subject go on, and forgets its refusals. It writes the record
// first: if that fails, the subject stays suspended.
func (g *Registry) Resume(s Subject) error {
	of, ok := g.offenders.Suspension(s)
	if !ok {
		return &Error{Op: names.OpResume, Kind: names.NotExist, Err: fmt.Errorf(
			"the server %s is not suspended; see: rootsfs status", names.Quote(string(s.WithoutSession())))}
	}
	if err := g.recordSubject(of.Subject, names.OpResume, ""); err != nil {
		return errors.Join(errors.New("the audit log cannot record the resumption, so the server stays suspended"), err)
	}
	g.offenders.Resume(of.Subject)
	g.notify(Event{Kind: EventResumed, Detail: subjectText(of.Subject)})
	return nil
}
