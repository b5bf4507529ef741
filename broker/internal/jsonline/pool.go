package jsonline

import "sync"

// Pool keeps buffers for their next use: a megabyte's answer is several of garbage
// otherwise. Lines that are read and frames that are written are apart, because those of
// one process are seldom of one size.
type Pool struct{ pool sync.Pool }

// The pools.
var (
	Lines  Pool
	Frames Pool
)

const keepBuffer = 4 << 20 // larger ones are left to the collector

// Get returns an empty buffer.
func (p *Pool) Get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, 4096)
}

// Put takes a buffer that nobody uses any more, whoever made it.
func (p *Pool) Put(b []byte) {
	if b != nil && cap(b) <= keepBuffer {
		p.pool.Put(&b)
	}
}
