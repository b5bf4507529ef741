package proxy

import (
	"context"
	"sync"
	"time"
)

// drainTimeout is how long a proxy whose host has left waits for the server to read the answers to
// the server's requests. Tests change it.
var drainTimeout = 700 * time.Millisecond

// drain waits until the session owes the server no answer, at most drainTimeout. It does not wait
// if the peers do not speak MCP, or the server or ctx has ended. A server on the TypeScript
// SDK runs for another minute if an answer is still due when its input ends. A host that only
// checks the server may have left before the answer.
func (p *Proxy) drain(ctx context.Context) {
	if p.auto.state() != isMCP {
		return
	}
	limit := time.NewTimer(drainTimeout)
	defer limit.Stop()
	check := time.NewTicker(time.Millisecond)
	defer check.Stop()
	for p.session.Busy() {
		select {
		case <-check.C:
		case <-limit.C:
			return
		case <-p.opt.Gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// maxOpen bounds the ids in serverRequests.open.
const maxOpen = 1024

// serverRequests tracks the server's requests that the host has to answer. It is used to find out,
// once the host has left, whether the server waits for an answer that cannot come.
type serverRequests struct {
	mu          sync.Mutex          // guards the fields below
	open        map[string]struct{} // without an answer, by idKey
	hasHostLeft bool                // the host has left
	isWaiting   bool                // the server waited for an answer when the host left, or has sent a request since
}

// note adds a request of the server. It ignores a notification, which has no id. isPassed says
// that the request is passed to the host; otherwise the session answers the request. The server
// cannot get the answer to a request that comes after the host has left.
func (r *serverRequests) note(id []byte, isPassed bool) {
	if len(id) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isWaiting = r.isWaiting || r.hasHostLeft
	if isPassed && !r.hasHostLeft && len(r.open) < maxOpen {
		if r.open == nil {
			r.open = map[string]struct{}{}
		}
		r.open[idKey(id)] = struct{}{}
	}
}

// drop removes a request that was answered, or that the server does not wait for any more.
func (r *serverRequests) drop(id []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, idKey(id))
}

// hostLeft notes that the host has left. isBusy says that the session owes the server an
// answer.
func (r *serverRequests) hostLeft(isBusy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hasHostLeft, r.isWaiting = true, isBusy || len(r.open) > 0
}

// isLost reports whether the server waits for an answer that cannot come. Once true, it stays true,
// even if the server cancels the request.
func (r *serverRequests) isLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isWaiting
}

// checkInterval is the time between two checks whether to stop a server whose host has left.
// Only the second check that finds a reason stops the server, because the server may end by itself
// after the first.
const checkInterval = 100 * time.Millisecond

// stopAbandoned stops a server whose host has left, when the server waits for an answer that
// cannot come, or the host no longer reads either. It returns when it has stopped the server, or
// the server is gone, or done is closed.
func (p *Proxy) stopAbandoned(done <-chan struct{}) {
	if p.opt.Stop == nil || p.auto.state() != isMCP {
		return
	}
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	for waited := false; ; {
		select {
		case <-check.C:
		case <-done:
			return
		case <-p.opt.Gone:
			return
		}
		switch lost := p.serverRequests.isLost() || p.host.hungUp(); {
		case lost && waited:
			p.log.Warn("the host has left, and the server waits for an answer that cannot come, or is heard by nobody: the server is ended")
			p.opt.Stop()
			return
		case lost:
			waited = true
		}
	}
}
