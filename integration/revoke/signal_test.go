package revoke

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// signalled sends a signal to every thread of a child: a signal of the process
// would go to a thread that does not wait.
func (c *child) signalled(sig unix.Signal) {
	c.t.Helper()
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/task")
	must(c.t, err)
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			_ = unix.Tgkill(c.cmd.Process.Pid, tid, sig) // it may have ended
		}
	}
}

// A program that handles a signal while an operation takes its time gets the
// operation's result: local file systems know no EINTR there.
func TestSignalsDoNotInterrupt(t *testing.T) {
	for _, op := range []struct{ block, cmd string }{
		{"read slow%d", "read"}, {"write slow%d", "write"}, {"getattr slow%d", "stat"},
	} {
		t.Run(op.cmd, func(t *testing.T) {
			sc := newHang(t, settings[0].level)
			all := sc.hangIn(op.block, op.cmd, unix.O_RDWR, 3, false)
			for range 20 {
				for _, c := range all {
					c.signalled(unix.SIGURG) // what Go's runtime sends itself
				}
				time.Sleep(time.Millisecond)
			}
			sc.slow.call("release", "*", nil)
			for _, c := range all {
				if err := c.receive(op.cmd, nil); err != nil {
					t.Errorf("%s after 20 signals: %v", op.cmd, err)
				}
			}
		})
	}
}

// A program that is killed while an operation hangs dies: the kernel keeps it
// until the operation is answered. The first signal is one that it survives.
func TestKilledWhileSourceHangs(t *testing.T) {
	sc := newHang(t, settings[0].level)
	for _, c := range sc.hangIn("read slow%d", "read", unix.O_RDONLY, 3, false) {
		c.signalled(unix.SIGURG)
		time.Sleep(10 * time.Millisecond)
		c.stop()
		select {
		case <-c.done:
		case <-time.After(callTimeout):
			t.Error("a killed program stays while the source hangs")
		}
	}
	if _, err := sc.reg.Revoke(context.Background(), "hang"); err != nil {
		t.Errorf("revoke: %v", err)
	}
}

// However many programs are killed while a source hangs, what they leave behind
// holds a bounded number of the daemon's threads: Go ends a process with 10,000.
func TestKilledProgramsHoldFewThreads(t *testing.T) {
	sc := newHang(t, settings[0].level)
	sc.slow.call("block", "lookup slow0", nil)
	p, err := guard.NewPath("hang", "slow0")
	must(t, err)
	var all sync.WaitGroup
	ctx, kill := context.WithCancel(context.Background())
	for range 3 * guard.MaxRunning {
		all.Go(func() {
			_, _ = sc.m.Tree().Lstat(ctx, guard.Caller{Subject: "test", Via: guard.ViaFUSE}, vfs.At{Path: p})
		})
	}
	sc.slow.await("lookup slow0", 1)
	time.Sleep(200 * time.Millisecond) // what is not bounded has its thread by now
	kill()
	all.Wait()
	tasks, err := os.ReadDir("/proc/self/task")
	must(t, err)
	if n := len(tasks); n > guard.MaxRunning+200 {
		t.Errorf("%d threads for %d killed operations, want about %d", n, 3*guard.MaxRunning, guard.MaxRunning)
	}
	sc.slow.call("release", "*", nil)
}
