package tools

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/internal/waiting"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A path that no root holds is put before the person at the host. Up to revision
// 2025-11-25 that is a request of ours, in the middle of the call. Since 2026-07-28 a
// client takes none: the question is the result of the call, which the client repeats
// with what its user said (SEP-2322; package proxy does the same for servers). Then the
// call is run again from its beginning: it finds the path granted, or knows that it was
// not, and may come to another path.
//
// A question is known by requestState, 128 random bits. What was decided in the rounds
// before is kept with it here, and no client can write it.

const (
	// askedAs is the key of our question among the inputs that are asked for.
	askedAs = "rootsfs-consent"
	// maxRounds bounds the questions whose calls have not come back.
	maxRounds = 64
	// keptFor is how long what was decided is kept for a client that does not come
	// back, beyond the time that the question itself waits.
	keptFor = 2 * time.Minute
)

// rounds are the questions whose calls have not come back.
type rounds struct {
	answers waiting.List[*mcp.ElicitResult] // nil: there is none

	asking sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	open   map[string]*round
	closed bool
}

// end answers every question with none, and lets nobody ask any more.
func (u *rounds) end() {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.answers.End(nil)
}

// round is one question.
type round struct {
	id      string
	answer  <-chan *mcp.ElicitResult
	asked   chan *mcp.ElicitParams // has the form when it is to be shown
	decided map[string]error       // by path: what was before it
	path    string
	done    chan struct{} // closed when err is known
	err     error
}

// inputNeeded is the error of a call that has to come back with an answer.
type inputNeeded struct {
	id   string
	form *mcp.ElicitParams
}

func (*inputNeeded) Error() string { return "the person at the host has to be asked" }

func (n *inputNeeded) result() *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{askedAs: n.form}, RequestState: n.id}
}

// asksInside reports whether an error says that a call is answered by a question.
func asksInside(err error) bool {
	var n *inputNeeded
	return errors.As(err, &n)
}

// consent asks the person at the host for a path that nobody approved.
func (c *call) consent(host string) error {
	if err, known := c.decided[host]; known {
		return err
	}
	ss := c.req.Session
	p := ss.InitializeParams()
	switch {
	case p == nil || p.ProtocolVersion < sessionless:
		ctx, cancel := c.whileWanted()
		defer cancel()
		return c.askFor(ctx, host, ss)
	case p.Capabilities == nil || p.Capabilities.Elicitation == nil || p.Capabilities.Elicitation.Form == nil && p.Capabilities.Elicitation.URL != nil:
		return c.askFor(c.ctx, host, nobody{}) // it waits for "rootsfs consent"
	}
	return c.askInside(host)
}

// askFor asks through a host, and waits. The question ends with ctx, and when the
// server withdraws its questions.
func (c *call) askFor(ctx context.Context, host string, through broker.Elicitor) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.s.asking, cancel)()
	c.s.questions.Add(1)
	defer c.s.questions.Add(-1)
	mode := "ro"
	if !c.reads() {
		mode = "rw"
	}
	res, err := c.s.cfg.Ask.Consent(ctx, through, wire.ConsentParams{
		Message: "The tool " + c.req.Params.Name + " is to be used on this path." + c.s.sharing(), RequestedPaths: []string{host}, Mode: mode,
	})
	if err == nil && !res.Granted {
		err = &guard.Error{Kind: names.NoConsent}
	}
	return err
}

// shareConsents says that what is allowed here is shared: others have it, too, because
// the requests have no session. It is said in each question, and in the owner's status.
func (s *Server) shareConsents(by string) {
	s.shared = by
	if s.cfg.Ask != nil {
		s.cfg.Ask.ShareConsents(by)
	}
}

// sharing is what a question says of that.
func (s *Server) sharing() string {
	if s.shared == "" {
		return ""
	}
	return " It came without a session (MCP 2026-07-28): what you allow, " + s.shared + " has until the server ends."
}

// nobody is a host that cannot ask.
type nobody struct{}

func (nobody) Elicit(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	return nil, errors.New("it has no forms")
}

// askInside puts the question in the place of the call's answer, unless somebody
// else knows the answer.
func (c *call) askInside(host string) error {
	// The client's roots first: from then on they come with every answer. Asked for
	// later, they would come without the state of this question.
	if _, _, err := c.s.scope(c.ctx, c.req.Session); err != nil {
		return err
	}
	r, err := c.s.rounds.begin(c.decided, host)
	if err != nil {
		return err
	}
	go func() {
		defer c.s.rounds.asking.Done()
		defer close(r.done)
		// The question outlives the call that it is the answer of.
		r.err = c.askFor(c.s.ctx, host, r)
		c.s.rounds.answers.Close(r.id)
		time.AfterFunc(keptFor, func() { c.s.rounds.take(r.id) })
	}()
	select {
	case form := <-r.asked:
		return &inputNeeded{r.id, form}
	case <-r.done:
		c.s.rounds.take(r.id)
		c.decided = r.all()
		return r.err
	case <-c.ctx.Done():
		c.s.rounds.take(r.id)
		c.s.rounds.answers.Deliver(r.id, nil)
		return c.ctx.Err()
	}
}

// Elicit implements broker.Elicitor.
func (r *round) Elicit(ctx context.Context, form *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	r.asked <- form // it has room: there is one question
	select {
	case res := <-r.answer:
		if res == nil {
			return nil, errors.New("the client came back without its user's answer")
		}
		return res, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// all is what was decided with this question.
func (r *round) all() map[string]error {
	all := maps.Clone(r.decided)
	if all == nil {
		all = map[string]error{}
	}
	all[r.path] = r.err
	return all
}

func (u *rounds) begin(decided map[string]error, path string) (*round, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.closed:
		return nil, &guard.Error{Kind: names.Revoked}
	case len(u.open) >= maxRounds:
		return nil, &guard.Error{Kind: names.Rate, Err: errors.New("too many questions wait for their answers")}
	}
	if u.open == nil {
		u.open = map[string]*round{}
	}
	r := &round{id: rand.Text(), asked: make(chan *mcp.ElicitParams, 1), decided: decided, path: path, done: make(chan struct{})}
	var ok bool
	if r.answer, ok = u.answers.Open(r.id); !ok {
		return nil, &guard.Error{Kind: names.Revoked}
	}
	u.open[r.id] = r
	u.asking.Add(1)
	return r, nil
}

func (u *rounds) take(id string) *round {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.open[id]
	delete(u.open, id)
	return r
}

// back takes the answer that a call brings with it, if it is one that comes back,
// and waits until that has been acted on.
func (c *call) back() error {
	r := c.s.rounds.take(c.req.Params.RequestState)
	if r == nil {
		return nil
	}
	answer, _ := c.req.Params.InputResponses[askedAs].(*mcp.ElicitResult)
	c.s.rounds.answers.Deliver(r.id, answer) // too late, if nobody waits
	select {
	case <-r.done:
		c.decided = r.all()
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}
