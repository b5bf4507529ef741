package proxy

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
)

const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodDiscover    = "server/discover"
)

// noHandshake is the first revision in which every request carries what
// initialize settled before (SEP-2575).
const noHandshake = "2026-07-28"

// fromHost decides about one message of the host's.
func (p *Proxy) fromHost(b []byte) (out []byte, pass bool) {
	f, ok := readFrame(b)
	if !ok {
		if bytes.Contains(b, []byte(p.prefix)) {
			p.noteRefused("host", "a line of the host's that is no message has an id of rootsfs's own")
			return nil, false
		}
		return nil, true
	}
	if id := f.id.of(b); p.isOurs(id) && f.method.absent() {
		p.answerQuestion(string(meant(id)), readResponse(b, &f))
		return nil, false
	}
	switch {
	case !f.clash.absent():
		return p.refuseHost(b, &f, "a message of the host's has a field twice, or in capitals")
	case p.isOurs(f.id.of(b)):
		return p.refuseHost(b, &f, "a request of the host's has an id of rootsfs's own")
	}
	switch string(meant(f.method.of(b))) {
	case "":
		return nil, true
	case methodInitialize:
		return p.initialize(b, &f)
	case methodInitialized:
		p.attach()
		return nil, true
	case wire.RootsChanged:
		return nil, false // its roots are not the ones the server is told of
	case wire.Cancelled:
		return p.hostCancels(b, &f)
	}
	return p.request(b, &f)
}

// initialize puts our capabilities among the host's, and notes what the host
// can do.
func (p *Proxy) initialize(b []byte, f *frame) (out []byte, pass bool) {
	p.greets(f.id.of(b))
	if asksForms(b, f.params, "capabilities", "elicitation") {
		p.session.AskThrough(asker{p: p})
	} else {
		p.session.AskThrough(nil)
	}
	return patched(b, patch{key: "params", members: []patch{{key: "capabilities", members: p.capabilities(patch{
		key: "roots", members: []patch{
			{key: "listChanged", value: strconv.AppendBool(nil, p.session.ListChanged())}, {key: "filesystemBrokering", value: []byte("true")},
		},
	})}}}), false
}

// capabilities are what the client's get: roots, in the form of the revision, and
// the extension; or the host's own roots are taken out, where the server is to
// hear of none.
func (p *Proxy) capabilities(roots patch) []patch {
	if !p.session.Declares() {
		return []patch{{key: "roots", drop: true}}
	}
	return []patch{roots, {key: "extensions", members: []patch{{key: wire.Extension, value: p.extension()}}}}
}

// greets notes the request whose answer tells who the server is.
func (p *Proxy) greets(id []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.greeting = idKey(id)
}

// request deals with a request or notification that may carry the client's
// capabilities itself.
func (p *Proxy) request(b []byte, f *frame) (out []byte, pass bool) {
	if f.params.absent() || !bytes.Contains(f.params.of(b), []byte("io.modelcontextprotocol")) {
		return nil, true
	}
	meta, ok := lookup(b, f.params, "_meta")
	if !ok {
		return nil, true
	}
	rev, hasRev := lookup(b, meta, mcp.MetaKeyProtocolVersion)
	if _, hasCaps := lookup(b, meta, mcp.MetaKeyClientCapabilities); !hasCaps && !hasRev {
		return nil, true
	}
	revision := string(meant(rev.of(b)))
	if p.calls.taken(f.id.of(b)) {
		return p.refuseHost(b, f, "a request of the host's has the id of a call that the server is still answering")
	}
	p.learnHost(b, f, revision)
	out, kept := p.addRoots(b, f)
	if kept {
		return nil, false
	}
	out = patched(out, patch{key: "params", members: []patch{{key: "_meta", members: []patch{
		{key: mcp.MetaKeyClientCapabilities, members: p.capabilities(patch{key: "roots", value: []byte("{}")})},
	}}}})
	if revision >= noHandshake && answerable(f.id.of(b)) {
		asks := slices.Contains(methodsWithInput, string(meant(f.method.of(b)))) && asksForms(b, meta, mcp.MetaKeyClientCapabilities, "elicitation")
		p.calls.keep(f.id.of(b), out, asks)
	}
	return out, false
}

// methodsWithInput are the requests that may be answered by a request for input (SEP-2322).
var methodsWithInput = []string{"tools/call", "prompts/get", "resources/read"}

// learnHost notes what a request without handshake says of the host.
func (p *Proxy) learnHost(b []byte, f *frame, revision string) {
	if equal(f.method.of(b), methodDiscover) {
		p.greets(f.id.of(b))
	}
	p.session.SetPeer(revision, "")
	if revision >= noHandshake {
		p.session.AskThrough(asker{p: p, insideCalls: true})
	} else {
		p.session.AskThrough(nil)
	}
	p.attach()
}

// patched returns the message b with some members changed.
func patched(b []byte, changes ...patch) []byte {
	s := splice{b: b}
	s.merge(blank(b, 0), changes)
	return s.bytes()
}

// asksForms reports whether a client's capability of elicitation includes forms,
// as it does unless it names other modes only.
func asksForms(b []byte, at span, keys ...string) bool {
	e, ok := lookup(b, at, keys...)
	if !ok || e.of(b)[0] != '{' {
		return false
	}
	_, form := lookup(b, e, "form")
	_, url := lookup(b, e, "url")
	return form || !url
}

// attach gives the session its way to the server for notifications.
func (p *Proxy) attach() { p.ready.Do(func() { p.session.SetSender(p.toServer) }) }

// refuseHost does not carry a message of the host's, and says so. It returns what fromHost
// returns then.
func (p *Proxy) refuseHost(b []byte, f *frame, why string) (out []byte, pass bool) {
	p.noteRefused("host", why)
	if id := f.id.of(b); answerable(id) && !f.method.absent() {
		p.sendAsync(p.host, errorReply(id, wire.CodeInvalidRequest, why+"; it was not passed on: send it again without"))
	}
	return nil, false
}

// refuseOverlongFromHost deals with a line of the host's that is over the limit: its sender
// is told, if it is a request, or else the server, which waits for it.
func (p *Proxy) refuseOverlongFromHost(s *skim) {
	text := p.tooLong("host", s)
	id, to := s.answerable(), p.server
	if s.method {
		to = p.host
	}
	if id != nil && !p.isOurs(id) {
		p.sendAsync(to, errorReply(id, wire.CodeInvalidRequest, text))
	}
}
