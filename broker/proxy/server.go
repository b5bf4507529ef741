package proxy

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// fromServer decides about one message of the server's.
func (p *Proxy) fromServer(b []byte) (out []byte, pass bool) {
	f, ok := readFrame(b)
	if !ok {
		return nil, true // a batch without messages
	}
	switch method := f.method.of(b); {
	case !f.clash.absent():
		return p.refuseServer(b, &f, "a message of the server's has a field twice, or in capitals")
	case !f.method.absent() && (method[0] != '"' || f.answers()):
		// Some hosts take it for a request, others for an answer.
		return p.refuseServer(b, &f, "a message of the server's is neither a request nor an answer")
	case f.method.absent() && f.id.absent():
		return nil, true
	case f.method.absent():
		return p.response(b, &f)
	case p.isOurs(f.id.of(b)):
		return p.refuseServer(b, &f, "a request of the server's has an id of rootsfs's own")
	}
	switch method := meant(f.method.of(b)); {
	case broker.IsFilesMethod(string(method)):
		return nil, p.take(b, &f)
	case string(method) == wire.Cancelled:
		if id, ok := lookup(b, f.params, "requestId"); ok && p.isOurs(id.of(b)) {
			return p.refuseServer(b, &f, "the server cancels a request of rootsfs's own")
		}
		return nil, p.take(b, &f)
	}
	if in := readInputs(b, f.params); in.flaw != "" || len(in.roots) > 0 {
		return p.refuseServer(b, &f, in.why())
	}
	return nil, true
}

// take gives a message to the session; it reports whether it is to pass instead.
func (p *Proxy) take(b []byte, f *frame) (pass bool) {
	own := bytes.Clone(b) // the session answers while we read on
	wf, err := wire.ReadFrame(own)
	if err != nil {
		p.refuseServer(b, f, "a message of the server's is malformed: "+err.Error())
		return false
	}
	if !p.session.Take(wf, len(own), p.toServer) {
		return true
	}
	if wf.Method != wire.Cancelled {
		p.stats.answered.Add(1)
		p.attach() // it speaks, so it listens
	}
	return false
}

// toServer sends a frame of the session's.
func (p *Proxy) toServer(_ context.Context, frame []byte) error { return p.server.send(frame) }

// response deals with an answer of the server's.
func (p *Proxy) response(b []byte, f *frame) (out []byte, pass bool) {
	id := f.id.of(b)
	p.learnServer(b, f)
	c, kept := p.calls.answered(id, b)
	switch {
	case kept:
		return nil, false
	case c == nil && p.isOurs(id):
		return p.refuseServer(b, f, "the server answers a request of rootsfs's own that was not put to it")
	}
	in := readInputs(b, f.result)
	if in.flaw == "" && c != nil {
		if t, ok := lookup(b, f.result, "resultType"); ok && equal(t.of(b), "input_required") {
			return p.inputRequired(b, f, c, &in)
		}
	}
	switch {
	case in.flaw != "" || len(in.roots) > 0:
		return p.refuseServer(b, f, in.why())
	case c == nil:
		return nil, true
	}
	p.calls.end(c)
	if idKey(id) == idKey(c.hostID) {
		return nil, true
	}
	return replaced(b, f.id, c.hostID), false
}

// learnServer takes from the answer to the host's greeting who the server is.
func (p *Proxy) learnServer(b []byte, f *frame) {
	p.mu.Lock()
	greeted := p.greeting != "" && p.greeting == idKey(f.id.of(b))
	if greeted {
		p.greeting = ""
	}
	p.mu.Unlock()
	if !greeted || f.result.absent() {
		return
	}
	version, _ := lookup(b, f.result, "protocolVersion") // server/discover has none
	revision := string(meant(version.of(b)))
	info, ok := lookup(b, f.result, "serverInfo")
	if !ok {
		if info, ok = lookup(b, f.result, "_meta", mcp.MetaKeyServerInfo); !ok {
			p.session.SetPeer(revision, "")
			return
		}
	}
	name, _ := lookup(b, info, "name")
	number, _ := lookup(b, info, "version")
	p.session.SetPeer(revision, strings.TrimSpace(string(meant(name.of(b)))+" "+string(meant(number.of(b)))))
}

// refuseServer does not carry a message of the server's. Whoever waits for it is
// told, if the id is beyond doubt. It returns what fromServer returns then.
func (p *Proxy) refuseServer(b []byte, f *frame, why string) (out []byte, pass bool) {
	p.noteRefused("server", why)
	if id := f.id.of(b); answerable(id) && (f.clash.absent() || field(meant(f.clash.of(b))) != "id") {
		p.answerServer(id, !f.method.absent() && !f.answers(), why+"; it was not passed on")
	}
	return nil, false
}

// answerServer answers for a message of the server's that was not carried: its sender, if it
// is a request, or else the host, which waits for it.
func (p *Proxy) answerServer(id []byte, isRequest bool, text string) {
	if isRequest {
		p.sendAsync(p.server, errorReply(id, wire.CodeInvalidRequest, text))
		return
	}
	c, kept := p.calls.answered(id, errorReply(id, wire.CodeInvalidRequest, text))
	switch {
	case kept || c == nil && p.isOurs(id):
		return
	case c != nil:
		p.calls.end(c)
		id = c.hostID
	}
	p.sendAsync(p.host, errorReply(id, wire.CodeInvalidRequest, text))
}

// noteRefused counts a refusal, logs it, and records it if it is of the server's. A peer can
// make many: the log tells of the first, the second, the fourth and so on.
func (p *Proxy) noteRefused(of, why string) {
	if of == "server" {
		p.session.NoteRefusal(why)
	}
	if n := p.stats.refused.Add(1); n&(n-1) == 0 {
		p.log.Warn("a message was not passed on", "of", of, "why", why, "so far", n)
	}
}

// refuseLine does not carry a line of the server's that has a flaw. Whoever waits for it
// is told, if it begins as a message: not for what a program prints of one.
func (p *Proxy) refuseLine(line []byte, why string) {
	why = "a line of the server's is not exactly one JSON-RPC message: " + why
	p.noteRefused("server", why)
	if line = visible(line); len(line) > 0 && line[0] == '{' {
		s := &skim{}
		s.feed(line)
		p.answerSkimmed(s, why+"; it was not passed on")
	}
}

// refuseOverlongFromServer deals with a line of the server's that is over the limit.
func (p *Proxy) refuseOverlongFromServer(s *skim) { p.answerSkimmed(s, p.tooLong("server", s)) }

// answerSkimmed answers for a line of the server's that was not carried, if its id can be told.
func (p *Proxy) answerSkimmed(s *skim, text string) {
	if id := s.answerable(); id != nil && !(s.method && p.isOurs(id)) {
		p.answerServer(id, s.method, text)
	}
}

// tooLong counts a line that was not carried, and returns what is to be said of it.
func (p *Proxy) tooLong(of string, s *skim) string {
	p.stats.long.Add(1)
	why := fmt.Sprintf("a message of the %s's is longer than the %d bytes that rootsfs carries (it has %d)", of, p.opt.Frame, s.size)
	p.noteRefused(of, why)
	return why + "; send less at a time"
}

// tooMany deals with a batch of more messages than are carried: its sender is told.
func (p *Proxy) tooMany(of string, sender *outlet) {
	why := fmt.Sprintf("a batch of the %s's has more than the %d messages that rootsfs carries", of, wire.MaxBatch)
	p.noteRefused(of, why)
	p.sendAsync(sender, errorReply([]byte("null"), wire.CodeInvalidRequest, why+"; send fewer at a time"))
}
