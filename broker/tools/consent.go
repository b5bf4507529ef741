package tools

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/semaphore"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// If no root holds a path, the owner is asked about it, and the call waits. If the client is
// the owner's own host (Config.ClientAnswers), the client's user is asked first. Up to revision
// 2025-11-25 the server sends the client a request in the middle of the call. Since 2026-07-28
// clients take no such requests: the question is the result of the call, and the client repeats
// the call with its user's answer (SEP-2322; package proxy does the same for servers). The
// repeated call runs from its beginning. It finds the path granted, or knows the refusal, and
// may ask about another path.
//
// The requestState of a question is 128 random bits. The openQuestion, which no client can change,
// has the decisions that were made earlier in the same call.

const (
	// questionKey is the key of the question among the requested inputs.
	questionKey = "rootsfs-consent"
	// maxQuestions bounds the questions whose calls the client has not repeated yet.
	maxQuestions = 64
	// keepAnswerFor is how long a decision is kept, after it was made, for a client that has not
	// repeated the call yet.
	keepAnswerFor = 2 * time.Minute
)

// openQuestions are the questions whose calls the client has not repeated yet.
type openQuestions struct {
	undecided *semaphore.Weighted // one unit for each question that is not decided, at most maxQuestions

	mu     sync.Mutex // guards the fields below
	byID   map[string]*openQuestion
	closed bool
}

// openQuestion is one question. It implements broker.Elicitor.
type openQuestion struct {
	id      string
	path    string
	earlier map[string]error       // decisions made before this question in the same call, by path
	form    chan *mcp.ElicitParams // gets the form that is to be shown
	answer  chan *mcp.ElicitResult // gets the client's answer; nil: the client gives none
	done    chan struct{}          // closed when err is known
	err     error                  // why the path is not granted; nil: it is granted
}

// close refuses questions from now on.
func (u *openQuestions) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
}

// open begins a question. The caller releases undecided when the question is decided.
func (u *openQuestions) open(earlier map[string]error, path string) (*openQuestion, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.closed:
		return nil, &guard.Error{Kind: names.Revoked}
	case len(u.byID) >= maxQuestions || !u.undecided.TryAcquire(1):
		return nil, &guard.Error{Kind: names.Rate, Err: errors.New("too many questions wait for their answers")}
	}
	q := &openQuestion{
		id: rand.Text(), path: path, earlier: earlier,
		form: make(chan *mcp.ElicitParams, 1), answer: make(chan *mcp.ElicitResult, 1), done: make(chan struct{}),
	}
	if u.byID == nil {
		u.byID = map[string]*openQuestion{}
	}
	u.byID[q.id] = q
	return q, nil
}

// answer answers a question and forgets it. It returns nil if there is no question with this
// id.
func (u *openQuestions) answer(id string, a *mcp.ElicitResult) *openQuestion {
	u.mu.Lock()
	defer u.mu.Unlock()
	q := u.byID[id]
	if q != nil {
		delete(u.byID, id)
		q.answer <- a // never blocks: the channel has room for the one answer
	}
	return q
}

// Elicit implements broker.Elicitor.
func (q *openQuestion) Elicit(ctx context.Context, form *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	q.form <- form // never blocks: the channel has room for the one form
	select {
	case a := <-q.answer:
		if a == nil {
			return nil, errors.New("the client came back without its user's answer")
		}
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// decisions returns the decisions of the call, the decision about q included.
func (q *openQuestion) decisions() map[string]error {
	all := map[string]error{q.path: q.err}
	maps.Copy(all, q.earlier) // earlier has other paths
	return all
}

// inputNeeded is the error of a call that the client has to repeat with an answer.
type inputNeeded struct {
	id   string
	form *mcp.ElicitParams
}

func (*inputNeeded) Error() string { return "the person at the host has to be asked" }

func (n *inputNeeded) result() *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{questionKey: n.form}, RequestState: n.id}
}

// isInputNeeded reports whether an error means that the result of the call is a question.
func isInputNeeded(err error) bool {
	var n *inputNeeded
	return errors.As(err, &n)
}

