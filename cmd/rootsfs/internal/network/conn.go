package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// dialTimeout bounds the wait for a host. Programs may have shorter timeouts of their own.
const dialTimeout = 30 * time.Second

// conn is one connection, made by the program or dialled by a service.
type conn struct {
	inside  *net.TCPConn // nil: a service has dialled
	host    string       // as Event.Host
	literal netip.Addr   // the address that the program gave, if it gave no name
	port    uint16
	began   time.Time
	service *Service // the service that has the name host, or that has dialled; nil: none
	program Program  // set by connect

	sent, received atomic.Int64

	// These are set by register.
	ctx    context.Context //nolint:containedctx // until the connection ends
	cancel context.CancelFunc

	// The gate's mutex guards these.
	outside     *net.TCPConn
	addr        netip.AddrPort // of outside
	needsAddr   bool           // addr is closed by default: a rule of its own permits it
	serverNames []string       // server names in hellos of TLS, other than host: each needs a rule
	reason      error          // why the gate ended it
	sample      rateSample

	recorded sync.Once // records the end of a connection that a service has dialled
}

// accept takes the program's connections until l is closed.
func (g *Gate) accept(l *listener) {
	for {
		err := g.acceptOne(l)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or the connection is gone already
			g.log.Warn("a connection is not accepted", "error", err)
			select {
			case <-g.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// acceptOne waits for a connection and decides about it. The connection is counted before it is
// taken from the kernel, so that hasQueued finds it in the kernel or in the count.
func (g *Gate) acceptOne(l *listener) error {
	_ = l.await() // if l is closed, Accept returns the error
	g.deciding.Add(1)
	defer g.deciding.Add(-1)
	in, err := l.Accept()
	if err == nil {
		g.begin(in.(*net.TCPConn))
	}
	return err
}

// begin decides about an accepted connection, and starts the action that was decided.
func (g *Gate) begin(in *net.TCPConn) {
	inlineUrgent(in)
	to := in.LocalAddr().(*net.TCPAddr).AddrPort()
	c := &conn{inside: in, port: to.Port(), began: time.Now()}
	addr := to.Addr().Unmap()
	switch act, err := g.decide(c, addr); act {
	case actionRefuse:
		g.refuse(c, err, 0)
	case actionAsk:
		g.ask(c)
	case actionSplice:
		g.served.Go(func() { g.carry(c) })
	case actionServe:
		g.handOver(c)
	}
}

// action is the gate's decision about a connection of the program.
type action int

const (
	actionRefuse action = iota // reset it
	actionAsk                  // hold it until a person has answered
	actionSplice               // dial the host, and copy both ways
	actionServe                // hand it to the service of its name
)

// decide returns the action for a connection to an address, and the reason of a refusal. A
// connection to splice or serve is then in the table (Gate.conns).
func (g *Gate) decide(c *conn, addr netip.Addr) (action, error) {
	err := g.findDestination(c, addr)
	if err == nil {
		err = g.register(c)
	}
	switch {
	case err == nil && c.service != nil:
		return actionServe, nil
	case err == nil:
		return actionSplice, nil
	case errors.Is(err, ErrNoRule) && g.mayAsk(c):
		return actionAsk, nil
	}
	return actionRefuse, err
}

// refuse resets a connection that was not carried, and records the refusal. waited is how long the
// connection has waited for an answer.
func (g *Gate) refuse(c *conn, reason error, waited time.Duration) {
	program := g.owner(c, true)
	reset(c.inside)
	g.note(Event{State: Refused, Host: names.Foreign(c.host), Port: c.port, Program: program, Began: c.began, Duration: waited, Reason: reason})
}

// findDestination sets the destination of a connection that was made to addr: the name that has
// addr, or addr itself. It fails if addr is kept for names and no name has it.
func (g *Gate) findDestination(c *conn, addr netip.Addr) error {
	name, isOurs := g.names.name(addr)
	switch {
	case !isOurs:
		c.host, c.literal = addr.String(), addr
		c.service = g.service(c.host, c.port)
	case name == "":
		c.host = addr.String()
		return errNoAddress
	default:
		c.host, c.service = name, g.service(name, c.port)
	}
	return nil
}

// ends returns the program's address of the connection, and the address that the program connected
// to.
func (c *conn) ends() (from, to netip.AddrPort) {
	from, to = c.inside.RemoteAddr().(*net.TCPAddr).AddrPort(), c.inside.LocalAddr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
}

// register puts a permitted connection into the table before it is dialled, so that Remove
// finds it.
func (g *Gate) register(c *conn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return ErrEnded
	case g.paused:
		return ErrPaused
	case !g.permitsLocked(c):
		return ErrNoRule
	case len(g.conns)+g.questions.waiting >= g.maxConns:
		return ErrTooMany
	case c.isServed() && g.servedConns >= maxServed:
		return errTooManyServed
	}
	if !c.isServed() {
		if err := g.admitLocked(); err != nil {
			return err
		}
	}
	c.ctx, c.cancel = context.WithCancel(g.ctx)
	g.conns[c] = struct{}{}
	if c.service != nil {
		g.served.Add(1) // until it is closed
	}
	if c.isServed() {
		g.servedConns++
	}
	return nil
}

// carry dials the host and copies until both sides are done.
func (g *Gate) carry(c *conn) {
	defer c.cancel()
	if err := g.connect(c); err != nil {
		reset(c.inside)
		return
	}
	g.noteEnd(c, g.relay(c))
}

// connect dials the host of a connection and records the result. After an error the
// connection is not in the table.
func (g *Gate) connect(c *conn) error {
	found := make(chan Program, 1)
	g.served.Go(func() { found <- g.owner(c, true) })
	out, needsAddr, err := g.dial(c.ctx, c)
	c.program = <-found // looked up early: the program may close the connection later
	if err == nil {
		if err = g.establish(c, out, needsAddr); err == nil {
			if err = g.opt.Record(Event{State: Opened, Host: names.Foreign(c.host), Port: c.port, Addr: c.addr, Program: c.program, Began: c.began}); err == nil {
				return nil
			}
			reset(out)
			err = fmt.Errorf("%w: %w", errNoRecord, err)
		}
	}
	if reason := g.unregister(c, false); reason != nil {
		err = reason
	}
	state := Failed
	for _, refusal := range []error{ErrClosed, ErrRevoked, ErrEnded, ErrPaused, ErrLimit, errNoRecord} {
		if errors.Is(err, refusal) {
			state = Refused
		}
	}
	g.note(Event{State: state, Host: names.Foreign(c.host), Port: c.port, Program: c.program, Began: c.began, Duration: time.Since(c.began), Reason: err})
	return err
}

// noteEnd removes a dialled connection from the table and records its end.
func (g *Gate) noteEnd(c *conn, err error) {
	if reason := g.unregister(c, true); reason != nil {
		err = reason
	}
	server := ""
	if n := len(c.serverNames); n > 0 {
		server = c.serverNames[n-1]
	}
	g.note(Event{
		State: Ended, Host: names.Foreign(c.host), Port: c.port, Addr: c.addr, Program: c.program, ServerName: names.Foreign(server),
		Sent: c.sent.Load(), Received: c.received.Load(), Began: c.began, Duration: time.Since(c.began), Reason: err,
	})
}

// dial connects to the host. The dialer itself checks the address of each attempt after
// the name was resolved: there is no second look-up that could give another address.
func (g *Gate) dial(ctx context.Context, c *conn) (out *net.TCPConn, needsAddr bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var mu sync.Mutex // attempts run side by side
	closed := map[netip.Addr]bool{}
	d := net.Dialer{Resolver: g.opt.Resolver, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		addr := to.Addr().Unmap()
		if c.literal.IsValid() || !isClosed(addr) && !isOwn(addr) {
			return nil
		}
		g.mu.Lock()
		permitted := g.rules.permitsAddr(addr, c.port)
		g.mu.Unlock()
		if !permitted {
			return fmt.Errorf("%s: %w", addr, ErrClosed)
		}
		mu.Lock()
		defer mu.Unlock()
		closed[addr] = true
		return nil
	}}
	nc, err := d.DialContext(ctx, "tcp", net.JoinHostPort(rooted(c.host), fmt.Sprint(c.port)))
	if err != nil {
		return nil, false, err
	}
	out = nc.(*net.TCPConn)
	mu.Lock()
	defer mu.Unlock()
	return out, closed[out.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()], nil
}

// establish adds the dialled side. If the gate has ended the connection meanwhile, or no rule permits it
// now, establish resets the dialled side and returns why.
func (g *Gate) establish(c *conn, out *net.TCPConn, needsAddr bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	to := out.RemoteAddr().(*net.TCPAddr).AddrPort()
	c.addr, c.needsAddr = netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), needsAddr
	_, isOpen := g.conns[c]
	if isOpen && g.permitsLocked(c) {
		inlineUrgent(out)
		c.outside = out
		return nil
	}
	reset(out)
	if c.reason == nil {
		c.reason = ErrRevoked
	}
	return c.reason
}

