package client

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
)

// Options are the options of a Broker. The zero value of each field means its default.
type Options struct {
	// Timeout ends one request, unless its context has an earlier deadline. Default 60 s, as in
	// the protocol. Reading a large file takes many requests.
	Timeout time.Duration
	// ConsentTimeout is Timeout for files/consent, which waits for a person.
	// Default 5 minutes.
	ConsentTimeout time.Duration
	// MaxRetryWait bounds how long a refused request waits before its one
	// repetition. If the client asks for a longer wait, the request is not repeated.
	// Default 10 s, negative: never repeat.
	MaxRetryWait time.Duration
	// Chunk is how many bytes of a file one request carries, from 1 byte to 64 MiB.
	// Default wire.DefaultChunk, the protocol's 1 MiB.
	Chunk int
	// RelativeOnly refuses absolute paths before anything is sent. It is for a server that must
	// use only "root/path", as the protocol advises. By default absolute paths are sent, and
	// the client accepts those inside its roots.
	RelativeOnly bool
}

const maxChunk = 64 << 20 // bytes; its base64, a third longer, is in memory as a whole

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	d.Timeout = positiveOr(d.Timeout, 60*time.Second)
	d.ConsentTimeout = positiveOr(d.ConsentTimeout, 5*time.Minute)
	d.MaxRetryWait = cmp.Or(d.MaxRetryWait, 10*time.Second)
	d.Chunk = min(positiveOr(d.Chunk, wire.DefaultChunk), maxChunk)
	return d
}

func positiveOr[T int | int64 | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// Broker sends files/* requests, which the SDK does not know, over the SDK's connections. One
// Broker serves all sessions of a program.
type Broker struct {
	opts  Options
	conns sync.Map // of *conn, by the session's id
}

// New makes a Broker. Nil opts mean the defaults.
func New(opts *Options) *Broker {
	return &Broker{opts: opts.withDefaults()}
}

// Transport wraps the transport that a server is about to be connected with.
// Use it for in-memory and other transports that serve one session; for stdio
// there is Stdio, which is faster, and for Streamable HTTP HTTPHandler.
//
// Every session of a wrapped transport has an ID, by which Files finds its connection. Wrapping
// changes two details, because the SDK's interfaces for them are internal: over stdio, JSON
// batches are accepted in every revision, and a stateless HTTP request that the peer abandons
// is not cancelled.
func (b *Broker) Transport(t mcp.Transport) *Transport { return &Transport{broker: b, inner: t} }

// Transport is an mcp.Transport that can send files/* requests. Like every
// transport it is for one Connect.
type Transport struct {
	broker *Broker
	inner  mcp.Transport
	conn   *conn // set by Connect
}

// Connect implements mcp.Transport.
func (t *Transport) Connect(ctx context.Context) (mcp.Connection, error) {
	inner, err := t.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	t.conn = newConn(t.broker, inner)
	t.broker.add(t.conn)
	return t.conn, nil
}

// SupportsProtocolVersion asks the wrapped transport, so that the server announces the
// same revisions with and without the wrapper.
func (t *Transport) SupportsProtocolVersion(version string) bool {
	if s, ok := t.inner.(mcp.ProtocolVersionSupporter); ok {
		return s.SupportsProtocolVersion(version)
	}
	return true
}

func (b *Broker) add(c *conn) { b.conns.Store(c.id, c) }

func (b *Broker) remove(c *conn) { b.conns.CompareAndDelete(c.id, c) }

// connOf returns the live connection of a session, nil if the Broker has none.
func (b *Broker) connOf(ss *mcp.ServerSession) *conn {
	if b == nil || ss == nil {
		return nil
	}
	c, _ := b.conns.Load(ss.ID())
	ours, _ := c.(*conn)
	return ours
}

// Files returns the files/* calls of a session. The error is ErrNotSupported if the session's
// client has no broker, or the session was not connected through this Broker. Files sends
// nothing.
func (b *Broker) Files(ss *mcp.ServerSession) (*Files, error) {
	c := b.connOf(ss)
	if c == nil {
		return nil, &NotSupportedError{What: "this session was not connected through Broker.Stdio, Lines, Transport or HTTPHandler, or has ended"}
	}
	if !c.capability().Brokering {
		return nil, &NotSupportedError{What: "the client did not declare roots.filesystemBrokering; it executes no file operations for servers"}
	}
	opts := b.opts
	if most := maxChunkOf(c.capability().Extension); most > 0 {
		opts.Chunk = int(min(int64(opts.Chunk), most)) // the client refuses larger ones
	}
	return &Files{c: c, opts: opts}, nil
}

// Capability returns the declarations of the session's client. All are false for a session that
// was not connected through this Broker.
func (b *Broker) Capability(ss *mcp.ServerSession) Capability {
	if c := b.connOf(ss); c != nil {
		return c.capability()
	}
	return Capability{}
}

var (
	_ mcp.Transport                = (*Transport)(nil)
	_ mcp.ProtocolVersionSupporter = (*Transport)(nil)
	_ mcp.Connection               = (*conn)(nil)
)
