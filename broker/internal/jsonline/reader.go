package jsonline

import (
	"bufio"
	"errors"
	"sync"
)

// ReadLine reads one line into buf, which it grows as needed, and returns the line with its
// newline. For a line longer than limit bytes, newline included, ReadLine returns only the Head, so
// its memory is bounded by limit. A last line without a newline is lost: the error is the stream's.
func ReadLine(r *bufio.Reader, buf []byte, limit int) (line []byte, long *Head, err error) {
	line = buf[:0]
	for {
		part, err := r.ReadSlice('\n')
		if long == nil && len(line)+len(part) > limit {
			long = HeadOf(line)
		}
		if long != nil {
			long.Feed(part)
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, nil, err
		case long != nil:
			return nil, long, nil
		}
		return line, nil, nil
	}
}

// Pool keeps buffers for their next use: an answer of a megabyte would otherwise leave
// several megabytes of garbage. There are two pools, because the lines read and the
// frames written by a process seldom have one size.
type Pool struct{ pool sync.Pool }

// Lines has buffers for lines that are read, and Frames has buffers for frames that are written.
var (
	Lines  Pool
	Frames Pool
)

const maxPooled = 4 << 20 // bytes; larger buffers are left to the garbage collector

// Get returns an empty buffer.
func (p *Pool) Get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, 4096)
}

// Put takes a buffer that is no longer used. It need not come from Get.
func (p *Pool) Put(b []byte) {
	if b != nil && cap(b) <= maxPooled {
		p.pool.Put(&b)
	}
}
