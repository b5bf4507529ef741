package proxy

import (
	"context"
	"sync"
	"time"
)

// drainFor is how long the proxy waits, at the end of the host's input, for a server to
// read the answers to its requests.
const drainFor = 700 * time.Millisecond

// drain waits until the server has got the answers to its requests. A server on the TypeScript
// SDK runs for another minute if an answer is still due when its input ends. A host that only
// checks the server may have left before the answer.
func (p *Proxy) drain(ctx context.Context) {
	if p.auto.state() != isMCP {
		return
	}
	limit := time.NewTimer(drainFor)
	defer limit.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for p.session.Busy() {
		select {
		case <-look.C:
		case <-limit.C:
			return
		case <-p.opt.Gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// maxOpen bounds the ids of requests that are kept.
const maxOpen = 1024

// unheard tracks whether a server waits for an answer that cannot come, because its host
// has left.
type unheard struct {
	mu    sync.Mutex          // guards the fields below
	open  map[string]struct{} // requests of the server's that the host has not answered, by idKey
	left  bool                // the host has left
	waits bool                // the host has left, and the server waits for an answer
}

// asked notes a request of the server, or a notification, which has no id. passed reports
// that the host answers it, and not the session.
func (u *unheard) asked(id []byte, passed bool) {
	if len(id) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waits = u.waits || u.left
	if passed && !u.left && len(u.open) < maxOpen {
		if u.open == nil {
			u.open = map[string]struct{}{}
		}
		u.open[idKey(id)] = struct{}{}
	}
}

// answered notes that a request was answered, or is not waited for any more.
func (u *unheard) answered(id []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.open, idKey(id))
}

// leave notes that the host has left. busy reports that the session owes the server an
// answer.
func (u *unheard) leave(busy bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.left, u.waits = true, busy || len(u.open) > 0
}

func (u *unheard) isWaiting() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.waits
}

// lookEvery is the time between two checks whether to stop a server whose host has left.
// The second check stops it: meanwhile it may end by itself.
const lookEvery = 100 * time.Millisecond

// stopLeft stops a server whose host has left, when the server waits for an answer that
// cannot come, or the host no longer reads either. It returns when over is closed.
func (p *Proxy) stopLeft(over <-chan struct{}) {
	if p.opt.Stop == nil || p.auto.state() != isMCP {
		return
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for waited := false; ; {
		select {
		case <-look.C:
		case <-over:
			return
		case <-p.opt.Gone:
			return
		}
		switch lost := p.unheard.isWaiting() || p.host.hungUp(); {
		case lost && waited:
			p.log.Warn("the host has left, and the server waits for an answer that cannot come, or is heard by nobody: the server is ended")
			p.opt.Stop()
			return
		case lost:
			waited = true
		}
	}
}
