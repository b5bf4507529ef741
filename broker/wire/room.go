package wire

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Room bounds the requests of a peer that have no answer yet, by their number and by
// their bytes. Each is counted before anything is started for it. The zero value of a
// field bounds nothing.
type Room struct {
	Calls int
	Bytes int64

	mu    sync.Mutex // guards the fields below
	calls int
	bytes int64
	freed chan struct{} // closed by the next Leave; nil: nobody waits
	stuck bool          // somebody waited in vain since the last Leave
}

// Enter counts a request of n bytes; it reports false if there is no room for it. One
// request is let in whatever its size, which the longest line bounds.
func (r *Room) Enter(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enterLocked(n)
}

func (r *Room) enterLocked(n int64) bool {
	if r.Calls > 0 && r.calls >= r.Calls || r.Bytes > 0 && r.calls > 0 && r.bytes+n > r.Bytes {
		return false
	}
	r.calls++
	r.bytes += n
	return true
}

// Leave gives back what Enter or Wait took.
func (r *Room) Leave(n int64) { r.leave(1, n) }

// leave is Leave for several.
func (r *Room) leave(calls int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls -= calls
	r.bytes -= bytes
	r.stuck = false
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}

// Wait is Enter that waits for room, until done is closed or so much time is over, in
// steps of waitStep. Who has waited in vain has done so for those that come next: they
// are told at once, until there is room again.
func (r *Room) Wait(n int64, done <-chan struct{}, long time.Duration) bool {
	return r.wait(n, done, func(waited time.Duration) bool { return waited >= long })
}

// waitStep is how often who waits for room asks whether that is enough.
const waitStep = 200 * time.Millisecond

// wait is Wait until enough says so of the time that is over.
func (r *Room) wait(n int64, done <-chan struct{}, enough func(waited time.Duration) bool) bool {
	begun := time.Now()
	step := time.NewTicker(waitStep)
	defer step.Stop()
	for {
		r.mu.Lock()
		if r.enterLocked(n) {
			r.mu.Unlock()
			return true
		}
		if r.stuck {
			r.mu.Unlock()
			return false
		}
		if r.freed == nil {
			r.freed = make(chan struct{})
		}
		freed := r.freed
		r.mu.Unlock()
		select {
		case <-freed:
		case <-done:
			return false
		case <-step.C:
			if !enough(time.Since(begun)) {
				continue
			}
			r.mu.Lock()
			r.stuck = r.freed == freed // nobody left meanwhile
			r.mu.Unlock()
			return false
		}
	}
}

// WaitForRoom is how long a line that finds no room holds up those behind it. Those
// may be what ends the calls in flight (a cancellation, the peer's hanging up), so the
// line is refused then, and reading goes on.
const WaitForRoom = 10 * time.Second

// tooMany is what a request is told for which there is no room.
const tooMany = "too many calls, or too large ones, have no answer yet: there may be %d of them, of %d bytes together; repeat this one when there is one less"

// Bound makes a connection hold no more requests of its peer than there is room for.
// Who reads the connection's lines is held up by a request that finds no room, while
// canWait reports true. canWait reports false while we wait for an answer of the peer's,
// which may come behind the request: if it does so for two steps (waitStep), the request
// is refused. It may report false for a moment though nothing was asked. If canWait is
// nil, a request is refused at once. refused is told of each refusal.
func (c *LineConn) Bound(room *Room, canWait func() bool, refused func(why string)) {
	c.room, c.canWait, c.refused = room, canWait, refused
	c.held = map[jsonrpc.ID]int64{}
	c.notes = notes{room: Room{Calls: maxNotes, Bytes: room.Bytes}, prefix: "rootsfs-" + rand.Text(), answered: make(chan struct{}, 1)}
}

// Enter makes room for a request of n bytes, or refuses it, by its id. Whoever was let
// in calls Leave with the same n when the request has its answer.
func (c *LineConn) Enter(id []byte, n int) bool {
	if c.room == nil || c.room.Enter(int64(n)) {
		return true
	}
	asking := 0 // steps one after the other
	enough := func(waited time.Duration) bool {
		if asking++; c.canWait() {
			asking = 0
		}
		return asking > 1 || waited >= WaitForRoom
	}
	if c.canWait != nil && c.room.wait(int64(n), c.done, enough) {
		return true
	}
	why := fmt.Sprintf(tooMany, c.room.Calls, c.room.Bytes)
	c.refused(why)
	c.complainTo(id, Number(names.QuotaExceeded), why)
	return false
}

// Leave ends what Enter began.
func (c *LineConn) Leave(n int) {
	if c.room != nil {
		c.room.Leave(int64(n))
	}
}

// enter is Enter for a request that is handed to the SDK; Answered ends it.
func (c *LineConn) enter(r *jsonrpc.Request, n int) bool {
	if c.room == nil {
		return true
	}
	id, err := json.Marshal(r.ID.Raw())
	if err != nil || !c.Enter(id, n) {
		return false
	}
	c.mu.Lock()
	_, twice := c.held[r.ID]
	if !twice {
		c.held[r.ID] = int64(n)
	}
	c.mu.Unlock()
	if twice { // the SDK gives no answer to it
		c.Leave(n)
		c.complainTo(id, CodeInvalidRequest, "the id is that of a request that has no answer yet; give each its own")
	}
	return !twice
}

// Answered gives back the room of a request that was handed to the SDK, when its
// answer has been written.
func (c *LineConn) Answered(id jsonrpc.ID) {
	if c.notes.handled(id) {
		return
	}
	c.mu.Lock()
	n, ok := c.held[id]
	delete(c.held, id)
	c.mu.Unlock()
	if ok {
		c.Leave(int(n))
	}
}
