package transport

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// isPinned reports whether the server has a thread that may run on no processor but cpu.
func isPinned(t *testing.T, s *testServer, cpu int) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(s.cmd.Process.Pid) + "/task/*/status")
	testkit.Must(t, err)
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
	testkit.Must(t, unix.SchedSetaffinity(0, &set))
	for range 4 * burstSize {
		var st unix.Stat_t
		testkit.Must(t, unix.Fstat(fd, &st))
	}
}

// manyTries is more tries than a reader needs to move. Each try makes some requests.
const manyTries = 100

// until repeats try until done reports true, and fails after manyTries.
func until(t *testing.T, what string, done func() bool, try func()) {
	t.Helper()
	for range manyTries {
		if done() {
			return
		}
		try()
	}
	t.Fatalf("%s: not after %d tries", what, manyTries)
}

// startBursts starts a plain server and opens a file of its mount. The server treats the requests
// of one caller as a burst even if this machine is slow. startBursts keeps the test on its thread.
func startBursts(t *testing.T) (s *testServer, fd int) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("one processor")
	}
	lockThread(t)
	var before unix.CPUSet
	testkit.Must(t, unix.SchedGetaffinity(0, &before))
	t.Cleanup(func() { testkit.Must(t, unix.SchedSetaffinity(0, &before)) })
	s = startServer(t, string(Plain)+" patient")
	fd, err := unix.Open(s.path("fa"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return s, fd
}

// A reader moves to the processor of a caller. It leaves that processor when other callers make
// requests.
func TestReaderMovesNear(t *testing.T) {
	s, fd := startBursts(t)
	for _, cpu := range []int{0, 1, 0} {
		until(t, "a reader moves to the caller", func() bool { return isPinned(t, s, cpu) }, func() { burstFrom(t, fd, cpu) })
	}
	until(t, "the reader leaves", func() bool { return !isPinned(t, s, 0) && !isPinned(t, s, 1) }, func() {
		testkit.Must(t, exec.Command("head", "-c", "1", s.path("fb")).Run())
	})
}

// A handler that blocks in a burst does not keep other callers waiting.
func TestBlockedInABurst(t *testing.T) {
	s, fd := startBursts(t)
	hang, err := unix.Open(s.path("fhang"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
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
	until(t, "a reader moves to the caller", func() bool { return isPinned(t, s, 0) }, func() { burstFrom(t, fd, 0) })
	n, err := unix.Pread(hang, make([]byte, 1), 0)
	if n != 1 || err != nil {
		t.Errorf("the read that waited: %d, %v", n, err)
	}
	<-answered
}

// Requests of one caller are a burst until the caller pauses, another caller makes a request, or a
// request copies much data.
func TestBurst(t *testing.T) {
	// soon and late are times of the latest answer: soon means no pause since then, late a long one.
	const caller, soon, late = 7, time.Hour, -time.Hour
	for name, c := range map[string]struct {
		caller uint32
		size   int
		answer time.Duration
		isOn   bool
	}{
		"the same": {caller, 0, soon, true}, "another caller": {caller + 1, 0, soon, false},
		"a pause": {caller, 0, late, false}, "bulk": {caller, bulk, soon, false},
	} {
		b := burst{gap: burstGap, start: time.Now()}
		b.answered.Store(int64(soon))
		for range burstSize + 1 {
			b.countRequest(caller, 0)
		}
		b.answered.Store(int64(c.answer))
		if b.countRequest(c.caller, c.size); b.isOn() != c.isOn {
			t.Errorf("%s: a burst %t, want %t", name, b.isOn(), c.isOn)
		}
	}
}
