package transport

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// Reads and writes from many threads, with writes of several sizes, transfer the right data. An
// absent name is reported as such. A handler that panics causes EIO, and the server goes on.
func TestReadsAndWrites(t *testing.T) {
	kinds(t, "", func(t *testing.T, s *testServer) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				name := "f" + string(rune('a'+i))
				text, err := os.ReadFile(s.path(name))
				if err != nil || len(text) != fileSize || len(bytes.Trim(text, name[1:])) != 0 {
					t.Errorf("%s: %d bytes, %v", name, len(text), err)
				}
				f, err := os.OpenFile(s.path(name), os.O_WRONLY, 0)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				for _, n := range []int{1, 4000, 4096, 5000, fileSize} {
					if _, err := f.Write(bytes.Repeat([]byte(name[1:]), n)); err != nil {
						t.Errorf("write %d bytes: %v", n, err)
					}
				}
				for range 200 {
					if _, err := os.Stat(s.path(name)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if _, err := os.Stat(s.path("absent")); !os.IsNotExist(err) {
			t.Errorf("an absent name: %v", err)
		}
		if got, want := s.ask("written"), strconv.Itoa(8*(1+4000+4096+5000+fileSize)); got != want {
			t.Errorf("the file system got %s bytes, want %s", got, want)
		}
		if _, err := os.Stat(s.path("fpanic")); !strings.Contains(err.Error(), "input/output error") {
			t.Errorf("a panic: %v", err)
		}
		if _, err := os.Stat(s.path("fa")); err != nil {
			t.Errorf("after a panic: %v", err)
		}
	})
}

// After EntryNotify the kernel forgets the file and looks its name up again. InodeNotify succeeds
// for a file that the kernel knows, and returns ENOENT for another.
func TestNotifications(t *testing.T) {
	kinds(t, "cache", func(t *testing.T, s *testServer) {
		for range 3 {
			_, err := os.Stat(s.path("fa"))
			testkit.Must(t, err)
		}
		s.await("lookups", 1)
		if got := s.ask("inode fa"); got != "0" {
			t.Errorf("InodeNotify: %s", got)
		}
		if got := s.ask("inode fnever"); got != "2" { // ENOENT
			t.Errorf("InodeNotify of a file that the kernel does not know: %s", got)
		}
		if got := s.ask("entry fa"); got != "0" {
			t.Errorf("EntryNotify: %s", got)
		}
		s.await("forgets", 1)
		_, err := os.Stat(s.path("fa"))
		testkit.Must(t, err)
		s.await("lookups", 2)
	})
}

// Killing a caller interrupts its request, and the caller ends. The requests are a READ, which this
// package decodes, and a lock request, which go-fuse decodes.
func TestKilledCaller(t *testing.T) {
	kinds(t, "", func(t *testing.T, s *testServer) {
		cmd := client(t, s.path("fhang"))
		s.await("waiting", 1)
		testkit.Must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		s.await("interrupted", 1)

		lock := func() *exec.Cmd {
			// With -F flock becomes sleep, so there is one process to kill.
			cmd := exec.Command("flock", "-F", s.path("fa"), "sleep", "1000")
			testkit.Must(t, cmd.Start())
			return cmd
		}
		holder, waiter := lock(), lock()
		s.await("waiting", 1)
		for _, cmd := range []*exec.Cmd{waiter, holder} {
			testkit.Must(t, cmd.Process.Kill())
		}
		_ = waiter.Wait()
		_ = holder.Wait()
	})
}

// Handlers that wait do not keep other callers waiting, even if all callers are on one
// processor whose queue had one thread. The waiting requests are answered in the end.
func TestBlockedHandlers(t *testing.T) {
	kinds(t, "", func(t *testing.T, s *testServer) {
		testkit.Must(t, exec.Command("taskset", "-c", "0", "head", "-c", "1", s.path("fa")).Run())
		var waiting []*exec.Cmd
		for range 9 {
			waiting = append(waiting, client(t, s.path("fhang")))
		}
		s.await("waiting", len(waiting))
		testkit.Must(t, exec.Command("taskset", "-c", "0", "head", "-c", "1", s.path("fb")).Run())
		if got := s.ask("release"); got != "ok" {
			t.Error(got)
		}
		for _, cmd := range waiting {
			if err := cmd.Wait(); err != nil {
				t.Errorf("a reader that waited: %v", err)
			}
		}
	})
}

// An unlock is answered although it comes from a processor on which so many callers wait for the
// lock that they would fill the processor's queue.
func TestLockWaiters(t *testing.T) {
	kinds(t, "", func(t *testing.T, s *testServer) {
		if _, err := exec.LookPath("flock"); err != nil {
			t.Skip(err)
		}
		testkit.Must(t, exec.Command("taskset", "-c", "0", "head", "-c", "1", s.path("fa")).Run())
		holder := exec.Command("taskset", "-c", "0", "flock", s.path("fa"), "cat")
		in, err := holder.StdinPipe()
		testkit.Must(t, err)
		testkit.Must(t, holder.Start())
		for exec.Command("flock", "-n", s.path("fa"), "true").Run() == nil { //nolint:revive // until it is held
		}
		var waiting []*exec.Cmd
		for range 8 {
			cmd := exec.Command("taskset", "-c", "0", "flock", s.path("fa"), "true")
			testkit.Must(t, cmd.Start())
			waiting = append(waiting, cmd)
		}
		s.await("waiting", len(waiting))
		testkit.Must(t, in.Close())
		testkit.Must(t, holder.Wait())
		for _, cmd := range waiting {
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
	})
}

// countCPUs counts lists of processors as the kernel writes them, and refuses malformed lists.
func TestCountCPUs(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-1": 2, "0-3,8-11": 8, "0,2": 2, "": 0, "3-1": 0, "x": 0, "0-": 0} {
		if n, err := countCPUs(list); n != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", list, n, err)
		}
	}
	if n, err := possibleCPUs(); err != nil || n < runtime.NumCPU() {
		t.Errorf("%d processors, %v", n, err)
	}
}

// Running threads and waiting threads are distinguished.
func TestIsRunnable(t *testing.T) {
	lockThread(t)
	if !isRunnable(unix.Gettid()) {
		t.Error("this thread runs")
	}
	var ends [2]int
	testkit.Must(t, unix.Pipe2(ends[:], unix.O_CLOEXEC))
	tid, done := make(chan int), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		tid <- unix.Gettid()
		_, _ = unix.Read(ends[0], make([]byte, 1)) // until the other end is closed
	}()
	for waiter := <-tid; isRunnable(waiter); {
		runtime.Gosched()
	}
	testkit.Must(t, unix.Close(ends[1]))
	<-done
	testkit.Must(t, unix.Close(ends[0]))
	if isRunnable(1 << 30) {
		t.Error("there is no such thread")
	}
}

// lockThread keeps a test on its thread.
func lockThread(t *testing.T) {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
}
