package mountpoint

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Holders names each process that keeps a detached mount alive, and says how the process does so.
func TestHoldersOfDetached(t *testing.T) {
	requireMounts(t)
	sleep := func(t *testing.T, dir string, attr *syscall.SysProcAttr) (pid int, release func()) {
		t.Helper()
		cmd := exec.Command("sleep", "1000")
		cmd.Dir, cmd.SysProcAttr = dir, attr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd.Process.Pid, func() { kill(cmd) }
	}
	tests := []struct {
		name, use string
		hold      func(t *testing.T, point string) (pid int, release func())
	}{
		{"open file", "an open file", func(t *testing.T, point string) (int, func()) {
			f, err := os.Open(filepath.Join(point, "f"))
			if err != nil {
				t.Fatal(err)
			}
			return os.Getpid(), func() { f.Close() }
		}},
		{"mapping of a closed file", "a mapped file", func(t *testing.T, point string) (int, func()) {
			f, err := os.Open(filepath.Join(point, "f"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			m, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			return os.Getpid(), func() { _ = unix.Munmap(m) }
		}},
		{"working directory", "working directory", func(t *testing.T, point string) (int, func()) { return sleep(t, point, nil) }},
		{"another mount namespace", "a copy of the mount", func(t *testing.T, _ string) (int, func()) {
			if os.Geteuid() != 0 {
				t.Skip("a user's namespace gets the unmount as well")
			}
			return sleep(t, "/", &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			point := tempPoint(t, "m", 0)
			serve(t, point, "rootsfs")
			in, err := Find(point)
			if err != nil {
				t.Fatal(err)
			}
			pid, release := tt.hold(t, point)
			defer release()
			if err := Detach(point, true); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("(pid %d, %s)", pid, tt.use)
			if got := Holders(in, time.Minute); !slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, want) }) {
				t.Errorf("%q names no %s", got, want)
			}
		})
	}
}

// A process with many open files may take long on a busy machine. The search skips a process only
// if one of its files does not answer.
func TestHoldersOfSlowProcess(t *testing.T) {
	const limit = time.Second
	self := "/proc/" + strconv.Itoa(os.Getpid())
	slow := func(proc string, _ Info, progress func()) string {
		if proc != self {
			return ""
		}
		for range 10 {
			time.Sleep(limit / 5)
			progress()
		}
		return "an open file"
	}
	if got := search(Info{}, limit, slow); len(got) != 1 {
		t.Fatalf("search found %q, want this process", got)
	}
	hung := func(proc string, in Info, progress func()) string {
		if proc == self {
			select {}
		}
		return ""
	}
	if got := search(Info{}, limit/10, hung); len(got) != 0 {
		t.Fatalf("search found %q, want nothing: this process does not answer", got)
	}
}

// A process that cannot be examined does not hide later holders. Such a process has, for example,
// a page of a file system that does not answer, so its maps cannot be read.
func TestHoldersBehindASilentProcess(t *testing.T) {
	silent := make(chan struct{})
	defer close(silent)
	use := func(proc string, _ Info, _ func()) string {
		switch proc {
		case "/proc/1":
			<-silent
		case fmt.Sprintf("/proc/%d", os.Getpid()):
			return "an open file"
		}
		return ""
	}
	want := fmt.Sprintf("(pid %d, an open file)", os.Getpid())
	if got := search(Info{}, time.Second, use); len(got) != 1 || !strings.HasSuffix(got[0], want) {
		t.Errorf("%q, want one holder %s", got, want)
	}
}

// The search ends when too many processes cannot be examined, because each keeps a thread
// waiting.
func TestHoldersEndsAtManySilentProcesses(t *testing.T) {
	silent := make(chan struct{})
	defer close(silent)
	var looks atomic.Int32
	use := func(string, Info, func()) string {
		looks.Add(1)
		<-silent
		return ""
	}
	search(Info{}, 50*time.Millisecond, use)
	if got := looks.Load(); got > maxSilent {
		t.Errorf("%d processes were waited for, want at most %d", got, maxSilent)
	}
}
