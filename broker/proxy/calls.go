package proxy

import (
	"bytes"
	"sync"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// calls holds the unanswered calls of a host that speaks revision 2026-07-28 or later. The proxy
// needs them because an answer may ask for roots, a request that the host must not get (see
// inputs.go). The proxy also puts the session's questions to the host's user in the place of an
// answer (see question.go).
type calls struct {
	mu         sync.Mutex // guards the fields below, and the calls
	byHost     map[string]*call
	byServer   map[string]*call
	byQuestion map[string]*call // by questionID
	held       int              // bytes of all requests and answers
	seq        int
}

// call is one call. The host and the server may know it by different ids.
type call struct {
	request    []byte // as the server got it
	hostID     []byte // raw: the id that the host waits for
	serverID   []byte // raw: the id that the server answers
	canAsk     bool   // the answer may be replaced by a question to the host
	seq        int    // the number of the call; later calls have higher numbers
	repeats    int    // how often the call was repeated so far
	state      callState
	questionID string // state asked
	answer     []byte // state asked: the server's answer, kept until the host comes back
}

// callState says what a call waits for.
type callState int

const (
	// called: the host waits for the server.
	called callState = iota
	// answered: the server's answer is being examined.
	answered
	// asked: the host got a question instead of an answer and has not come back. The server
	// may still work on the call.
	asked
	// ended: the call is not kept any more.
	ended
)

// Calls are kept up to these limits. For a call that was not kept, a result that asks for roots
// is refused.
const (
	maxHeld  = 64 << 20 // bytes
	maxCalls = 4096
)

// idKey maps all spellings of a raw string id to one key. A raw number is its own key.
func idKey(id []byte) string {
	if bytes.IndexByte(id, '\\') < 0 {
		return string(id)
	}
	return `"` + string(jsonline.Unquote(id)) + `"`
}

// add keeps a call, if there is room for it. request is the message as the server gets it.
func (c *calls) add(id, request []byte, canAsk bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := idKey(id)
	c.endLocked(c.byHost[key])
	c.endLocked(c.byServer[key])
	if c.held+len(request) > maxHeld || len(c.byServer) >= maxCalls {
		return
	}
	if c.byHost == nil {
		c.byHost, c.byServer, c.byQuestion = map[string]*call{}, map[string]*call{}, map[string]*call{}
	}
	c.seq++
	own := &call{request: bytes.Clone(request), hostID: bytes.Clone(id), canAsk: canAsk, seq: c.seq}
	own.serverID = own.hostID
	c.byHost[key], c.byServer[key] = own, own
	c.held += len(own.request)
}

// isIDInUse reports whether the server still works on a call with this id although the host no
// longer waits for an answer with it. The host may think that the id is free.
func (c *calls) isIDInUse(id []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := idKey(id)
	return c.byServer[key] != nil && c.byServer[key] != c.byHost[key]
}

// acceptAnswer returns the call that the server answers by this id, nil if no such call is held.
// kept reports that the host has to come back first: until then the first answer is kept, and
// further answers are dropped.
func (c *calls) acceptAnswer(id, answer []byte) (own *call, kept bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own = c.byServer[idKey(id)]
	switch {
	case own == nil:
		return nil, false
	case own.state == asked && own.answer == nil:
		own.answer = bytes.Clone(answer)
		if c.held+len(answer) > maxHeld {
			own.answer = errorReply(own.serverID, wire.CodeInternal, "the answer came before its host came back, and is too long to be kept")
		}
		c.held += len(own.answer)
	case own.state == called:
		own.state = answered
	}
	return own, own.state == asked
}

// repeat gives an answered call a new id, so that the caller can send the call to the server
// again. ok is false if the call has ended or was repeated meanwhile. tooOften reports that repeat
// has ended the call, because it was repeated maxRepeats times before; ok is false then, too.
func (c *calls) repeat(own *call, id string) (ok, tooOften bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case own.state != answered:
		return false, false
	case own.repeats == maxRepeats:
		c.endLocked(own)
		return false, true
	}
	delete(c.byServer, idKey(own.serverID))
	own.serverID = []byte(`"` + id + `"`)
	c.byServer[idKey(own.serverID)] = own
	own.repeats++
	own.state = called
	return true, false
}

// markAsked chooses the latest call that can get a question in the place of its answer, and marks
// the call as asked. It returns the host's id of the call, with which the question must be sent. It
// returns nil if no call can get a question.
func (c *calls) markAsked(questionID string) (hostID []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var own *call
	for _, open := range c.byHost {
		if open.canAsk && open.state == called && (own == nil || open.seq > own.seq) {
			own = open
		}
	}
	if own == nil {
		return nil
	}
	delete(c.byHost, idKey(own.hostID))
	own.state, own.questionID = asked, questionID
	c.byQuestion[questionID] = own
	return own.hostID
}

// reattach gives a call the host's new id, when the host comes back with the answer to a
// question. It returns the server's answer to the call, if that answer has come meanwhile. ok is
// false if no call has this question.
func (c *calls) reattach(questionID string, hostID []byte) (answer []byte, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.byQuestion[questionID]
	if own == nil {
		return nil, false
	}
	key := idKey(hostID)
	c.endLocked(c.byHost[key])
	delete(c.byQuestion, questionID)
	answer = own.answer
	c.held -= len(answer)
	// Make a new call: other goroutines may still use the old one, such as for an answer that
	// came twice, and they read its hostID without the lock.
	again := *own
	again.state, again.questionID, again.answer, again.hostID = called, "", nil, bytes.Clone(hostID)
	own.state = ended
	c.byHost[key], c.byServer[idKey(own.serverID)] = &again, &again
	return answer, true
}

// giveUp ends a call whose host did not come back with the answer to a question.
func (c *calls) giveUp(questionID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(c.byQuestion[questionID])
}

// cancel ends the call that the host knows by an id, and returns the server's id of the call. It
// returns nil if there is no such call.
func (c *calls) cancel(hostID []byte) (serverID []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.byHost[idKey(hostID)]
	if own == nil {
		return nil
	}
	c.endLocked(own)
	return own.serverID
}

// end ends a call, once.
func (c *calls) end(own *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(own)
}

func (c *calls) endLocked(own *call) {
	if own == nil || own.state == ended {
		return
	}
	if own.state == asked {
		delete(c.byQuestion, own.questionID)
	} else {
		delete(c.byHost, idKey(own.hostID))
	}
	delete(c.byServer, idKey(own.serverID))
	own.state = ended
	c.held -= len(own.request) + len(own.answer)
}

// cancelFromHost ends the call that the host cancels, and returns the cancellation with the id by
// which the server knows the call. If the message needs no change, pass is true.
func (p *Proxy) cancelFromHost(b []byte, f *jsonline.Frame) (out []byte, pass bool) {
	at, ok := jsonline.Lookup(b, f.Params, "requestId")
	if !ok {
		return nil, true
	}
	id := p.calls.cancel(at.Of(b))
	if id == nil || idKey(id) == idKey(at.Of(b)) {
		return nil, true
	}
	return jsonline.Replace(b, jsonline.Cut{Span: at, With: id}), false
}
