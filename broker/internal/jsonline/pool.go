package jsonline

import "sync"

// buffers hold lines and frames, from their making to their end: a megabyte's answer is
// several of garbage otherwise.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4096); return &b }}

const keepBuffer = 4 << 20 // larger ones are left to the collector

// GetBuffer returns an empty buffer.
func GetBuffer() []byte { return (*buffers.Get().(*[]byte))[:0] }

// PutBuffer takes a buffer that nobody uses any more, whoever made it.
func PutBuffer(b []byte) {
	if b != nil && cap(b) <= keepBuffer {
		buffers.Put(&b)
	}
}
