package proxy

import (
	"io"
	"sync"

	"github.com/rootsfs/rootsfs/broker/wire"
)

// outlet is the way to one peer. What passes and what is ours share it: every
// Write is of whole lines, and none is torn by another.
type outlet struct {
	own *wire.LineWriter // for frames of ours, which it joins when many come at once

	mu  sync.Mutex // held while writing
	w   io.WriteCloser
	mid bool // the last byte was no end of a line
}

func newOutlet(w io.WriteCloser) *outlet {
	o := &outlet{w: w}
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

// close ends the peer's input. It does not wait for a write under way.
func (o *outlet) close() { _ = o.w.Close() } // it may have been closed by the peer's end
