package wire

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxNotes is how many notifications the SDK is handed that it has not handled yet.
const maxNotes = 1024

// notes bounds the notifications that were handed to the SDK and not handled yet. A
// notification has no answer, and the SDK queues without bound what comes behind a
// message whose handling takes long, as one whose answer the peer does not read. So a
// probe, a ping of our own, follows the notifications: the SDK handles them in their
// order, and its answer to the probe, which is not sent to the peer, says that it has
// handled those before.
type notes struct {
	room     Room
	prefix   string        // of the probes' ids
	answered chan struct{} // told of each answer to a probe
	stuck    atomic.Bool   // a notification waited in vain since the last answer

	mu     sync.Mutex // guards the fields below
	sent   int        // probes
	asked  noted      // what the probe under way will give back
	later  noted      // what was handed over behind it
	asking bool       // a probe is under way
}

// noted is a number of notifications.
type noted struct {
	count int
	bytes int64
}

// tooManyNotes is what is recorded of a notification for which there is no room.
const tooManyNotes = "a notification was dropped: %d of them, or %d bytes, have not been handled yet"

// enterNote makes room for a notification of n bytes, as Enter does for a request. One
// for which there is no room is dropped. It reports false for such a one.
func (c *LineConn) enterNote(n int) bool {
	if c.room == nil {
		return true
	}
	o := &c.notes
	late := time.NewTimer(WaitForRoom)
	defer late.Stop()
	for waited := false; ; {
		if o.room.Enter(int64(n)) {
			return true
		}
		c.handProbe(o.probe())
		if waited || o.stuck.Load() || c.canWait == nil || !c.canWait() {
			c.refused(fmt.Sprintf(tooManyNotes, o.room.Calls, o.room.Bytes))
			return false
		}
		select {
		case <-o.answered:
		case <-c.done:
			return false
		case <-late.C:
			waited = true
			o.stuck.Store(true) // what comes next need not wait in vain, too
		}
	}
}

// passed notes that a notification of n bytes was handed over, and returns the probe
// that is to follow it; nil: one is under way.
func (o *notes) passed(n int) *jsonrpc.Request {
	o.mu.Lock()
	o.later.count++
	o.later.bytes += int64(n)
	o.mu.Unlock()
	return o.probe()
}

// probe is a probe for what was handed over since the last one; nil if that one is under
// way, or if there is nothing.
func (o *notes) probe() *jsonrpc.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asking || o.later.count == 0 {
		return nil
	}
	o.asking = true
	o.asked, o.later = o.later, noted{}
	o.sent++
	id, err := jsonrpc.MakeID(fmt.Sprintf("%s-%d", o.prefix, o.sent))
	if err != nil {
		panic(err) // a string can be an id
	}
	return &jsonrpc.Request{ID: id, Method: "ping"}
}

// handProbe hands a probe to the SDK, unless it is nil; it reports false when the
// connection is closed.
func (c *LineConn) handProbe(r *jsonrpc.Request) bool { return r == nil || c.hand(r) }

// IsProbe reports whether an answer is that to a probe: it is not for the peer.
func (c *LineConn) IsProbe(id jsonrpc.ID) bool { return c.notes.isProbe(id) }

func (o *notes) isProbe(id jsonrpc.ID) bool {
	text, ok := id.Raw().(string)
	return ok && o.prefix != "" && strings.HasPrefix(text, o.prefix)
}

// handled gives back the room of the notifications before a probe that has its answer.
func (o *notes) handled(id jsonrpc.ID) bool {
	if !o.isProbe(id) {
		return false
	}
	o.mu.Lock()
	done := o.asked
	o.asked, o.asking = noted{}, false
	o.mu.Unlock()
	o.room.leave(done.count, done.bytes)
	o.stuck.Store(false)
	select {
	case o.answered <- struct{}{}:
	default:
	}
	return true
}
