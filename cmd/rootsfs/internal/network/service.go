package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Service is a name inside the namespace. Connections to it are answered outside, by Serve, and
// not copied to a host. Serve may connect to one host, by Gate.Dial. The program itself still
// needs a rule for that host.
type Service struct {
	Name       string // inside: lower case, without a final dot; or an address
	InsidePort uint16 // the port inside; 0: ServicePort
	// For has the services on whose behalf this service answers, at the name and port of their own
	// host. This service never dials, and lasts until the last of them is removed. Removing any of
	// them ends the connections to this service, because these connections may carry bytes of each
	// service in For. The rules decide about other ports of the name, and about this port when the
	// service is gone. If For is nil, RemoveService removes the service.
	For  []*Service
	Host string // the host that Dial connects to: in the form of Name, or an address
	Port uint16
	// Serve answers connections until Accept fails. It must close each connection when it is
	// done. Gate.Close waits for that.
	Serve func(net.Listener)

	conns     chan net.Conn // connections for Accept; without a buffer, so a sent connection has been accepted
	isRemoved bool          // guarded by the gate's mutex
}

// maxServed bounds the connections that services serve at a time. Serving one takes
// more memory than copying one.
const maxServed = 256

var errTooManyServed = fmt.Errorf("the program holds %d connections that are answered here already", maxServed)

// isServed reports whether a service serves the connection. It is false for a connection that a
// service has dialled.
func (c *conn) isServed() bool { return c.service != nil && c.inside != nil }

// ServicePort is the port at which a service is reached inside if its InsidePort is 0.
const ServicePort = 80

// port returns the port inside.
func (s *Service) port() uint16 { return cmp.Or(s.InsidePort, ServicePort) }

// rule returns the rule for connections to the service.
func (s *Service) rule() Rule {
	if addr, err := netip.ParseAddr(s.Name); err == nil {
		return Rule{Prefix: netip.PrefixFrom(addr, addr.BitLen()), Port: s.port()}
	}
	return Rule{Name: s.Name, Port: s.port()}
}

// isGone reports whether the service was removed, or all services of For were. The caller holds the
// gate's mutex.
func (s *Service) isGone() bool {
	isLive := func(one *Service) bool { return !one.isRemoved }
	return s.isRemoved || len(s.For) > 0 && !slices.ContainsFunc(s.For, isLive)
}

// isFor reports whether the service answers on behalf of one of a list.
func (s *Service) isFor(list []*Service) bool {
	return s != nil && slices.ContainsFunc(s.For, func(one *Service) bool { return slices.Contains(list, one) })
}

// permits reports whether the service permits a connection: to its port inside, or made by
// Dial. A removed service permits none.
func (s *Service) permits(c *conn) bool {
	return !s.isGone() && (c.inside == nil || c.port == s.port())
}

// service returns the service for connections to a port of a host, nil if there is none. The
// name of a service without For leads to that service only, at any port, even after the service
// was removed.
func (g *Gate) service(host string, port uint16) *Service {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.opt.Services {
		if s.Name == host && (s.For == nil || s.port() == port && !s.isGone()) {
			return s
		}
	}
	return nil
}

// IsLive reports whether a service was not removed.
func (g *Gate) IsLive(s *Service) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !s.isGone()
}

