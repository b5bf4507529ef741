package guard

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Quotas at the gate. An operation reserves at admission what it may use at most,
// and settles at its end for what it did use, on every account it concerns: the
// root's, those of the nested roots it passes, and its subject's, which is one
// for all roots. What is reserved counts as used, so that operations at the same
// moment cannot exceed an amount together; one that would is refused and changes
// nothing.

// Quota bounds amounts. Zero is no limit.
type Quota struct {
	MaxFile    int64 // bytes; larger files cannot be made (EFBIG)
	MaxWritten int64 // bytes over the life of what is bounded (EDQUOT)
	MaxCreated int64 // names, likewise
}

func (l *Limits) quota() Quota {
	return Quota{MaxFile: l.MaxFile, MaxWritten: l.MaxWritten, MaxCreated: l.MaxCreated}
}

// account counts what a quota bounds.
type account struct {
	quota            atomic.Pointer[Quota] // nil: no limit
	written, created atomic.Int64
}

func (a *account) setQuota(q Quota) {
	if q == (Quota{}) {
		a.quota.Store(nil)
		return
	}
	a.quota.Store(&q)
}

// checkSize refuses a file that would become too large.
func (a *account) checkSize(size int64) error {
	if q := a.quota.Load(); q != nil && q.MaxFile > 0 && size > q.MaxFile {
		return &Error{Kind: names.Quota, Err: syscall.EFBIG, Limit: q.MaxFile}
	}
	return nil
}

// charge reserves bytes and names, both or neither.
func (a *account) charge(bytes, made int64) error {
	var q Quota
	if set := a.quota.Load(); set != nil {
		q = *set
	}
	if !addUpTo(&a.written, bytes, q.MaxWritten) {
		return &Error{Kind: names.Quota, Err: syscall.EDQUOT, Limit: q.MaxWritten}
	}
	if !addUpTo(&a.created, made, q.MaxCreated) {
		a.written.Add(-bytes)
		return &Error{Kind: names.Quota, Err: syscall.EDQUOT, Limit: q.MaxCreated}
	}
	return nil
}

// addUpTo adds n to a counter unless that would exceed limit (0: none). A refused
// request leaves the counter alone, so that it cannot crowd out another.
func addUpTo(counter *atomic.Int64, n, limit int64) bool {
	for n != 0 {
		have := counter.Load()
		if limit > 0 && n > 0 && n > limit-have {
			return false
		}
		if counter.CompareAndSwap(have, have+n) {
			break
		}
	}
	return true
}

// notes is what an operation finds out while it runs. A detached part shares
// it with the lease it was taken from.
type notes struct {
	repo     atomic.Pointer[string] // where a repository was made, below the root
	existed  atomic.Bool            // the object existed already
	openNeed atomic.Uint32          // and is opened instead: the rights that takes, 0 if it is not
	charged  atomic.Int64           // bytes of the quota taken since admission
	named    atomic.Int64           // names of the quota taken since admission

	uses []*root // whose one use began with the operation

	mu     sync.Mutex // guards the fields below
	passed []*account // of nested roots, which have taken what the lease has
	// resolved is where the links of the request's paths led, zero without any.
	resolved, resolved2 Path
	remark              string
	target              string // see RefusedLink
}

// ensureNotes makes room for what the operation finds out.
func (l *Lease) ensureNotes() *notes {
	if l.notes == nil {
		l.notes = &notes{}
	}
	return l.notes
}

// reserveQuota takes what the operation may use from the quotas; settle gives back
// what it did not.
func (l *Lease) reserveQuota() error {
	req := &l.req
	var bytes int64
	if isWrite(req.Op) {
		bytes = req.Bytes
	}
	if bytes == 0 && req.Names == 0 && req.Size == 0 {
		return nil
	}
	if req.Names > 0 || len(l.nesting.nested) > 0 || len(l.crossed) > 0 {
		l.ensureNotes()
	}
	subject := l.reg.accountOf(req.Caller.Subject)
	if err := l.root.checkSize(req.Size); err != nil {
		return err
	}
	if err := l.root.charge(bytes, req.Names); err != nil {
		return err
	}
	l.reserved, l.written, l.created = true, bytes, req.Names
	if subject != nil {
		if err := l.chargeAccount(subject); err != nil {
			return err
		}
		l.subject = subject
	}
	for _, c := range l.crossed {
		if err := l.chargeNested(c.root); err != nil {
			return err
		}
	}
	return nil
}

