//go:build amd64 || arm64

package callproc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/callproc/atstart"
)

func TestMain(m *testing.M) {
	if os.Getenv("CALLPROC_TEST_LIMIT") != "" {
		fmt.Print(atstart.NoFile.Cur, " ", atstart.NoFile.Max)
		return
	}
	os.Exit(m.Run())
}

// held is what the processes read: where nobody moves it, and nobody frees it.
var held []any

func hold[T any](v T) *T {
	p := &v
	held = append(held, p)
	return p
}

// wait is how a process has ended.
func wait(t *testing.T, pid int) (status unix.WaitStatus) {
	t.Helper()
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			if err != nil {
				t.Fatal(err)
			}
			return status
		}
	}
}

func path(t *testing.T, s string) uintptr {
	t.Helper()
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		t.Fatal(err)
	}
	return uintptr(unsafe.Pointer(*hold(p)))
}

// The calls are made in their order, the first that fails is the last, and what they
// change of descriptors and directories is not changed here.
func TestStart(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) uintptr { return path(t, name) }
	mkdir := func(name string) Call {
		return Call{Nr: unix.SYS_MKDIRAT, Args: [5]uintptr{atCWD, at(name), 0o700}}
	}
	mask := hold(uint64(0))
	calls := []Call{
		{Nr: unix.SYS_CHDIR, Args: [5]uintptr{at(dir)}},
		mkdir("a"),
		{Nr: unix.SYS_CLOSE, Args: [5]uintptr{1}},
		mkdir("a/b"),
		mkdir("a/b"), // is there
		mkdir("a/c"),
		{Nr: unix.SYS_EXIT_GROUP, Args: [5]uintptr{7}},
	}
	pid, err := Start(0, calls, mask)
	if err != nil {
		t.Fatal(err)
	}
	if status := wait(t, pid); status.ExitStatus() != Failed {
		t.Errorf("it ended with %#x", status)
	}
	for name, want := range map[string]bool{"a": true, "a/b": true, "a/c": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stdout.Stat(); err != nil {
		t.Error("standard output: ", err)
	}
	if wd, err := os.Getwd(); err != nil || wd == dir {
		t.Errorf("this process is in %q, %v", wd, err)
	}
	pid, err = Start(0, calls[len(calls)-1:], mask)
	if err != nil {
		t.Fatal(err)
	}
	if status := wait(t, pid); status.ExitStatus() != 7 {
		t.Errorf("one that ends by itself: %#x", status)
	}
	if _, err := Start(unix.CLONE_THREAD, calls, mask); err == nil {
		t.Error("a thread was started")
	}
	runtime.KeepAlive(calls)
}

// The list decides by itself which signals the program gets that it executes: those of
// the caller's mask, without handlers.
func TestSignals(t *testing.T) {
	program := path(t, "/bin/sh")
	args, err := syscall.SlicePtrFromStrings([]string{"sh", "-c", "kill -TERM $$; exit 3"})
	if err != nil {
		t.Fatal(err)
	}
	env := *hold([]*byte{nil})
	hold(args)
	for _, c := range []struct {
		name    string
		restore bool
		signal  unix.Signal
		code    int
	}{{"blocked", false, 0, 3}, {"as here", true, unix.SIGTERM, -1}} {
		mask := hold(uint64(0))
		exec := Call{Nr: unix.SYS_EXECVE, Args: [5]uintptr{program, uintptr(unsafe.Pointer(&args[0])), uintptr(unsafe.Pointer(&env[0]))}}
		calls := []Call{exec}
		if c.restore {
			calls = []Call{{Nr: unix.SYS_RT_SIGPROCMASK, Args: [5]uintptr{2, uintptr(unsafe.Pointer(mask)), 0, 8}}, exec}
		}
		pid, err := Start(0, calls, mask)
		if err != nil {
			t.Fatal(err)
		}
		if status := wait(t, pid); c.restore && status.Signal() != c.signal || !c.restore && status.ExitStatus() != c.code {
			t.Errorf("%s: %#x", c.name, status)
		}
		runtime.KeepAlive(calls)
	}
}

// What Go's runtime has raised is known as it was.
func TestNoFile(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `ulimit -Sn 123; ulimit -Hn 500; exec "$0"`, exe)
	cmd.Env = append(os.Environ(), "CALLPROC_TEST_LIMIT=1")
	if out, err := cmd.Output(); err != nil || string(out) != "123 500" {
		t.Errorf("%q, %v", out, err)
	}
}

const atCWD = ^uintptr(99) // AT_FDCWD of openat(2)
