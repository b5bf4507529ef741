package tools

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
)

// wanted knows whose answers are still waited for. Up to revision 2025-11-25 the SDK
// lets a call run on when the connection of its request is gone, as the protocol
// wants it: a write is not left halfway. A question to a person is another matter. Nothing
// here keeps answers for later, so what the person says would reach nobody.
type wanted struct {
	requests sync.Map // context.Context of each request that waits, by its mark
}

// markHeader carries a request's mark to the call that it becomes, which has the
// headers and not the context. Whatever a client writes there is replaced.
const markHeader = "Rootsfs-Request"

// follow marks a request, until done.
func (w *wanted) follow(r *http.Request) (done func()) {
	mark := rand.Text()
	r.Header.Set(markHeader, mark)
	w.requests.Store(mark, r.Context())
	return func() { w.requests.Delete(mark) }
}

// context is that of the request with these headers; it has ended if there is none.
func (w *wanted) context(h http.Header) context.Context {
	if ctx, ok := w.requests.Load(h.Get(markHeader)); ok {
		return ctx.(context.Context)
	}
	return ended
}

// ended is a context that has.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// whileWanted is the call's context, which ends also when nobody waits for the answer.
func (c *call) whileWanted() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.ctx)
	extra := c.req.GetExtra()
	if c.s.wanted == nil || extra == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(c.s.wanted.context(extra.Header), cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