// chargeAccount takes on one more account what the lease has reserved.
func (l *Lease) chargeAccount(a *account) error {
	if err := a.checkSize(l.req.Size); err != nil {
		return err
	}
	return a.charge(l.written, l.reservedNames())
}

// reservedNames is how many names the lease has reserved.
func (l *Lease) reservedNames() int64 {
	if l.notes == nil {
		return l.created
	}
	return l.created + l.notes.named.Load()
}

// chargeNested is share for a nested root that the operation has come to.
func (l *Lease) chargeNested(c *root) error {
	if !l.reserved || l.notes == nil {
		return nil // nothing that a quota bounds, or not yet: reserve does it
	}
	if err := l.chargeAccount(&c.account); err != nil {
		return err
	}
	l.notes.mu.Lock()
	defer l.notes.mu.Unlock()
	l.notes.passed = append(l.notes.passed, &c.account)
	return nil
}

// accounts calls f for every account the lease has taken from, until one of them
// returns an error.
func (l *Lease) accounts(f func(*account) error) error {
	if !l.reserved {
		return nil
	}
	if err := f(&l.root.account); err != nil {
		return err
	}
	if l.subject != nil {
		if err := f(l.subject); err != nil {
			return err
		}
	}
	if l.notes == nil {
		return nil
	}
	l.notes.mu.Lock()
	passed := l.notes.passed
	l.notes.mu.Unlock()
	for _, a := range passed {
		if err := f(a); err != nil {
			return err
		}
	}
	return nil
}

// isWrite are the operations whose bytes are charged to the quota of bytes
// written. Allocating is one: it takes space on the disk just as well.
func isWrite(op Op) bool {
	return op == names.OpWrite || op == names.OpCopyFileRange || op == names.OpReplace || op == names.OpAllocate
}

// settle gives back what was reserved and not used: n bytes were.
func (l *Lease) settle(n int64, err error) {
	if err != nil && l.req.Op == names.OpAllocate {
		n = 0 // it does all or nothing
	}
	reserved, notMade := l.written, false
	if l.notes != nil {
		reserved += l.notes.charged.Load()
		notMade = l.notes.existed.Load()
	}
	if !isWrite(l.req.Op) && n > 0 {
		l.root.read.Add(n)
		n = 0
	}
	_ = l.accounts(func(a *account) error {
		if n != reserved {
			a.written.Add(n - reserved)
		}
		if err != nil || notMade {
			a.created.Add(-l.reservedNames())
		}
		return nil
	})
	l.req.Quiet = l.req.Quiet || notMade && l.req.Op != names.OpOpen
}

// NoteExisting says that the object to be made turned out to exist: the name reserved
// for it is given back, and there is no success to record.
func (l *Lease) NoteExisting() {
	if l.notes != nil {
		l.notes.existed.Store(true)
	}
}

// ContinueAsOpen is NotMade for an operation that opens what is there: from here on it is
// an opening, which takes other rights and is on record as one.
func (l *Lease) ContinueAsOpen(need Rights) error {
	l.NoteExisting()
	l.req.Op, l.req.Need, l.req.Names = names.OpOpen, need, 0
	if l.notes != nil {
		l.notes.openNeed.Store(uint32(need))
	}
	if lacks, ok := missing(l.req.Op, need, l.Narrowest()); !ok {
		return l.Denied(lacks)
	}
	return nil
}

// continuedAsOpen makes the operation what OpensInstead has made of its detached part.
func (l *Lease) continuedAsOpen() {
	if l.notes == nil {
		return
	}
	if need := Rights(l.notes.openNeed.Load()); need != 0 {
		l.req.Op, l.req.Need, l.req.Names = names.OpOpen, need, 0
	}
}

