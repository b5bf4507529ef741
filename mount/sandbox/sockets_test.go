package sandbox

import (
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connectedPair returns both ends of a connection of Unix sockets.
func connectedPair(t *testing.T) (ends [2]*net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		t.Cleanup(func() { c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends
}

// When a socket is revoked, a program that did not read from the socket can still get no more bytes
// than help/security.md says: the kernel's default buffer of one socket, and one piece that
// copyBytes copies.
func TestGrantedSocketHoldsBoundedBytes(t *testing.T) {
	const piece = 32 << 10 // io.Copy's buffer
	text, err := os.ReadFile("/proc/sys/net/core/wmem_default")
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	host, program := connectedPair(t), connectedPair(t)
	go copyBytes(program[0], host[0])
	_ = host[1].SetWriteDeadline(time.Now().Add(2 * time.Second)) // long after everything is full
	sent, _ := host[1].Write(make([]byte, 8<<20))
	_ = program[0].Close() // as a revocation does
	held, err := io.Copy(io.Discard, program[1])
	if err != nil || held == 0 || held > int64(most+piece) {
		t.Errorf("of %d bytes the program's end held %d (%v), want no more than %d", sent, held, err, most+piece)
	}
}
