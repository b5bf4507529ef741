package mount

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A burst is told to the device and taken back after it; between bursts nothing
// ticks, and the end of the mount ends the wish.
func TestWakeupsFollowBursts(t *testing.T) {
	device := filepath.Join(t.TempDir(), "qos")
	fd, err := unix.Open(device, unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	w := startWakeups(fd)
	wishes := func() string {
		b, err := os.ReadFile(device)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const polling, none = "\x00\x00\x00\x00", "\xff\xff\xff\xff"
	want := ""
	for range 3 {
		want += polling
		for wishes() != want {
			for range burstBegin {
				w.request()
			}
			time.Sleep(time.Millisecond)
		}
		want += none
		for wishes() != want {
			time.Sleep(time.Millisecond)
		}
		for !w.parked.Load() {
			time.Sleep(time.Millisecond)
		}
	}
	w.close()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		t.Error("the device is still open")
	}
	var absent *wakeups
	absent.request() // a mount that does not care has none
	absent.close()
}