// Charge reserves n more bytes of the quota while the operation runs, for
// operations that do not know beforehand how much they write; size is how large
// the file has become. A negative n gives back.
func (l *Lease) Charge(n, size int64) error {
	if err := l.Fits(size); err != nil {
		return err
	}
	return l.charge(n, 0)
}

// ChargeNames reserves n more names of the quota while the operation runs, for
// operations that learn only then how many they make.
func (l *Lease) ChargeNames(n int64) error { return l.charge(0, n) }

// charge reserves on every account, or on none.
func (l *Lease) charge(bytes, created int64) error {
	taken := 0
	err := l.accounts(func(a *account) error {
		err := a.charge(bytes, created)
		if err == nil {
			taken++
		}
		return err
	})
	if err != nil {
		_ = l.accounts(func(a *account) error {
			if taken--; taken >= 0 {
				a.written.Add(-bytes)
				a.created.Add(-created)
			}
			return nil
		})
		return err
	}
	if l.notes != nil {
		l.notes.charged.Add(bytes)
		l.notes.named.Add(created)
	}
	return nil
}

// Fits refuses a file that would become larger than the quotas allow, for
// operations that learn only while they run how large that is.
func (l *Lease) Fits(size int64) error {
	return l.accounts(func(a *account) error { return a.checkSize(size) })
}

// BoundsFiles reports whether any file can be too large, so that operations that
// make one longer have to know how large it is.
func (l *Lease) BoundsFiles() bool {
	errBounded := error(syscall.EFBIG)
	return l.accounts(func(a *account) error {
		if q := a.quota.Load(); q != nil && q.MaxFile > 0 {
			return errBounded
		}
		return nil
	}) != nil
}

// quotas are the subjects' accounts. A subject keeps its account, and what it has
// used, for as long as the registry lives.
type quotas struct {
	mu       sync.Mutex // guards the fields below
	accounts map[Subject]*account
	bounds   map[Subject]Quota
}

// AnySubject stands, in SetQuotas, for every named subject without a quota of its
// own: each is bounded for itself.
const AnySubject Subject = "*"

// SetQuotas bounds what subjects may use in all their roots together; it replaces
// the quotas set before. What was used counts on. Callers without a subject are
// bounded by their roots only.
func (g *Registry) SetQuotas(bounds map[Subject]Quota) {
	q := &g.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.accounts == nil {
		q.accounts = map[Subject]*account{}
	}
	q.bounds = maps.Clone(bounds)
	for s, a := range q.accounts {
		a.setQuota(q.boundOf(s))
	}
	for s := range bounds {
		if s != AnySubject {
			q.ofLocked(s)
		}
	}
	g.bounded.Store(len(bounds) > 0)
}

// boundOf is a subject's quota; the caller holds mu.
func (q *quotas) boundOf(s Subject) Quota {
	if own, ok := q.bounds[s]; ok {
		return own
	}
	return q.bounds[AnySubject]
}

func (q *quotas) ofLocked(s Subject) *account {
	a := q.accounts[s]
	if a == nil {
		a = &account{}
		a.setQuota(q.boundOf(s))
		q.accounts[s] = a
	}
	return a
}

// accountOf is a subject's account, nil where no subject has one.
func (g *Registry) accountOf(s Subject) *account {
	if s == "" || !g.bounded.Load() {
		return nil
	}
	g.quotas.mu.Lock()
	defer g.quotas.mu.Unlock()
	return g.quotas.ofLocked(s.WithoutSession())
}

// Usage is what a subject has used of its quota.
type Usage struct {
	Subject          Subject
	Quota            Quota
	Written, Created int64
}

// Usage lists the subjects that have an account, by name.
func (g *Registry) Usage() []Usage {
	g.quotas.mu.Lock()
	defer g.quotas.mu.Unlock()
	var out []Usage
	for s, a := range g.quotas.accounts {
		out = append(out, Usage{Subject: s, Quota: g.quotas.boundOf(s), Written: a.written.Load(), Created: a.created.Load()})
	}
	slices.SortFunc(out, func(a, b Usage) int { return strings.Compare(string(a.Subject), string(b.Subject)) })
	return out
}
