package sandbox

import (
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// A pause closes the connections to a granted socket and refuses new ones; after the pause the
// socket is granted as before.
func TestSocketsPause(t *testing.T) {
	dir := t.TempDir()
	host, err := net.Listen("unix", filepath.Join(dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	var accepted atomic.Int64
	go func() {
		for {
			c, err := host.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			_, _ = c.Write([]byte("x"))
		}
	}()
	s := &Sockets{}
	if err := s.Add("host", filepath.Join(dir, "host")); err != nil {
		t.Fatal(err)
	}
	defer s.cutAll()
	inside, err := net.Listen("unix", filepath.Join(dir, "inside"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := inside.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd())) // listen owns it
	if err != nil {
		t.Fatal(err)
	}
	if err := s.listen("host", fd); err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	connect := func() (net.Conn, error) {
		c, err := net.Dial("unix", filepath.Join(dir, "inside"))
		if err == nil {
			_, err = io.ReadFull(c, one)
		}
		return c, err
	}
	c, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	s.Pause()
	if _, err := c.Read(one); err == nil {
		t.Error("a connection is open during the pause")
	}
	if _, err := connect(); err == nil {
		t.Error("a connection was made during the pause")
	}
	s.Resume()
	if _, err := connect(); err != nil {
		t.Errorf("after the pause: %v", err)
	}
	if n := accepted.Load(); n != 2 {
		t.Errorf("the host has accepted %d connections, want 2: none during the pause", n)
	}
}
