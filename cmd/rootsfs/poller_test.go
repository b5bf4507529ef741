package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
)

// nowatches is a program of TestMain: it runs a command that gets no epoll watch, as if the user
// had used up fs.epoll.max_user_watches. (A system call filter refuses the watches, because using
// up the limit takes a gigabyte.)
func nowatches() {
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_EPOLL_CTL},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16 + 8}, // its second argument
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.EPOLL_CTL_ADD},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSPC)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	path, err := exec.LookPath(os.Args[1])
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	const setModeFilter, tsync = 1, 1
	if err == nil {
		if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, tsync, uintptr(unsafe.Pointer(&program))); errno != 0 {
			err = errno
		} else {
			err = unix.Exec(path, os.Args[1:], os.Environ())
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(125)
}

// Package poller is initialised before at least five sixths of this binary's packages, and before
// the packages below, which could open a file. The runtime makes its poller at the first open. (The
// script starved shows that no file was opened.)
func TestPollerComesEarly(t *testing.T) {
	before, after, found := strings.Cut(initTrace(t), "init github.com/rootsfs/rootsfs/cmd/rootsfs/internal/poller ")
	if n, m := strings.Count(before, "init "), strings.Count(after, "init "); !found || n > m/5 {
		t.Errorf("%d packages before poller, %d after it:\n%s", n, m, before)
	}
	for _, opens := range []string{"init os/user ", "init net ", "init net/http ", "init golang.org/x/sys/unix ", "init crypto/x509 "} {
		if strings.Contains(before, opens) {
			t.Errorf("%q comes before poller", opens)
		}
	}
}

// A run is three processes, and each initialises every package. The allocated bytes are a measure
// of the time, and the same on every machine. The bounds are those of this binary, which also has
// the packages of tests and may have the race detector. The program itself allocates 650 KB.
func TestInitialisationIsSmall(t *testing.T) {
	const mostBytes, mostAllocs = 5 << 19, 20_000
	bytes, allocs := 0, 0
	for line := range strings.Lines(initTrace(t)) {
		var name string
		var at, clock float64
		var b, n int
		// init NAME @1.2 ms, 0.3 ms clock, 456 bytes, 7 allocs
		if _, err := fmt.Sscanf(line, "init %s @%f ms, %f ms clock, %d bytes, %d allocs", &name, &at, &clock, &b, &n); err == nil {
			bytes, allocs = bytes+b, allocs+n
		}
	}
	if bytes == 0 || bytes > mostBytes || allocs > mostAllocs {
		t.Errorf("initialisation takes %d bytes in %d allocations, want at most %d and %d", bytes, allocs, mostBytes, mostAllocs)
	}
}

// initTrace returns the runtime's trace of the initialisation of each package of this binary, which
// has the packages of the program and of its tests.
func initTrace(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: exe, Args: []string{"rootsfs", "version"}, Env: append(os.Environ(), "GODEBUG=inittrace=1")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return string(out)
}

// A process that may open too few files reports that, and does not panic.
func TestFewFiles(t *testing.T) {
	out, err := exec.Command("sh", "-c", "ulimit -n 6; exec rootsfs version").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != cli.ExitSystem || !strings.Contains(string(out), "may open too few files: close those") {
		t.Errorf("%v: %s", err, out)
	}
}
