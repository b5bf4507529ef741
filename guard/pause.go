package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A registry can be paused. The gate then refuses everything to everybody except the owner, and
// everything that was handed out is taken back, as by a revocation. Unlike after a revocation,
// open files, mappings and watches work again when the pause ends. Grants, revocations and
// expiries go on meanwhile.
//
// There are two causes of a pause: the owner, and the end of the machine's lease (SetMachineLease,
// not the Lease of an operation). The gate opens when no cause is left.

// PauseCause says what paused a registry.
type PauseCause string

// The causes.
const (
	PausedByOwner PauseCause = "owner"
	PausedByLease PauseCause = "lease"
)

// Pause is one pause in force.
type Pause struct {
	Cause  PauseCause
	Since  time.Time
	Reason string // "": none was given
}

// pauses are the pauses of a registry.
type pauses struct {
	inForce atomic.Pointer[[]Pause]      // nil: the gate is open; not changed but replaced
	lease   atomic.Pointer[machineLease] // nil: the machine has none

	changing sync.Mutex // held while a pause begins or ends
}

// machineLease is the lease of the machine, at whose end the registry pauses by itself.
type machineLease struct {
	end    time.Time   // set plus the time that was left then
	set    time.Time   // when SetMachineLease was called
	isOver func() bool // reports whether the lease is over, by the clock that decides
	reason string

	pausing atomic.Bool
}

// maxDrift is how far the wall clock and the monotonic clock may move apart before isOver is
// called. They move apart when the machine sleeps, or when the wall clock is set.
const maxDrift = time.Second

// SetMachineLease makes the registry pause by itself once isOver reports true. reason is the
// reason of that pause. isOver is costly, so the gate calls it only when left has passed since
// SetMachineLease by this process's clock, or when the wall clock and the monotonic clock have
// moved apart (maxDrift). The gate compares the clock at each operation, so it refuses even if the
// caller never calls Pause. SetMachineLease does not end a pause.
func (g *Registry) SetMachineLease(left time.Duration, isOver func() bool, reason string) {
	now := time.Now()
	g.pauses.lease.Store(&machineLease{end: now.Add(left), set: now, isOver: isOver, reason: reason})
}

// hasPassed reports whether the lease is over at the time now, which has a monotonic reading.
func (e *machineLease) hasPassed(now time.Time) bool {
	drift := now.Round(0).Sub(e.set.Round(0)) - now.Sub(e.set)
	if now.Before(e.end) && drift.Abs() <= maxDrift {
		return false
	}
	return e.isOver()
}

// pausedAt returns the refusal of an operation at the time now, nil if the registry is not
// paused. If the lease is over and nobody has paused the registry, pausedAt refuses, and pauses
// the registry in the background. A dry run does not pause it.
func (g *Registry) pausedAt(now time.Time, dry bool) *Error {
	if list := g.pauses.inForce.Load(); list != nil {
		return (*list)[0].refusal()
	}
	lease := g.pauses.lease.Load()
	if lease == nil || !lease.hasPassed(now) {
		return nil
	}
	if !dry && lease.pausing.CompareAndSwap(false, true) {
		go g.pauseFor(lease) // not in this goroutine: pauseFor waits for the operation that calls pausedAt
	}
	p := Pause{Cause: PausedByLease, Since: now, Reason: lease.reason}
	return p.refusal()
}

// Paused returns the pauses in force. The result is the caller's own.
func (g *Registry) Paused() []Pause {
	list := g.pauses.inForce.Load()
	if list == nil {
		return nil
	}
	return slices.Clone(*list)
}

// Pause pauses the registry, in this order:
//  1. Views flush dirty data.
//  2. The gate shuts.
//  3. Operations in flight are waited for.
//  4. Views take back what they handed out.
//  5. Calls that change the source and have begun are waited for.
//  6. The record is written.
//
// Only then Pause returns. An error says what could not be done within the deadline, or that the
// pause could not be recorded; the gate is shut all the same. If the registry is paused already,
// for either cause, Pause repeats all steps but the first. An operation must not call Pause,
// because Pause waits for operations.
func (g *Registry) Pause(ctx context.Context, cause PauseCause, reason string) error {
	g.pauses.changing.Lock()
	defer g.pauses.changing.Unlock()
	return g.pauseLocked(context.WithoutCancel(ctx), cause, reason) // a pause that has begun is completed
}

// pauseFor pauses the registry because a lease is over, unless there is a new one by now.
func (g *Registry) pauseFor(lease *machineLease) {
	g.pauses.changing.Lock()
	defer g.pauses.changing.Unlock()
	if g.pauses.lease.Load() == lease {
		_ = g.pauseLocked(context.Background(), PausedByLease, lease.reason) // its failure is in the record
	}
}

