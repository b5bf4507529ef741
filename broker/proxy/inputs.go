package proxy

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// Since 2026-07-28 a server asks for roots inside a result of type "input_required". The result
// has the server's requests, under keys of the server's choice, and a state. The client repeats
// the call with the answers and the state (SEP-2322). If the server asks for
//
//	roots only      the call is repeated under an id of the proxy, and the host sees
//	                the final answer only
//	other things    the host gets the result as it came
//	both            the host is asked for the other things, with a requestState of the
//	                proxy. When the host repeats its call, the proxy adds the roots to
//	                the host's answers, and restores the server's requestState
//
// If the roots cannot be listed, the host gets an error as the answer to its call, and the
// server does not get the call again (R172).

const (
	// maxRepeats is how often one call is repeated at most. The Go SDK has the same limit.
	maxRepeats = 10
	// maxRootsRequests is how many lists of roots one result may ask for: each list is much longer
	// than its request.
	maxRootsRequests = 16
)

// The members of a result that asks for input, and of the params of the call that is repeated with
// the input.
const (
	inputRequests  = "inputRequests"
	inputResponses = "inputResponses"
	requestState   = "requestState"
)

// inputs are the requests that a server puts inside a result (SEP-2322) or inside the
// params of a task's notification (SEP-2663). A host answers each as if it had come by
// itself: hosts on the Go SDK do so whatever the revision and the result's type say.
type inputs struct {
	at     jsonline.Span  // the object that holds the requests; absent: there is none
	roots  []rootsRequest // requests for roots, at most one more than maxRootsRequests
	keys   []string       // keys of the requests for roots, unescaped
	others int            // how many requests are for something else
	flaw   string         // why hosts may read the requests in different ways; "": they do not
}

// rootsRequest is one request for roots among inputs.
type rootsRequest struct {
	Key    string          `json:"k"` // raw, without its quotes
	Params json.RawMessage `json:"p,omitempty"`
}

// readInputs finds the inputs in a result or in params. It compares keys ignoring case, as
// some hosts do. A key that hosts may read differently is a flaw.
func readInputs(b []byte, in jsonline.Span) (all inputs) {
	at, flaw := member(b, in, inputRequests)
	if all.flaw = flaw; flaw != "" || at.Absent() || string(at.Of(b)) == "null" {
		return all
	}
	all.at = at
	l, ok := jsonline.Object(b, at.From)
	if !ok {
		all.flaw = "inputRequests is no object"
	}
	for all.flaw == "" && len(all.roots) <= maxRootsRequests && l.Next() {
		var method jsonline.Span
		method, all.flaw = member(b, l.Val, "method")
		name := string(jsonline.Unquote(method.Of(b)))
		switch {
		case name == wire.RootsList:
			w := rootsRequest{Key: string(b[l.Key.From+1 : l.Key.To-1])}
			if params, ok := jsonline.Lookup(b, l.Val, "params"); ok {
				w.Params = bytes.Clone(params.Of(b))
			}
			all.roots, all.keys = append(all.roots, w), append(all.keys, string(jsonline.Unquote(l.Key.Of(b))))
		case broker.IsFilesMethod(name):
			all.flaw = "an input request is for rootsfs"
		default:
			all.others++
		}
	}
	return all
}

// member returns the value of an object's member, absent if there is none. flaw says that
// the key is there twice or in another case.
func member(b []byte, at jsonline.Span, name string) (val jsonline.Span, flaw string) {
	l, ok := jsonline.Object(b, at.From)
	if at.Absent() || !ok {
		return jsonline.Span{}, ""
	}
	for l.Next() {
		key := jsonline.Unquote(l.Key.Of(b))
		if !strings.EqualFold(string(key), name) {
			continue
		}
		if !val.Absent() || string(key) != name {
			return jsonline.Span{}, name + " is there twice, or in capitals"
		}
		val = l.Val
	}
	return val, ""
}

// reason returns the reason for refusing a message with these inputs.
func (in *inputs) reason() string {
	if in.flaw != "" {
		return "a message of the server's asks for input in a way that hosts read differently: " + in.flaw
	}
	return "a message of the server's asks the host for its roots; rootsfs answers that only as roots/list, and in results of type input_required"
}

// handleInputRequired handles a result that asks for input.
func (p *Proxy) handleInputRequired(b []byte, f *jsonline.Frame, c *call, in *inputs) (out []byte, pass bool) {
	var state []byte
	if s, ok := jsonline.Lookup(b, f.Result, requestState); ok {
		state = bytes.Clone(s.Of(b))
	}
	if len(in.roots) > 0 && len(in.roots) <= maxRootsRequests && in.others == 0 {
		p.async(func() { p.repeat(c, in.roots, state) })
		return nil, false
	}
	p.calls.end(c)
	switch {
	case len(in.roots) > maxRootsRequests:
		p.sendAsync(p.host, errorReply(c.hostID, wire.CodeInternal, fmt.Sprintf("the server asked for roots more than %d times at once", maxRootsRequests)))
		return nil, false
	case len(in.roots) == 0:
		return jsonline.Replace(b, jsonline.Cut{Span: f.ID, With: c.hostID}), false
	}
	return p.removeRoots(b, c, in, state), false
}

