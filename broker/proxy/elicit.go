package proxy

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/internal/waiting"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// questions are requests of ours that the host has not answered.
type questions struct{ waiting.List[response] }

// response is an answer of the host's, apart from the buffer it was read into.
type response struct {
	result []byte // raw; nil: an error
	err    error
}

var errNoAnswer = errors.New("the host has ended")

// open makes room for the answer to id.
func (q *questions) open(id string) (<-chan response, error) {
	answer, ok := q.Open(id)
	if !ok {
		return nil, errNoAnswer
	}
	return answer, nil
}

// end answers all that wait: there is no host any more.
func (q *questions) end() { q.End(response{err: errNoAnswer}) }

// answer takes the host's answer to an id of ours. One that nobody waits for
// came too late and is nobody's.
func (q *questions) answer(b []byte, f *frame) {
	id := string(meant(f.id.of(b)))
	switch {
	case !f.clash.absent(), f.result.absent() == f.err.absent():
		q.Deliver(id, response{err: errors.New("the host's answer is ambiguous")})
	case f.result.absent():
		q.Deliver(id, response{err: fmt.Errorf("the host answered with an error: %s", f.err.of(b))})
	default:
		q.Deliver(id, response{result: bytes.Clone(f.result.of(b))})
	}
}

// askThroughHost lets the session ask the host's user, or not any more.
func (p *Proxy) askThroughHost(can bool) {
	if can {
		p.session.AskThrough(forms{p})
	} else {
		p.session.AskThrough(nil)
	}
}

// forms puts forms before the host's user.
type forms struct{ p *Proxy }

var _ broker.Elicitor = forms{}

// Elicit implements broker.Elicitor: a request elicitation/create of ours, whose
// answer does not get to the server.
func (h forms) Elicit(ctx context.Context, params *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	body, err := stdjson.Marshal(params)
	if err != nil {
		return nil, err
	}
	id := h.p.newID()
	answer, err := h.p.asked.open(id)
	if err != nil {
		return nil, err
	}
	defer h.p.asked.Close(id)
	h.p.stats.asked.Add(1)
	// On the side: a host that does not read must not keep the question open for
	// longer than it lasts.
	h.p.tell(h.p.host, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"%s","method":"elicitation/create","params":%s}`, id, body))
	select {
	case r := <-answer:
		if r.err != nil {
			return nil, r.err
		}
		return readForm(r.result)
	case <-ctx.Done():
		h.p.tell(h.p.host, fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"%s","params":{"requestId":"%s","reason":"nobody answered"}}`, wire.Cancelled, id))
		return nil, ctx.Err()
	}
}

// readForm reads an answer strictly: one in which a field stands twice is none.
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
