package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// TestMain lets this test binary run as a cleaner, too.
func TestMain(m *testing.M) {
	Main(slog.Default())
	os.Exit(m.Run())
}

// someUser returns the user that a command runs as: this user, or another one if the test runs
// as root.
func someUser() rules.User {
	if os.Geteuid() != 0 {
		return rules.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	}
	return rules.User{UID: 65600, GID: 65600}
}

// awaitWait waits until a cleaner waits for the end of the watched process. Only root can see the
// system call of a process that is not dumpable. For other users the cleaner counts as waiting as
// soon as it sleeps, because a cleaner hardly ever sleeps before it waits.
func awaitWait(t *testing.T, pid int) {
	t.Helper()
	testkit.Until(t, "the cleaner waits", func() bool {
		in, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		if errors.Is(err, fs.ErrPermission) {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return strings.Contains(string(stat), ") S ")
		}
		return strings.HasPrefix(string(in), strconv.Itoa(unix.SYS_PPOLL)+" ")
	})
}

// R070: the place of a killed run is removed even if a process holds the FUSE connection of the
// mount. (The mount then answers no call, and does not count as stale.) The place is also removed
// if a directory in it is in use for a while or is missing.
func TestAfterRun(t *testing.T) {
	if err := mountpoint.CheckFUSE(); err != nil || os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI must be able to run this: root, and %v", err)
		}
		t.Skip("needs root, and ", err)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	for name, obstruct := range map[string]func(t *testing.T, p *Place){
		"no obstacle": func(*testing.T, *Place) {},
		"a held connection": func(t *testing.T, p *Place) {
			fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { fuse.Close() })
			data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd())
			if err := unix.Mount("rootsfs", p.Point(), mountpoint.FSType, unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
				t.Fatal(err)
			}
		},
		"a directory in use": func(t *testing.T, p *Place) {
			if err := unix.Mount("none", p.Scratch(), "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(200*time.Millisecond, func() { _ = unix.Unmount(p.Scratch(), 0) })
		},
		"a directory that is gone": func(t *testing.T, p *Place) {
			if err := os.RemoveAll(filepath.Dir(p.Point())); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := MakePlace(someUser())
			if err != nil {
				t.Fatal(err)
			}
			obstruct(t, p)
			t.Cleanup(func() { // in case the test has failed
				_ = unix.Unmount(p.Point(), unix.MNT_DETACH)
				_ = unix.Unmount(p.Scratch(), unix.MNT_DETACH)
				p.Remove()
			})
			if err := afterRun(context.Background(), &Place{dir: p.dir}); err != nil || !p.isGone() {
				t.Errorf("%v; gone: %v", err, p.isGone())
			}
		})
	}
}

// The cleaner waits until the process of the run has ended and so has released the lock of its
// session. A cleaner that came earlier would take the session for a live one and leave it. R070.
func TestAwaitsTheEnd(t *testing.T) {
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
	program := filepath.Join(t.TempDir(), "rootsfs") // the name that the program has when it is installed
	if err := os.Symlink(exe, program); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(session, 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := MakePlace(someUser())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Remove) // in case the test has failed
	p.lock.Close()
	// The shell plays the run: it holds the lock of the session.
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
	pidfd := os.NewFile(uintptr(fd), "the run")
	cmd := &exec.Cmd{Path: program, Args: []string{"rootsfs", Name, runArg, p.dir}, Stdin: pidfd, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd.Close()
	awaitWait(t, cmd.Process.Pid)
	if p.isGone() {
		t.Error("the cleaner has not waited")
	}
	in.Close()
	_ = run.Wait()
	if err := cmd.Wait(); err != nil || !p.isGone() {
		t.Errorf("the cleaner: %v; the place is gone: %v", err, p.isGone())
	}
	if _, err := os.Stat(session); !os.IsNotExist(err) {
		t.Errorf("the session: %v", err)
	}
}

// A cleaner waits, and ends without cleaning up when it is dismissed. Dismissing a killed
// cleaner does no harm.
func TestDismiss(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	p, err := MakePlace(someUser())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Remove()
	for _, killed := range []bool{false, true} {
		w, err := StartForRun(p)
		if err != nil {
			t.Fatal(err)
		}
		awaitWait(t, w.cmd.Process.Pid)
		if killed {
			_ = w.cmd.Process.Kill()
		}
		w.Dismiss()
		w.Dismiss()
		if left := cleanersOf(t, p.dir); len(left) != 0 || p.isGone() {
			t.Errorf("killed %v: left %v; the place is gone: %v", killed, left, p.isGone())
		}
	}
}

// A cleaner whose arguments are not those that rootsfs gives it, such as one that is started by
// hand, does nothing.
func TestMainRefuses(t *testing.T) {
	for _, args := range [][]string{{}, {runArg}, {runArg, t.TempDir()}, {mountArg, "/mnt"}} {
		cmd := &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{"rootsfs", Name}, args...)}
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), "is started by rootsfs itself") {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}

// cleanersOf returns the processes that watch over a place or clean it up. They are children of
// this process.
func cleanersOf(t *testing.T, dir string) (pids []string) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		children, _ := os.ReadFile(list) // fails if the thread has ended
		for _, pid := range strings.Fields(string(children)) {
			b, err := os.ReadFile("/proc/" + pid + "/cmdline")
			if err == nil && strings.Contains(string(b), "\x00"+Name+"\x00"+runArg+"\x00"+dir+"\x00") {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
