package proxy

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// The session's questions are put to the host's user. Up to revision 2025-11-25 the proxy
// sends a request elicitation/create. Since 2026-07-28 a host takes no unsolicited request:
// it is asked for input in the place of an answer to a call of its own, and repeats the call
// with its user's answer (SEP-2322). A server's request for consent
// comes while the server works on such a call. So the proxy sends the session's question to the
// host as the answer to the call. The server does not see this answer: for the server, the call is
// still open. When the host repeats the call, the proxy does not send the repetition to the server,
// but answers it with the server's answer to the first call. If the server answers before the host
// has repeated the call, the server's answer is kept.
//
// In both cases the question has an id with 128 random bits. The server never sees the id,
// because neither the question nor its answer goes through the server.

const (
	// questionKey is the key of the session's question among the inputs that the host is
	// asked for.
	questionKey = "rootsfs-consent"
	// keepAnswerFor is how long, after the question's own time is up, a call and the server's
	// answer to it are kept for a host that has not repeated the call.
	keepAnswerFor = 10 * time.Minute
)

// response is an answer of the host, copied out of the buffer it was read into.
type response struct {
	result []byte // raw; nil if there is an error
	err    error
}

var (
	errNoAnswer = errors.New("the host has ended")
	errNoCall   = errors.New("no call of the host's is open in which its user could be asked")
)

// answerQuestion passes the host's answer to the waiting asker. Only the first answer counts.
// Without a waiting asker the answer is too late.
func (p *Proxy) answerQuestion(id string, r response) {
	if answer, waits := p.questions.LoadAndDelete(id); waits {
		answer.(chan response) <- r // never blocks: the channel has room for the one answer
	}
}

// readResponse reads the host's answer to a request of the proxy.
func readResponse(b []byte, f *jsonline.Frame) response {
	switch {
	case !f.Clash.Absent(), f.Result.Absent() == f.Error.Absent():
		return response{err: errors.New("the host's answer is ambiguous")}
	case f.Result.Absent():
		return response{err: fmt.Errorf("the host answered with an error: %s", f.Error.Of(b))}
	}
	return response{result: bytes.Clone(f.Result.Of(b))}
}

// asker shows forms to the host's user.
type asker struct {
	p           *Proxy
	insideCalls bool // the questions are sent as results of the host's calls; otherwise as requests
}

var _ broker.Elicitor = asker{}

// Elicit implements broker.Elicitor.
func (a asker) Elicit(ctx context.Context, params *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	form, err := stdjson.Marshal(params)
	if err != nil {
		return nil, err
	}
	id, answer := a.p.newID(), make(chan response, 1)
	a.p.questions.Store(id, answer)
	defer a.p.questions.Delete(id)
	if err := a.ask(id, form); err != nil {
		return nil, err
	}
	a.p.stats.asked.Add(1)
	var r response
	select {
	case r = <-answer:
	case <-a.p.hostEnded.Done():
		select {
		case r = <-answer: // the answer came just before
		default:
			return nil, errNoAnswer
		}
	case <-ctx.Done():
		a.withdraw(id)
		return nil, ctx.Err()
	}
	if r.err != nil {
		return nil, r.err
	}
	return readForm(r.result)
}

// ask sends a question in a goroutine: a host that does not read must not keep the
// question open beyond its time.
func (a asker) ask(id string, form []byte) error {
	if !a.insideCalls {
		a.p.sendAsync(a.p.host, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"%s","method":"elicitation/create","params":%s}`, id, form))
		return nil
	}
	hostID := a.p.calls.markAsked(id)
	if hostID == nil {
		return errNoCall
	}
	a.p.sendAsync(a.p.host, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required","%s":{"%s":{"method":"elicitation/create","params":%s}},"%s":"%s"}}`,
		hostID, inputRequests, questionKey, form, requestState, id))
	return nil
}

// withdraw ends a question whose context has ended: its time is up, or nobody waits for its answer
// any more.
func (a asker) withdraw(id string) {
	if a.insideCalls {
		// The host may still come back for the answer to its call.
		time.AfterFunc(keepAnswerFor, func() { a.p.calls.giveUp(id) })
		return
	}
	a.p.sendAsync(a.p.host, fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"%s","params":{"requestId":"%s","reason":"nobody answered"}}`, wire.Cancelled, id))
}

// readForm reads an answer strictly: an answer with a duplicate field is refused.
func readForm(result []byte) (*mcp.ElicitResult, error) {
	var r struct {
		Action  string         `json:"action"`
		Content map[string]any `json:"content"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, fmt.Errorf("the host's answer cannot be read: %w", err)
	}
	return &mcp.ElicitResult{Action: r.Action, Content: r.Content}, nil
}

// handleRetry handles a call that the host repeats with the answer to the question with the id
// questionID. It reports false for any other call.
func (p *Proxy) handleRetry(b []byte, f *jsonline.Frame, questionID string) bool {
	callID := f.ID.Of(b)
	if !jsonline.Answerable(callID) {
		return false
	}
	answer, ok := p.calls.reattach(questionID, callID)
	if !ok {
		return false
	}
	r := response{err: errors.New("the host came back without its user's answer")}
	if at, ok := jsonline.Lookup(b, f.Params, inputResponses, questionKey); ok {
		r = response{result: bytes.Clone(at.Of(b))}
	}
	p.answerQuestion(questionID, r)
	af, ok := jsonline.Parse(answer)
	if !ok {
		return true // the server has not answered
	}
	out, pass := p.handleAnswer(answer, &af)
	if pass {
		out = answer
	}
	if out != nil {
		p.sendAsync(p.host, out)
	}
	return true
}
