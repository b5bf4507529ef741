package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard/rules"
)

// Abuse bounds the refusals of a subject. Zero is no bound.
type Abuse struct {
	// Escapes bounds the attempts to leave a root in a minute. Refusals bounds all refusals in a
	// minute, which include the attempts. As many as the bound may come at once. The allowance
	// then returns evenly: half of it in half a minute.
	Escapes, Refusals int
	Suspend           bool // a subject beyond a bound is suspended
}

// Suspension is one subject that is suspended.
type Suspension struct {
	Subject rules.Subject
	Since   time.Time
	Why     string
}

// Offenders counts the refusals of each subject, and knows which subjects are suspended. A
// subject's sessions count together.
type Offenders struct {
	hasSuspended atomic.Bool // some subject is suspended

	mu        sync.Mutex // guards the fields below
	bounds    Abuse
	counts    map[rules.Subject]*offences
	suspended map[rules.Subject]Suspension
}

// offences counts the refusals of one subject.
type offences struct {
	escapes, refusals *rate.Limiter // nil: no bound
	reportedAt        time.Time     // when Count last returned the text of a report
}

// maxOffenders bounds the memory for refused subjects. There are few subjects, because the rootsfs
// session, and no caller, chooses their names.
const maxOffenders = 4096

// SetBounds puts bounds in force. If they differ from the earlier bounds, counting begins anew.
// Suspended subjects stay suspended.
func (o *Offenders) SetBounds(a Abuse) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bounds != a {
		o.bounds, o.counts = a, nil
	}
}

// Count counts one refusal of a subject. escape says that an attempt to leave a root was refused.
// If the refusal exceeds a bound, why is the text of a report, and suspend says whether to suspend
// the subject (Abuse.Suspend). Without Abuse.Suspend, why is "" for further refusals of the same
// subject in the minute after a report.
func (o *Offenders) Count(s rules.Subject, escape bool) (why string, suspend bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bounds.Escapes <= 0 && o.bounds.Refusals <= 0 {
		return "", false
	}
	c := o.ofLocked(s.WithoutSession())
	if escape && c.escapes != nil && !c.escapes.Allow() {
		why = fmt.Sprintf("more than %d attempts to leave a root in a minute", o.bounds.Escapes)
	}
	if c.refusals != nil && !c.refusals.Allow() && why == "" {
		why = fmt.Sprintf("more than %d refusals in a minute", o.bounds.Refusals)
	}
	if why == "" || time.Since(c.reportedAt) < time.Minute && !o.bounds.Suspend {
		return "", false
	}
	c.reportedAt = time.Now()
	return why, o.bounds.Suspend
}

// ofLocked returns the counts of a subject. When there are maxOffenders of them, it forgets all
// counts before it begins another one.
func (o *Offenders) ofLocked(s rules.Subject) *offences {
	c := o.counts[s]
	if c == nil {
		if o.counts == nil || len(o.counts) >= maxOffenders {
			o.counts = map[rules.Subject]*offences{}
		}
		c = &offences{escapes: perMinute(o.bounds.Escapes), refusals: perMinute(o.bounds.Refusals)}
		o.counts[s] = c
	}
	return c
}

// perMinute returns a limiter for n events a minute, nil if there is no bound.
func perMinute(n int) *rate.Limiter {
	if n <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(float64(n)/60), n)
}

// Suspend suspends a subject. It reports false if the subject is suspended already.
func (o *Offenders) Suspend(s rules.Subject, why string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, already := o.suspended[s]; already {
		return false
	}
	if o.suspended == nil {
		o.suspended = map[rules.Subject]Suspension{}
	}
	o.suspended[s] = Suspension{Subject: s, Since: time.Now(), Why: why}
	o.hasSuspended.Store(true)
	return true
}

// Suspension returns the suspension that holds for a subject: its own or, if the subject is a
// session, that of the subject whose session it is.
func (o *Offenders) Suspension(s rules.Subject) (of Suspension, ok bool) {
	if !o.hasSuspended.Load() {
		return Suspension{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if of, ok = o.suspended[s]; !ok {
		of, ok = o.suspended[s.WithoutSession()]
	}
	return of, ok
}

// Suspended lists the suspensions, by the subjects' names.
func (o *Offenders) Suspended() []Suspension {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.SortedFunc(maps.Values(o.suspended), func(a, b Suspension) int { return strings.Compare(string(a.Subject), string(b.Subject)) })
}

// Resume ends the suspension of s. If s is a subject and not one of a subject's sessions, Resume
// also forgets the refusals of s.
func (o *Offenders) Resume(s rules.Subject) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.counts, s)
	delete(o.suspended, s)
	o.hasSuspended.Store(len(o.suspended) > 0)
}
