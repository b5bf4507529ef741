package guard

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard/names"
)

// waitForSpeed waits for the root's speed limit and for that of the audit log. While it
// waits it holds no reference, so that a change of the root need not wait for it;
// waited says that the root has to be entered again.
func (l *Lease) waitForSpeed(ctx context.Context) (waited bool, err error) {
	r := l.root
	if r.flushing.Load() != 0 {
		return false, nil
	}
	limit, wait := l.policy.timeout(), time.Duration(0)
	var res *rate.Reservation
	if r.limiter != nil {
		res = r.limiter.Reserve()
		wait = res.Delay()
	}
	if wait <= limit {
		wait = max(wait, l.pace(limit))
	}
	if wait == 0 {
		return false, nil
	}
	cancel := func() {
		if res != nil {
			res.Cancel()
		}
	}
	if wait > limit {
		cancel()
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
		return true, r.endedError()
	case <-ctx.Done():
		cancel()
		return true, ctx.Err()
	}
}
