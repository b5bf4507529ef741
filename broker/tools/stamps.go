package tools

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/flow"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// An answer says what was read in roots. It may be written long after that, by the SDK, which
// does not know of roots. So each request that the SDK is handed has a mark, by which the
// call that it becomes finds the request, and notes there what the answer shows. Who writes
// the answer finds that by the same request, and looks at the roots again.

// openRequests are the requests that have no answer yet, by mark.
type openRequests struct {
	byMark  sync.Map
	answers *flow.Budget // of all answers over HTTP; nil: over streams, where calls are bounded
}

// openRequest is one of them.
type openRequest struct {
	ctx context.Context // of the HTTP request, or of the connection over streams
	// shows is told of each answer, before the SDK writes it.
	shows   func(*guard.Stamps)
	answers *unreadAnswers // nil: over streams
}

// markHeader carries a request's mark to the call that it becomes, which has the
// headers and not the context. Whatever a client writes there is replaced.
const markHeader = "Rootsfs-Request"

// track marks an HTTP request until done is called, and holds what its answers hold. Up to revision 2025-11-25 the SDK lets a
// call run on when the connection of its request is gone, as the protocol wants it: a write
// is not left halfway. Nothing here keeps answers for later.
func (o *openRequests) track(r *http.Request, answers *unreadAnswers) (done func()) {
	mark := rand.Text()
	r.Header.Set(markHeader, mark)
	o.byMark.Store(mark, &openRequest{r.Context(), r.Context().Value(connectionKey{}).(*connection).show, answers})
	return func() {
		o.byMark.Delete(mark)
		answers.end()
	}
}

// of returns the request that a call came by; nil: it is over, or was not marked.
func (o *openRequests) of(extra *mcp.RequestExtra) *openRequest {
	if o == nil || extra == nil {
		return nil
	}
	r, ok := o.byMark.Load(extra.Header.Get(markHeader))
	if !ok {
		return nil
	}
	return r.(*openRequest)
}

// shows notes what the answer to a request of the SDK's shows, before the SDK has the answer.
func (s *Server) shows(extra *mcp.RequestExtra, stamps *guard.Stamps) {
	if r := s.requests.of(extra); r != nil && stamps != nil {
		r.shows(stamps)
	}
}

// untilHangup returns the call's context, which ends also when the client of its HTTP
// request has hung up: what a person says then would reach nobody.
func (c *call) untilHangup() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.ctx)
	extra := c.req.GetExtra()
	if c.s.requests == nil || extra == nil {
		return ctx, cancel
	}
	request := c.s.requests.of(extra)
	if request == nil {
		cancel()
		return ctx, cancel
	}
	stop := context.AfterFunc(request.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// recheck is the second look at an answer of the SDK's, at the moment of the write.
func (s *Server) recheck(id []byte, stamps *guard.Stamps) jsonline.Recheck {
	return func() (ok bool, instead []byte) {
		err := stamps.Err()
		if err == nil {
			return true, nil
		}
		s.recordRefusal("an answer", err)
		return false, jsonline.AppendError(nil, id, wire.Error{Code: wire.Number(names.Reason(err).Code()), Message: errorText(err)})
	}
}
