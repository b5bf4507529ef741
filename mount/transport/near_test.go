package transport

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// boundTo reports whether a thread of the server may run on one processor only.
func boundTo(t *testing.T, s *served, cpu int) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(s.cmd.Process.Pid) + "/task/*/status")
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), "\nCpus_allowed_list:\t"+strconv.Itoa(cpu)+"\n") {
			return true
		}
	}
	return false
}

// burstFrom makes requests of one caller, one after the other, on a processor.
func burstFrom(t *testing.T, fd, cpu int) {
	t.Helper()
	var set unix.CPUSet
	set.Set(cpu)
	must(t, unix.SchedSetaffinity(0, &set))
	for range 4 * burstSize {
		var st unix.Stat_t
		must(t, unix.Fstat(fd, &st))
	}
}

// startBursts starts a plain server, and returns a file of its mount. It keeps the test on its
// thread.
func startBursts(t *testing.T) (s *served, fd int) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("one processor")
	}
	lockThread(t)
	var before unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &before))
	t.Cleanup(func() { must(t, unix.SchedSetaffinity(0, &before)) })
	s = startServer(t, string(Plain))
	fd, err := unix.Open(s.path("fa"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return s, fd
}

// A reader follows a caller to its processor, and leaves it when others make requests.
func TestReaderMovesNear(t *testing.T) {
	s, fd := startBursts(t)
	for _, cpu := range []int{0, 1, 0} {
		for !boundTo(t, s, cpu) {
			burstFrom(t, fd, cpu)
		}
	}
	for boundTo(t, s, 0) || boundTo(t, s, 1) {
		must(t, exec.Command("head", "-c", "1", s.path("fb")).Run())
	}
}

// A handler that blocks in a burst keeps nobody else waiting.
func TestBlockedInABurst(t *testing.T) {
	s, fd := startBursts(t)
	hang, err := unix.Open(s.path("fhang"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(hang)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		s.await("waiting", 1)
		if err := exec.Command("head", "-c", "1", s.path("fb")).Run(); err != nil {
			t.Error(err)
		}
		if got := s.ask("release"); got != "ok" {
			t.Error(got)
		}
	}()
	for !boundTo(t, s, 0) {
		burstFrom(t, fd, 0)
	}
	n, err := unix.Pread(hang, make([]byte, 1), 0)
	if n != 1 || err != nil {
		t.Errorf("the read that waited: %d, %v", n, err)
	}
	<-answered
}
