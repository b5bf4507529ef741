package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// request is one files/* request being answered.
type request struct {
	id     []byte // raw JSON
	method string
	params []byte
	cancel context.CancelFunc
	// cancelled: the peer does not want the answer any more.
	cancelled atomic.Bool
	ctx       context.Context
	keepAlive func() // bytes moved: the timeout begins anew
	send      sender
	host      Elicitor // asks the person about this one; nil: that of the session does
	// reporting has an element while a progress is on its way to the peer; nil: no
	// progress is reported.
	reporting chan struct{}

	mu   sync.Mutex // guards the fields below
	held int64      // bytes reserved for it
	over bool       // given back
}

// hold reserves room for contents that the answer will carry. A call to a file
// system that hangs may come here after its request was answered.
func (s *Session) hold(r *request, n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return context.Canceled
	}
	err := s.limits.more(n)
	if err == nil {
		r.held += n
	}
	return err
}

// holdFrame counts an answer among the bytes held, as far as the request does not
// hold so much already.
func (s *Session) holdFrame(r *request, size int64, refuse bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := size - r.held
	if n <= 0 || r.over {
		return nil
	}
	if refuse {
		if err := s.limits.more(n); err != nil {
			return err
		}
	} else {
		s.limits.hold(n)
	}
	r.held += n
	return nil
}

// letGo gives back what a request held.
func (s *Session) letGo(r *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	s.limits.leave(r.held)
}

// maxRejections is how many answers to requests that were not let in may wait
// for the peer to read them. They are small, and a peer that goes on sending
// without reading waits for itself from there on.
const maxRejections = 1024

// reject answers a request that was not let in. Whoever reads the peer's frames
// does not wait for it.
func (s *Session) reject(r *request, err error) {
	r.over = true // it holds nothing: it is bounded by how many may wait
	s.mu.Lock()
	later := !s.closed && s.waiting < maxRejections
	if later {
		s.waiting++
	}
	s.mu.Unlock()
	if !later {
		s.answer(r, nil, err)
		return
	}
	go func() {
		s.answer(r, nil, err)
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
	}()
}

// admit finds room for a request.
func (s *Session) admit(r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(r.id)
	switch {
	case s.closed:
		return &guard.Error{Kind: names.Revoked}
	case len(r.id) > longestID:
		r.id = []byte("null")
		return &rpcError{wire.Error{Code: wire.CodeInvalidRequest, Message: fmt.Sprintf("id is longer than %d bytes", longestID)}}
	case !validID(r.id):
		r.id = []byte("null")
		return &rpcError{wire.Error{Code: wire.CodeInvalidRequest, Message: "id must be a string or a number"}}
	case s.inflight[key] != nil:
		return &rpcError{wire.Error{Code: wire.CodeInvalidRequest, Message: "a request with this id is still being answered"}}
	}
	if err := s.limits.enter(r.held); err != nil {
		return err
	}
	r.ctx, r.cancel = context.WithCancel(s.ctx)
	s.inflight[key] = r
	s.wg.Add(1)
	return nil
}

// longestID bounds an id, bytes of JSON: it is kept, and repeated in the answer.
const longestID = 1024

func validID(id []byte) bool {
	return len(id) > 0 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}

// serve runs one request to its end.
func (s *Session) serve(r *request) {
	// Answered before the room is given back: what waits to be sent counts.
	s.answer(s.finish(r))
	s.letGo(r)
}

// finish runs one request until its answer is known.
func (s *Session) finish(r *request) (_ *request, result any, err error) {
	defer s.wg.Done()
	var timedOut atomic.Bool
	stop := func() {}
	if limit := s.limits.Timeout; limit > 0 && !methods[r.method].waits {
		timer := time.AfterFunc(limit, func() {
			timedOut.Store(true)
			r.cancel()
		})
		r.keepAlive, stop = func() { timer.Reset(limit) }, func() { timer.Stop() }
	}
	result, err = s.dispatch(r)
	stop()
	r.cancel()
	if err != nil && timedOut.Load() {
		err = &guard.Error{Kind: names.Timeout, Path: guardError(err).Path}
	}
	s.mu.Lock()
	delete(s.inflight, string(r.id))
	s.mu.Unlock()
	r.reported(s.ctx)
	return r, result, err
}

// dispatch runs the method of a request. Every error of one passes here, so this
// is where those that the gate has not seen are put on record.
func (s *Session) dispatch(r *request) (any, error) {
	result, err := s.run(r)
	if err != nil {
		s.refused(r, err)
	}
	return result, err
}

// run finds the method and turns a bug in one into an error of its request.
func (s *Session) run(r *request) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.b.cfg.Log.Error("panic in a files/* request", "method", r.method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			_ = s.b.cfg.Registry.Note(names.OpPanic, "", guard.Failed, r.method)
			result, err = nil, &guard.Error{Kind: names.Internal, Recorded: true}
		}
	}()
	m, ok := methods[r.method]
	switch {
	case s.b.cfg.NoRoots:
		return nil, noRoots(r.method)
	}
	if err := s.limits.request(); err != nil { // also one that asks for nothing we have
		return nil, err
	}
	if !ok {
		return nil, unknownMethod(r.method)
	}
	return m.run(s, r)
}

func unknownMethod(method string) error {
	msg := "there is no method " + names.QuoteShort(method)
	if rest, ok := strings.CutPrefix(method, "fs."); ok {
		msg += "; write files/" + names.Escape(names.Brief(rest))
	}
	return &rpcError{wire.Error{Code: wire.CodeMethodNotFound, Message: msg}}
}

// cancelRequest handles notifications/cancelled; it reports whether the request
// was one of ours.
func (s *Session) cancelRequest(params []byte) bool {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return false
	}
	s.mu.Lock()
	r := s.inflight[string(bytes.TrimSpace(p.RequestID))]
	s.mu.Unlock()
	if r == nil {
		return false
	}
	r.cancelled.Store(true)
	r.cancel()
	return true
}

// answer sends a reply, unless the peer has cancelled the request (it must not
// get one then: MCP, "Cancellation").
func (s *Session) answer(r *request, result any, err error) {
	s.stats.count(r.method, err)
	frame := s.encode(r, result, err)
	if r.send != nil && frame != nil {
		_ = r.send(s.ctx, frame) // a connection that ended needs no answer
	}
	if frame != nil {
		release(frame)
	}
}

// encode makes the frame of an answer, nil if nobody wants it. It counts as held
// for the request until the peer has taken it. A listing for which there is no
// room is refused; what has changed something is answered all the same.
func (s *Session) encode(r *request, result any, err error) []byte {
	if r.cancelled.Load() {
		return nil
	}
	frame := encodeReply(r.id, result, err)
	if busy := s.holdFrame(r, int64(len(frame)), repeatable(result)); busy != nil {
		release(frame)
		s.refused(r, busy)
		frame = encodeReply(r.id, nil, busy)
	}
	return frame
}

// repeatable tells results that may be long and that cost nothing to ask for again.
func repeatable(result any) bool {
	switch result.(type) {
	case *listResult, *wire.ListResult, *wire.RootsResult:
		return true
	}
	return false
}

// refused puts a request that was refused, or failed, on record, unless the gate
// has done so.
func (s *Session) refused(r *request, err error) {
	if !guardError(err).Recorded {
		s.noted.add(kindOf(err), names.Brief(r.method)+": "+err.Error())
	}
}