// repeat sends a call to the server again, with roots.
func (p *Proxy) repeat(c *call, roots []rootsRequest, state []byte) {
	answers, ok := p.listRoots(c.hostID, roots)
	if !ok {
		p.calls.end(c)
		return
	}
	id := p.newID()
	frame := withAnswers(c.request, []byte("{}"), answers, state, jsonline.Patch{Key: "id", Value: []byte(`"` + id + `"`)})
	ok, tooOften := p.calls.repeat(c, id)
	if tooOften {
		p.sendAsync(p.host, errorReply(c.hostID, wire.CodeInternal, fmt.Sprintf("the server asked for roots %d times over and gave no answer", maxRepeats+1)))
	}
	if !ok {
		return
	}
	p.stats.retried.Add(1)
	_ = p.server.Send(frame) // a server that is gone answers nothing: the host sees its end
}

// listRoots answers the requests for roots that a server made while it answered a call. If the
// roots cannot be listed, listRoots sends the host an error with the call's id, and reports false.
func (p *Proxy) listRoots(hostID []byte, roots []rootsRequest) (answers []jsonline.Patch, ok bool) {
	for _, w := range roots {
		result, err := p.session.ListRoots(w.Params)
		if err != nil {
			p.sendAsync(p.host, errorReply(hostID, err.Code, "the server asked for roots while it answered this: "+err.Message))
			return nil, false
		}
		answers = append(answers, jsonline.Patch{Key: w.Key, Value: result})
	}
	return answers, true
}

// withAnswers returns a copy of a request with the host's answers and the roots, the server's
// own requestState (nil for none), and further changes.
func withAnswers(request, answers []byte, roots []jsonline.Patch, state []byte, more ...jsonline.Patch) []byte {
	if all, ok := jsonline.Without(answers, nil, roots...); ok {
		answers = all
	}
	return jsonline.Merge(request, append(more, jsonline.Patch{Key: "params", Members: []jsonline.Patch{
		{Key: inputResponses, Value: answers}, {Key: requestState, Value: state, Drop: state == nil},
	}})...)
}

// memo is the content of the proxy's requestState, in base64 behind the prefix. The host sends
// the requestState back, so the proxy keeps nothing for a host that may not come back.
type memo struct {
	State json.RawMessage `json:"s,omitempty"` // the server's own requestState
	Roots []rootsRequest  `json:"r"`
}

// removeRoots returns the server's message b without its requests for roots, so that the host is
// asked for the other inputs only. The requestState of the returned message holds a memo. If b is
// malformed, removeRoots returns an error for the host.
func (p *Proxy) removeRoots(b []byte, c *call, in *inputs, state []byte) []byte {
	m, err := json.Marshal(memo{State: state, Roots: in.roots})
	rest, ok := jsonline.Without(in.at.Of(b), in.keys)
	if err != nil || !ok {
		return errorReply(c.hostID, wire.CodeInternal, "the server's request for input is malformed")
	}
	mark := []byte(`"` + p.prefix + base64.RawURLEncoding.EncodeToString(m) + `"`)
	return jsonline.Merge(b, jsonline.Patch{Key: "id", Value: c.hostID}, jsonline.Patch{Key: "result", Members: []jsonline.Patch{
		{Key: inputRequests, Value: rest}, {Key: requestState, Value: mark},
	}})
}

// addRoots handles a call that the host repeats with answers, if its requestState is the proxy's.
// If the requestState is the id of a question, handleRetry handles the call. Otherwise addRoots
// adds the roots to the answers, and restores the server's requestState. It returns any other
// request as it is. If isHandled is true, the message must not be carried. If addRoots refuses the
// message, it also sends the host an error.
func (p *Proxy) addRoots(b []byte, f *jsonline.Frame) (out []byte, isHandled bool) {
	at, ok := jsonline.Lookup(b, f.Params, requestState)
	if !ok {
		return b, false
	}
	state := string(jsonline.Unquote(at.Of(b)))
	text, ok := strings.CutPrefix(state, p.prefix)
	if !ok {
		return b, false
	}
	if p.handleRetry(b, f, state) {
		return nil, true
	}
	var m memo
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil || len(m.Roots) > maxRootsRequests { // a server knows the prefix, and may have made this requestState
		p.refuseHost(b, f, "requestState is not what rootsfs gave")
		return nil, true
	}
	roots, ok := p.listRoots(f.ID.Of(b), m.Roots)
	if !ok {
		return nil, true
	}
	p.stats.retried.Add(1)
	answers := []byte("{}")
	if a, ok := jsonline.Lookup(b, f.Params, inputResponses); ok {
		answers = a.Of(b)
	}
	return withAnswers(b, answers, roots, m.State), false
}