// Services returns the services that were not removed, sorted by name.
func (g *Gate) Services() []*Service {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(g.opt.Services), func(s *Service) bool { return s.isGone() })
	slices.SortFunc(list, func(a, b *Service) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// RemoveService ends services for good. It also ends every connection to them, every connection that
// they have dialled, and every connection to a service that answers on behalf of one of them
// (Service.For). When RemoveService returns, none of these connections carries a byte. It returns how
// many connections it ended.
func (g *Gate) RemoveService(gone ...*Service) int {
	return g.end(func() []*conn {
		for _, s := range gone {
			s.isRemoved = true
		}
		return g.endLocked(ErrRevoked, func(c *conn) bool { return !g.permitsLocked(c) || c.service.isFor(gone) })
	})
}

// startServices starts every service, and returns rules for the connections to them.
func (g *Gate) startServices() (list []Rule) {
	for _, s := range g.opt.Services {
		g.served.Go(func() { s.Serve(&serviceListener{g.ctx, s.conns}) })
		list = append(list, s.rule())
	}
	return list
}

// handOver gives a connection to its service.
func (g *Gate) handOver(c *conn) {
	select {
	case c.service.conns <- &servedConn{TCPConn: c.inside, g: g, c: c}:
	case <-g.ctx.Done():
		reset(c.inside)
		g.unserve(c)
	}
}

// unserve removes a connection to a service from the table after the connection was closed.
func (g *Gate) unserve(c *conn) {
	c.cancel()
	_ = g.unregister(c, false)
	g.served.Done()
}

// serviceListener is the listener of one service.
type serviceListener struct {
	ctx   context.Context // of the gate
	conns <-chan net.Conn
}

// Accept implements net.Listener.
func (l *serviceListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It does nothing: only the gate ends a service.
func (l *serviceListener) Close() error { return nil }

// Addr implements net.Listener.
func (l *serviceListener) Addr() net.Addr { return &net.TCPAddr{Port: ServicePort} }

// servedConn is a connection of the program that a service answers.
type servedConn struct {
	*net.TCPConn
	g    *Gate
	c    *conn
	once sync.Once
}

// CloseWrite ends the direction to the program. It resets a connection that the gate has
// ended: otherwise the program could take a part of an answer for the whole.
func (s *servedConn) CloseWrite() error {
	if s.c.ctx.Err() != nil {
		reset(s.TCPConn)
		return net.ErrClosed
	}
	return s.TCPConn.CloseWrite()
}

// Close closes the connection when the program's side has taken all bytes, or has taken none for
// flushTimeout. The connection stays in the table meanwhile, so RemoveService drops these bytes, too.
func (s *servedConn) Close() error {
	err := net.ErrClosed
	s.once.Do(func() {
		s.g.flush(s.c)
		if s.c.ctx.Err() != nil {
			reset(s.TCPConn)
		}
		err = s.TCPConn.Close()
		s.g.unserve(s.c)
	})
	return err
}

// Dial connects to the host of a service. The connection is checked, recorded and ended
// like those of the program.
func (g *Gate) Dial(ctx context.Context, s *Service) (net.Conn, error) {
	c := connTo(target{s.Host, s.Port})
	c.began, c.service = time.Now(), s
	if err := g.register(c); err != nil {
		g.note(Event{State: Refused, Host: names.Foreign(c.host), Port: c.port, Began: c.began, Reason: err})
		return nil, err
	}
	defer context.AfterFunc(ctx, c.cancel)()
	if err := g.connect(c); err != nil {
		c.cancel()
		g.served.Done()
		return nil, err
	}
	return &dialledConn{Conn: c.outside, g: g, c: c, up: g.up(c), down: g.down(c)}, nil
}

// dialledConn is a connection to the host of a service.
type dialledConn struct {
	net.Conn
	g        *Gate
	c        *conn
	up, down credit // of Write and Read
}

// Read implements net.Conn. Beyond a limit it drops the bytes that it has read.
func (d *dialledConn) Read(p []byte) (int, error) {
	n, rerr := d.Conn.Read(p)
	moved, err := d.down.move(n, func(granted, _ int) (int, error) { return granted, nil })
	return moved, d.check(cmp.Or(err, rerr))
}

// Write implements net.Conn.
func (d *dialledConn) Write(p []byte) (int, error) {
	moved, err := d.up.move(len(p), func(granted, from int) (int, error) { return d.Conn.Write(p[from : from+granted]) })
	return moved, d.check(err)
}

// Close implements net.Conn.
func (d *dialledConn) Close() error {
	err := d.Conn.Close()
	d.g.endDialled(d.c)
	return err
}

// check handles the error of a Read or a Write, and returns the error. At a limit it calls endSpent.
// If the connection is closed, check records the end of the connection: the gate may have closed it,
// and the service that dialled it may call Close later or never.
func (d *dialledConn) check(err error) error {
	switch {
	case errors.Is(err, ErrLimit):
		d.g.endSpent()
	case errors.Is(err, net.ErrClosed):
		d.g.endDialled(d.c)
	}
	return err
}

// endDialled records the end of a connection that a service has dialled, once.
func (g *Gate) endDialled(c *conn) {
	c.recorded.Do(func() {
		c.cancel()
		g.noteEnd(c, nil)
		g.served.Done()
	})
}
