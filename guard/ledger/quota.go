package ledger

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Quota has the limits of one account. Zero is no limit.
type Quota struct {
	MaxFile    int64 // bytes; larger files cannot be made (EFBIG)
	MaxWritten int64 // bytes over the life of the root or subject (EDQUOT)
	MaxCreated int64 // names over the life of the root or subject (EDQUOT)
}

// QuotaOf returns the part of a root's limits that the root's account enforces.
func QuotaOf(l *rules.Limits) Quota {
	return Quota{MaxFile: l.MaxFile, MaxWritten: l.MaxWritten, MaxCreated: l.MaxCreated}
}

// Account counts the amounts that a quota bounds.
type Account struct {
	quota            atomic.Pointer[Quota] // nil: no limit
	written, created atomic.Int64
}

// Written and Created return the bytes and names that are charged.
func (a *Account) Written() int64 { return a.written.Load() }
func (a *Account) Created() int64 { return a.created.Load() }

// BoundsFiles reports whether a limit bounds the size of files.
func (a *Account) BoundsFiles() bool {
	q := a.quota.Load()
	return q != nil && q.MaxFile > 0
}

// SetQuota replaces the quota. Earlier use still counts.
func (a *Account) SetQuota(q Quota) {
	if q == (Quota{}) {
		a.quota.Store(nil)
		return
	}
	a.quota.Store(&q)
}

// Charge reserves bytes, and created names, for a file that becomes size bytes long. It reserves
// both amounts or nothing. A negative amount is a refund. In a dry run Charge returns the same
// errors and reserves nothing.
func (a *Account) Charge(bytes, size, created int64, dry bool) error {
	q := a.quota.Load()
	if q == nil {
		q = &Quota{}
	}
	if q.MaxFile > 0 && size > q.MaxFile {
		return &names.Error{Kind: names.Quota, Err: syscall.EFBIG, Limit: q.MaxFile}
	}
	if !addUpTo(&a.written, bytes, q.MaxWritten, dry) {
		return &names.Error{Kind: names.Quota, Err: syscall.EDQUOT, Limit: q.MaxWritten}
	}
	if !addUpTo(&a.created, created, q.MaxCreated, dry) {
		if !dry {
			a.written.Add(-bytes)
		}
		return &names.Error{Kind: names.Quota, Err: syscall.EDQUOT, Limit: q.MaxCreated}
	}
	return nil
}

// Refund gives back the unused part of what Charge reserved.
func (a *Account) Refund(bytes, created int64) {
	a.written.Add(-bytes)
	a.created.Add(-created)
}

// addUpTo adds n to counter, or reports false if the sum would exceed limit (0: none). An n that is
// refused does not change the counter even for a moment, so it cannot crowd out another request. A
// dry run does not change the counter either.
func addUpTo(counter *atomic.Int64, n, limit int64, dry bool) bool {
	for n != 0 {
		have := counter.Load()
		if limit > 0 && n > 0 && n > limit-have {
			return false
		}
		if dry || counter.CompareAndSwap(have, have+n) {
			break
		}
	}
	return true
}

// Quotas has the subjects' accounts. A subject keeps its Account, and its counts, for as long
// as the registry lives.
type Quotas struct {
	bounded atomic.Bool // some subject has a quota

	mu       sync.Mutex // guards the fields below
	accounts map[rules.Subject]*Account
	bounds   map[rules.Subject]Quota
}

// AnySubject stands, in Quotas.Set, for every named subject without a quota of its own. Each
// of them gets the whole quota.
const AnySubject rules.Subject = "*"

// Set sets the bounds of subjects over all their roots together, in place of the earlier
// quotas. Use that was counted earlier still counts. Callers without a subject are bounded by
// their roots only.
func (q *Quotas) Set(bounds map[rules.Subject]Quota) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.accounts == nil {
		q.accounts = map[rules.Subject]*Account{}
	}
	q.bounds = maps.Clone(bounds)
	for s, a := range q.accounts {
		a.SetQuota(q.boundOf(s))
	}
	for s := range bounds {
		if s != AnySubject {
			q.ofLocked(s)
		}
	}
	q.bounded.Store(len(bounds) > 0)
}

// boundOf returns a subject's quota. The caller holds mu.
func (q *Quotas) boundOf(s rules.Subject) Quota {
	if own, ok := q.bounds[s]; ok {
		return own
	}
	return q.bounds[AnySubject]
}

func (q *Quotas) ofLocked(s rules.Subject) *Account {
	a := q.accounts[s]
	if a == nil {
		a = &Account{}
		a.SetQuota(q.boundOf(s))
		q.accounts[s] = a
	}
	return a
}

// Of returns a subject's Account, which its sessions share, and makes it if necessary. It returns
// nil for the subject "", and while no quotas are set.
func (q *Quotas) Of(s rules.Subject) *Account {
	if s == "" || !q.bounded.Load() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ofLocked(s.WithoutSession())
}

// Usage is a subject's use of its quota.
type Usage struct {
	Subject          rules.Subject
	Quota            Quota
	Written, Created int64
}

// Usage lists the subjects that have an Account, by name.
func (q *Quotas) Usage() []Usage {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []Usage
	for s, a := range q.accounts {
		out = append(out, Usage{Subject: s, Quota: q.boundOf(s), Written: a.written.Load(), Created: a.created.Load()})
	}
	slices.SortFunc(out, func(a, b Usage) int { return strings.Compare(string(a.Subject), string(b.Subject)) })
	return out
}
