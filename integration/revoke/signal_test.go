package revoke

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
)

// signalThreads sends a signal to every thread of a child, because a signal to the process may go
// to a thread that does not wait for the operation.
func (c *child) signalThreads(sig unix.Signal) {
	c.t.Helper()
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/task")
	testkit.Must(c.t, err)
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			_ = unix.Tgkill(c.cmd.Process.Pid, tid, sig) // the thread may have ended
		}
	}
}

// A program that handles a signal during a slow operation gets the operation's result, because
// local file systems return no EINTR there.
func TestSignalsDoNotInterrupt(t *testing.T) {
	for _, op := range []struct{ block, cmd string }{
		{"read slow%d", "read"}, {"write slow%d", "write"}, {"getattr slow%d", "stat"},
	} {
		t.Run(op.cmd, func(t *testing.T) {
			sc := newHang(t, settings[0].level)
			all := sc.hangIn(op.block, op.cmd, unix.O_RDWR, 3)
			for range 20 {
				for _, c := range all {
					c.signalThreads(unix.SIGURG) // the signal that Go's runtime sends to itself
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

// Signals do not interrupt an operation that waits for the root's rate limit.
func TestSignalsDoNotInterruptWaiting(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.Chmod(dir, 0o777))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o666))
	g := grantOf("slow", dir, guard.ReadWrite)
	g.Policy.Limits.OpsPerSecond = 4
	l := newLab(t, mount.Options{Locks: mount.LocksHost}, g)
	c := start(t, "holder", nil)
	var fd int
	c.call("open", callArg{Path: l.in("slow", "f"), Flags: unix.O_RDWR}, &fd)
	for _, op := range []struct {
		cmd string
		arg callArg
	}{
		{"mkdir", callArg{Path: l.in("slow", "dir")}},
		{"mknod", callArg{Path: l.in("slow", "node")}},
		{"symlink", callArg{Path: l.in("slow", "link"), Text: "f"}},
		{"open", callArg{Path: l.in("slow", "made"), Flags: unix.O_CREAT | unix.O_RDWR}},
		{"rename", callArg{Path: l.in("slow", "made"), Path2: l.in("slow", "renamed")}},
		{"unlink at", callArg{Path: l.in("slow", "renamed")}},
		{"unlink at", callArg{Path: l.in("slow", "dir"), Flags: unix.AT_REMOVEDIR}},
		{"lock", callArg{FD: fd, Flags: unix.F_SETLK}},
		{"unlock", callArg{FD: fd}},
		{"write", callArg{FD: fd, Text: "text"}},
		{"list", callArg{FD: fd}},
	} {
		if op.cmd == "list" {
			c.call("open", callArg{Path: l.in("slow"), Flags: unix.O_RDONLY | unix.O_DIRECTORY}, &op.arg.FD)
		}
		testkit.Must(t, c.send(op.cmd, op.arg))
		got := make(chan error, 1)
		go func() { got <- c.receive(op.cmd, nil) }()
		for pending := true; pending; {
			select {
			case err := <-got:
				if err != nil {
					t.Errorf("%s, with signals while it waits: %v", op.cmd, err)
				}
				pending = false
			case <-time.After(time.Millisecond):
				c.signalThreads(unix.SIGURG)
			}
		}
	}
}

// A program handles signals while it waits for a lock. (The kernel sends the request anew after
// each signal, see fuse_setlk.) When the lock is released, the waiting program gets the
// lock, and another process cannot take it.
func TestSignalsWhileWaitingForALock(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o666))
	l := newLab(t, mount.Options{Locks: mount.LocksHost}, grantOf("r", dir, guard.ReadWrite))
	var all [2]*child
	var fds [2]int
	for i := range all {
		all[i] = start(t, "holder", nil)
		all[i].call("open", callArg{Path: l.in("r", "f"), Flags: unix.O_RDWR}, &fds[i])
	}
	all[0].call("lock", callArg{FD: fds[0], Flags: unix.F_SETLK}, nil)
	testkit.Must(t, all[1].send("lock", callArg{FD: fds[1], Flags: unix.F_SETLKW}))
	for range 50 {
		all[1].signalThreads(unix.SIGURG)
		time.Sleep(time.Millisecond)
	}
	all[0].call("unlock", callArg{FD: fds[0]}, nil)
	if err := all[1].receive("lock", nil); err != nil {
		t.Errorf("waiting for a lock, with signals: %v", err)
	}
	if err := all[0].try("lock", callArg{FD: fds[0], Flags: unix.F_SETLK}, nil); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a lock that another process has: %v, want EAGAIN", err)
	}
}

// A program that is killed while an operation hangs must end. The kernel keeps the program until
// the daemon answers the operation, so the daemon must answer while the source hangs. Before the
// kill, the program gets a signal that it survives, because the kernel tells the daemon only of the
// first signal.
func TestKilledWhileSourceHangs(t *testing.T) {
	sc := newHang(t, settings[0].level)
	for _, c := range sc.hangIn("read slow%d", "read", unix.O_RDONLY, 3) {
		c.signalThreads(unix.SIGURG)
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

// However many programs are killed while a source hangs, their requests hold a bounded number of
// the daemon's threads, because Go ends a process that has 10,000. The test cancels operations in
// place of killing programs.
func TestKilledProgramsHoldFewThreads(t *testing.T) {
	sc := newHang(t, settings[0].level)
	sc.slow.call("block", "lookup slow0", nil)
	p, err := guard.NewPath("hang", "slow0")
	testkit.Must(t, err)
	var all sync.WaitGroup
	ctx, kill := context.WithCancel(context.Background())
	for range 3 * guard.MaxRunning {
		all.Go(func() {
			_, _ = sc.m.Tree().Lstat(ctx, guard.Caller{Subject: "test", Via: guard.ViaFUSE}, vfs.At{Path: p})
		})
	}
	sc.slow.await("lookup slow0", 1)
	time.Sleep(200 * time.Millisecond) // if the threads are not bounded, each request gets one meanwhile
	kill()
	all.Wait()
	tasks, err := os.ReadDir("/proc/self/task")
	testkit.Must(t, err)
	if n := len(tasks); n > guard.MaxRunning+200 {
		t.Errorf("%d threads for %d killed operations, want about %d", n, 3*guard.MaxRunning, guard.MaxRunning)
	}
	sc.slow.call("release", "*", nil)
}