// consent asks about host, a path that no root holds. If the path was decided earlier in this call,
// consent returns that decision. nil means that the path is granted.
func (c *call) consent(host string) error {
	if err, known := c.decisions[host]; known {
		return err
	}
	var elicitor broker.Elicitor // nil: the client is not asked
	if c.s.cfg.ClientAnswers {
		switch p := c.req.Session.InitializeParams(); {
		case p == nil || p.ProtocolVersion < sessionless:
			elicitor = c.req.Session
		case showsForms(p.Capabilities):
			return c.askInside(host)
		}
	}
	ctx, cancel := c.untilHangup()
	defer cancel()
	return c.askFor(ctx, host, elicitor)
}

// showsForms reports whether a client can ask its user by a form.
func showsForms(c *mcp.ClientCapabilities) bool {
	return c != nil && c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

// askFor asks about the path host through Config.Ask, and waits for the answer. elicitor shows a
// form to the client's user; nil: the client is not asked. The question ends when ctx ends, and
// when the server withdraws its questions.
func (c *call) askFor(ctx context.Context, host string, elicitor broker.Elicitor) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.s.asking, cancel)()
	c.s.questions.Add(1)
	defer c.s.questions.Add(-1)
	mode := "ro"
	if !c.reads {
		mode = "rw"
	}
	res, err := c.s.cfg.Ask.Consent(ctx, elicitor, wire.ConsentParams{
		Message: "The tool " + c.req.Params.Name + " is to be used on this path." + c.s.sharing, RequestedPaths: []string{host}, Mode: mode,
	})
	if err == nil && !res.Granted {
		err = notGranted(res.Reason)
	}
	return err
}

// notGranted returns the error that tells a client how the question about its path ended.
func notGranted(reason string) error {
	if reason == "timeout" {
		return hint(&guard.Error{Kind: names.NoConsent, Err: errors.New("nobody approved this: the owner was asked and has not answered in time")},
			"ask the owner to answer (rootsfs consent list --watch), then call again")
	}
	return &guard.Error{Kind: names.NoConsent, Err: errors.New("nobody approved this: the owner or the configuration denied it")}
}

// shareConsents records that other clients share the consents, because the requests have no
// session. Each question says so, and so does the owner's status.
func (s *Server) shareConsents(by string) {
	s.sharing = " It came without a session (MCP 2026-07-28): what you allow, " + by + " has until the server ends."
	if s.cfg.Ask != nil {
		s.cfg.Ask.ShareConsents(by)
	}
}

// askInside makes the question the result of the call: it returns inputNeeded. If the question is
// decided without the client's form, askInside returns the decision.
func (c *call) askInside(host string) error {
	// Request the client's roots first: from then on the roots come with every answer. If they
	// were requested later, their answer would not have the state of this question.
	if _, _, err := c.s.scope(c.ctx, c.req.Session); err != nil {
		return err
	}
	open := &c.s.openQuestions
	q, err := open.open(c.decisions, host)
	if err != nil {
		return err
	}
	go func() {
		defer open.undecided.Release(1)
		defer close(q.done)
		// The question outlives the call whose result it is.
		q.err = c.askFor(c.s.ctx, host, q)
		time.AfterFunc(keepAnswerFor, func() { open.answer(q.id, nil) })
	}()
	select {
	case form := <-q.form:
		return &inputNeeded{q.id, form}
	case <-q.done:
		open.answer(q.id, nil)
		c.decisions = q.decisions()
		return q.err
	case <-c.ctx.Done():
		open.answer(q.id, nil)
		return c.ctx.Err()
	}
}

// readAnswer reads the answer that comes with a repeated call, if any, and waits until the
// grant is made or refused.
func (c *call) readAnswer() error {
	answer, _ := c.req.Params.InputResponses[questionKey].(*mcp.ElicitResult)
	q := c.s.openQuestions.answer(c.req.Params.RequestState, answer)
	if q == nil {
		return nil
	}
	select {
	case <-q.done:
		c.decisions = q.decisions()
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}
