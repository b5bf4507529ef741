package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/janitor"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// someUser is whom a command runs as: of root's, another.
func someUser() guard.User {
	if os.Geteuid() != 0 {
		return guard.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	}
	return guard.User{UID: 65600, GID: 65600}
}

// awaitWait waits until a janitor waits. What a process that is not dumpable does, only root
// is told; it sleeps then, which it hardly does before.
func awaitWait(t *testing.T, pid int) {
	t.Helper()
	await(t, "the wait", func() bool {
		in, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		if errors.Is(err, fs.ErrPermission) {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return strings.Contains(string(stat), ") S ")
		}
		return strings.HasPrefix(string(in), strconv.Itoa(unix.SYS_PPOLL)+" ")
	})
}

// A janitor that waits, or is ended while it does, has initialised nothing that only
// the rest of the program needs; one whose run has ended goes on to clean up.
func TestJanitorWaitsEarly(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		ended bool
		code  int
	}{
		{"dismissed", false, -1},
		{"killed", true, exitUsage}, // the directory is none of a run
	} {
		t.Run(c.name, func(t *testing.T) {
			run := exec.Command("sleep", "1000")
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			end := func() { _ = run.Process.Kill(); _ = run.Wait() }
			defer end()
			fd, err := unix.PidfdOpen(run.Process.Pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			of := os.NewFile(uintptr(fd), "the run")
			defer of.Close()
			file := filepath.Join(t.TempDir(), "trace")
			trace, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			defer trace.Close()
			cmd := &exec.Cmd{
				Path: exe, Args: []string{"rootsfs", janitor.Name, filepath.Join(t.TempDir(), "none")},
				Env: append(os.Environ(), "GODEBUG=inittrace=1"), Stdin: of, Stderr: trace,
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill() // of a test that has failed
			awaitWait(t, cmd.Process.Pid)
			if c.ended {
				end()
			} else {
				_ = cmd.Process.Kill()
			}
			_ = cmd.Wait()
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d:\n%s", code, c.code, b)
			}
			if !strings.Contains(string(b), "init os ") {
				t.Fatalf("no trace of what was initialised:\n%s", b)
			}
			for _, late := range []string{"init net/http ", "init encoding/json ", "init github.com/spf13/cobra "} {
				if strings.Contains(string(b), late) != c.ended {
					t.Errorf("%q in the trace: %v", late, !c.ended)
				}
			}
		})
	}
}

// What a killed run left goes also when somebody holds the connection of its mount,
// which then answers nothing and is not stale, and when something keeps a directory
// of it for a while. R070.
func TestCleanAfter(t *testing.T) {
	if err := mountpoint.CheckFUSE(); err != nil || os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI must be able to run this: root, and %v", err)
		}
		t.Skip("needs root, and ", err)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	for name, keep := range map[string]func(t *testing.T, p *private){
		"nothing": func(*testing.T, *private) {},
		"a held connection": func(t *testing.T, p *private) {
			fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { fuse.Close() })
			data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd())
			if err := unix.Mount("rootsfs", p.point, mountpoint.FSType, unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
				t.Fatal(err)
			}
		},
		"a directory in use": func(t *testing.T, p *private) {
			if err := unix.Mount("none", p.scratch, "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(200*time.Millisecond, func() { _ = unix.Unmount(p.scratch, 0) })
		},
		"a directory that is gone": func(t *testing.T, p *private) {
			if err := os.RemoveAll(filepath.Dir(p.point)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := makePrivate(newRunName(), someUser())
			if err != nil {
				t.Fatal(err)
			}
			keep(t, p)
			t.Cleanup(func() { // of a test that has failed
				_ = unix.Unmount(p.point, unix.MNT_DETACH)
				_ = unix.Unmount(p.scratch, unix.MNT_DETACH)
				p.remove()
			})
			if err := cleanAfter(context.Background(), p.dir); err != nil || !p.gone() {
				t.Errorf("%v; gone: %v", err, p.gone())
			}
		})
	}
}

// The janitor waits until the killed run has let go of all it had, its session's lock
// too, or the session would pass for a live one and stay. R070.
func TestJanitorAwaitsTheEnd(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	base, err := control.EnsureRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	session := filepath.Join(base, "victim")
	program := filepath.Join(t.TempDir(), "rootsfs") // whose name says that it is to be rootsfs
	if err := os.Symlink(exe, program); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(session, 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := makePrivate(newRunName(), someUser())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.remove) // of a test that has failed
	p.lock.Close()
	// The shell is the run: it has the lock.
	run := exec.Command("sh", "-c", `exec 9<"$0"; flock 9; echo; read -r end`, session)
	in, err := run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(run.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	of := os.NewFile(uintptr(fd), "the run")
	cmd := &exec.Cmd{Path: program, Args: []string{"rootsfs", janitor.Name, p.dir}, Stdin: of, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	of.Close()
	awaitWait(t, cmd.Process.Pid)
	if p.gone() {
		t.Error("it has not waited")
	}
	in.Close()
	_ = run.Wait()
	if err := cmd.Wait(); err != nil || !p.gone() {
		t.Errorf("the janitor: %v; the place is gone: %v", err, p.gone())
	}
	if _, err := os.Stat(session); !os.IsNotExist(err) {
		t.Errorf("the session: %v", err)
	}
}

// What stands in for a janitor gives way to one, once, and either is gone when it is
// dismissed; a janitor that was killed harms nobody.
func TestRelieve(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	p, err := makePrivate(newRunName(), someUser())
	if err != nil {
		t.Fatal(err)
	}
	defer p.remove()
	w, err := startJanitor(p.run(), p)
	if err != nil {
		t.Fatal(err)
	}
	if w.standIn == nil {
		t.Skip("nothing stands in on this processor")
	}
	first := w.standIn.Pid
	w.relieve()
	if w.standIn != nil || w.cmd == nil {
		t.Fatalf("after it was relieved: %+v", w)
	}
	if err := unix.Kill(first, 0); err != unix.ESRCH {
		t.Errorf("what stood in is left: %v", err)
	}
	await(t, "the janitor", func() bool { return len(janitorsOf(t, p.dir)) == 1 })
	w.dismiss()
	w.dismiss()
	w.relieve()
	if left := janitorsOf(t, p.dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if p.gone() {
		t.Error("a janitor that was dismissed has cleaned up")
	}
	if w, err = startJanitor(p.run(), p); err != nil {
		t.Fatal(err)
	}
	_ = unix.Kill(w.standIn.Pid, unix.SIGKILL)
	w.dismiss()
}

// janitorsOf are the processes that watch over a place and wait for their pipe, or
// clean up. They are children of this process.
func janitorsOf(t *testing.T, dir string) (pids []string) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		children, _ := os.ReadFile(list) // of a thread that may have ended
		for _, pid := range strings.Fields(string(children)) {
			b, err := os.ReadFile("/proc/" + pid + "/cmdline")
			if err == nil && strings.Contains(string(b), "\x00"+janitor.Name+"\x00"+dir+"\x00") {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