// unregister removes a connection from the table and returns why the gate ended it, if it did. If
// wasOpened is set, later questions list the connection's host as reached.
func (g *Gate) unregister(c *conn, wasOpened bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropLocked(c)
	if wasOpened {
		g.countLocked(c)
	}
	return c.reason
}

// dropLocked removes a connection from the table, if it is there.
func (g *Gate) dropLocked(c *conn) {
	if _, ok := g.conns[c]; !ok {
		return
	}
	delete(g.conns, c)
	if c.isServed() {
		g.servedConns--
	}
}

// relay copies both ways until both sides have ended or one breaks off, and then resets both. It
// returns why the connection ended early.
func (g *Gate) relay(c *conn) error {
	down := make(chan error, 1)
	fail := func(err error) error {
		if errors.Is(err, ErrLimit) {
			g.endSpent()
		}
		if err != nil {
			g.flush(c) // one side has broken off: what it sent before still arrives
			reset(c.inside)
			reset(c.outside)
		}
		return err
	}
	go func() { down <- fail(c.copy(c.inside, c.outside, g.down(c))) }()
	err := g.relayUp(c)
	_ = fail(err)
	// The first error is the reason; the other direction then fails, too.
	if derr := <-down; err == nil || errors.Is(err, net.ErrClosed) {
		err = derr
	}
	if err == nil {
		g.flush(c)
	}
	reset(c.inside)
	reset(c.outside)
	return err
}

