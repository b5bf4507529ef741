package mount

import (
	"fmt"
	"os"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/mount/transport"
)

// Transport is how requests come from the kernel and answers go back.
type Transport string

// The transports.
const (
	// TransportAuto is io_uring where it is known to work, else plain. As root it switches
	// io_uring on in a kernel that it is known to work with.
	TransportAuto    Transport = "auto"
	TransportIOUring Transport = "io_uring" // or an error
	TransportPlain   Transport = "plain"    // readers of /dev/fuse
)

// transportEnv names the default transport, for tests.
const transportEnv = "ROOTSFS_TRANSPORT"

// ParseTransport reads a transport.
func ParseTransport(s string) (Transport, error) {
	switch t := Transport(s); t {
	case TransportAuto, TransportIOUring, TransportPlain:
		return t, nil
	}
	return "", &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("unknown transport %s: write auto, io_uring or plain", names.Quote(s))}
}

// Transport returns how the mount is served, and why it is not served by io_uring if that
// was wanted.
func (m *Mount) Transport() (Transport, error) { return m.transport, m.fallback }

// connect mounts and answers the kernel's first request, whose answer names the transport.
func (m *Mount) connect() (*transport.Conn, error) {
	want := m.opt.Transport
	if want == "" {
		want = TransportAuto
		if s := os.Getenv(transportEnv); s != "" {
			var err error
			if want, err = ParseTransport(s); err != nil {
				return nil, err
			}
		}
	}
	kind := transport.Plain
	switch want {
	case TransportIOUring:
		kind = transport.IOUring
		_ = m.enableRings() // the kernel's answer tells
	case TransportAuto:
		if m.fallback = transport.Suits(); m.fallback == nil {
			m.fallback = m.enableRings()
		}
		if m.fallback == nil {
			kind = transport.IOUring
		}
	}
	conn, err := m.newConn(kind)
	if err != nil {
		return nil, err
	}
	m.notifier.conn = conn
	m.transport = Transport(conn.Kind())
	if err := conn.Fallback(); err != nil {
		m.fallback = err
	}
	if want == TransportIOUring && m.transport != want {
		go conn.Serve()
		_ = mountpoint.Detach(m.opt.Point, true)
		return nil, &guard.Error{Op: names.OpMount, Kind: names.Invalid, Err: fmt.Errorf("--transport io_uring: %w; use --transport auto", m.fallback)}
	}
	told := []any{"transport", string(m.transport)}
	if m.fallback != nil {
		told = append(told, "no io_uring", m.fallback)
	}
	m.log.Info("requests are served", told...)
	return conn, nil
}

// enableRings switches io_uring on in the kernel, if this is root.
func (m *Mount) enableRings() error {
	on, err := transport.IsEnabled()
	if on || err != nil {
		return err
	}
	if err := transport.Enable(); err != nil {
		return err
	}
	m.log.Info("FUSE over io_uring is switched on in the kernel, for every mount to come (fuse.enable_uring)")
	return nil
}

// newConn mounts and answers INIT.
func (m *Mount) newConn(kind transport.Kind) (*transport.Conn, error) {
	opts := m.mountOptions()
	device, err := mountpoint.Attach(m.opt.Point, opts)
	if err != nil {
		return nil, mountpoint.CannotMount(m.opt.Point, err)
	}
	conn, err := transport.New(m.raw, transport.Options{Device: device, Kind: kind, Fuse: *opts})
	if err != nil {
		_ = mountpoint.Detach(m.opt.Point, true)
		return nil, mountpoint.CannotMount(m.opt.Point, err)
	}
	return conn, nil
}

// answerPoll keeps a mount that this process may use from asking it for POLL.
func (m *Mount) answerPoll(conn *transport.Conn) error {
	top, err := mountpoint.Top(m.opt.Point)
	if err != nil {
		return mountpoint.CannotMount(m.opt.Point, err)
	}
	defer top.Close()
	if err := conn.AnswerPoll(int(top.Fd())); err != nil {
		return mountpoint.CannotMount(m.opt.Point, fmt.Errorf("answer POLL: %w", err))
	}
	return nil
}

// notifier passes on what the tree tells the kernel.
type notifier struct {
	conn  *transport.Conn
	known chan struct{} // closed when conn is set, or never will be; nil: there is no mount
}

// connection waits for the connection: what it has answered already may have to be taken back.
func (n *notifier) connection() *transport.Conn {
	if n.known != nil {
		<-n.known
	}
	return n.conn
}

func (n *notifier) InodeNotify(node uint64, off, length int64) fuse.Status {
	if c := n.connection(); c != nil {
		return c.InodeNotify(node, off, length)
	}
	return fuse.ENOSYS
}

func (n *notifier) EntryNotify(parent uint64, name string) fuse.Status {
	if c := n.connection(); c != nil {
		return c.EntryNotify(parent, name)
	}
	return fuse.ENOSYS
}
