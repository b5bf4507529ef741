package cli

import (
	"net"
	"path/filepath"
	"testing"
)

// The service manager's socket gets the state as a datagram, and no datagram from a call without
// NOTIFY_SOCKET.
func TestNotifySystemd(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: sock, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", "")
	notifySystemd("READY=0")
	t.Setenv("NOTIFY_SOCKET", sock)
	notifySystemd("READY=1")
	buf := make([]byte, 64)
	n, err := l.Read(buf)
	if err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}
