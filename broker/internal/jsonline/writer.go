package jsonline

import (
	"io"
	"runtime"
	"sync"
)

// Writer writes to one peer, frames of ours and lines that pass. It may be used
// concurrently: no line is torn by another, and small frames that come together go out in
// one write, because a system call and the waking of the peer cost more than they do.
type Writer struct {
	w io.Writer

	out     sync.Mutex // held while writing; guards the fields below
	pack    []byte     // frames joined
	midLine bool       // the last byte written ended no line

	mu   sync.Mutex // guards next
	next *batch     // what the next write takes; nil: nothing waits
}

// batch is written by the caller who began it, on behalf of those who joined.
type batch struct {
	frames [][]byte
	size   int
	done   chan struct{}
	err    error // set before done is closed
}

const (
	packed    = 32 << 10 // larger frames are written by themselves, uncopied
	maxPacked = 64 << 10 // a pipe's usual room
	maxBatch  = 1 << 20  // so that nobody waits for more than that of others'
	gathered  = 4 << 10  // larger frames go at once, lest the peer be idle meanwhile
)

// NewWriter makes a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Pass writes bytes as they are.
func (l *Writer) Pass(b []byte) error {
	l.out.Lock()
	defer l.out.Unlock()
	return l.write(b)
}

// Send writes a frame on a line of its own; it returns when the line is written. It waits
// for the peer: whoever reads what the peer sends must not call it.
func (l *Writer) Send(frame []byte) error {
	l.mu.Lock()
	b := l.next
	if b != nil && b.size < maxBatch {
		b.frames, b.size = append(b.frames, frame), b.size+len(frame)
		l.mu.Unlock()
		<-b.done
		return b.err
	}
	b = &batch{frames: [][]byte{frame}, size: len(frame), done: make(chan struct{})}
	l.next = b
	l.mu.Unlock()
	if len(frame) <= gathered {
		runtime.Gosched() // whoever is about to write, too, may join
	}
	l.out.Lock()
	defer l.out.Unlock()
	l.mu.Lock()
	if l.next == b {
		l.next = nil
	}
	l.mu.Unlock()
	defer close(b.done)
	b.err = l.writeLines(b.frames)
	return b.err
}

// writeLines writes frames, joining small ones. It changes nothing of what follows a frame
// in memory, which may be the next line.
func (l *Writer) writeLines(frames [][]byte) error {
	l.pack = l.pack[:0]
	if l.midLine {
		l.pack = append(l.pack, '\n')
	}
	for _, f := range frames {
		if len(l.pack)+len(f) >= maxPacked || len(f) > packed {
			if err := l.flush(); err != nil {
				return err
			}
		}
		if len(f) <= packed {
			l.pack = append(l.pack, f...)
		} else if err := l.write(f); err != nil {
			return err
		}
		l.pack = append(l.pack, '\n')
	}
	return l.flush()
}

func (l *Writer) flush() error {
	err := l.write(l.pack)
	l.pack = l.pack[:0]
	return err
}

func (l *Writer) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	n, err := l.w.Write(b)
	if n > 0 {
		l.midLine = b[n-1] != '\n'
	}
	return err
}
