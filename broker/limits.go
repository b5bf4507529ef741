package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// limiter holds a session to its limits. Nothing in it waits: what does not fit
// is refused, with the time after which it may, because a server that waits in
// our memory is a server that fills it.
type limiter struct {
	Limits
	ops   *rate.Limiter // nil: no limit
	bytes *rate.Limiter
	asks  *rate.Limiter

	mu      sync.Mutex // guards the fields below
	running int
	held    int64
	written int64
}

func newLimiter(l Limits) *limiter {
	m := &limiter{Limits: l}
	if l.OpsPerSecond > 0 {
		m.ops = rate.NewLimiter(rate.Limit(l.OpsPerSecond), max(1, l.Burst, int(l.OpsPerSecond)))
		if l.Burst > 0 {
			m.ops.SetBurst(l.Burst)
		}
	}
	if l.BytesPerSecond > 0 {
		m.bytes = rate.NewLimiter(rate.Limit(l.BytesPerSecond), max(1, int(l.BytesPerSecond)))
	}
	if l.Consents > 0 {
		m.asks = rate.NewLimiter(rate.Limit(float64(l.Consents)/60), l.Consents)
	}
	return m
}

// enter makes room for a request of n bytes; leave gives it back.
func (m *limiter) enter(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.InFlight > 0 && m.running >= m.InFlight {
		return &hinted{err: busy(50*time.Millisecond, "too many requests at a time"), limit: int64(m.InFlight)}
	}
	// One request is let in whatever its size: the frame cap bounds it.
	if m.BytesInFlight > 0 && m.running > 0 && m.held+n > m.BytesInFlight {
		return &hinted{err: busy(50*time.Millisecond, "too many bytes in flight"), limit: m.BytesInFlight}
	}
	m.running++
	m.held += n
	return nil
}

func (m *limiter) leave(n int64) {
	m.mu.Lock()
	m.running--
	m.held -= n
	m.mu.Unlock()
}

// more reserves room for contents that an answer will carry.
func (m *limiter) more(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.BytesInFlight > 0 && m.held+n > m.BytesInFlight && m.held > n {
		return &hinted{err: busy(50*time.Millisecond, "too many bytes in flight"), limit: m.BytesInFlight}
	}
	m.held += n
	return nil
}

// hold counts bytes that are there already, whatever the limit.
func (m *limiter) hold(n int64) {
	m.mu.Lock()
	m.held += n
	m.mu.Unlock()
}

// request passes one request through the speed limit.
func (m *limiter) request() error {
	return take(m.ops, 1, "too many requests per second", m.OpsPerSecond)
}

// transfer passes n bytes of contents through the speed limit.
func (m *limiter) transfer(n int64) error {
	return take(m.bytes, int(n), "too many bytes per second", m.BytesPerSecond)
}

// pace waits until n bytes may pass, and calls alive while it does. n below 0
// takes nothing back.
func (m *limiter) pace(ctx context.Context, n int64, alive func()) error {
	if m.bytes == nil {
		return nil
	}
	for second := max(1, int64(m.bytes.Limit())); n > 0; {
		piece := min(n, second, int64(m.bytes.Burst()))
		if err := m.bytes.WaitN(ctx, int(piece)); err != nil {
			return err
		}
		n -= piece
		alive()
	}
	return nil
}

// ask passes one question to a person.
func (m *limiter) ask() error {
	return take(m.asks, 1, "too many requests for consent; the person is not to be worn down", float64(m.Consents))
}

// take passes n through a speed limit. What is larger than a second's amount
// passes when that much is free, and those that come after wait for the rest: a
// request whose length is allowed is never refused for good.
func take(l *rate.Limiter, n int, what string, limit float64) error {
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

// write reserves n bytes of the session's total; unwritten gives back what was
// not written.
func (m *limiter) write(n, size int64) error {
	if err := m.size(size); err != nil {
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

// size refuses a file that would become too large.
func (m *limiter) size(size int64) error {
	if m.MaxFile > 0 && size > m.MaxFile {
		return tooLarge("file", m.MaxFile)
	}
	return nil
}

func (m *limiter) unwritten(n int64) {
	m.mu.Lock()
	m.written -= n
	m.mu.Unlock()
}

func tooLarge(what string, limit int64) error {
	return &guard.Error{Kind: names.Quota, Err: fmt.Errorf("%s larger than %d bytes", what, limit), Limit: limit}
}

// alive runs f every time bytes moved.
func (r *request) alive() {
	if r.keepAlive != nil && r.ctx.Err() == nil {
		r.keepAlive()
	}
}
