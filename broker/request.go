package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// request is one request that the session answers itself, see IsFilesMethod.
type request struct {
	id     []byte // raw JSON
	method string
	params []byte
	send   Sender
	room   *flowcontrol.Reservation // its share of limiter.requests or Session.rejections; nil: none
	stamps guard.Stamps             // of the roots that the request names, see recheck

	elicitor Elicitor // asks the person about this request; nil: Session.elicitor does

	ctx     context.Context
	cancel  context.CancelCauseFunc // called with errTimedOut or errWithdrawn, or with nil when the method has returned
	timer   *time.Timer             // cancels the request if no bytes move for timeout
	timeout time.Duration           // not positive: no timeout

	// reporting has an element while a progress notification is being sent to the peer; nil: no
	// progress is reported.
	reporting chan struct{}
}

// Causes of a request's end before its method returned.
var (
	errTimedOut  = errors.New("timed out")
	errWithdrawn = errors.New("the peer has cancelled the request")
)

// IsFilesMethod reports whether the session, and not the SDK, answers a method.
func IsFilesMethod(method string) bool {
	return strings.HasPrefix(method, wire.MethodPrefix) || method == wire.RootsList || strings.HasPrefix(method, "fs.")
}

// Handle takes a frame of the peer if IsFilesMethod reports true for its method, or if it cancels
// a request in flight in this session. Handle reports whether it has taken the frame. It waits
// only for a peer that goes on sending while maxRejections rejections wait to be read. The parts
// of a frame that Handle takes must not change afterwards; size is the number of bytes that the
// frame holds in memory. Handle calls send with the answer, possibly after the session has ended.
func (s *Session) Handle(f wire.Frame, size int, send Sender) bool {
	switch {
	case f.Method == wire.Cancelled:
		return s.cancelRequest(f.Params)
	case !IsFilesMethod(f.Method):
		return false
	case !f.Call(): // a notification gets no answer, and no files/* method is a notification
		s.NoteRefusal(names.QuoteShort(f.Method) + " must be a request: it has no id")
		return true
	}
	r := &request{id: f.ID, method: f.Method, params: f.Params, send: send, stamps: s.stamps()}
	if err := s.admit(r, int64(size)); err != nil {
		s.record(r, err)
		s.reject(r, err)
		return true
	}
	s.start(r)
	return true
}

// longestID bounds an id, in bytes of JSON: the id is kept, and repeated in the answer.
const longestID = 1024

func validID(id []byte) bool {
	return len(id) > 0 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}

// admit checks the id of a request, reserves size bytes for the request, and adds it to s.inflight.
func (s *Session) admit(r *request, size int64) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(r.id)
	switch {
	case s.closed:
		return &guard.Error{Kind: names.Revoked}
	case len(r.id) > longestID:
		r.id = []byte("null")
		return invalidRequest(fmt.Sprintf("id is longer than %d bytes", longestID))
	case !validID(r.id):
		r.id = []byte("null")
		return invalidRequest("id must be a string or a number")
	case s.inflight[key] != nil:
		return invalidRequest("a request with this id is still being answered")
	}
	if r.room, err = s.limits.requests.TryAcquire(size); err != nil {
		return s.limits.asRefusal(err)
	}
	r.ctx, r.cancel = context.WithCancelCause(s.ctx)
	s.inflight[key] = r
	s.wg.Add(1)
	return nil
}

// maxRejections is how many answers to requests that were not admitted may wait for the
// peer to read them. These answers are small. If a peer leaves maxRejections answers unread and
// goes on sending, the session reads nothing more from it.
const maxRejections = 1024

// reject answers a request that was not admitted. The goroutine that reads the peer's frames
// does not wait until the answer is sent, unless maxRejections answers wait already.
func (s *Session) reject(r *request, err error) {
	s.stats.count(r.method, err)
	r.ctx = s.ctx
	var full error
	if r.room, full = s.rejections.TryAcquire(0); full != nil {
		s.answer(r, nil, err)
		return
	}
	go s.answer(r, nil, err)
}

// maxIdle bounds the goroutines of a session that wait for a request. The limit of requests in
// flight bounds the goroutines that run one.
const maxIdle = 32

// start runs a request in a goroutine that waits for a request or, if none waits, in a new
// goroutine. A new goroutine has to grow its stack, which costs at least a tenth of the time of a
// small request.
func (s *Session) start(r *request) {
	select {
	case s.next <- r:
	default:
		go s.work(r)
	}
}

// work runs r and then further requests. It returns when maxIdle other goroutines wait for a
// request, or the session ends.
func (s *Session) work(r *request) {
	for {
		s.run(r)
		select {
		case s.idle <- struct{}{}:
		default:
			return
		}
		select {
		case r = <-s.next:
			<-s.idle
		case <-s.ctx.Done():
			return
		}
	}
}

