package proxy

import (
	"bytes"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodDiscover    = "server/discover"
)

// noHandshake is the first revision in which every request carries the settings of
// initialize (SEP-2575).
const noHandshake = "2026-07-28"

// fromHost decides about one message of the host. Its results are those of decide in splitBatch.
func (p *Proxy) fromHost(b []byte) (out []byte, pass bool) {
	f, ok := jsonline.Parse(b)
	if !ok {
		if bytes.Contains(b, []byte(p.prefix)) {
			p.noteRefusal("host", "a line of the host's that is no message has an id of rootsfs's own")
			return nil, false
		}
		return nil, true
	}
	if id := f.ID.Of(b); p.isOurs(id) && f.Method.Absent() {
		p.answerQuestion(string(jsonline.Unquote(id)), readResponse(b, &f))
		return nil, false
	}
	switch {
	case !f.Clash.Absent():
		return p.refuseHost(b, &f, "a message of the host's has a field twice, in capitals, or behind 64 others")
	case p.isOurs(f.ID.Of(b)):
		return p.refuseHost(b, &f, "a request of the host's has an id of rootsfs's own")
	}
	switch string(jsonline.Unquote(f.Method.Of(b))) {
	case "":
		p.serverRequests.drop(f.ID.Of(b))
		return nil, true
	case methodInitialize:
		return p.initialize(b, &f)
	case methodInitialized:
		p.attach()
		return nil, true
	case wire.RootsChanged:
		return nil, false // the change is to the host's own roots, which the server does not see
	case wire.Cancelled:
		return p.cancelFromHost(b, &f)
	case "tools/call":
		tool, _ := jsonline.Lookup(b, f.Params, "name")
		p.session.BeforeCall(string(jsonline.Unquote(tool.Of(b))))
	}
	return p.handleRequest(b, &f)
}

// initialize adds the session's capabilities to the host's, and notes whether the host can show
// forms.
func (p *Proxy) initialize(b []byte, f *jsonline.Frame) (out []byte, pass bool) {
	p.noteGreeting(f.ID.Of(b))
	if hasForms(b, f.Params, "capabilities", "elicitation") {
		p.session.AskThrough(asker{p: p})
	} else {
		p.session.AskThrough(nil)
	}
	return jsonline.Merge(b, p.session.Advertise(true)), false
}

// noteGreeting notes the request whose answer names the server.
func (p *Proxy) noteGreeting(id []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.greeting = idKey(id)
}

// handleRequest handles a request or notification of the host. Since revision 2026-07-28 each of
// them carries the client's capabilities. A message with neither capabilities nor a revision passes
// as it came.
func (p *Proxy) handleRequest(b []byte, f *jsonline.Frame) (out []byte, pass bool) {
	if f.Params.Absent() || !bytes.Contains(f.Params.Of(b), []byte("io.modelcontextprotocol")) {
		return nil, true
	}
	meta, ok := jsonline.Lookup(b, f.Params, "_meta")
	if !ok {
		return nil, true
	}
	rev, hasRev := jsonline.Lookup(b, meta, mcp.MetaKeyProtocolVersion)
	if _, hasCaps := jsonline.Lookup(b, meta, mcp.MetaKeyClientCapabilities); !hasCaps && !hasRev {
		return nil, true
	}
	revision := string(jsonline.Unquote(rev.Of(b)))
	if p.calls.isIDInUse(f.ID.Of(b)) {
		return p.refuseHost(b, f, "a request of the host's has the id of a call that the server is still answering")
	}
	p.learnHost(b, f, revision)
	out, isHandled := p.addRoots(b, f)
	if isHandled {
		return nil, false
	}
	out = jsonline.Merge(out, p.session.Advertise(false))
	if revision >= noHandshake && jsonline.Answerable(f.ID.Of(b)) {
		canAsk := slices.Contains(methodsWithInput, string(jsonline.Unquote(f.Method.Of(b)))) && hasForms(b, meta, mcp.MetaKeyClientCapabilities, "elicitation")
		p.calls.add(f.ID.Of(b), out, canAsk)
	}
	return out, false
}

// methodsWithInput are the requests that may be answered by a request for input (SEP-2322).
var methodsWithInput = []string{"tools/call", "prompts/get", "resources/read"}

// learnHost records the host's revision, which came with the client's capabilities in the request
// f. learnHost sets how the session asks the host's user, and connects the session to the server.
func (p *Proxy) learnHost(b []byte, f *jsonline.Frame, revision string) {
	if jsonline.Equal(f.Method.Of(b), methodDiscover) {
		p.noteGreeting(f.ID.Of(b))
	}
	p.session.SetPeer(revision, "")
	if revision >= noHandshake {
		p.session.AskThrough(asker{p: p, insideCalls: true})
	} else {
		p.session.AskThrough(nil)
	}
	p.attach()
}

// hasForms reports whether a client can show forms. keys lead from at to the client's capability
// elicitation. The capability includes forms unless it names url and does not name form.
func hasForms(b []byte, at jsonline.Span, keys ...string) bool {
	e, ok := jsonline.Lookup(b, at, keys...)
	if !ok || e.Of(b)[0] != '{' {
		return false
	}
	_, form := jsonline.Lookup(b, e, "form")
	_, url := jsonline.Lookup(b, e, "url")
	return form || !url
}

// attach connects the session to the server for notifications.
func (p *Proxy) attach() { p.ready.Do(func() { p.session.SetSender(p.toServer) }) }

// refuseHost refuses a message of the host. If it is a request, the host gets an error.
// refuseHost returns the results for fromHost.
func (p *Proxy) refuseHost(b []byte, f *jsonline.Frame, why string) (out []byte, pass bool) {
	p.noteRefusal("host", why)
	if id := f.ID.Of(b); jsonline.Answerable(id) && !f.Method.Absent() {
		p.sendAsync(p.host, errorReply(id, wire.CodeInvalidRequest, why+"; it was not passed on: correct it, and send it again"))
	}
	return nil, false
}

// refuseOverlongFromHost refuses a line of the host that is over the limit. If the line's id can be
// read and is not the proxy's, an error is sent: to the host for a request, and to the waiting
// server for an answer.
func (p *Proxy) refuseOverlongFromHost(h *jsonline.Head) {
	text := p.countTooLong("host", h)
	id, to := h.ID(), p.server
	if h.IsCall() {
		to = p.host
	}
	if id != nil && !p.isOurs(id) {
		p.sendAsync(to, errorReply(id, wire.CodeInvalidRequest, text))
	}
}
