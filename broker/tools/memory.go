package tools

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// An answer stays in memory until the client has read it, so the client decides how long. Over
// streams the calls without an answer are bounded (lineConn.requests). Over HTTP each connection
// may have an unread answer, so the answers to all requests are bounded together. A call reserves
// room before it reads contents, and its request holds the room until the HTTP handler has
// returned.

// Bounds of the memory of answers over HTTP that their clients have not read, in bytes. Only
// tests change them.
var (
	allAnswers  int64 = 256 << 20
	userAnswers int64 = 128 << 20 // of one user of an OAuth issuer
)

// copies estimates how many bytes an answer holds for each byte of contents, before the
// contents are read: the contents, and two copies in the SDK of an answer that has the contents
// twice. The rest is for JSON's escapes.
const copies = 6

// smallAnswer is the size up to which an answer is not counted, in bytes: the number of
// connections is bounded, too.
const smallAnswer = 64 << 10

// unreadAnswers accounts for the memory of the answers to one HTTP request.
type unreadAnswers struct {
	budgets  []*flowcontrol.Budget // the narrowest first
	patience time.Duration         // how long a call waits for room
	refuse   func()                // called when the request is refused for want of room

	mu       sync.Mutex // guards the fields below
	hasEnded bool
	rooms    []*answerRoom // of calls that have ended
}

// add keeps the room of a call until end is called. It reports false if end was called already,
// because the client has hung up.
func (u *unreadAnswers) add(r *answerRoom) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.hasEnded {
		u.rooms = append(u.rooms, r)
	}
	return !u.hasEnded
}

// end releases all room.
func (u *unreadAnswers) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hasEnded = true
	for _, r := range u.rooms {
		r.release()
	}
}

// answerRoom is the room reserved for one call's answer. One goroutine at a time uses it. It is
// nil for a call that is bounded elsewhere.
type answerRoom struct {
	request *unreadAnswers
	size    int64
	held    []*flowcontrol.Reservation // one in each budget of the request; nil: nothing is reserved
}

// room returns the room for the answer to a call, with nothing reserved yet. It returns nil if the
// call is bounded elsewhere.
func (o *openRequests) room(extra *mcp.RequestExtra) *answerRoom {
	if o == nil || o.answers == nil || extra == nil {
		return nil
	}
	if r := o.of(extra); r != nil {
		return &answerRoom{request: r.answers}
	}
	// The call runs on although its client has hung up.
	return &answerRoom{request: &unreadAnswers{budgets: []*flowcontrol.Budget{o.answers}, refuse: func() {}, hasEnded: true}}
}

// reserve waits until n bytes are reserved. If the room has a reservation already, reserve does
// nothing.
func (r *answerRoom) reserve(ctx context.Context, n int64) error {
	if r == nil || r.held != nil {
		return nil
	}
	for _, b := range r.request.budgets {
		one, err := b.Acquire(n, ctx.Done(), flowcontrol.WaitFor(r.request.patience))
		if err != nil {
			r.release()
			return r.asRefusal(err, b)
		}
		r.held = append(r.held, one)
	}
	r.size = n
	return nil
}

// settle changes the reservation to n bytes, the size of the answer. It does not wait, because the
// answer is in memory already. A small answer needs no reservation. A larger reservation stays as
// it is if there is no room to make a new one first.
func (r *answerRoom) settle(n int64) error {
	switch {
	case r == nil:
		return nil
	case n <= smallAnswer:
		r.release()
		return nil
	case r.held != nil && n > r.size:
		for i, one := range r.held {
			if err := one.Grow(n - r.size); err != nil {
				return r.asRefusal(err, r.request.budgets[i])
			}
		}
		r.size = n
		return nil
	}
	exact := answerRoom{request: r.request, size: n}
	for _, b := range r.request.budgets {
		one, err := b.TryAcquire(n)
		switch {
		case err == nil:
			exact.held = append(exact.held, one)
		case r.held != nil: // the answer stays in the larger room
			exact.release()
			return nil
		default:
			exact.release()
			return r.asRefusal(err, b)
		}
	}
	r.release()
	r.held, r.size = exact.held, n
	return nil
}

// asRefusal turns ErrBytes of the budget b into the refusal of a call. It returns any other error
// as it is.
func (r *answerRoom) asRefusal(err error, b *flowcontrol.Budget) error {
	if !errors.Is(err, flowcontrol.ErrBytes) {
		return err
	}
	return &noRoom{r.request, &guard.Error{Kind: names.Rate, Err: fmt.Errorf(
		"answers that their clients have not read hold %d bytes, the most at a time", b.Bytes)}}
}

// noRoom is the error of a call when there is no room for its answer. The client gets a JSON-RPC
// error, not a tool's result.
type noRoom struct {
	request *unreadAnswers
	error
}

func (e *noRoom) Unwrap() error { return e.error }

// rpc refuses the request for want of room, and returns the error that answers it.
func (e *noRoom) rpc() error {
	e.request.refuse()
	return &jsonrpc.Error{Code: int64(wire.Number(names.QuotaExceeded)), Message: errorText(e.error)}
}

// finish hands the room to the request, at the end of the call. It reports false if nobody
// waits for the answer any more.
func (r *answerRoom) finish() bool {
	if r == nil || r.request.add(r) {
		return true
	}
	r.release()
	return false
}

func (r *answerRoom) release() {
	for _, one := range r.held {
		one.Release()
	}
	r.held, r.size = nil, 0
}

// heldBy returns how many bytes an answer holds for contents of n bytes, whose JSON has the length
// encoded: the contents, and two copies of the JSON.
func heldBy(n, encoded int) int64 { return int64(n) + 2*int64(encoded) }

// encodedLen returns an upper bound of the length of a text in the JSON of the SDK. The SDK escapes
// more than package jsonline: characters with a meaning in HTML, and bytes that are not UTF-8.
func encodedLen[S string | []byte](text S) int {
	perByte := 1 // bytes of JSON for each byte that is not ASCII
	if !utf8.Valid([]byte(text)) {
		perByte = len(`\ufffd`)
	}
	n := len(text) + len(`""`)
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\t' || c == '\r':
			n++
		case c < ' ' || c == '<' || c == '>' || c == '&':
			n += len(`\u0000`) - 1
		case c >= utf8.RuneSelf && perByte > 1:
			n += perByte - 1
		case c == 0xe2: // U+2028 and U+2029 begin with it
			n += len(`\u2028`) - 3
		}
	}
	return n
}

// held returns how many bytes the result holds until the client has received it.
func (r *result) held() int64 {
	n, encoded := 0, 0
	switch m := r.media.(type) {
	case *mcp.ImageContent:
		n = len(m.Data)
	case *mcp.AudioContent:
		n = len(m.Data)
	case *mcp.EmbeddedResource:
		n = len(m.Resource.Blob)
	default:
		n, encoded = len(r.text)+len(r.data), encodedLen(r.text)+encodedLen(r.data)
	}
	if r.media != nil {
		encoded = base64.StdEncoding.EncodedLen(n)
	}
	return heldBy(n, 2*encoded) // structuredContent repeats the contents
}

// heldByContents returns how many bytes an answer with a resource holds.
func heldByContents(list []*mcp.ResourceContents) (n int64) {
	for _, c := range list {
		n += heldBy(len(c.Text)+len(c.Blob), encodedLen(c.Text)+base64.StdEncoding.EncodedLen(len(c.Blob)))
	}
	return n
}

// heldByNames returns how many bytes an answer with names holds.
func heldByNames(list []string) (n int64) {
	for _, name := range list {
		n += heldBy(len(name), encodedLen(name))
	}
	return n
}
