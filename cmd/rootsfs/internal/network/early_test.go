package network

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Early data arrive even in very small records. (If a part of a record's header stays in the
// kernel, it may occupy the connection's whole receive buffer.)
func TestEarlyDataInSmallRecords(t *testing.T) {
	first, _ := helloPair(t, "api.test")
	begin := earlyHello(t, first)
	for size := 1; size <= 7; size++ {
		sent := bytes.Clone(begin)
		for n := range 60_000 {
			sent = append(sent, dataRecord, 3, 3, 0, byte(size))
			sent = append(sent, bytes.Repeat([]byte{byte(n)}, size)...)
		}
		program, inside := smallPair(t)
		outside, host := smallPair(t)
		g := New(Options{Rules: mustRules(t, "api.test")})
		g.log = slog.New(slog.DiscardHandler)
		c := &conn{inside: inside, outside: outside, host: "api.test", port: 443}
		c.ctx, c.cancel = context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			err := g.relayUp(c)
			outside.Close()
			ended <- err
		}()
		go func() {
			program.Write(sent)
			program.CloseWrite()
		}()
		got, err := io.ReadAll(host)
		if rerr := <-ended; err != nil || rerr != nil || !bytes.Equal(got, sent) {
			t.Errorf("records of %d bytes: %d of %d bytes arrived: %v, %v", size, len(got), len(sent), err, rerr)
		}
		c.cancel()
		g.Close()
		for _, one := range []*net.TCPConn{program, inside, host} {
			one.Close()
		}
	}
}

// smallPair returns both ends of a connection. The accepted end has a small receive buffer.
func smallPair(t *testing.T) (dialled, accepted *net.TCPConn) {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
	}}
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return d.(*net.TCPConn), a.(*net.TCPConn)
}
