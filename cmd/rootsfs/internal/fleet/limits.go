package fleet

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"
)

// limits bounds the messages, or the bytes, that each of many parties may send. A message above the
// bound is not read: one machine must not keep the keeper so busy that others wait.
type limits struct {
	rate  rate.Limit
	burst int

	mu       sync.Mutex               // guards limiters
	limiters map[string]*rate.Limiter // by party
}

// maxLimited bounds the number of limiters: an external server may let one party use many subjects.
const maxLimited = 1 << 14

func newLimits(perSecond rate.Limit, burst int) *limits {
	return &limits{rate: perSecond, burst: burst, limiters: map[string]*rate.Limiter{}}
}

// admits charges a party with a message, and reports whether it is read.
func (l *limits) admits(party string, cost int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.limiters[party]
	if one == nil {
		if len(l.limiters) >= maxLimited {
			clear(l.limiters)
		}
		one = rate.NewLimiter(l.rate, l.burst)
		l.limiters[party] = one
	}
	return one.AllowN(time.Now(), cost)
}

// How often a machine, or the bearer of an invite, may ask a keeper on one subject. An agent asks less
// often, also right after orders, and repeats requests that were not answered.
const (
	requestRate  = 10 // in a second
	requestBurst = 100
)

// bounded returns a handler that calls handle for a bounded number of messages on each subject. The
// fleet's own server lets a machine send requests on the machine's own subjects only.
func (r *registrar) bounded(handle nats.MsgHandler) nats.MsgHandler {
	return func(m *nats.Msg) {
		if r.requests.admits(m.Subject, 1) {
			handle(m)
		}
	}
}
