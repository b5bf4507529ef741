package guard

import (
	"context"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Limits at the gate: waiting for speed, reserving quotas at admission and
// settling them at the end.

// learned is what an operation finds out while it runs. A detached part shares
// it with the lease it was taken from, which settles.
type learned struct {
	notMade atomic.Bool  // the object existed already
	charged atomic.Int64 // bytes of the quota taken since admission
}

// throttle waits for the root's speed limit. While it waits it holds no reference,
// so that a change of the root need not wait for it; waited says that the root
// has to be entered again.
func (l *Lease) throttle(ctx context.Context) (waited bool, err error) {
	r := l.root
	if r.limiter == nil || r.flushing.Load() != 0 {
		return false, nil
	}
	res := r.limiter.Reserve()
	wait := res.Delay()
	if wait == 0 {
		return false, nil
	}
	if limit := l.policy.timeout(); wait > limit {
		res.Cancel()
		return false, &Error{Kind: names.Rate, RetryAfter: wait}
	}
	l.release()
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true, nil
	case <-r.dead:
		return true, r.gone()
	case <-ctx.Done():
		res.Cancel()
		return true, ctx.Err()
	}
}

// reserve takes what the operation may use from the quotas; Done gives back
// what it did not.
func (l *Lease) reserve() error {
	lim, req, r := &l.policy.Limits, &l.req, l.root
	if lim.MaxFile > 0 && req.Size > lim.MaxFile {
		return &Error{Kind: names.Quota, Err: syscall.EFBIG}
	}
	if writes(req.Op) && req.Bytes > 0 {
		if !take(&r.written, req.Bytes, lim.MaxWritten) {
			return &Error{Kind: names.Quota, Err: syscall.EDQUOT}
		}
		l.written = req.Bytes
	}
	if req.Names > 0 {
		if !take(&r.created, req.Names, lim.MaxCreated) {
			return &Error{Kind: names.Quota, Err: syscall.EDQUOT}
		}
		l.created = req.Names
	}
	return nil
}

// take adds n to a counter unless that would exceed limit (0: none). A refused
// request leaves the counter alone, so that it cannot crowd out another.
func take(counter *atomic.Int64, n, limit int64) bool {
	for {
		have := counter.Load()
		if limit > 0 && n > limit-have {
			return false
		}
		if counter.CompareAndSwap(have, have+n) {
			return true
		}
	}
}

// writes are the operations whose bytes are charged to the quota of bytes
// written. Allocating is one: it takes space on the disk just as well.
func writes(op Op) bool {
	return op == names.OpWrite || op == names.OpCopyFileRange || op == names.OpReplace || op == names.OpAllocate
}

func (l *Lease) settle(n int64, err error) {
	r := l.root
	if err != nil && l.req.Op == names.OpAllocate {
		n = 0 // it does all or nothing
	}
	reserved, notMade := l.written, false
	if l.learned != nil {
		reserved += l.learned.charged.Load()
		notMade = l.learned.notMade.Load()
	}
	if writes(l.req.Op) {
		r.written.Add(n - reserved)
	} else if n > 0 {
		r.read.Add(n)
	}
	if err != nil || notMade {
		r.created.Add(-l.created)
	}
	l.req.Quiet = l.req.Quiet || notMade
}

// NotMade says that the object to be made turned out to exist: the name reserved
// for it is given back, and there is no success to record.
func (l *Lease) NotMade() {
	if l.learned != nil {
		l.learned.notMade.Store(true)
	}
}

// Charge reserves n more bytes of the quota while the operation runs, for
// operations that do not know beforehand how much they write; size is how large
// the file has become.
func (l *Lease) Charge(n, size int64) error {
	lim, r := &l.policy.Limits, l.root
	if lim.MaxFile > 0 && size > lim.MaxFile {
		return &Error{Kind: names.Quota, Err: syscall.EFBIG}
	}
	if total := r.written.Add(n); lim.MaxWritten > 0 && total > lim.MaxWritten {
		r.written.Add(-n)
		return &Error{Kind: names.Quota, Err: syscall.EDQUOT}
	}
	if l.learned != nil {
		l.learned.charged.Add(n)
	}
	return nil
}
