package janitor

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/callproc"
)

// As a program of its own this is a run that says the pid of what stands in for its
// janitor, and lasts until it is killed.
const runVar = "ROOTSFS_TEST_RUN"

func TestMain(m *testing.M) {
	if file := os.Getenv(runVar); file != "" {
		// A descriptor that it would inherit if it inherited any.
		if err := unix.Dup2(1, 77); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		// The shell's own means alone: it would take what was sent to it for its
		// children's sake.
		s, err := begin1(`{ echo "$0 $HERE $$"; pwd; echo /proc/$$/fd/*; echo end; } >"$HERE"`, "HERE="+file)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.Pid)
		time.Sleep(time.Hour)
		runtime.KeepAlive(s)
	}
	os.Exit(m.Run())
}

// begin1 starts one that becomes a shell.
func begin1(script string, env ...string) (*StandIn, error) {
	self, err := Self()
	if err != nil {
		return nil, err
	}
	defer self.Close()
	return Begin(int(self.Fd()), "/bin/sh", []string{"sh", "-c", script, "cleaner"}, append(env, "PATH=/bin:/usr/bin"))
}

func needStandIn(t *testing.T) {
	t.Helper()
	if s, err := begin1("exit"); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("not on ", runtime.GOARCH)
	} else if err != nil {
		t.Fatal(err)
	} else {
		s.End()
	}
}

// What stands in waits for the end of its process, whatever signals there are, has
// nothing of it, and then becomes the program it was given, with no descriptors but
// the one. R070.
func TestStandIn(t *testing.T) {
	needStandIn(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cleaned")
	run := exec.Command(exe)
	run.Env = append(os.Environ(), runVar+"="+file)
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	line, err := bufio.NewReader(out).ReadString('\n')
	if n, _ := fmt.Sscan(line, &pid); n != 1 || err != nil {
		t.Fatalf("the run said %q, %v", line, err)
	}
	waits := func() bool {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		sid, _ := unix.Getsid(pid)
		return string(comm) == "rootsfs-janitor\n" && len(fds) == 1 && cwd == "/" && sid == pid
	}
	await(t, "the wait", waits)
	for sig := unix.Signal(1); sig < 65; sig++ {
		if sig == unix.SIGKILL || sig == unix.SIGSTOP {
			continue
		}
		if err := unix.Kill(pid, sig); err != nil {
			t.Fatal(sig, err)
		}
	}
	_ = unix.Kill(pid, unix.SIGSTOP)
	_ = unix.Kill(pid, unix.SIGCONT)
	if _, err := os.Stat(file); err == nil || !waits() {
		t.Fatal("it did not wait")
	}
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = run.Wait()
	var got string
	await(t, "the cleaning", func() bool {
		b, _ := os.ReadFile(file)
		got = string(b)
		return strings.HasSuffix(got, "\nend\n")
	})
	if want := fmt.Sprintf("cleaner %s %d\n/\n/proc/%d/fd/0 ", file, pid, pid); !strings.HasPrefix(got, want) || strings.Contains(got, "/fd/77") {
		t.Errorf("it has become:\n%s", got)
	}
}

// One that is ended was never anything else, and nothing of it is left; that it shares
// the memory of a busy process harms neither.
func TestStandInEnds(t *testing.T) {
	needStandIn(t)
	file := filepath.Join(t.TempDir(), "cleaned")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for keep := [][]byte(nil); ; {
				select {
				case <-stop:
					return
				default:
				}
				if keep = append(keep, make([]byte, 64<<10)); len(keep) == 64 {
					keep = nil
					runtime.GC()
				}
			}
		})
	}
	var running []*StandIn
	for i := range 300 {
		s, err := begin1("echo >" + file)
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, s)
		if i%3 == 2 { // some of them are several at a time
			for _, s := range running {
				s.End()
				if err := unix.Kill(s.Pid, 0); err != unix.ESRCH {
					t.Errorf("%d is left: %v", s.Pid, err)
				}
			}
			running = nil
		}
	}
	close(stop)
	wg.Wait()
	if _, err := os.Stat(file); err == nil {
		t.Error("one of them has become what it was to become")
	}
}

// A program that cannot be started ends it.
func TestStandInWithoutProgram(t *testing.T) {
	needStandIn(t)
	if _, err := Begin(0, "a\x00b", nil, nil); err == nil {
		t.Error("a path with a zero byte was taken")
	}
	if _, err := Begin(0, "/", []string{"a\x00b"}, nil); err == nil {
		t.Error("an argument with a zero byte was taken")
	}
	if _, err := Begin(0, "/", nil, []string{"a\x00b"}); err == nil {
		t.Error("a variable with a zero byte was taken")
	}
	// The first of its calls fails: it never was one.
	if s, err := Begin(1<<20, "/nowhere", []string{"nothing"}, nil); err == nil {
		t.Errorf("%d waits for the end of no process", s.Pid)
	}
	// One that waits and then cannot become anything ends.
	run := exec.Command("sleep", "1000")
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(run.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	s, err := Begin(fd, "/nowhere", []string{"nothing"}, nil)
	_ = run.Process.Kill()
	_ = run.Wait()
	if err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(s.Pid, &status, 0, nil); err != nil || status.ExitStatus() != callproc.Failed {
		t.Errorf("%v, %v", status, err)
	}
}

func await(t *testing.T, what string, over func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !over(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}
