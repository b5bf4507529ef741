package jsonline

import (
	"io"
	"runtime"
	"sync"
)

// Writer writes to one peer: frames made by this process (Send), and bytes that are passed on
// (Pass). It may be used concurrently: the bytes of one call are not mixed with those of another,
// and each frame has a line of its own. Small frames that come at the same time go out in one
// write: a system call that wakes the peer costs more than writing the frames.
type Writer struct {
	w io.Writer

	out     sync.Mutex // held while writing; guards the fields below
	pack    []byte     // joined frames that are not written yet
	midLine bool       // the last byte written ended no line

	mu   sync.Mutex // guards next
	next *batch     // the frames for the next write; nil: there are none
}

// Recheck is called right before a frame is written, and before each piece of a long one. It
// reports whether the peer may have the frame. If not, replacement is written in its place; a nil
// replacement writes nothing.
type Recheck func() (ok bool, replacement []byte)

// queuedFrame is a frame that is to be written; recheck may be nil.
type queuedFrame struct {
	frame   []byte
	recheck Recheck
}

// batch is written by the goroutine that began it, also for callers that have joined.
type batch struct {
	frames []queuedFrame
	size   int
	done   chan struct{}
	err    error // set before done is closed
}

const (
	maxJoin   = 32 << 10 // longest frame that is joined with others; a longer one is written without a copy
	maxJoined = 64 << 10 // bytes of joined frames in one write: the usual capacity of a pipe
	maxBatch  = 1 << 20  // bounds the bytes of other callers for which a caller waits
	maxYield  = 4 << 10  // longest frame whose sender lets other frames join first; a longer frame does not wait
)

// Piece is how many bytes of a frame are written before Recheck is called again. If Recheck then
// refuses the frame, this many of its bytes may still arrive.
const Piece = 64 << 10

// NewWriter makes a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Pass writes bytes as they are.
func (l *Writer) Pass(b []byte) error {
	l.out.Lock()
	defer l.out.Unlock()
	return l.write(b)
}

// Send writes a frame on a line of its own; it returns when the line is written. It waits
// for the peer, so the goroutine that reads from the peer must not call it.
func (l *Writer) Send(frame []byte) error { return l.SendIf(frame, nil) }

// SendIf is Send for a frame that recheck may refuse until the frame is written. If recheck
// refuses the frame after a part has been written, the line ends there and so is not JSON. The
// replacement follows on its own line.
func (l *Writer) SendIf(frame []byte, recheck Recheck) error {
	l.mu.Lock()
	b := l.next
	if b != nil && b.size < maxBatch {
		b.frames, b.size = append(b.frames, queuedFrame{frame, recheck}), b.size+len(frame)
		l.mu.Unlock()
		<-b.done
		return b.err
	}
	b = &batch{frames: []queuedFrame{{frame, recheck}}, size: len(frame), done: make(chan struct{})}
	l.next = b
	l.mu.Unlock()
	if len(frame) <= maxYield {
		runtime.Gosched() // other goroutines that are about to write may join
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

// writeLines writes frames, joining small ones. It does not write to the memory behind a
// frame, which may hold the next line to be passed on.
func (l *Writer) writeLines(frames []queuedFrame) error {
	l.pack = l.pack[:0]
	if l.midLine {
		l.pack = append(l.pack, '\n')
	}
	for _, f := range frames {
		if len(l.pack)+len(f.frame) >= maxJoined || len(f.frame) > maxJoin {
			if err := l.flush(); err != nil {
				return err
			}
		}
		if len(f.frame) <= maxJoin {
			l.join(f)
		} else if err := l.writePieces(f); err != nil {
			return err
		}
	}
	return l.flush()
}

// join rechecks a small frame, and adds it to the frames that are written next.
func (l *Writer) join(f queuedFrame) {
	text := f.frame
	if f.recheck != nil {
		if ok, replacement := f.recheck(); !ok {
			text = replacement
		}
	}
	if text != nil {
		l.pack = append(append(l.pack, text...), '\n')
	}
}

// writePieces writes a long frame, and leaves the end of its line to the next write.
func (l *Writer) writePieces(f queuedFrame) error {
	rest := f.frame
	for f.recheck != nil && len(rest) > 0 {
		ok, replacement := f.recheck()
		if !ok {
			if len(rest) < len(f.frame) {
				l.pack = append(l.pack, '\n')
			}
			l.join(queuedFrame{frame: replacement})
			return nil
		}
		piece := rest[:min(Piece, len(rest))]
		if err := l.write(piece); err != nil {
			return err
		}
		rest = rest[len(piece):]
	}
	l.pack = append(l.pack, '\n')
	return l.write(rest)
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
