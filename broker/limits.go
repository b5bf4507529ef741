package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// limiter holds a session to its limits. Only its method pace waits. The other methods refuse
// what exceeds a limit, because a server that waits in our memory is a server that fills it. The
// error for too many requests, bytes or questions at a time gives the time after which to try
// again.
type limiter struct {
	Limits
	requests flowcontrol.Budget // requests that are not answered yet
	ops      *rate.Limiter      // nil: no limit; the same holds for bytes and asks
	bytes    *rate.Limiter
	asks     *rate.Limiter // shared by all sessions of the subject, see Broker.asksLocked

	mu      sync.Mutex // guards the field below
	written int64
}

// perSecond returns a limiter for an amount per second; nil: no limit.
func perSecond(limit float64, burst int) *rate.Limiter {
	if limit <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(limit), max(1, burst))
}

func newLimiter(l Limits) *limiter {
	return &limiter{
		Limits:   l,
		requests: flowcontrol.Budget{Count: l.InFlight, Bytes: l.BytesInFlight},
		ops:      perSecond(l.OpsPerSecond, cmp.Or(max(0, l.Burst), int(l.OpsPerSecond))),
		bytes:    perSecond(l.BytesPerSecond, int(l.BytesPerSecond)),
	}
}

// asksLocked returns the limit of a subject's questions. All sessions of the subject share the
// limit, even sessions that have ended, so a new session allows no additional questions. Sessions
// whose subject has no name share nothing, because they may be different servers.
func (b *Broker) asksLocked(who guard.Subject) *rate.Limiter {
	limit := perSecond(float64(b.cfg.Limits.Consents)/60, b.cfg.Limits.Consents)
	if who == "" || limit == nil {
		return limit
	}
	isLive := map[guard.Subject]bool{}
	for s := range b.sessions {
		isLive[s.subject.WithoutSession()] = true
	}
	maps.DeleteFunc(b.asks, func(other guard.Subject, l *rate.Limiter) bool {
		return !isLive[other] && l.Tokens() >= float64(l.Burst()) // a new limiter would be in the same state
	})
	who = who.WithoutSession()
	if b.asks[who] == nil {
		b.asks[who] = limit
	}
	return b.asks[who]
}

// asRefusal turns an error of a flowcontrol.Budget into the refusal of a request.
func (m *limiter) asRefusal(err error) error {
	switch {
	case errors.Is(err, flowcontrol.ErrCount):
		return &hinted{err: busy(50*time.Millisecond, err.Error()), limit: int64(m.InFlight)}
	case errors.Is(err, flowcontrol.ErrBytes):
		return &hinted{err: busy(50*time.Millisecond, err.Error()), limit: m.BytesInFlight}
	}
	return err
}

// spendRequest passes one request through the speed limit.
func (m *limiter) spendRequest() error {
	return spend(m.ops, 1, "too many requests per second", m.OpsPerSecond)
}

// spendBytes passes n bytes of contents through the speed limit.
func (m *limiter) spendBytes(n int64) error {
	return spend(m.bytes, int(n), "too many bytes per second", m.BytesPerSecond)
}

// pace waits until n bytes may pass, and calls alive while it waits. A negative n is ignored.
func (m *limiter) pace(ctx context.Context, n int64, alive func()) error {
	if m.bytes == nil {
		return nil
	}
	for n > 0 {
		piece := min(n, int64(m.bytes.Burst())) // WaitN refuses more than a burst
		if err := m.bytes.WaitN(ctx, int(piece)); err != nil {
			return err
		}
		n -= piece
		alive()
	}
	return nil
}

// spendQuestion counts one question to a person, and refuses the question if there were too many.
func (m *limiter) spendQuestion() error {
	return spend(m.asks, 1, "too many requests for consent; the person is not to be worn down", float64(m.Consents))
}

// spend passes an amount n through a speed limit, or refuses it with the time after which to try
// again. An n that is larger than the burst of the limit passes when a whole burst is free. Later
// requests are then refused until the limit has made up for the rest of n. So a request of an allowed
// length is never refused for good.
func spend(l *rate.Limiter, n int, what string, limit float64) error {
	if l == nil || n <= 0 {
		return nil
	}
	now, first := time.Now(), min(n, l.Burst())
	r := l.ReserveN(now, first)
	if d := r.DelayFrom(now); d > 0 {
		r.CancelAt(now)
		return &hinted{err: busy(d, what), limit: int64(limit)}
	}
	for n -= first; n > 0; n -= l.Burst() {
		l.ReserveN(now, min(n, l.Burst()))
	}
	return nil
}

// chargeWrite charges n bytes to the total that the session has written. size is the size of the
// file afterwards. If fewer bytes are written, the caller must call refundWrite for the rest.
func (m *limiter) chargeWrite(n, size int64) error {
	if err := m.checkSize(size); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.MaxWritten > 0 && m.written+n > m.MaxWritten {
		return tooLarge("total written", m.MaxWritten)
	}
	m.written += n
	return nil
}

// checkSize refuses a file that would become too large.
func (m *limiter) checkSize(size int64) error {
	if m.MaxFile > 0 && size > m.MaxFile {
		return tooLarge("file", m.MaxFile)
	}
	return nil
}

// refundWrite refunds n bytes that chargeWrite charged.
func (m *limiter) refundWrite(n int64) {
	m.mu.Lock()
	m.written -= n
	m.mu.Unlock()
}

func tooLarge(what string, limit int64) error {
	return &guard.Error{Kind: names.Quota, Err: fmt.Errorf("%s larger than %d bytes", what, limit), Limit: limit}
}
