package cli

import (
	"net"
	"path/filepath"
	"testing"
)

// The service manager gets one datagram. Without a service manager nothing is sent.
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
