package flowcontrol

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Backlog bounds the messages that a connection has handed to the SDK and that the SDK has
// not handled yet. A request is handled when its answer was written.
//
// A notification has no answer. While the SDK handles a message for long, such as one whose
// answer the peer does not read, it queues later messages without bound. So notifications
// are followed by a probe: a ping that this package makes. The SDK handles messages in
// order: its answer to the probe, which is not sent to the peer, shows that it has handled
// the messages before the probe.
//
// Admit and Probe are for the goroutine that reads the connection.
type Backlog struct {
	requests *Budget
	notes    Budget
	canWait  func() bool
	hand     func(jsonrpc.Message) bool
	done     <-chan struct{}
	prefix   string // of the ids of probes

	mu      sync.Mutex                    // guards the fields below
	held    map[jsonrpc.ID][]*Reservation // of a request, by its id; of the notifications before a probe, by the probe's id
	pending []*Reservation                // of notifications that no probe has followed
	probing bool                          // a probe has no answer yet
	probes  int                           // number of probes so far
}

// maxNotes is how many notifications the SDK may have got and not handled yet.
const maxNotes = 1024

// NewBacklog makes the Backlog of a connection that closes done. hand hands a message to the
// SDK, and reports false when the connection is closed. requests bounds requests without an
// answer, also those that are answered without the SDK (Reserve).
//
// A message without room waits while canWait reports true, at most for MaxWait, and the messages
// behind it wait, too. Then the message is refused. canWait must report false while the caller
// waits for an answer of the peer, because the answer may be behind the message. canWait may
// report false for a moment although the caller waits for no answer. If canWait is nil, a message
// without room is refused at once.
func NewBacklog(requests *Budget, canWait func() bool, hand func(jsonrpc.Message) bool, done <-chan struct{}) *Backlog {
	return &Backlog{
		requests: requests, notes: Budget{Count: maxNotes, Bytes: requests.Bytes},
		canWait: canWait, hand: hand, done: done, prefix: "rootsfs-" + rand.Text(), held: map[jsonrpc.ID][]*Reservation{},
	}
}

// MaxWait is how long a message without room delays the messages behind it, in nanoseconds.
// After MaxWait the message is refused, and reading goes on: a later message may end the requests
// in flight (a cancellation, a hang-up). Only tests change MaxWait.
var MaxWait atomic.Int64

func init() { MaxWait.Store(int64(10 * time.Second)) }

// patience returns a function for one call of Acquire. The function makes Acquire give up after
// MaxWait, or when canWait has reported false for two steps. Without canWait, Acquire gives up at
// once.
func (b *Backlog) patience() func(waited time.Duration) bool {
	var free time.Duration // when canWait last reported true
	return func(waited time.Duration) bool {
		switch {
		case b.canWait == nil:
			return false
		case b.canWait():
			free = waited
		}
		return waited < time.Duration(MaxWait.Load()) && waited-free < 2*WaitStep
	}
}

// ErrDuplicateID refuses a request whose id is in use: the SDK would not answer it.
var ErrDuplicateID = errors.New("the id is that of a request that has no answer yet; give each its own")

// Reserve makes room for a request of n bytes that is answered without the SDK. If there is no
// room, the error says why. The error is context.Canceled when the connection is closed.
func (b *Backlog) Reserve(n int) (*Reservation, error) {
	room, err := b.requests.Acquire(int64(n), b.done, b.patience())
	if err != nil && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("too many calls, or too large ones, have no answer yet: there may be %d of them, of %d bytes together; "+
			"repeat this one when there is one less", b.requests.Count, b.requests.Bytes)
	}
	return room, err
}

// Admit makes room for a request or a notification of n bytes, which the caller then hands to
// the SDK. The caller must drop a notification for which there is no room. For a request, the
// errors are those of Reserve, and ErrDuplicateID.
func (b *Backlog) Admit(r *jsonrpc.Request, n int) error {
	if !r.IsCall() {
		return b.admitNote(n)
	}
	room, err := b.Reserve(n)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[r.ID] != nil {
		room.Release()
		return ErrDuplicateID
	}
	b.held[r.ID] = []*Reservation{room}
	return nil
}

func (b *Backlog) admitNote(n int) error {
	patient := b.patience()
	room, err := b.notes.Acquire(int64(n), b.done, func(waited time.Duration) bool {
		return b.Probe() && patient(waited)
	})
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case err != nil:
		return fmt.Errorf("a notification was dropped: %d of them, or %d bytes, have not been handled yet", b.notes.Count, b.notes.Bytes)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = append(b.pending, room)
	return nil
}

// Probe hands a probe to the SDK if there are notifications that no probe has followed, and no
// probe is under way. It reports false if the probe cannot be handed over, because the connection
// is closed.
func (b *Backlog) Probe() bool {
	b.mu.Lock()
	if b.probing || len(b.pending) == 0 {
		b.mu.Unlock()
		return true
	}
	b.probes++
	id, err := jsonrpc.MakeID(fmt.Sprintf("%s-%d", b.prefix, b.probes))
	if err != nil {
		panic(err) // a string can be an id
	}
	b.held[id], b.pending, b.probing = b.pending, nil, true
	b.mu.Unlock()
	return b.hand(&jsonrpc.Request{ID: id, Method: "ping"})
}

// IsProbe reports whether an id is that of a probe. The caller must not send the SDK's answer to
// a probe to the peer.
func (b *Backlog) IsProbe(id jsonrpc.ID) bool {
	text, ok := id.Raw().(string)
	return ok && strings.HasPrefix(text, b.prefix)
}

// ReleaseAnswered releases the reservations that are held under id. The caller calls it when the
// SDK has answered the request or probe with this id.
func (b *Backlog) ReleaseAnswered(id jsonrpc.ID) {
	b.mu.Lock()
	handled := b.held[id]
	delete(b.held, id)
	if b.IsProbe(id) {
		b.probing = false
	}
	b.mu.Unlock()
	for _, room := range handled {
		room.Release()
	}
}
