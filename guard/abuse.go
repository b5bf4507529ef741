package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A subject that is refused again and again is looking for a way out. The gate
// counts each subject's escapes (attempts to leave a root) and refusals. More of them in a
// minute than the bound raise an event, leave a record, and may suspend the subject. Every
// operation of a suspended subject is refused until the owner resumes it. Everything that was
// handed out to it is taken back, as when rights are taken away, so that the kernel does not
// answer from its caches. Stores in mappings that it has not synced are refused, too.
//
// Three refusals are not counted: of requests beyond a speed limit, of a subject that is
// suspended already, and of the look-up of a hidden name, because git status and every
// shell look for names that do not exist. The subject "" stands for all callers without a
// name: the users of a mount that is not for one subject.

// Abuse bounds the refusals of a subject. Zero is no bound.
type Abuse struct {
	// Escapes and Refusals (escapes included) are how many there may be in a minute. That many
	// may come at once; after that, the same number is spread over each minute.
	Escapes, Refusals int
	Suspend           bool // a subject beyond a bound is suspended
}

// Suspension is one subject that is suspended.
type Suspension struct {
	Subject Subject
	Since   time.Time
	Why     string
}

// abuse has the counts of the subjects' refusals.
type abuse struct {
	mu        sync.Mutex // guards the fields below
	bounds    Abuse
	counts    map[Subject]*offences
	suspended map[Subject]Suspension // Registry.suspended tells whether there are any
}

type offences struct {
	escapes, refusals *rate.Limiter // nil: no bound
	reportedAt        time.Time     // when an event was raised last
}

// maxOffenders bounds the memory for subjects that were refused; the names of
// subjects are the session's own, so there are few.
const maxOffenders = 4096

// SetAbuse puts bounds in force. Counting begins anew; suspended subjects stay suspended.
func (g *Registry) SetAbuse(a Abuse) {
	g.abuse.mu.Lock()
	defer g.abuse.mu.Unlock()
	if g.abuse.bounds == a {
		return
	}
	g.abuse.bounds, g.abuse.counts = a, nil
}

func (a *abuse) limiter(n int) *rate.Limiter {
	if n <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(float64(n)/60), n)
}

// count counts one refusal. If it exceeds a bound, why is the text of the report, else "". If
// subjects are not suspended, count asks for a report at most once a minute.
func (a *abuse) count(rec *Record) (why string, suspend bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bounds.Escapes <= 0 && a.bounds.Refusals <= 0 {
		return "", false
	}
	who := rec.Subject.WithoutSession()
	o := a.counts[who]
	if o == nil {
		if a.counts == nil || len(a.counts) >= maxOffenders {
			a.counts = map[Subject]*offences{}
		}
		o = &offences{escapes: a.limiter(a.bounds.Escapes), refusals: a.limiter(a.bounds.Refusals)}
		a.counts[who] = o
	}
	if rec.Kind == names.Escaped && o.escapes != nil && !o.escapes.Allow() {
		why = fmt.Sprintf("more than %d attempts to leave a root in a minute", a.bounds.Escapes)
	}
	if o.refusals != nil && !o.refusals.Allow() && why == "" {
		why = fmt.Sprintf("more than %d refusals in a minute", a.bounds.Refusals)
	}
	if why == "" || time.Since(o.reportedAt) < time.Minute && !a.bounds.Suspend {
		return "", false
	}
	o.reportedAt = time.Now()
	return why, a.bounds.Suspend
}

// countRefusal takes note of a refusal. It is called in the middle of operations.
func (g *Registry) countRefusal(rec *Record) {
	if rec.Via == ViaControl || rec.Via == ViaNet || rec.Kind.About() == names.AboutMoment || rec.Kind == names.Suspended || rec.Kind == names.Hidden {
		return
	}
	why, suspend := g.abuse.count(rec)
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
// handed out to the subject: it waits for the subject's operations, and one of these calls
// suspend.
func (g *Registry) suspend(s Subject, why string) {
	g.abuse.mu.Lock()
	_, already := g.abuse.suspended[s]
	if !already {
		if g.abuse.suspended == nil {
			g.abuse.suspended = map[Subject]Suspension{}
		}
		g.abuse.suspended[s] = Suspension{Subject: s, Since: time.Now(), Why: why}
		g.suspended.Store(true)
	}
	g.abuse.mu.Unlock()
	if already {
		return
	}
	g.notify(Event{Kind: EventSuspended, Detail: subjectPrefix(s) + why})
	_ = g.recordSubject(s, names.OpSuspend, why)
	go func() { _ = g.TakeBack(context.Background(), s) }() // its failure is in a record
}

// TakeBack makes views judge again everything that they handed out to a subject, from its own
// roots and from those for everybody. When it returns, everything that the gate refuses the
// subject is dead.
func (g *Registry) TakeBack(ctx context.Context, s Subject) error {
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

// isSuspended reports whether a caller's subject is suspended. The owner's own
// operations go on.
func (g *Registry) isSuspended(c *Caller) bool {
	if c.Via == ViaControl {
		return false
	}
	g.abuse.mu.Lock()
	defer g.abuse.mu.Unlock()
	_, itself := g.abuse.suspended[c.Subject]
	_, all := g.abuse.suspended[c.Subject.WithoutSession()]
	return itself || all
}

// Suspended lists the subjects that are suspended, by name.
func (g *Registry) Suspended() []Suspension {
	g.abuse.mu.Lock()
	defer g.abuse.mu.Unlock()
	return slices.SortedFunc(maps.Values(g.abuse.suspended), func(a, b Suspension) int { return strings.Compare(string(a.Subject), string(b.Subject)) })
}

// IsSuspended reports whether a subject is suspended.
func (g *Registry) IsSuspended(s Subject) bool { return g.isSuspended(&Caller{Subject: s}) }

// Resume lets a suspended subject go on, and forgets its refusals. It writes the record
// first: if that fails, the subject stays suspended.
func (g *Registry) Resume(s Subject) error {
	g.abuse.mu.Lock()
	if _, itself := g.abuse.suspended[s]; !itself {
		s = s.WithoutSession() // the suspension may be one of all its sessions
	}
	_, ok := g.abuse.suspended[s]
	g.abuse.mu.Unlock()
	if !ok {
		return &Error{Op: names.OpResume, Kind: names.NotExist, Err: fmt.Errorf(
			"the server %s is not suspended; see: rootsfs status", names.Quote(string(s)))}
	}
	if err := g.recordSubject(s, names.OpResume, ""); err != nil {
		return errors.Join(errors.New("the audit log cannot record the resumption, so the server stays suspended"), err)
	}
	g.abuse.mu.Lock()
	delete(g.abuse.counts, s)
	delete(g.abuse.suspended, s)
	g.suspended.Store(len(g.abuse.suspended) > 0)
	g.abuse.mu.Unlock()
	g.notify(Event{Kind: EventResumed, Detail: subjectText(s)})
	return nil
}
