package audit

import (
	"io"
	"time"
)

// Bounds of the queue between Record and the file.
const (
	queueLimit = 4 << 20  // then Record waits, and fails if waiting does not help
	flushSize  = 64 << 10 // then the queue is written at once
	flushDelay = 100 * time.Millisecond
	// retryDelay is between attempts nobody asked for while the sink fails.
	retryDelay = time.Second
	// anchorDelay spaces anchors, each of which costs two fsyncs.
	anchorDelay = time.Second
)

// sink is an open audit file; tests put failing ones in its place.
type sink interface {
	io.Writer
	io.Closer
	Sync() error
}

// chunk is a run of whole lines for one file.
type chunk struct {
	file   string   // not "": create this file and continue there
	prune  []string // files to delete after that
	data   []byte
	off    int  // written so far; not 0 after a short write
	last   mark // after the last line
	urgent bool // holds a refusal or failure
}

// queue is what was encoded and not yet taken for writing. Its owner's mutex
// guards it. Chunks have buffers of one size, which are used again: a buffer that
// grew with the backlog would be copied on the hot path each time it does.
type queue struct {
	chunks []chunk
	spare  [][]byte
}

const (
	chunkSize = 2 * flushSize
	maxSpare  = 8 // what a burst leaves allocated, in buffers
)

// add appends a line. One that is longer than a buffer gets one of its own.
func (q *queue) add(line []byte, last mark, urgent bool) {
	n := len(q.chunks) - 1
	if n < 0 || q.chunks[n].data != nil && len(q.chunks[n].data)+len(line) > chunkSize {
		q.chunks = append(q.chunks, chunk{})
		n++
	}
	c := &q.chunks[n]
	if c.data == nil {
		c.data = q.buffer()
	}
	c.data = append(c.data, line...)
	c.last = last
	c.urgent = c.urgent || urgent
}

// cut makes later lines go to a new file.
func (q *queue) cut(file string, prune []string) {
	q.chunks = append(q.chunks, chunk{file: file, prune: prune})
}

func (q *queue) buffer() []byte {
	n := len(q.spare) - 1
	if n < 0 {
		return make([]byte, 0, chunkSize)
	}
	b := q.spare[n]
	q.spare[n] = nil
	q.spare = q.spare[:n]
	return b
}

// recycle takes back the buffer of a written chunk.
func (q *queue) recycle(b []byte) {
	if cap(b) == chunkSize && len(q.spare) < maxSpare {
		q.spare = append(q.spare, b[:0])
	}
}
