package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// serveVar is an environment variable with a mount point. It makes the test binary a FUSE server
// there (serveNever). touchVar is an environment variable with a path. It makes the test binary
// look up the path again and again (touch).
const (
	serveVar = "ROOTSFS_SUITE_SERVE"
	touchVar = "ROOTSFS_SUITE_TOUCH"
)

func TestMain(m *testing.M) {
	var err error
	if point := os.Getenv(serveVar); point != "" {
		err = serveNever(point)
	} else if path := os.Getenv(touchVar); path != "" {
		err = touch(path)
	} else if point := os.Getenv(leaveVar); point != "" {
		err = leave(point)
	} else if os.Getenv(adoptVar) != "" {
		err = adopt()
	} else if err = lab.StartWithOwnMounts(); err == nil { // without others' mounts, whose connections a watchdog would abort
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// never is a directory that answers no look-ups, except of names that begin with "busy".
type never struct{ fs.Inode }

func (n *never) Lookup(_ context.Context, name string, _ *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if !strings.HasPrefix(name, "busy") {
		select {}
	}
	return nil, syscall.ENOENT
}

func serveNever(point string) error {
	srv, err := fs.Mount(point, &never{}, &fs.Options{MountOptions: fuse.MountOptions{FsName: "never", Name: "never"}})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	srv.Wait()
	return nil
}

// touch looks up a path again and again, as long as the look-up fails with ENOENT.
func touch(path string) error {
	for {
		if err := unix.Lstat(path, &unix.Stat_t{}); !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("touch: %w", err)
		}
	}
}

// child returns a command that runs the test binary as another program, and the buffer of its
// standard error. The caller starts the command, and ends it.
func child(t *testing.T, env string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	stderr = &bytes.Buffer{}
	cmd = exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env, cmd.Stderr = append(os.Environ(), env), stderr
	return cmd, stderr
}

// startServer starts a FUSE server at a new mount point. Its root directory is a never.
func startServer(t *testing.T) (point string) {
	t.Helper()
	point = t.TempDir()
	cmd, stderr := child(t, serveVar+"="+point)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Unmount(point, unix.MNT_DETACH)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if n, err := out.Read(make([]byte, 10)); err != nil || n == 0 {
		t.Fatalf("the server is not there: %v\n%s", err, stderr)
	}
	return point
}

// log is a buffer that several goroutines may write to. A test reads it after they have ended.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// A process that waits for a FUSE server that never answers ends when the watchdog has aborted the
// connection. The watchdog aborts neither a connection whose server answers all the time, nor a
// connection that existed before the watchdog started.
func TestWatchdogAborts(t *testing.T) {
	if err := mountpoint.CheckFUSE(); err != nil || os.Geteuid() != 0 {
		t.Skip("/dev/fuse and root are needed: ", err)
	}
	old := startServer(t)
	waiter, _ := child(t, touchVar+"="+filepath.Join(old, "stuck"))
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	out := &log{}
	dog := newWatchdog(&processes{started: map[int]bool{}}, 3*time.Second, out)
	busy, stuck := startServer(t), startServer(t)
	busier, _ := child(t, touchVar+"="+filepath.Join(busy, "busy"))
	if err := busier.Start(); err != nil {
		t.Fatal(err)
	}
	hung, stderr := child(t, touchVar+"="+filepath.Join(stuck, "stuck"))
	if err := hung.Start(); err != nil {
		t.Fatal(err)
	}
	_ = hung.Wait() // for ever, without the watchdog
	if text := stderr.String(); !strings.Contains(text, "not connected") && !strings.Contains(text, "abort") {
		t.Errorf("the process that waited said %q", text)
	}
	for name, cmd := range map[string]*exec.Cmd{"busy": busier, "old": waiter} {
		if err := cmd.Process.Signal(unix.Signal(0)); err != nil || readProcesses()[cmd.Process.Pid].state == "Z" {
			t.Errorf("the program at the %s connection has ended, too: %v", name, err)
		}
	}
	problems := dog.stop()
	if len(problems) != 1 || !strings.Contains(problems[0], "mounted at "+stuck) || !strings.Contains(problems[0], "touch") && !strings.Contains(problems[0], "process") {
		t.Errorf("reported: %q", problems)
	}
	if !strings.Contains(out.b.String(), stuck) {
		t.Errorf("logged: %q", out.b.String())
	}
	_ = busier.Process.Kill()
	_ = busier.Wait()
	_ = waiter.Process.Kill()
	_ = unix.Unmount(old, unix.MNT_DETACH|unix.MNT_FORCE)
	_ = waiter.Wait()
}

// kill ends the process of a job that takes too long. It also aborts the suite's FUSE
// connections, so that a process that waits for an answer can end.
func TestOverdueJobIsKilled(t *testing.T) {
	if err := mountpoint.CheckFUSE(); err != nil || os.Geteuid() != 0 {
		t.Skip("/dev/fuse and root are needed: ", err)
	}
	dog := newWatchdog(&processes{started: map[int]bool{}}, time.Hour, &log{})
	point := startServer(t)
	hung, _ := child(t, touchVar+"="+filepath.Join(point, "stuck"))
	if err := hung.Start(); err != nil {
		t.Fatal(err)
	}
	job := exec.Command("sleep", "1000")
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	dog.kill("raced", job.Process.Pid, time.Second)
	_ = job.Wait() // for ever, were it not killed
	_ = hung.Wait()
	if problems := dog.stop(); len(problems) != 2 || !strings.Contains(problems[0], "the raced packages took longer than 1s") || !strings.Contains(problems[1], point) {
		t.Errorf("reported: %q", problems)
	}
}

// owner recognizes a connection whose mount is detached, because a process of the suite has the
// connection's device open. Old kernels do not show this (see servers).
func TestOwnerOfDetachedMount(t *testing.T) {
	if err := mountpoint.CheckFUSE(); err != nil || os.Geteuid() != 0 {
		t.Skip("/dev/fuse and root are needed: ", err)
	}
	dog := newWatchdog(&processes{started: map[int]bool{}}, time.Hour, &log{})
	defer dog.stop()
	point := startServer(t)
	in, err := mountpoint.Find(point)
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimPrefix(in.Dev, "0:")
	if owner, ok := dog.owner(id); !ok || owner != "mounted at "+point {
		t.Errorf("mounted: %q, %v", owner, ok)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, point, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if owner, ok := dog.owner(id); !ok || !strings.Contains(owner, "mounted nowhere, served by process") {
		t.Errorf("detached: %q, %v", owner, ok)
	}
	if owner, ok := dog.owner("999999"); ok {
		t.Errorf("a connection that is not there: %q", owner)
	}
}

// A connection that ends while look examines it has an empty file "waiting". A later connection may
// get the same connection number. Neither counts as stuck.
func TestWatchdogTellsConnectionsApart(t *testing.T) {
	connections := t.TempDir()
	d := &watchdog{stuck: time.Minute, log: t.Output(), connections: connections}
	begin := func(waiting string) {
		t.Helper()
		// The old directory stays, so that the new one does not get its inode number.
		if err := os.Rename(filepath.Join(connections, "40"), filepath.Join(t.TempDir(), "ended")); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(connections, "40"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(connections, "40", "waiting"), []byte(waiting), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]waiting{}
	begin("")
	d.look(seen)
	if w, ok := seen["40"]; ok {
		t.Fatalf("an ended connection was noted: %+v", w)
	}
	begin("1\n")
	d.look(seen)
	w, ok := seen["40"]
	if !ok || time.Since(w.since) >= d.stuck {
		t.Fatalf("a connection was noted as %+v", w)
	}
	w.since = w.since.Add(-d.stuck / 8)
	seen["40"] = w
	d.look(seen)
	if seen["40"] != w {
		t.Fatalf("a look at the same waiting requests changed %+v to %+v", w, seen["40"])
	}
	begin("1\n")
	d.look(seen)
	if seen["40"].since.Equal(w.since) {
		t.Fatal("a connection was taken for an earlier one with the same number")
	}
}
