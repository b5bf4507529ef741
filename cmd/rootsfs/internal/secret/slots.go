package secret

import (
	"context"
	"sync"
)

// maxRequests bounds the requests of a program that are under way. Each request holds a part of its
// answer in memory, and one HTTP/2 connection may have many requests.
const maxRequests = 128

// maxInMemory bounds the requests that hold much memory: a body of maxHashed bytes, or the window of
// an answer that is decompressed (maxWindow). Further ones wait.
const maxInMemory = 8

// Slots has places for the requests that are under way with the secrets of a run, and further places
// for the requests that hold much memory.
type Slots struct{ requests, memory chan struct{} }

// NewSlots returns Slots with free places.
func NewSlots() *Slots {
	return &Slots{make(chan struct{}, maxRequests), make(chan struct{}, maxInMemory)}
}

// acquire takes a place for a request, and reports whether a place was free.
func (s *Slots) acquire() bool {
	select {
	case s.requests <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *Slots) release() { <-s.requests }

// reserveMemory waits until the exchange gets a place of Slots.memory, or until ctx ends. An
// exchange that already holds such a place does not wait for a second one.
func (x *exchange) reserveMemory(ctx context.Context) error {
	if x.hasMemory {
		return nil
	}
	select {
	case x.p.opt.Slots.memory <- struct{}{}:
		x.hasMemory = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (x *exchange) releaseMemory() {
	if x.hasMemory {
		<-x.p.opt.Slots.memory
	}
}

// buffers lends buffers for copying bodies. They are larger than httputil's, because each write
// begins a new TLS record.
type buffers struct{}

const bufferSize = 128 << 10

var pool = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Get implements httputil.BufferPool.
func (buffers) Get() []byte { return pool.Get().(*[bufferSize]byte)[:] }

// Put implements httputil.BufferPool.
func (buffers) Put(b []byte) { pool.Put((*[bufferSize]byte)(b)) }