// flushTimeout bounds the wait for a side that takes nothing.
const flushTimeout = time.Minute

// flush waits until both sides have taken the bytes that the kernel still holds for them, but no
// longer than flushTimeout while neither side takes any. The connection stays in the table
// meanwhile, so Remove drops these bytes, too.
func (g *Gate) flush(c *conn) {
	last, since := 0, time.Now()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		n := queued(c.inside)
		if c.outside != nil {
			n += queued(c.outside)
		}
		if n != last {
			last, since = n, time.Now()
		}
		if n == 0 || time.Since(since) > flushTimeout {
			return
		}
		select {
		case <-g.ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// tcpClose is the state of a connection that is over (include/net/tcp_states.h). If the other
// end resets a connection, SIOCOUTQ still counts the bytes that the other end has not acknowledged.
const tcpClose = 7

// queued returns how many bytes were sent and are not acknowledged (SIOCOUTQ, tcp(7)); 0
// if the connection is closed.
func queued(c *net.TCPConn) (n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && info.State != tcpClose {
			n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		}
	})
	return n
}

// relayUp passes the program's bytes on to the host. Unless Options.AnyServerName is set, it holds each
// ClientHello of TLS back until the server name in it is known to be permitted.
func (g *Gate) relayUp(c *conn) error {
	var h handshake
	up := g.up(c)
	for isLast := g.opt.AnyServerName; !isLast; {
		next, err := h.peek(c.inside)
		if err != nil {
			return err
		}
		if err := g.requireServer(c, canonical(next.server)); err != nil {
			return err
		}
		if isLast = next.isLast; isLast {
			next.size = len(h.taken) // copy sends the rest
		}
		if err := c.sendOn(&up, h.taken, next.size); err != nil {
			return err
		}
	}
	return c.copy(c.outside, c.inside, up)
}

// requireServer adds a server name to the names that a connection needs rules for, and fails if no
// rule permits it. Both happen under the mutex. So a Remove at the same time has either removed the
// rule before, or finds the name in the table.
func (g *Gate) requireServer(c *conn, name string) error {
	if name == "" || name == c.host {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.reason != nil {
		return c.reason
	}
	c.serverNames = append(c.serverNames, name)
	if !g.permitsLocked(c) {
		return fmt.Errorf("TLS asks for another server: %w", ErrNoRule)
	}
	return nil
}

// sendOn sends the program's next n bytes to the host. The first of them are in taken. It reads the
// others from the program, and no more.
func (c *conn) sendOn(k *credit, taken []byte, n int) error {
	b := make([]byte, min(n, 4<<10))
	for have := copy(b, taken); n > 0; have = 0 {
		if have < len(b) {
			more, err := c.inside.Read(b[have:min(n, len(b))])
			if err != nil {
				return err
			}
			have += more
		}
		if _, err := k.move(have, func(granted, from int) (int, error) { return c.outside.Write(b[from : from+granted]) }); err != nil {
			return err
		}
		n -= have
	}
	return nil
}

// inlineUrgent leaves urgent bytes (tcp(7), SO_OOBINLINE) in their place among the others.
// Otherwise a read would skip an urgent byte until the next urgent byte comes. The gate would then
// send other bytes than handshake.peek has checked.
func inlineUrgent(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) })
}

// reset closes a connection, drops its remaining bytes, and notifies the other end at once.
// When reset returns, no read or write of the connection is in progress.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// resetAll resets connections that were removed from the table. It resets them side by side:
// each reset waits for reads and writes under way, and many of these wait for a processor.
func resetAll(list []*conn) {
	var wg sync.WaitGroup
	for _, c := range list {
		wg.Go(func() {
			if c.inside != nil {
				reset(c.inside)
			}
			if c.outside != nil {
				reset(c.outside)
			}
		})
	}
	wg.Wait()
}