// run runs a request that was admitted, and answers it.
func (s *Session) run(r *request) {
	if r.timeout = s.limits.Timeout; r.timeout > 0 && !methods[r.method].asksPerson {
		r.timer = time.AfterFunc(r.timeout, func() { r.cancel(errTimedOut) })
		defer r.timer.Stop()
	}
	result, err := s.dispatch(r)
	if err != nil && errors.Is(context.Cause(r.ctx), errTimedOut) {
		err = &guard.Error{Kind: names.Timeout, Path: guardError(err).Path}
	}
	r.cancel(nil)
	s.mu.Lock()
	delete(s.inflight, string(r.id))
	s.mu.Unlock()
	r.awaitReport(s.ctx)
	s.wg.Done() // before the answer: Close does not wait for a peer that does not read
	s.answer(r, result, err)
}

// alive restarts the timeout. It is called when bytes have moved.
func (r *request) alive() {
	if r.timer != nil && r.ctx.Err() == nil {
		r.timer.Reset(r.timeout)
	}
}

// dispatch runs the method of a request. All errors of methods pass here, so dispatch
// records the errors that the gate has not recorded.
func (s *Session) dispatch(r *request) (result any, err error) {
	defer func() {
		if p := recover(); p != nil { // a bug in a method is an error of its request
			s.b.cfg.Log.Error("panic in a files/* request", "method", r.method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			_ = s.b.cfg.Registry.Note(names.OpPanic, "", guard.Failed, r.method)
			result, err = nil, &guard.Error{Kind: names.Internal, Recorded: true}
		}
		s.stats.count(r.method, err)
		if err != nil {
			s.record(r, err)
		}
	}()
	if s.b.cfg.NoRoots {
		return nil, noRoots(r.method)
	}
	if err := s.limits.spendRequest(); err != nil { // also for methods that do not exist
		return nil, err
	}
	m, ok := methods[r.method]
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
	return &wire.Error{Code: wire.CodeMethodNotFound, Message: msg}
}

// record records a request that was refused or failed, unless the gate has done so.
func (s *Session) record(r *request, err error) {
	if !guardError(err).Recorded {
		s.recordRefusal(kindOf(err), names.Brief(r.method)+": "+err.Error())
	}
}

// hold reserves room for contents that the answer will carry. If a file system hangs,
// hold may be called after the request was answered.
func (s *Session) hold(r *request, n int64) error { return s.limits.asRefusal(r.room.Grow(n)) }

// cancelRequest handles notifications/cancelled. It reports whether the request to cancel is in
// flight in this session.
func (s *Session) cancelRequest(params []byte) bool {
	id, _ := jsonline.Lookup(params, jsonline.Span{From: jsonline.SkipSpace(params, 0), To: len(params)}, "requestId")
	s.mu.Lock()
	r := s.inflight[string(id.Of(params))]
	s.mu.Unlock()
	if r == nil {
		return false
	}
	r.cancel(errWithdrawn)
	return true
}

// answer sends a reply, unless the peer has cancelled the request (a cancelled request must not be
// answered: MCP, "Cancellation"). The reply counts as memory of the request until the peer has
// taken it. If there is no room for the reply, a listing is refused (see repeatable). All other
// replies are sent nevertheless, because the request may have changed something.
func (s *Session) answer(r *request, result any, err error) {
	defer r.room.Release()
	if errors.Is(context.Cause(r.ctx), errWithdrawn) {
		return
	}
	frame := encodeReply(r.id, result, err)
	if full := s.limits.asRefusal(r.room.GrowTo(int64(len(frame)), !repeatable(result))); full != nil {
		jsonline.Frames.Put(frame)
		s.record(r, full)
		frame = encodeReply(r.id, nil, full)
	}
	_ = r.send(s.ctx, frame, s.recheck(r, result, err)) // a connection that ended needs no answer
	jsonline.Frames.Put(frame)
}

// stamps returns the stamps of a request that has named no root yet.
func (s *Session) stamps() guard.Stamps { return s.b.cfg.Registry.Stamps(s.subject) }

// recheck returns the Recheck of an answer that contains data from a root, and nil for any other
// answer. An error with an etag contains such data. The answer to a change is always sent,
// because a revocation does not undo the change.
func (s *Session) recheck(r *request, result any, err error) Recheck {
	if h, ok := errors.AsType[*hinted](err); err != nil && (!ok || h.etag == "") || err == nil && !methods[r.method].hasData {
		return nil
	}
	return func() (ok bool, replacement []byte) {
		err := r.stamps.Err()
		if err == nil {
			return true, nil
		}
		s.record(r, err)
		if errors.Is(err, names.Conflict) {
			err = &hinted{err: err, hint: "send the request again"}
		}
		return false, encodeReply(r.id, nil, err)
	}
}

// repeatable reports whether a result may be long, and can be requested again without harm.
func repeatable(result any) bool {
	switch result.(type) {
	case *listResult, *wire.ListResult, *wire.RootsResult:
		return true
	}
	return false
}
