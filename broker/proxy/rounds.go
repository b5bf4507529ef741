package proxy

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/broker/wire"
)

// Since 2026-07-28 a server asks for roots inside a result: "input_required",
// with the requests under keys of its choice, and what it wants to be reminded
// of; the client repeats the call with the answers (SEP-2322). So a call of such
// a revision is kept until it is answered. Where the server asks for
//
//	roots only      the call is repeated under an id of ours, and the host sees
//	                the final answer only
//	other things    the host gets it as it came
//	both            the host is asked for the others, and reminds us of the roots:
//	                its call comes back with requestState of ours, in whose place
//	                the server's goes, and the roots are put among the answers
//
// What the session itself has to ask the host's user, it asks in the place of an
// answer, too: see incall.go.
//
// Roots that cannot be listed end the call with an error at the host, and
// nothing is repeated (R172).
type rounds struct {
	mu    sync.Mutex        // guards the fields below, and the rounds
	host  map[string]*round // by the host's id
	ours  map[string]*round // by the server's id, where that is another one
	asked map[string]*round // by the question in their place, see incall.go
	held  int               // bytes of all requests and answers
	seq   int
}

// round is one call of the host's that is not answered.
type round struct {
	hostID   []byte // raw
	request  []byte // as the server got it
	serverID []byte // raw: under which the server knows it; nil: the host's
	n        int    // repetitions so far
	seq      int    // its place among all calls
	asks     bool   // the host may be asked something in the place of an answer
	question string // that it was asked so, until it comes back; "": none
	answer   []byte // the server's, that came meanwhile
	over     bool   // the server's answer is being dealt with
}

const (
	// maxRounds is how often one call is repeated; the Go SDK does as often.
	maxRounds = 10
	// Calls are kept up to these limits; the results of others that ask for roots are
	// refused.
	maxHeld  = 64 << 20 // bytes
	maxCalls = 4096
	// maxWanted is how many lists of roots one result may ask for: each is an
	// answer of many lines to a question of one.
	maxWanted = 16
)

// idKey is what an id, raw, has in common with other spellings of it.
func idKey(id []byte) string {
	if bytes.IndexByte(id, '\\') < 0 {
		return string(id)
	}
	return `"` + string(meant(id)) + `"`
}

// keep keeps a call. request is the message as the server gets it; asks says that
// the host may be asked something in the place of an answer.
func (r *rounds) keep(id, request []byte, asks bool) {
	key := idKey(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.host[key]; old != nil {
		r.forgetLocked(old)
	}
	if r.held+len(request) > maxHeld || len(r.host) >= maxCalls {
		return
	}
	if r.host == nil {
		r.host, r.ours, r.asked = map[string]*round{}, map[string]*round{}, map[string]*round{}
	}
	r.seq++
	r.host[key] = &round{hostID: bytes.Clone(id), request: bytes.Clone(request), asks: asks, seq: r.seq}
	r.held += len(request)
}

// answered returns the call that the server answers by this id, nil if it is
// none of those that were kept.
func (r *rounds) answered(id []byte) *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.host) == 0 && len(r.ours) == 0 {
		return nil
	}
	key := idKey(id)
	if o := r.ours[key]; o != nil {
		return o
	}
	if h := r.host[key]; h != nil && h.serverID == nil {
		return h
	}
	return nil
}

// forget ends a call.
func (r *rounds) forget(c *round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetLocked(c)
}

func (r *rounds) forgetLocked(c *round) {
	key := idKey(c.hostID)
	if r.host[key] != c && r.asked[c.question] != c {
		return // it was before
	}
	if r.host[key] == c {
		delete(r.host, key)
	}
	delete(r.asked, c.question)
	delete(r.ours, idKey(c.serverID))
	r.held -= len(c.request) + len(c.answer)
}

// repeat puts a call under a new id; it reports false if the host has given it
// up, or if it was repeated often enough, and then it is forgotten.
func (r *rounds) repeat(c *round, id string) (ok, often bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.host[idKey(c.hostID)] != c:
		return false, false
	case c.n == maxRounds:
		r.forgetLocked(c)
		return false, true
	}
	delete(r.ours, idKey(c.serverID))
	c.serverID = []byte(`"` + id + `"`)
	c.n++
	c.over = false
	r.ours[string(c.serverID)] = c
	return true, false
}

// cancelled ends the call of the host's id and returns the one under which the
// server knows it, nil if that is the host's.
func (r *rounds) cancelled(id []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.host[idKey(id)]
	if c == nil {
		return nil
	}
	r.forgetLocked(c)
	return c.serverID
}

// hostCancels tells the server by which id it knows the call.
func (p *Proxy) hostCancels(b []byte, f *frame) (out []byte, pass bool) {
	at, ok := lookup(b, f.params, "requestId")
	if !ok {
		return nil, true
	}
	id := p.rounds.cancelled(at.of(b))
	if id == nil {
		return nil, true
	}
	return replaced(b, at, id), false
}

// inputRequired deals with a result that asks for input.
func (p *Proxy) inputRequired(b []byte, f *frame, r *round, in *inputs) (out []byte, pass bool) {
	var state []byte
	if s, ok := lookup(b, f.result, "requestState"); ok {
		state = bytes.Clone(s.of(b))
	}
	switch {
	case len(in.roots) > maxWanted:
		p.endCall(r.hostID, wire.CodeInternal, fmt.Sprintf("the server asked for roots more than %d times at once", maxWanted))
		p.rounds.forget(r)
		return nil, false
	case len(in.roots) == 0:
		p.rounds.forget(r)
		return replaced(b, f.id, r.hostID), false
	case in.others == 0:
		p.onTheSide(func() { p.repeat(r, in.roots, state) })
		return nil, false
	}
	p.rounds.forget(r)
	return p.askOthers(b, f, r, in, state), false
}

