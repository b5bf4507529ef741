package proxy

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// Since 2026-07-28 a host takes no request out of the blue: it is asked for input
// in the place of an answer to a call of its own, and repeats the call with what
// its user said (SEP-2322). A server that wants consent does so in the middle of
// answering such a call. So the session's question is the answer that the host
// gets; the server, which knows nothing of it, goes on with the call; and when the
// host comes back, its repetition is not carried, but what the server answers then
// goes to it. A server that answers before the host came back has its answer kept.
//
// The question is known by requestState, an id of ours with 128 random bits that
// no server gets to see: neither the question nor the repetition passes it.

// inCalls puts questions before the host's user in the place of answers.
type inCalls struct{ p *Proxy }

var _ broker.Elicitor = inCalls{}

const (
	// askedAs is the key of our question among the inputs that are asked for.
	askedAs = "rootsfs-consent"
	// keptFor is how long an answer is kept for a host that does not come back,
	// beyond the time that the question itself waits.
	keptFor = 10 * time.Minute
)

var errNoCall = errors.New("no call of the host's is open in which its user could be asked")

// Elicit implements broker.Elicitor. Without an open call of a host that can show
// forms it fails at once.
func (h inCalls) Elicit(ctx context.Context, params *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	p := h.p
	body, err := stdjson.Marshal(params)
	if err != nil {
		return nil, err
	}
	id := p.newID()
	answer, err := p.asked.open(id)
	if err != nil {
		return nil, err
	}
	defer p.asked.Close(id)
	c, hostID := p.rounds.ask(id)
	if c == nil {
		return nil, errNoCall
	}
	p.stats.asked.Add(1)
	p.tell(p.host, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required","inputRequests":{"%s":{"method":"elicitation/create","params":%s}},"requestState":"%s"}}`,
		hostID, askedAs, body, id))
	select {
	case r := <-answer:
		if r.err != nil {
			return nil, r.err
		}
		return readForm(r.result)
	case <-ctx.Done():
		// The host may still come back for the answer to its call.
		time.AfterFunc(keptFor, func() { p.rounds.giveUp(c, id) })
		return nil, ctx.Err()
	}
}

// ask takes the call that was begun last, of those whose host can be asked
// something, for a question, and returns it with the host's id that the question
// answers; nil if there is none.
func (r *rounds) ask(question string) (c *round, hostID []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, open := range r.host {
		if open.asks && !open.over && (c == nil || open.seq > c.seq) {
			c = open
		}
	}
	if c == nil {
		return nil, nil
	}
	delete(r.host, idKey(c.hostID))
	if c.serverID == nil {
		c.serverID = c.hostID
		r.ours[idKey(c.serverID)] = c
	}
	c.question = question
	r.asked[question] = c
	return c, c.hostID
}

// defers keeps the server's answer to a call whose host has not come back. It
// reports false if the host waits for it; then nobody is asked in its place any
// more.
func (r *rounds) defers(c *round, answer []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.question == "" {
		c.over = true
		return false
	}
	if c.answer == nil {
		c.answer = bytes.Clone(answer)
		if r.held+len(answer) > maxHeld {
			c.answer = errorReply(c.serverID, wire.CodeInternal, "the answer came before its host came back, and is too long to be kept")
		}
		r.held += len(c.answer)
	}
	return true
}

// taken reports whether the server still has a call by this id of the host's, who
// was asked something in the place of its answer and may take it for free.
func (r *rounds) taken(id []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ours) > 0 && r.ours[idKey(id)] != nil
}

// giveUp forgets a call whose host did not come back.
func (r *rounds) giveUp(c *round, question string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.question == question {
		r.forgetLocked(c)
	}
}

// back gives a call that comes back to the host's new id. It returns what the server
// has answered meanwhile, nil if nothing; ok is false if nobody was asked so.
func (r *rounds) back(question string, hostID []byte) (answer []byte, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.asked[question]
	if c == nil {
		return nil, false
	}
	delete(r.asked, question)
	answer, c.answer = c.answer, nil
	r.held -= len(answer)
	c.question, c.hostID = "", bytes.Clone(hostID)
	r.host[idKey(hostID)] = c
	return answer, true
}

// comesBack deals with a call that the host repeats because we asked it something;
// it reports false for another one.
func (p *Proxy) comesBack(b []byte, f *frame, question string) bool {
	id := f.id.of(b)
	if !answerable(id) {
		return false
	}
	answer, ok := p.rounds.back(question, id)
	if !ok {
		return false
	}
	said := response{err: errors.New("the host came back without its user's answer")}
	if at, ok := lookup(b, f.params, "inputResponses", askedAs); ok {
		said = response{result: bytes.Clone(at.of(b))}
	}
	p.asked.Deliver(question, said)
	if answer == nil {
		return true
	}
	if af, ok := readFrame(answer); ok {
		out, pass := p.response(answer, &af, p.mine(af.id.of(answer)))
		if pass {
			out = answer
		}
		if out != nil {
			p.tell(p.host, out)
		}
	}
	return true
}
