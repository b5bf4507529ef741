package transport

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// If io_uring cannot be used, readers of /dev/fuse serve, and the reason is reported.
func TestFallback(t *testing.T) {
	for words, why := range map[string]string{
		"forbidden": "io_uring_setup: operation not permitted", "nomemory": "io_uring_setup: cannot allocate memory",
		"nofiles": "io_uring_setup: too many open files", "norings": "io_uring_setup: function not implemented",
		"register": "register a queue: ", // EINVAL; Ubuntu's 7.0 says EOPNOTSUPP
	} {
		t.Run(words, func(t *testing.T) {
			s := startServer(t, string(IOUring)+" "+words)
			if !strings.HasPrefix(s.kind, string(Plain)+" ") || !strings.Contains(s.kind, why) {
				t.Errorf("served by %s, want readers because %s", s.kind, why)
			}
			if text, err := os.ReadFile(s.path("fa")); err != nil || len(text) != fileSize {
				t.Errorf("%d bytes, %v", len(text), err)
			}
		})
	}
}

// A server that is bound to one processor serves callers on all processors. With "cpuset" it does
// so although the kernel refuses to bind its threads to processors.
func TestServerOnOneProcessor(t *testing.T) {
	for _, words := range []string{"", "cpuset"} {
		t.Run(words, func(t *testing.T) {
			bindToCPU(t, 0)
			s := startServer(t, string(IOUring)+" "+words)
			askFromEachProcessor(t, s)
		})
	}
}

// A server in a control group whose cpuset has one processor serves callers on all processors.
func TestServerInACpuset(t *testing.T) {
	lockThread(t)
	var before unix.CPUSet
	testkit.Must(t, unix.SchedGetaffinity(0, &before))
	t.Cleanup(func() { testkit.Must(t, unix.SchedSetaffinity(0, &before)) })
	s := startServer(t, string(IOUring)+" group="+newCpuset(t))
	status, err := os.ReadFile("/proc/" + strconv.Itoa(s.cmd.Process.Pid) + "/status")
	testkit.Must(t, err)
	if !strings.Contains(string(status), "\nCpus_allowed_list:\t0\n") {
		t.Error("the server is not confined to processor 0")
	}
	askFromEachProcessor(t, s)
}

// newCpuset creates a control group that may use only processor 0. It skips the test if that is not
// possible at the usual places of the cpuset controller of cgroup v1 and of cgroup v2.
func newCpuset(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"} {
		dir := filepath.Join(root, "rootsfs-transport-"+strconv.Itoa(os.Getpid()))
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { // runs after the cleanup that ends the server
			testkit.Until(t, "the end of the control group's processes", func() bool { return !errors.Is(os.Remove(dir), unix.EBUSY) })
		})
		if mems, err := os.ReadFile(filepath.Join(root, "cpuset.mems")); err == nil { // v1 demands it
			_ = os.WriteFile(filepath.Join(dir, "cpuset.mems"), mems, 0)
		}
		if os.WriteFile(filepath.Join(dir, "cpuset.cpus"), []byte("0"), 0) == nil {
			return dir
		}
	}
	t.Skip("no control group with a cpuset can be made")
	return ""
}

// askFromEachProcessor calls a server over io_uring from each processor. The caller must have
// locked its thread.
func askFromEachProcessor(t *testing.T, s *testServer) {
	t.Helper()
	if !strings.HasPrefix(s.kind, string(IOUring)+" ") {
		t.Errorf("served by %s", s.kind)
	}
	n, err := possibleCPUs()
	testkit.Must(t, err)
	for cpu := range n {
		set := unix.CPUSet{}
		set.Set(cpu)
		testkit.Must(t, unix.SchedSetaffinity(0, &set))
		_, err := os.Stat(s.path("fa"))
		testkit.Must(t, err)
	}
}

// The server does not run while it gets no requests: during some interval none of its
// threads has given up a processor.
func TestNothingRunsAtRest(t *testing.T) {
	kinds(t, "", func(t *testing.T, s *testServer) {
		_, err := os.ReadFile(s.path("fa"))
		testkit.Must(t, err)
		const intervals = 20
		for range intervals {
			before := switches(t, s.cmd.Process.Pid)
			time.Sleep(3 * time.Second)
			if maps.Equal(before, switches(t, s.cmd.Process.Pid)) {
				return
			}
		}
		t.Errorf("threads ran in each of %d intervals", intervals)
	})
}

// switches returns how often each thread of a process has given up its processor.
func switches(t *testing.T, pid int) map[string]string {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/status")
	testkit.Must(t, err)
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		testkit.Must(t, err)
		_, n, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		all[file], _, _ = strings.Cut(n, "\n")
	}
	return all
}

// bindToCPU binds this thread, and its children, to one processor for a test.
func bindToCPU(t *testing.T, cpu int) {
	t.Helper()
	lockThread(t)
	var before, set unix.CPUSet
	testkit.Must(t, unix.SchedGetaffinity(0, &before))
	set.Set(cpu)
	testkit.Must(t, unix.SchedSetaffinity(0, &set))
	t.Cleanup(func() { testkit.Must(t, unix.SchedSetaffinity(0, &before)) })
}

// The end of a connection interrupts READ handlers that wait, so that the server ends too. The
// connection ends because it is aborted, or because the mount is detached and callers are killed.
func TestEnds(t *testing.T) {
	for _, way := range []string{"detach", "abort"} {
		t.Run(way, func(t *testing.T) {
			kinds(t, "", func(t *testing.T, s *testServer) {
				waiting := []*exec.Cmd{client(t, s.path("fhang1")), client(t, s.path("fhang2"))}
				s.await("waiting", 2)
				if way == "abort" {
					s.abort()
				} else {
					testkit.Must(t, unix.Unmount(s.dir, unix.MNT_DETACH))
					for _, cmd := range waiting {
						testkit.Must(t, cmd.Process.Kill())
					}
				}
				for _, cmd := range waiting {
					if err := cmd.Wait(); err == nil {
						t.Error("a caller got an answer")
					}
				}
				if got, want := s.line(), "ended, interrupted 2, waiting 0, unmounted 1"; got != want {
					t.Errorf("the server says %q, want %q", got, want)
				}
				testkit.Must(t, s.cmd.Wait())
			})
		})
	}
}

// killRounds is how many servers of each kind TestKilledServer kills.
const killRounds = 5

// No caller hangs when the server is killed under load, not even the callers whose handlers wait.
func TestKilledServer(t *testing.T) {
	for range killRounds {
		kinds(t, "", func(t *testing.T, s *testServer) {
			waiting := []*exec.Cmd{client(t, s.path("fhang1")), client(t, s.path("fhang2"))}
			s.await("waiting", 2)
			var stop atomic.Bool
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for name := s.path("f" + string(rune('a'+i))); !stop.Load(); {
						if _, err := os.Stat(name); err != nil {
							return
						}
						if i%2 == 0 {
							_, _ = os.ReadFile(name)
						}
					}
				})
			}
			for len(s.ask("lookups")) < 3 { // until there is load
				continue
			}
			testkit.Must(t, s.cmd.Process.Kill())
			_ = s.cmd.Wait()
			all.Wait()
			stop.Store(true)
			for _, cmd := range waiting {
				if err := cmd.Wait(); err == nil {
					t.Error("a caller got an answer")
				}
			}
		})
	}
}
