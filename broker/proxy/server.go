package proxy

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// fromServer decides about one message of the server. Its results are those of decide in
// splitBatch.
func (p *Proxy) fromServer(b []byte) (out []byte, pass bool) {
	f, ok := jsonline.Parse(b)
	if !ok {
		return nil, true // does not happen: flaw lets only objects and batches through
	}
	switch method := f.Method.Of(b); {
	case !f.Clash.Absent():
		return p.refuseServer(b, &f, "a message of the server's has a field twice, in capitals, or behind 64 others")
	case !f.Method.Absent() && (method[0] != '"' || f.Answers()):
		// Some hosts take it for a request, others for an answer.
		return p.refuseServer(b, &f, "a message of the server's is neither a request nor an answer")
	case f.Method.Absent() && f.ID.Absent():
		return nil, true
	case f.Method.Absent():
		return p.handleAnswer(b, &f)
	case p.isOurs(f.ID.Of(b)):
		return p.refuseServer(b, &f, "a request of the server's has an id of rootsfs's own")
	}
	switch method := jsonline.Unquote(f.Method.Of(b)); {
	case broker.IsFilesMethod(string(method)):
		p.serverRequests.note(f.ID.Of(b), false)
		return nil, p.handle(b, &f)
	case string(method) == wire.Cancelled:
		id, ok := jsonline.Lookup(b, f.Params, "requestId")
		if ok && p.isOurs(id.Of(b)) {
			return p.refuseServer(b, &f, "the server cancels a request of rootsfs's own")
		}
		p.serverRequests.drop(id.Of(b))
		return nil, p.handle(b, &f)
	}
	if in := readInputs(b, f.Params); in.flaw != "" || len(in.roots) > 0 {
		return p.refuseServer(b, &f, in.reason())
	}
	p.serverRequests.note(f.ID.Of(b), true)
	return nil, true
}

// handle gives a message to the session. It reports whether the message must pass to the
// host instead.
func (p *Proxy) handle(b []byte, f *jsonline.Frame) (pass bool) {
	own := bytes.Clone(b) // the session uses it while the next lines are read
	m := wire.Frame{ID: f.ID.Of(own), Method: string(jsonline.Unquote(f.Method.Of(own))), Params: f.Params.Of(own)}
	if !p.session.Handle(m, len(own), p.toServer) {
		return true
	}
	if m.Method != wire.Cancelled {
		p.stats.answered.Add(1)
		p.attach() // a server that has written a message reads messages, too
	}
	return false
}

// toServer sends a frame of the session to the server.
func (p *Proxy) toServer(_ context.Context, frame []byte, recheck broker.Recheck) error {
	return p.server.SendIf(frame, recheck)
}

// handleAnswer handles an answer of the server.
func (p *Proxy) handleAnswer(b []byte, f *jsonline.Frame) (out []byte, pass bool) {
	id := f.ID.Of(b)
	p.learnServer(b, f)
	c, kept := p.calls.acceptAnswer(id, b)
	switch {
	case kept:
		return nil, false
	case c == nil && p.isOurs(id):
		return p.refuseServer(b, f, "the server answers a request of rootsfs's own that was not put to it")
	}
	in := readInputs(b, f.Result)
	if in.flaw == "" && c != nil {
		if t, ok := jsonline.Lookup(b, f.Result, "resultType"); ok && jsonline.Equal(t.Of(b), "input_required") {
			return p.handleInputRequired(b, f, c, &in)
		}
	}
	switch {
	case in.flaw != "" || len(in.roots) > 0:
		return p.refuseServer(b, f, in.reason())
	case c == nil:
		return nil, true
	}
	p.calls.end(c)
	if idKey(id) == idKey(c.hostID) {
		return nil, true
	}
	return jsonline.Replace(b, jsonline.Cut{Span: f.ID, With: c.hostID}), false
}

// learnServer reads the server's name and revision from its answer to the host's
// greeting.
func (p *Proxy) learnServer(b []byte, f *jsonline.Frame) {
	p.mu.Lock()
	greeted := p.greeting != "" && p.greeting == idKey(f.ID.Of(b))
	if greeted {
		p.greeting = ""
	}
	p.mu.Unlock()
	if !greeted || f.Result.Absent() {
		return
	}
	version, _ := jsonline.Lookup(b, f.Result, "protocolVersion") // server/discover has none
	revision := string(jsonline.Unquote(version.Of(b)))
	info, ok := jsonline.Lookup(b, f.Result, "serverInfo")
	if !ok {
		if info, ok = jsonline.Lookup(b, f.Result, "_meta", mcp.MetaKeyServerInfo); !ok {
			p.session.SetPeer(revision, "")
			return
		}
	}
	name, _ := jsonline.Lookup(b, info, "name")
	number, _ := jsonline.Lookup(b, info, "version")
	p.session.SetPeer(revision, strings.TrimSpace(string(jsonline.Unquote(name.Of(b)))+" "+string(jsonline.Unquote(number.Of(b)))))
}

