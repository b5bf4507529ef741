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
	// TransportAuto is io_uring if the kernel is known to work with io_uring and io_uring can be
	// used, else plain. On a kernel that is known to work with io_uring, a daemon that runs as
	// root switches io_uring on.
	TransportAuto    Transport = "auto"
	TransportIOUring Transport = "io_uring" // New fails if io_uring cannot be used
	TransportPlain   Transport = "plain"    // readers of /dev/fuse
)

// transportEnv is the environment variable that sets the default transport, for tests.
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

// connect mounts and answers INIT, the kernel's first request. The answer chooses the
// transport.
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
		_ = m.enableRings() // if it fails, the kernel does not offer io_uring in INIT
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
		return nil, mountpoint.CannotServe("--transport io_uring", m.fallback, "use --transport auto")
	}
	attrs := []any{"transport", string(m.transport)}
	if m.fallback != nil {
		attrs = append(attrs, "no io_uring", m.fallback)
	}
	m.log.Info("requests are served", attrs...)
	return conn, nil
}

// enableRings switches FUSE over io_uring on in the kernel, unless it is on already. Only root can
// switch it on.
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

// answerPoll stops the kernel from sending POLL requests, for a process that opens files of
// its own mount (see transport.Conn.AnswerPoll).
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

// notifier sends notifications to the kernel over the mount's connection.
type notifier struct {
	conn  *transport.Conn
	ready chan struct{} // closed when conn is set or connecting has failed; nil: there is no mount
}

// connection waits until conn is set, and returns conn. The connection answers requests before
// conn is set, and a revocation may have to take these answers back. connection returns nil if
// there is no mount.
func (n *notifier) connection() *transport.Conn {
	if n.ready != nil {
		<-n.ready
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
