package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Bounds of questions. A program chooses the names that it connects to, and connects as often as it
// likes. A person has to answer the questions about them.
const (
	// maxQuestions bounds the questions that are open at a time. It also bounds the rate of new
	// questions: a program may cause maxQuestions at once, and then one more each questionEvery.
	maxQuestions  = 16
	questionEvery = 5 * time.Second
	// maxWaiting bounds the connections that wait for the same answer, so that connections to one
	// host leave room for connections to other hosts.
	maxWaiting = 16
	// maxReached bounds the hosts in Question.Reached.
	maxReached = 32
)

// Reasons of refusals after a question.
var (
	ErrDenied           = errors.New("it was denied")
	ErrUnanswered       = fmt.Errorf("nobody answered the question about it in time, and %w", ErrNoRule)
	errTooManyQuestions = fmt.Errorf("the program caused too many questions, and %w", ErrNoRule)
	errTooManyWaiting   = fmt.Errorf("too many of the program's connections wait for the same answer, and %w", ErrNoRule)
	// ErrPermitted ends a question, but refuses no connection.
	ErrPermitted = errors.New("a rule permits it now")
)

// Ask configures questions about hosts that no rule permits.
type Ask struct {
	// Put asks a person, once for all waiting connections to a host and port. It calls
	// q.Permit if the person permits the host, or returns the reason why not. ctx ends when
	// the question is over, also without an answer. Put may be called concurrently.
	Put func(ctx context.Context, q Question) error
	// Denied returns an error if a person denied the host and port before. Connections to them
	// are then refused with that error, without another question. Denied may be called
	// concurrently.
	Denied func(host string, port uint16) error
	// For is how long a question waits for its answer.
	For time.Duration
	// Until is the time from which hosts without a rule are refused again without a
	// question; zero: never.
	Until time.Time
}

// Question is about a host that no rule permits.
type Question struct {
	Host names.Foreign // name, or the address if the program gave no name
	Port uint16
	// Program made the first connection.
	Program Program
	// Reached are the hosts that the program has reached so far, most bytes first. Others
	// is the number of further hosts.
	Reached []Reached
	Others  int
	// Permit adds the rule for this host and port. It fails if the question is over: the answer
	// then came too late.
	Permit func() error
}

// Rule returns the rule that Permit adds.
func (q *Question) Rule() Rule { return target{q.Host.Raw(), q.Port}.rule() }

// Reached counts the bytes exchanged with a host.
type Reached struct {
	Host           names.Foreign
	Port           uint16
	Sent, Received int64 // bytes from and to the program
}

// target is a host and a port, as in Question.
type target struct {
	host string
	port uint16
}

func (t target) rule() Rule {
	if a, err := netip.ParseAddr(t.host); err == nil {
		return Rule{Prefix: netip.PrefixFrom(a, a.BitLen()), Port: t.port}
	}
	return Rule{Name: t.host, Port: t.port}
}

// openQuestion is a question that has no answer yet, with the connections that wait for it.
type openQuestion struct {
	ctx     context.Context //nolint:containedctx // ends when the question is over, its cause says why
	cancel  context.CancelCauseFunc
	waiting int // connections; guarded by the gate's mutex
}

// questions has a gate's open questions and their bounds. The gate's mutex guards the fields,
// except stopped.
type questions struct {
	open    map[target]*openQuestion
	waiting int           // connections that wait, over all questions
	fresh   *rate.Limiter // bounds the rate of new questions
	stopped atomic.Bool   // all rules were revoked, so no more questions are put
}

func newQuestions() *questions {
	return &questions{open: map[target]*openQuestion{}, fresh: rate.NewLimiter(rate.Every(questionEvery), maxQuestions)}
}

// IsAsking reports whether hosts without a rule are asked about.
func (g *Gate) IsAsking() bool {
	a := g.opt.Ask
	return a != nil && !g.questions.stopped.Load() && (a.Until.IsZero() || time.Now().Before(a.Until))
}

// mayAsk reports whether to ask about a connection that no rule permits. There are no questions
// about services, about closed addresses or about addresses of this machine. A person has to write
// a rule for such an address.
func (g *Gate) mayAsk(c *conn) bool {
	return c.service == nil && g.IsAsking() && !(c.literal.IsValid() && (isClosed(c.literal) || isOwn(c.literal)))
}

// ask makes a connection wait until the question about its host is over. Then ask carries or
// refuses the connection. If the host was denied before, or if no further question or connection
// may wait, ask refuses the connection at once.
func (g *Gate) ask(c *conn) {
	var q *openQuestion
	err := g.opt.Ask.Denied(c.host, c.port)
	if err == nil {
		q, err = g.join(c)
	}
	if err != nil {
		g.refuse(c, err, 0)
		return
	}
	g.served.Go(func() {
		err := g.await(q)
		if err == nil {
			err = g.register(c)
		}
		if err != nil {
			g.refuse(c, err, time.Since(c.began))
			return
		}
		g.carry(c)
	})
}

