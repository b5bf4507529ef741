package audit

import (
	"io"
	"time"

	"github.com/rootsfs/rootsfs/guard"
)

// Bounds of the queue between Record and the file.
const (
	queueLimit = 4 << 20  // bytes; then Record waits, and fails if waiting does not help
	flushSize  = 64 << 10 // bytes that are written at once
	flushItems = 256      // records after which the writer does not wait
	flushDelay = 100 * time.Millisecond
	// retryDelay is between attempts nobody asked for while the sink fails.
	retryDelay = time.Second
	// anchorDelay spaces anchors, each of which costs two fsyncs.
	anchorDelay = time.Second

	// reserveLimit bounds what operations under way, and files that are open for
	// writing, hold reserved: no more than this of the disk.
	reserveLimit = 64 << 20
	// reserveMargin is what Reserve leaves, for the records nobody reserved for
	// (refusals, closes) and for details longer than a reservation expects.
	reserveMargin = 32 << 10
	// reserveDelay is between looks at whether others gave room back.
	reserveDelay = 5 * time.Millisecond
)

// sink is an open audit file; tests put failing ones in its place.
type sink interface {
	io.Writer
	io.Closer
	Sync() error
}

// allocator is a sink on a file system that can promise room.
type allocator interface {
	// Allocate promises that the file can grow to size bytes.
	Allocate(size int64) error
	// Trim gives back what was promised beyond size bytes.
	Trim(size int64) error
}

// reservation is the room of an operation whose record is r as far as it is
// known: its detail may yet say where links led, and from where.
func reservation(session string, r *guard.Record) int64 {
	n := lineBound(session, r) + 512
	if r.Via != guard.ViaFUSE {
		// Links are followed for these callers: the record then names both paths.
		n += 2 * (maxPathText + maxRawPath)
	}
	return n
}
