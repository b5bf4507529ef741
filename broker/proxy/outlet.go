package proxy

import (
	"io"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/wire"
)

// outlet is the way to one peer. What passes and what is ours share it: every
// Write is of whole lines, and none is torn by another.
type outlet struct {
	own *wire.LineWriter // for frames of ours, which it joins when many come at once

	dues sync.Mutex // guards due
	due  int        // frames of ours that wait on the side; see Proxy.tell
	none *sync.Cond // of dues: there are none

	mu  sync.Mutex // held while writing
	w   io.WriteCloser
	mid bool // the last byte was no end of a line
}

func newOutlet(w io.WriteCloser) *outlet {
	o := &outlet{w: w}
	o.none = sync.NewCond(&o.dues)
	o.own = wire.NewLineWriter(ownLines{o})
	return o
}

// Write passes bytes on as they are.
func (o *outlet) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writeLocked(b)
}

func (o *outlet) writeLocked(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := o.w.Write(b)
	if n > 0 {
		o.mid = b[n-1] != '\n'
	}
	return n, err
}

// send writes a frame of ours as a line. It waits for the peer: whoever reads
// the other direction must not call it.
func (o *outlet) send(frame []byte) error { return o.own.Write(frame) }

// owe counts frames that are to be sent.
func (o *outlet) owe(n int) {
	o.dues.Lock()
	defer o.dues.Unlock()
	if o.due += n; o.due == 0 {
		o.none.Broadcast()
	}
}

// settle waits until none is.
func (o *outlet) settle() {
	o.dues.Lock()
	defer o.dues.Unlock()
	for o.due > 0 {
		o.none.Wait()
	}
}

// ownLines begins frames of ours on a line of their own.
type ownLines struct{ o *outlet }

func (w ownLines) Write(b []byte) (int, error) {
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	if w.o.mid {
		if _, err := w.o.writeLocked([]byte{'\n'}); err != nil {
			return 0, err
		}
	}
	return w.o.writeLocked(b)
}

// hungUp reports whether the peer has closed its end, as a write would find out.
func (o *outlet) hungUp() bool {
	conn, ok := o.w.(syscall.Conn)
	if !ok {
		return false // its writes tell
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	fds := []unix.PollFd{{}} // it always tells of errors and hang-ups
	err = raw.Control(func(fd uintptr) {
		fds[0].Fd = int32(fd)
		_, _ = unix.Poll(fds, 0) // one that fails tells nothing
	})
	return err != nil || fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// close ends the peer's input. It does not wait for a write under way.
func (o *outlet) close() { _ = o.w.Close() } // it may have been closed by the peer's end