// join makes a connection wait for the answer to the question about its host. If there is no open
// question about the host, join puts one.
func (g *Gate) join(c *conn) (*openQuestion, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := target{c.host, c.port}
	q := g.questions.open[t]
	if q != nil && q.ctx.Err() != nil {
		q = nil // the question is over, and its Put has not returned yet
	}
	switch {
	case g.closed:
		return nil, ErrEnded
	case g.paused:
		return nil, ErrPaused
	case g.questions.stopped.Load():
		return nil, ErrRevoked
	case q != nil && q.waiting >= maxWaiting, len(g.conns)+g.questions.waiting >= g.maxConns:
		return nil, errTooManyWaiting
	case q == nil && (len(g.questions.open) >= maxQuestions || !g.questions.fresh.Allow()):
		return nil, errTooManyQuestions
	}
	g.questions.waiting++
	if q != nil {
		q.waiting++
		return q, nil
	}
	q = &openQuestion{waiting: 1}
	ctx, stop := context.WithTimeoutCause(g.ctx, g.opt.Ask.For, ErrUnanswered)
	q.ctx, q.cancel = context.WithCancelCause(ctx)
	g.questions.open[t] = q
	about := Question{Host: names.Foreign(c.host), Port: c.port, Permit: func() error { return g.permit(t, q) }}
	about.Reached, about.Others = g.reachedLocked()
	g.served.Go(func() {
		defer stop()
		about.Program = g.owner(c, false)
		err := g.opt.Ask.Put(q.ctx, about)
		if err == nil {
			err = ErrDenied // has no effect if permit has ended the question
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.endQuestionLocked(t, q, err)
	})
	return q, nil
}

// await waits until the question is over. It returns nil if a rule permitted the host at that
// moment. The caller must then check the rules again.
func (g *Gate) await(q *openQuestion) error {
	<-q.ctx.Done()
	g.mu.Lock()
	g.questions.waiting--
	q.waiting--
	g.mu.Unlock()
	if err := context.Cause(q.ctx); !errors.Is(err, ErrPermitted) {
		return err
	}
	return nil
}

// permit adds the rule for a target, if the question about it is still open.
func (g *Gate) permit(t target, q *openQuestion) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.questions.open[t] != q || q.ctx.Err() != nil {
		return cmp.Or(context.Cause(q.ctx), ErrRevoked)
	}
	return g.addLocked([]Rule{t.rule()})
}

// endQuestionLocked ends a question. The first cause counts.
func (g *Gate) endQuestionLocked(t target, q *openQuestion, cause error) {
	if g.questions.open[t] == q {
		delete(g.questions.open, t)
	}
	q.cancel(cause)
}

// endQuestionsLocked ends every question. If permittedOnly is set, it ends only the questions about
// hosts that a rule permits now.
func (g *Gate) endQuestionsLocked(cause error, permittedOnly bool) {
	for t, q := range g.questions.open {
		if permittedOnly && !g.permitsLocked(connTo(t)) {
			continue
		}
		g.endQuestionLocked(t, q, cause)
	}
}

// connTo returns a connection to a target. It sets only the fields that rules are compared with.
func connTo(t target) *conn {
	c := &conn{host: t.host, port: t.port}
	if a, err := netip.ParseAddr(t.host); err == nil {
		c.literal = a.Unmap()
	}
	return c
}

// countLocked adds the bytes of a connection that has ended to g.reached. If g.reached has maxNames
// hosts already, countLocked leaves further hosts out.
func (g *Gate) countLocked(c *conn) {
	t := target{c.host, c.port}
	if g.reached[t] == nil {
		if len(g.reached) >= maxNames {
			return
		}
		g.reached[t] = &Reached{Host: names.Foreign(c.host), Port: c.port}
	}
	g.reached[t].Sent += c.sent.Load()
	g.reached[t].Received += c.received.Load()
}

// reachedLocked returns the hosts that the program has reached, most bytes first, and how many
// hosts it leaves out beyond maxReached. The bytes of open connections count, too.
func (g *Gate) reachedLocked() (list []Reached, others int) {
	all := map[target]Reached{}
	for t, r := range g.reached {
		all[t] = *r
	}
	for c := range g.conns {
		if c.outside == nil {
			continue
		}
		t := target{c.host, c.port}
		r := all[t]
		all[t] = Reached{names.Foreign(c.host), c.port, r.Sent + c.sent.Load(), r.Received + c.received.Load()}
	}
	for _, r := range all {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Reached) int {
		return cmp.Or(cmp.Compare(b.Sent+b.Received, a.Sent+a.Received), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port))
	})
	n := min(len(list), maxReached)
	return list[:n], len(list) - n
}
