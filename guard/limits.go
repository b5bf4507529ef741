package guard

import (
	"context"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

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
