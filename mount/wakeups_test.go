package mount

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

func TestParseWakeups(t *testing.T) {
	for s, want := range map[string]Wakeups{"auto": WakeupsAuto, "fast": WakeupsFast, "normal": WakeupsNormal} {
		if got, err := ParseWakeups(s); err != nil || got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "Auto", "slow"} {
		if _, err := ParseWakeups(s); !errors.Is(err, names.Invalid) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

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
