package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"runtime"
	"sync"
)

// ErrTooLong is ReadLine's for a line that is longer than its limit.
var ErrTooLong = errors.New("line too long")

// lineHead is how much ReadLine keeps of a line that is too long: enough to tell
// which request it answers.
const lineHead = 256

// ReadLine reads one line into buf, which it grows as needed, and returns it with
// its end. Of a line longer than limit bytes it passes over the rest and returns
// the beginning, with ErrTooLong. So its memory is bounded by limit, whatever
// comes. A line that the stream ends in is lost: the error is the stream's.
func ReadLine(r *bufio.Reader, buf []byte, limit int) ([]byte, error) {
	line, long := buf[:0], false
	for {
		part, err := r.ReadSlice('\n')
		if !long && len(line)+len(part) > limit {
			head := append(line, part[:min(len(part), lineHead)]...)
			line, long = bytes.Clone(head[:min(len(head), lineHead)]), true
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, err
		case long:
			return line, ErrTooLong
		}
		return line, nil
	}
}

// LineWriter writes frames to a stream, one a line. It may be used concurrently:
// a frame is never torn, and small ones that come together go out in one write,
// because a system call and the waking of the peer cost more than they do.
type LineWriter struct {
	w    io.Writer
	out  sync.Mutex // held while writing
	pack []byte     // small frames joined; used under out

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

// NewLineWriter makes a LineWriter on w.
func NewLineWriter(w io.Writer) *LineWriter { return &LineWriter{w: w} }

// Write writes a frame and the end of its line; it returns when both are written.
// It may use what capacity frame has beyond its length.
func (l *LineWriter) Write(frame []byte) error {
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
	b.err = l.write(b.frames)
	return b.err
}

// write writes frames, joining small ones.
func (l *LineWriter) write(frames [][]byte) error {
	l.pack = l.pack[:0]
	flush := func(next int) error {
		if len(l.pack) == 0 || next > 0 && len(l.pack)+next < maxPacked {
			return nil
		}
		_, err := l.w.Write(l.pack)
		l.pack = l.pack[:0]
		return err
	}
	for _, f := range frames {
		if len(frames) > 1 && len(f) <= packed {
			if err := flush(len(f) + 1); err != nil {
				return err
			}
			l.pack = append(append(l.pack, f...), '\n')
			continue
		}
		if err := flush(0); err != nil {
			return err
		}
		if _, err := l.w.Write(append(f, '\n')); err != nil {
			return err
		}
	}
	return flush(0)
}

// What our host begins an answer with. A reader that finds exactly this knows
// which request is answered without having read the whole frame.
const (
	replyHead   = `{"jsonrpc":"2.0","id":`
	replyResult = `,"result":`
)

// AppendReply appends the beginning of a response's frame: up to the id, which
// is raw JSON. What follows is the result or the error, and a closing brace.
func AppendReply(b, id []byte) []byte { return append(append(b, replyHead...), id...) }

// AppendResult appends what comes before a result.
func AppendResult(b []byte) []byte { return append(b, replyResult...) }

// CutResult takes apart a response as AppendReply and AppendResult begin it,
// whose id is a string without escapes. The result is not looked at: where the
// frame holds more than the three fields, or is no JSON, result is no JSON value.
// Both parts lie in line.
func CutResult(line []byte) (id, result []byte, ok bool) {
	rest, ok := bytes.CutPrefix(bytes.TrimRight(line, " \t\r\n"), []byte(replyHead+`"`))
	if !ok {
		return nil, nil, false
	}
	i := bytes.IndexByte(rest[:min(len(rest), lineHead)], '"')
	if i < 0 || bytes.IndexByte(rest[:i], '\\') >= 0 {
		return nil, nil, false
	}
	id = rest[:i]
	result, ok = bytes.CutPrefix(rest[i+1:], []byte(replyResult))
	if !ok || len(result) == 0 || result[len(result)-1] != '}' {
		return nil, nil, false
	}
	return id, result[:len(result)-1], true
}
