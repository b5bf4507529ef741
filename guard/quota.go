package guard

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Quotas at the gate. At admission an operation reserves the most that it may use, and at its
// end it gives back the unused part. It does so on several accounts: the root's, those of the
// nested roots that it enters, and its subject's, which is one for all roots. A reservation
// counts as use, so that concurrent operations cannot exceed a quota together. An operation
// that would exceed one is refused and changes nothing.

// Quota bounds amounts. Zero is no limit.
type Quota struct {
	MaxFile    int64 // bytes; larger files cannot be made (EFBIG)
	MaxWritten int64 // bytes over the life of the root or subject (EDQUOT)
	MaxCreated int64 // names, likewise
}

func quotaOf(l *Limits) Quota {
	return Quota{MaxFile: l.MaxFile, MaxWritten: l.MaxWritten, MaxCreated: l.MaxCreated}
}

// account counts the amounts that a quota bounds.
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

// charge reserves bytes and names for a file that becomes size bytes long: all of it or
// nothing. Negative amounts give back. In a dry run it returns the same errors and reserves
// nothing.
func (a *account) charge(bytes, size, created int64, dry bool) error {
	q := a.quota.Load()
	if q == nil {
		q = &Quota{}
	}
	if q.MaxFile > 0 && size > q.MaxFile {
		return &Error{Kind: names.Quota, Err: syscall.EFBIG, Limit: q.MaxFile}
	}
	if !addUpTo(&a.written, bytes, q.MaxWritten, dry) {
		return &Error{Kind: names.Quota, Err: syscall.EDQUOT, Limit: q.MaxWritten}
	}
	if !addUpTo(&a.created, created, q.MaxCreated, dry) {
		if !dry {
			a.written.Add(-bytes)
		}
		return &Error{Kind: names.Quota, Err: syscall.EDQUOT, Limit: q.MaxCreated}
	}
	return nil
}

// refund gives back the unused part of what charge reserved.
func (a *account) refund(bytes, created int64) {
	a.written.Add(-bytes)
	a.created.Add(-created)
}

// addUpTo adds n to a counter unless that would exceed limit (0: none). A refused
// request leaves the counter alone, so that it cannot crowd out another. A dry run leaves
// it alone, too.
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

// Charges count an operation: against quotas, and as the use of a root for one use.
type Charges struct{ l *Lease }

// Charges returns the charges of the operation.
func (l *Lease) Charges() Charges { return Charges{l} }

// reserve charges the quotas with the most that the operation may use. Settle refunds
// what it did not use.
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
	subject := c.l.reg.accountOf(req.Caller.Subject)
	if err := c.charge(&c.l.root.account, c.l.root.name, bytes, req.Size, req.Names); err != nil {
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
		if err := c.nested(x.root); err != nil {
			return err
		}
	}
	return nil
}

// nested charges a nested root that the operation has entered with what the lease has
// reserved.
func (c Charges) nested(r *root) error {
	if !c.l.reserved || c.l.notes == nil {
		return nil // no quota bounds the operation, or reserve has yet to run
	}
	if err := c.charge(&r.account, r.name, c.l.written, c.l.req.Size, c.reservedNames()); err != nil || c.l.req.Dry != nil {
		return err
	}
	c.l.notes.mu.Lock()
	defer c.l.notes.mu.Unlock()
	c.l.notes.chargedNested = append(c.l.notes.chargedNested, &r.account)
	return nil
}

// charge is account.charge. name is that of the account's root, "" for the subject's account.
func (c Charges) charge(a *account, name RootName, bytes, size, created int64) error {
	err := a.charge(bytes, size, created, c.l.req.Dry != nil)
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
func (c Charges) accounts(yield func(*account) bool) {
	if !c.l.reserved || !yield(&c.l.root.account) || c.l.subject != nil && !yield(c.l.subject) || c.l.notes == nil {
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
		n = 0 // it does all or nothing
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
		a.refund(reserved-n, unusedNames)
	}
	c.l.req.Quiet = c.l.req.Quiet || existed && c.l.req.Op != names.OpOpen
}

// Add reserves more while the operation runs. It is for operations that learn only then
// how many bytes they write, how many names they create, or how long the file becomes (size).
// It charges every account of the lease, or none. Negative amounts give back.
func (c Charges) Add(bytes, size, created int64) error {
	charged := 0
	for a := range c.accounts {
		if err := c.charge(a, "", bytes, size, created); err != nil {
			for b := range c.accounts {
				if charged == 0 {
					return err
				}
				b.refund(bytes, created)
				charged--
			}
			return err
		}
		charged++
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
		if q := a.quota.Load(); q != nil && q.MaxFile > 0 {
			return true
		}
	}
	return false
}

// quotas has the subjects' accounts. A subject keeps its account, and its counts, for as long
// as the registry lives.
type quotas struct {
	mu       sync.Mutex // guards the fields below
	accounts map[Subject]*account
	bounds   map[Subject]Quota
}

// AnySubject stands, in SetQuotas, for every named subject without a quota of its own. Each
// of them gets the whole quota.
const AnySubject Subject = "*"

// SetQuotas sets the bounds of subjects over all their roots together, in place of the earlier
// quotas. Earlier use still counts. Callers without a subject are bounded by their roots only.
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

// boundOf returns a subject's quota. The caller holds mu.
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

// accountOf returns a subject's account, or nil if no subject has one.
func (g *Registry) accountOf(s Subject) *account {
	if s == "" || !g.bounded.Load() {
		return nil
	}
	g.quotas.mu.Lock()
	defer g.quotas.mu.Unlock()
	return g.quotas.ofLocked(s.WithoutSession())
}

// Usage is a subject's use of its quota.
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

// budget bounds an amount in use. A request for more than the whole budget is admitted when
// nothing else is in use.
type budget struct {
	mu      sync.Mutex // guards the fields below
	max     int64
	used    int64
	changed chan struct{}
}

func (b *budget) acquire(ctx context.Context, r *root, n int64) error {
	for {
		b.mu.Lock()
		if b.used == 0 || b.used+n <= b.max {
			b.used += n
			b.mu.Unlock()
			return nil
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		if err := waitFor(ctx, r, changed); err != nil {
			return err
		}
	}
}

func (b *budget) release(n int64) {
	b.mu.Lock()
	b.used -= n
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	b.mu.Unlock()
}
