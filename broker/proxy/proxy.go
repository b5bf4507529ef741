package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
)

// DefaultFrame is the longest line that is carried if Options.Frame is 0, in bytes.
const DefaultFrame = 64 << 20

// Options configure a Proxy. The four streams and the session are required. Run closes
// the streams; a stream whose Close does not end a Read or Write under way (os.Stdin; see
// Stdin) costs a goroutine until that Read or Write returns.
type Options struct {
	Host    io.ReadCloser  // what the host writes: our standard input
	HostOut io.WriteCloser // what the host reads: our standard output

	Server    io.WriteCloser // the server's standard input
	ServerOut io.ReadCloser  // the server's standard output

	// Session answers the server's requests for roots and files. Run closes it.
	Session *broker.Session
	// Frame is the longest line that is carried, in bytes; 0 means DefaultFrame. Each
	// direction may hold one such line in memory.
	Frame int
	Mode  Mode
	// Gone, if not nil, is closed by the caller when the server has ended, such as when
	// its process was waited for. The server's output is still delivered, but Run no
	// longer waits for the end of the host's input.
	Gone <-chan struct{}
	// Stop, if not nil, ends the server. It is called when the host has left and the
	// server still waits for an answer that cannot come, or writes to no one.
	Stop func()
	// Drained, if not nil, is called when the server's output has ended and been handled,
	// or when the host takes no more of it.
	Drained func()
	Log     *slog.Logger
}

// Proxy carries one connection between a host and a server.
type Proxy struct {
	opt            Options
	log            *slog.Logger
	session        *broker.Session
	auto           *detector
	host           *outlet
	server         *outlet
	prefix         string // of every id that newID makes; it has 65 random bits, chosen in New
	stats          counters
	questions      sync.Map // chan response of each question that the host has not answered, by id
	calls          calls
	serverRequests serverRequests
	wg             sync.WaitGroup  // goroutines that wait for a peer
	asyncSlots     chan struct{}   // holds a token for each goroutine in wg
	ready          sync.Once       // attaches the session to the server
	hostEnded      context.Context // ends when no answer of the host's can come any more
	endHost        context.CancelFunc

	mu       sync.Mutex // guards the fields below
	greeting string     // idKey of the unanswered initialize or server/discover; "": none
	ended    bool       // no goroutine may begin any more
}

// New makes a proxy.
func New(opt Options) *Proxy {
	if opt.Frame <= 0 {
		opt.Frame = DefaultFrame
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{
		opt: opt, log: opt.Log, session: opt.Session, auto: newDetector(opt.Mode),
		host: newOutlet(opt.HostOut), server: newOutlet(opt.Server),
		prefix:     "rootsfs-" + strings.ToLower(rand.Text()[:13]) + "-",
		asyncSlots: make(chan struct{}, maxAsync),
	}
	p.hostEnded, p.endHost = context.WithCancel(context.Background())
	return p
}

// Run makes a proxy and calls its method Run.
func Run(ctx context.Context, opt Options) error { return New(opt).Run(ctx) }

// Run carries lines until both directions have ended, or the server is gone (Options.Gone) and its
// output has ended. It returns nil, or the errors other than hang-ups. The end of the host's
// input closes the server's, once the session has answered the server's earlier requests
// (and after drainTimeout at the latest); the server's remaining output is delivered. A server
// that then waits for an answer that cannot come, or whose host has stopped reading, is stopped
// (Options.Stop). The end of the server's output closes the host's. If a peer takes no more
// bytes, the direction to it ends. When ctx ends, both directions end at once, and the error is
// the cause of ctx.
func (p *Proxy) Run(ctx context.Context) error {
	for _, stream := range []any{p.opt.Host, p.opt.HostOut, p.opt.Server, p.opt.ServerOut} {
		broker.Widen(stream)
	}
	down := p.pump(p.opt.Host, p.server, p.fromHost, p.refuseOverlongFromHost, func() { p.refuseBatch("host", p.host) })
	up := p.pump(p.opt.ServerOut, p.host, p.fromServer, p.refuseOverlongFromServer, func() { p.refuseBatch("server", p.server) })
	judge := up.look
	up.look = func(line []byte) ([]byte, bool) {
		if jsonline.SkipSpace(line, 0) == len(line) {
			return nil, true
		}
		if why := flaw(line); why != "" {
			p.refuseLine(line, why)
			return nil, false
		}
		return judge(line)
	}
	down.fromHost, down.bytes, up.bytes = true, &p.stats.down, &p.stats.up
	p.auto.onRaw = func() { go up.release() } // in a goroutine: release waits for a host that does not read
	closeDown := func() {
		p.server.close()
		_ = p.opt.Host.Close()
	}
	closeUp := func() {
		p.host.close()
		_ = p.opt.ServerOut.Close()
	}
	done := make(chan struct{})
	defer close(done)
	downEnded, upEnded := make(chan error, 1), make(chan error, 1)
	go func() {
		err := down.run()
		p.endHost() // no answer can come any more
		p.drain(ctx)
		p.serverRequests.hostLeft(p.session.Busy())
		closeDown()
		go p.stopAbandoned(done)
		downEnded <- err
	}()
	go func() {
		err := up.run()
		if p.opt.Drained != nil {
			p.opt.Drained()
		}
		p.host.waitSent() // delivers the errors for messages that were not carried
		closeUp()
		upEnded <- err
	}()
	err := p.await(ctx, downEnded, upEnded)
	p.endHost()
	closeUp()
	closeDown()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.session.Close()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		p.wg.Wait()
	}()
	select {
	case <-settled:
	case <-ctx.Done(): // a write that closing does not end
	}
	return err
}