func (g *Registry) pauseLocked(ctx context.Context, cause PauseCause, reason string) error {
	if g.pauses.inForce.Load() == nil {
		sideBySide(g.liveRoots(), func(_ int, r *root) { g.flush(ctx, r.asChange(ChangePaused), r) })
	}
	step("pause")
	g.pauses.add(Pause{Cause: cause, Since: time.Now(), Reason: reason})
	roots := g.liveRoots()
	errs := make([]error, len(roots))
	sideBySide(roots, func(i int, r *root) {
		errs[i] = g.whileLive(ctx, r, func(ctx context.Context) error {
			return errors.Join(r.drainForEnd(ctx), g.invalidateViews(ctx, r.asChange(ChangePaused)), r.settle(ctx))
		})
	})
	err := errors.Join(errs...)
	if recErr := g.recordPause(names.OpPause, Facts{Cause: string(cause), Reason: reason}, err); recErr != nil {
		err = errors.Join(err, fmt.Errorf("the pause could not be recorded: %w", recErr))
	}
	detail := reason
	if err != nil {
		detail = err.Error()
	}
	g.notify(Event{Kind: EventPaused, Detail: detail})
	return err
}

// EndPause ends the pause of a cause. It writes the record first: if that fails, the registry
// stays paused.
func (g *Registry) EndPause(cause PauseCause) error {
	g.pauses.changing.Lock()
	defer g.pauses.changing.Unlock()
	list := g.Paused()
	if !slices.ContainsFunc(list, func(p Pause) bool { return p.Cause == cause }) {
		return &Error{Op: names.OpResume, Kind: names.NotExist, Err: errors.New("the session is not paused; see: rootsfs status")}
	}
	if err := g.recordPause(names.OpResume, Facts{Cause: string(cause)}, nil); err != nil {
		return errors.Join(errors.New("the audit log cannot record the resumption, so the session stays paused"), err)
	}
	g.pauses.drop(cause)
	g.notify(Event{Kind: EventResumed, Detail: "the session"})
	return nil
}

// add puts a pause in force. A pause of the same cause keeps its beginning, and its reason if
// there is no new one.
func (p *pauses) add(added Pause) {
	next := []Pause{added}
	if list := p.inForce.Load(); list != nil {
		for _, have := range *list {
			if have.Cause == added.Cause {
				next[0].Since, next[0].Reason = have.Since, cmp.Or(added.Reason, have.Reason)
				continue
			}
			next = append(next, have)
		}
	}
	p.inForce.Store(&next)
}

func (p *pauses) drop(cause PauseCause) {
	left := slices.DeleteFunc(slices.Clone(*p.inForce.Load()), func(have Pause) bool { return have.Cause == cause })
	if len(left) == 0 {
		p.inForce.Store(nil)
		return
	}
	p.inForce.Store(&left)
}

func (g *Registry) liveRoots() (list []*root) {
	for _, r := range g.snap.Load().byName {
		if State(r.state.Load()) == Live {
			list = append(list, r)
		}
	}
	return list
}

func (g *Registry) recordPause(op Op, f Facts, pauseErr error) error {
	rec := Record{Time: time.Now(), Via: ViaControl, Op: op, Verdict: Allowed, Facts: f, Detail: f.Cause}
	if f.Reason != "" {
		rec.Detail += ": " + f.Reason
	}
	if pauseErr != nil {
		rec.Verdict, rec.Kind = Failed, names.Timeout
		rec.Detail += "; not everything could be taken back: " + pauseErr.Error()
	}
	return g.record(rec)
}

// refusal returns the error of an operation during the pause.
func (p *Pause) refusal() *Error { return &Error{Kind: names.Paused, Err: pauseText(p.Text())} }

// Text describes the pause, and how it ends, in one line.
func (p *Pause) Text() string {
	why, end := "by its owner", "; it goes on after: rootsfs resume"
	if p.Cause == PausedByLease {
		why, end = "for want of a lease", "; it goes on with the next lease"
	}
	why += " since " + p.Since.Local().Format(time.TimeOnly)
	if p.Reason != "" {
		why += ": " + names.Escape(names.Brief(p.Reason))
	}
	return (&Error{Kind: names.Paused}).Text() + " (" + why + ")" + end
}

// pauseText is an error's text that the owner reads, too.
type pauseText string

func (t pauseText) Error() string { return string(t) }

// Why returns the text for the record.
func (t pauseText) Why() string { return string(t) }
