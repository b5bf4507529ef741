package transport

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The beginning of a burst writes a latency request to the device. The end of the burst, or of the
// connection, withdraws the request.
func TestAwakeFollowsBursts(t *testing.T) {
	device := filepath.Join(t.TempDir(), "latency")
	fd, err := unix.Open(device, unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
	testkit.Must(t, err)
	a := &awake{fd: fd}
	written := func() string {
		b, err := os.ReadFile(device)
		testkit.Must(t, err)
		return string(b)
	}
	const polling, none = "\x00\x00\x00\x00", "\xff\xff\xff\xff"
	want := ""
	for range 3 {
		a.tick(burstBegin - 1)
		if got := written(); got != want {
			t.Errorf("before a burst: % x", got)
		}
		want += polling
		for range burstEnd {
			a.tick(burstBegin)
			a.tick(0)
		}
		for range burstEnd - 2 {
			a.tick(burstBegin - 1)
		}
		if got := written(); got != want {
			t.Errorf("during a burst: % x", got)
		}
		want += none
		a.tick(0)
		if got := written(); got != want {
			t.Errorf("after a burst: % x", got)
		}
	}
	a.close()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		t.Error("the device is still open")
	}
	absent := &awake{fd: -1} // where the device may not be opened
	absent.tick(burstBegin)
	absent.close()
}