// await waits for the end of both directions, or for ctx.
func (p *Proxy) await(ctx context.Context, down, up <-chan error) error {
	var errs []error
	gone := p.opt.Gone
	for down != nil || up != nil {
		select {
		case err := <-down:
			errs, down = append(errs, unlessHungUp(err)), nil
		case err := <-up:
			errs, up = append(errs, unlessHungUp(err)), nil
		case <-gone:
			gone, down = nil, nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return errors.Join(errs...)
}

// unlessHungUp returns nil for errors that say only that a peer hung up.
func unlessHungUp(err error) error {
	for _, hangUp := range []error{io.ErrClosedPipe, os.ErrClosed, unix.EPIPE, unix.EIO} {
		if errors.Is(err, hangUp) { // EIO: a terminal whose other end is gone
			return nil
		}
	}
	return err
}

func (p *Proxy) pump(src io.Reader, dst *outlet, look func([]byte) ([]byte, bool), long func(*jsonline.Head), many func()) *pump {
	return &pump{
		src: src, dst: dst, auto: p.auto, limit: p.opt.Frame,
		look: func(line []byte) ([]byte, bool) { return splitBatch(line, look, many) }, long: long,
	}
}

// maxAsync bounds the goroutines of async, which may wait for a peer to read. When maxAsync of them
// run already, the caller of async waits instead.
const maxAsync = 256

// sendAsync calls async to send a frame of the proxy's own to a peer.
func (p *Proxy) sendAsync(to *outlet, frame []byte) {
	to.addPending(1)
	called := p.async(func() {
		_ = to.Send(frame) // a peer that is gone needs no frame
		to.addPending(-1)
	})
	if !called {
		to.addPending(-1)
	}
}

// async calls f, which may wait for a peer, in a goroutine, so that the reader of a
// direction does not wait. While maxAsync goroutines run already, async calls f in the
// goroutine of its caller, even if the proxy has ended. If fewer goroutines run and the proxy
// has ended, async reports false and does not call f.
func (p *Proxy) async(f func()) (called bool) {
	select {
	case p.asyncSlots <- struct{}{}:
	default:
		f()
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.wg.Go(func() {
		f()
		<-p.asyncSlots
	})
	return true
}

// newID makes an id for a request of the proxy. The 128 random bits in the id cannot be guessed.
func (p *Proxy) newID() string { return p.prefix + strings.ToLower(rand.Text()) }

// isOurs reports whether a raw id begins with the proxy's prefix, as the ids of newID do.
func (p *Proxy) isOurs(id []byte) bool {
	return strings.HasPrefix(string(jsonline.Unquote(id)), p.prefix)
}

// counters are a proxy's figures since it began.
type counters struct {
	down, up                                atomic.Int64
	answered, retried, asked, refused, long atomic.Int64
}

// Stats are a proxy's figures.
type Stats struct {
	MCP      bool  `json:"mcp"`               // the peers speak MCP, as detected or configured
	ToServer int64 `json:"bytes_from_host"`   // read from the host
	ToHost   int64 `json:"bytes_from_server"` // read from the server
	Answered int64 `json:"answered"`          // requests of the server's that the session took
	Retried  int64 `json:"retried"`           // calls repeated with roots (SEP-2322)
	Asked    int64 `json:"asked"`             // questions put to the host's user
	Refused  int64 `json:"refused"`           // messages and lines that the proxy refused
	TooLong  int64 `json:"too_long"`          // lines beyond Options.Frame
}

// Stats returns the figures now.
func (p *Proxy) Stats() Stats {
	c := &p.stats
	return Stats{
		MCP: p.auto.state() == isMCP, ToServer: c.down.Load(), ToHost: c.up.Load(), Answered: c.answered.Load(),
		Retried: c.retried.Load(), Asked: c.asked.Load(), Refused: c.refused.Load(), TooLong: c.long.Load(),
	}
}
