package tools

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
)

// openRequests are the HTTP requests whose clients wait for an answer. Up to revision
// 2025-11-25 the SDK lets a call run on when the connection of its request is gone, as the
// protocol wants it: a write is not left halfway. A question to a person is another matter.
// Nothing here keeps answers for later, so what the person says would reach nobody.
type openRequests struct {
	contexts sync.Map // the requests' contexts, by mark
}

// markHeader carries a request's mark to the call that it becomes, which has the
// headers and not the context. Whatever a client writes there is replaced.
const markHeader = "Rootsfs-Request"

// track marks a request until done is called.
func (o *openRequests) track(r *http.Request) (done func()) {
	mark := rand.Text()
	r.Header.Set(markHeader, mark)
	o.contexts.Store(mark, r.Context())
	return func() { o.contexts.Delete(mark) }
}

// untilHangup returns the call's context, which ends also when the client of its HTTP
// request has hung up.
func (c *call) untilHangup() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.ctx)
	extra := c.req.GetExtra()
	if c.s.requests == nil || extra == nil {
		return ctx, cancel
	}
	request, open := c.s.requests.contexts.Load(extra.Header.Get(markHeader))
	if !open {
		cancel()
		return ctx, cancel
	}
	stop := context.AfterFunc(request.(context.Context), cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
