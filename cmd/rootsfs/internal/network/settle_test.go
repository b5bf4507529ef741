package network

import (
	"log/slog"
	"net"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// lateListener is a listener whose Accept takes a connection from the kernel, sends to taken, and
// returns only after it has received from release.
type lateListener struct {
	net.Listener
	taken, release chan struct{}
}

func (l *lateListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.taken <- struct{}{}
		<-l.release
	}
	return c, err
}

// A connection is queued until the gate has decided about it, also in the moment when the gate has
// just taken it from the kernel. (Otherwise Settle would not wait for it, and the refusal of a
// program's last connection would not be on record.)
func TestTakenConnectionIsQueued(t *testing.T) {
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	defer tcp.Close()
	f, err := tcp.(*net.TCPListener).File()
	testkit.Must(t, err)
	defer f.Close()
	l, err := newListener(f)
	testkit.Must(t, err)
	late := &lateListener{l.Listener, make(chan struct{}), make(chan struct{})}
	l.Listener = late
	g := New(Options{})
	defer g.Close() // closes l, too
	g.log, g.inside = slog.New(slog.DiscardHandler), &inside{listeners: []*listener{l}}
	g.served.Go(func() { g.accept(l) })
	c, err := net.Dial("tcp4", tcp.Addr().String())
	testkit.Must(t, err)
	defer c.Close()
	<-late.taken
	if !g.hasQueued() {
		t.Error("a connection that was taken is not queued")
	}
	late.release <- struct{}{}
	testkit.Until(t, "nothing is queued", func() bool { return !g.hasQueued() })
}
