package secret

import "sync"

// maxRequests bounds the requests of a program that are under way: each holds a part of its
// answer, and by HTTP/2 a connection has many.
const maxRequests = 128

// Slots has a place for each request that is under way with the secrets of a run.
type Slots chan struct{}

// NewSlots returns free places.
func NewSlots() Slots { return make(Slots, maxRequests) }

// acquire takes a place, and reports whether one was free.
func (s Slots) acquire() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s Slots) release() { <-s }

// buffers lends buffers for bodies that are larger than httputil's: each is passed on with a record of
// TLS of its own.
type buffers struct{}

const bufferSize = 128 << 10

var pool = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Get implements httputil.BufferPool.
func (buffers) Get() []byte { return pool.Get().(*[bufferSize]byte)[:] }

// Put implements httputil.BufferPool.
func (buffers) Put(b []byte) { pool.Put((*[bufferSize]byte)(b)) }
