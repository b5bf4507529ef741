package tools

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// The SDK may write an answer long after the answer's data was read in a root, and the SDK does
// not know whether the data may still be read. So each request for the SDK gets a mark, by which
// the request's call finds its openRequest. Through the openRequest, the call gives the writer of
// the answer the stamps of the roots whose data the answer has. The writer checks these roots
// again.

// openRequests are the requests that have no answer yet, by mark.
type openRequests struct {
	byMark  sync.Map
	answers *flowcontrol.Budget // the memory for all answers over HTTP; nil: over streams, where calls are bounded
}

// openRequest is one request that has no answer yet.
type openRequest struct {
	ctx context.Context // of the HTTP request, or of the connection over streams
	// addStamps is called with the stamps of each answer, before the SDK writes it.
	addStamps func(*guard.Stamps)
	answers   *unreadAnswers // nil: over streams
}

// markHeader carries a request's mark to its call, because the call gets the headers and not
// the context. A value that a client sends is replaced.
const markHeader = "Rootsfs-Request"

// track marks an HTTP request until done is called, and accounts for the memory of its answers.
// Up to revision 2025-11-25 the SDK lets a call run on when the connection of its request is
// gone. The protocol wants that, so that no write is left half done. The call's answer is lost.
func (o *openRequests) track(r *http.Request, answers *unreadAnswers) (done func()) {
	mark := rand.Text()
	r.Header.Set(markHeader, mark)
	o.byMark.Store(mark, &openRequest{r.Context(), r.Context().Value(connectionKey{}).(*connection).addStamps, answers})
	return func() {
		o.byMark.Delete(mark)
		answers.end()
	}
}

// of returns the openRequest of a call; nil: the request has ended, or was not marked.
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

// addStamps records the stamps of an answer before the SDK gets the answer.
func (s *Server) addStamps(extra *mcp.RequestExtra, stamps *guard.Stamps) {
	if r := s.requests.of(extra); r != nil && stamps != nil {
		r.addStamps(stamps)
	}
}

// untilHangup returns a context that ends with the call, and also when the client of the HTTP
// request has hung up: a person's answer would then reach nobody.
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

// recheck returns a function that decides at the moment of the write whether an answer of the SDK
// may still be sent. If not, the function records the refusal and returns an error response.
func (s *Server) recheck(id []byte, stamps *guard.Stamps) jsonline.Recheck {
	return func() (ok bool, replacement []byte) {
		err := stamps.Err()
		if err == nil {
			return true, nil
		}
		s.recordRefusal("an answer", err)
		return false, jsonline.AppendError(nil, id, wire.Error{Code: wire.Number(names.Reason(err).Code()), Message: errorText(err)})
	}
}
