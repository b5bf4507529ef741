package early

import (
	"flag"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox"
	"github.com/rootsfs/rootsfs/mount/sandbox/ahead"
)

// Nobody can ask the program for a profile of its memory, and no samples are taken for
// one.
func TestMemoryIsNotProfiled(t *testing.T) {
	if f := flag.Lookup("test.memprofile"); f.Value.String() != "" {
		t.Skip("the tests are asked for one")
	}
	if runtime.MemProfileRate != 0 {
		t.Errorf("a sample for every %d bytes", runtime.MemProfileRate)
	}
}

// The monitor may be late from calm to Hurry, where this process may say so, and then
// no thread of ours is any more. Meanwhile nobody takes what it has for the process's.
func TestCalm(t *testing.T) {
	late := func() (n int) {
		for _, tid := range threads() {
			if slack(tid) == ahead.MonitorSlack {
				n++
			}
		}
		return n
	}
	want := 0
	if os.Geteuid() == 0 {
		want = 1
	}
	calm()
	if n := late(); n < want || want == 0 && n != 0 {
		t.Errorf("%d threads may be late", n)
	}
	runtime.LockOSThread() // and left to end with the goroutine
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, ahead.MonitorSlack, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if got := ahead.TimerSlack(); got != ahead.Slack || got == ahead.MonitorSlack {
		t.Errorf("a thread of the monitor's: %d, want the process's %d", got, ahead.Slack)
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 777_777, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if got := ahead.TimerSlack(); got != 777_777 {
		t.Errorf("a thread with one of its own: %d", got)
	}
	Hurry()
	if n := late(); n != 0 {
		t.Errorf("%d threads may still be late", n)
	}
}

// Which init is started ahead, if any, is decided by the flags before the command.
func TestKindFor(t *testing.T) {
	uid, gid := sandbox.DefaultID()
	plain := ahead.Kind{UID: uid, GID: gid}
	net := plain
	net.Net = true
	for line, want := range map[string]ahead.Kind{
		"rootsfs run --root .:rw -- true":                plain,
		"rootsfs run -- true --net --help":               plain,
		"rootsfs run --net -- true":                      net,
		"rootsfs run --net=true --root . -- true":        net,
		"rootsfs run --net=false -- true":                plain,
		"rootsfs run --network -- true":                  plain,
		"rootsfs run --levels -- true":                   plain,
		"rootsfs":                                        {},
		"rootsfs run":                                    {},
		"rootsfs run --help -- true":                     {},
		"rootsfs run -h -- true":                         {},
		"rootsfs run --level landlock -- true":           {},
		"rootsfs run --level=landlock -- true":           {},
		"rootsfs run --unconfined -- true":               {},
		"rootsfs run --memory-max 1G -- true":            plain,
		"rootsfs run --root . true":                      {},
		"rootsfs mount --root . -- /mnt":                 {},
		"rootsfs janitor /run/.rootsfs-run-1 -- /mnt":    {},
		"rootsfs --session run run --root .:rw -- true ": {},
	} {
		got, ok := kindFor(strings.Fields(line))
		if !ok {
			got = ahead.Kind{}
		}
		if got != want || ok != (want != ahead.Kind{}) {
			t.Errorf("%s: %+v, %v", line, got, ok)
		}
	}
}