// repeat sends a call once more, with roots.
func (p *Proxy) repeat(r *round, roots []wanted, state []byte) {
	more, err := p.listed(roots)
	if err != nil {
		p.endCall(r.hostID, err.Code, "the server asked for roots while it answered this: "+err.Message)
		p.rounds.forget(r)
		return
	}
	id := p.newID()
	frame := withParams(r.request, `"`+id+`"`, func(params []byte) []byte {
		with := []patch{{key: "inputResponses", members: more}}
		if state != nil {
			with = append(with, patch{key: "requestState", value: state})
		}
		out, _ := without(params, []string{"inputResponses", "requestState"}, with...)
		return out
	})
	ok, often := p.rounds.repeat(r, id)
	if often {
		p.endCall(r.hostID, wire.CodeInternal, fmt.Sprintf("the server asked for roots %d times over and gave no answer", maxRounds+1))
	}
	if !ok {
		return
	}
	p.stats.retried.Add(1)
	_ = p.server.send(frame) // a server that is gone answers nothing: the host sees its end
}

// listed answers what was asked for.
func (p *Proxy) listed(roots []wanted) ([]patch, *wire.Error) {
	var all []patch
	for _, w := range roots {
		result, err := p.session.ListRoots(w.Params)
		if err != nil {
			return nil, err
		}
		all = append(all, patch{key: w.Key, value: result})
	}
	return all, nil
}

// endCall answers a call of the host's with an error.
func (p *Proxy) endCall(id []byte, code int, why string) {
	reply := errorReply(id, code, why)
	p.tell(p.host, reply)
}

// withParams composes a request anew: with another id, if one is given, and its
// params changed. It is nil for what has none.
func withParams(request []byte, id string, change func(params []byte) []byte) []byte {
	f, ok := readFrame(request)
	if !ok || f.params.absent() {
		return nil
	}
	s := splice{b: request}
	cuts := []cut{{f.params, change(f.params.of(request))}}
	if id != "" {
		cuts = append(cuts, cut{f.id, []byte(id)})
	}
	slices.SortFunc(cuts, func(a, b cut) int { return a.from - b.from })
	s.cuts = cuts
	return s.bytes()
}

// memo is what requestState of ours holds, in base64 behind the prefix. It needs
// no memory here, whether or not the host comes back.
type memo struct {
	State json.RawMessage `json:"s,omitempty"` // the server's own
	Roots []wanted        `json:"r"`
}

// askOthers makes the result by which the host is asked for what is not roots.
func (p *Proxy) askOthers(b []byte, f *frame, r *round, in *inputs, state []byte) []byte {
	m, err := json.Marshal(memo{State: state, Roots: in.roots})
	rest, ok := without(in.at.of(b), in.keys)
	if err != nil || !ok {
		return errorReply(r.hostID, wire.CodeInternal, "the server's request for input is malformed")
	}
	mark := []byte(`"` + p.prefix + base64.RawURLEncoding.EncodeToString(m) + `"`)
	result, _ := without(f.result.of(b), []string{"inputRequests", "requestState"},
		patch{key: "inputRequests", value: rest}, patch{key: "requestState", value: mark})
	s := splice{b: b, cuts: []cut{{f.id, r.hostID}, {f.result, result}}}
	slices.SortFunc(s.cuts, func(a, b cut) int { return a.from - b.from })
	return s.bytes()
}

// resume puts roots among the answers that the host comes back with, and the
// server's requestState in the place of ours. Other requests stay as they are.
// kept: it is not carried; if that is a refusal, the host was told why.
func (p *Proxy) resume(b []byte, f *frame) (out []byte, kept bool) {
	at, ok := lookup(b, f.params, "requestState")
	if !ok {
		return b, false
	}
	state := string(meant(at.of(b)))
	text, ok := strings.CutPrefix(state, p.prefix)
	if !ok {
		return b, false
	}
	if p.comesBack(b, f, state) {
		return nil, true
	}
	var m memo
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil || len(m.Roots) > maxWanted { // a server knows the prefix, and may have made it
		p.refuseHost(b, f, "requestState is not what rootsfs gave")
		return nil, true
	}
	more, werr := p.listed(m.Roots)
	if werr != nil {
		p.noteRefused("host", werr.Message)
		p.endCall(bytes.Clone(f.id.of(b)), werr.Code, "the server asked for roots while it answered this: "+werr.Message)
		return nil, true
	}
	p.stats.retried.Add(1)
	return withParams(b, "", func(params []byte) []byte {
		answers := []byte("{}")
		if a, ok := lookup(params, span{0, len(params)}, "inputResponses"); ok {
			answers = a.of(params)
		}
		if all, ok := without(answers, nil, more...); ok {
			answers = all
		}
		with := []patch{{key: "inputResponses", value: answers}}
		if m.State != nil {
			with = append(with, patch{key: "requestState", value: m.State})
		}
		out, _ := without(params, []string{"inputResponses", "requestState"}, with...)
		return out
	}), false
}
