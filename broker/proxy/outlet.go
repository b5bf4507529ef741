package proxy

import (
	"io"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
)

// outlet is the way to one peer, both for lines that pass and for the proxy's own frames.
type outlet struct {
	*jsonline.Writer
	w io.WriteCloser

	mu      sync.Mutex // guards pending
	pending int        // the proxy's own frames that are still to be sent; see Proxy.sendAsync
	allSent *sync.Cond // on mu; signals that pending is 0
}

func newOutlet(w io.WriteCloser) *outlet {
	o := &outlet{Writer: jsonline.NewWriter(w), w: w}
	o.allSent = sync.NewCond(&o.mu)
	return o
}

// addPending adds n to the number of frames that are still to be sent.
func (o *outlet) addPending(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pending += n; o.pending == 0 {
		o.allSent.Broadcast()
	}
}

// waitSent waits until all pending frames were sent.
func (o *outlet) waitSent() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.pending > 0 {
		o.allSent.Wait()
	}
}

// hungUp reports whether the peer has closed its end, so that a write would fail.
func (o *outlet) hungUp() bool {
	conn, ok := o.w.(syscall.Conn)
	if !ok {
		return false // only a write would show it
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	fds := []unix.PollFd{{}} // without events, poll still reports errors and hang-ups
	err = raw.Control(func(fd uintptr) {
		fds[0].Fd = int32(fd)
		_, _ = unix.Poll(fds, 0) // if it fails, Revents stays 0
	})
	return err != nil || fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// close ends the peer's input. It does not wait for a write under way.
func (o *outlet) close() { _ = o.w.Close() } // an error says only that it was closed already