// refuseServer refuses a message of the server. If the id is beyond doubt, an error is sent: to the
// server for a request, and to the waiting host for an answer. refuseServer returns the results
// for fromServer.
func (p *Proxy) refuseServer(b []byte, f *jsonline.Frame, why string) (out []byte, pass bool) {
	p.noteRefusal("server", why)
	if id := f.ID.Of(b); jsonline.Answerable(id) && !f.IDInDoubt(b) {
		p.sendRefusal(id, !f.Method.Absent() && !f.Answers(), why+"; it was not passed on")
	}
	return nil, false
}

// sendRefusal sends an error for a message of the server that was not carried: to the server
// if the message is a request, or else to the host that waits for the message.
func (p *Proxy) sendRefusal(id []byte, isRequest bool, text string) {
	if isRequest {
		p.sendAsync(p.server, errorReply(id, wire.CodeInvalidRequest, text))
		return
	}
	c, kept := p.calls.acceptAnswer(id, errorReply(id, wire.CodeInvalidRequest, text))
	switch {
	case kept || c == nil && p.isOurs(id):
		return
	case c != nil:
		p.calls.end(c)
		id = c.hostID
	}
	p.sendAsync(p.host, errorReply(id, wire.CodeInvalidRequest, text))
}

// noteRefusal counts a refusal, logs it, and records it if the message came from the server. A
// peer can cause many refusals: the log has the first, the second, the fourth and so on.
func (p *Proxy) noteRefusal(of, why string) {
	if n := p.countRefusal(of, why); n&(n-1) == 0 {
		p.log.Warn("a message was not passed on", "of", of, "why", why, "so far", n)
	}
}

// countRefusal counts a refusal, records it if the message came from the server, and returns
// the count.
func (p *Proxy) countRefusal(of, why string) int64 {
	if of == "server" {
		p.session.NoteRefusal(why)
	}
	return p.stats.refused.Add(1)
}

// Text that a server prints among its messages is logged up to these limits.
const (
	maxPrinted     = 100 // refusals of any kind; after these, text is logged for the 128th, the 256th and so on
	maxPrintedLine = 500 // bytes of a line
)

// refuseLine refuses a flawed line of the server. The line's text is logged, because many servers
// print the reason why they do not start. If the line begins as a message whose id can be read, an
// error is sent: to the server for a request, and to the waiting host for an answer.
func (p *Proxy) refuseLine(line []byte, why string) {
	why = "a line of the server's is not exactly one JSON-RPC message: " + why
	if n := p.countRefusal("server", why); n <= maxPrinted || n&(n-1) == 0 {
		text := string(line[:min(len(line), maxPrintedLine)])
		if len(text) < len(line) {
			text = strings.ToValidUTF8(text, "") + "…"
		}
		p.log.Warn("the server printed a line that is no message; it was not passed on", "text", text, "why", why, "so far", n)
	}
	if line = trimInvisible(line); len(line) > 0 && line[0] == '{' {
		p.sendLineRefusal(jsonline.HeadOf(line), why+"; it was not passed on")
	}
}

// refuseOverlongFromServer refuses a line of the server that is over the limit.
func (p *Proxy) refuseOverlongFromServer(h *jsonline.Head) {
	p.sendLineRefusal(h, p.countTooLong("server", h))
}

// sendLineRefusal calls sendRefusal for a line of the server that was not carried, if the line's
// id can be read. A request with an id of the proxy's own gets no error.
func (p *Proxy) sendLineRefusal(h *jsonline.Head, text string) {
	if id := h.ID(); id != nil && !(h.IsCall() && p.isOurs(id)) {
		p.sendRefusal(id, h.IsCall(), text)
	}
}

// countTooLong counts a line that is over the limit, and returns the text of the error for it.
func (p *Proxy) countTooLong(of string, h *jsonline.Head) string {
	p.stats.long.Add(1)
	why := fmt.Sprintf("a message of the %s's is longer than the %d bytes that rootsfs carries (it has %d)", of, p.opt.Frame, h.Size)
	p.noteRefusal(of, why)
	return why + "; send less at a time"
}

// refuseBatch refuses a batch of too many messages, and sends an error to the peer that sent it.
func (p *Proxy) refuseBatch(of string, sender *outlet) {
	why := fmt.Sprintf("a batch of the %s's has more than the %d messages that rootsfs carries", of, wire.MaxBatch)
	p.noteRefusal(of, why)
	p.sendAsync(sender, errorReply([]byte("null"), wire.CodeInvalidRequest, why+"; send fewer at a time"))
}
