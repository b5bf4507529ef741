package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// `timeout 60 rootsfs mount …` says SIGTERM twice in one breath, to the program and to
// its group: the mount is taken down all the same. Who asks again later is impatient.
func TestASignalSaidTwiceIsOneRequest(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, tt := range []struct {
		name  string
		after []time.Duration // of each signal
		heard int             // how many are taken until one insists
	}{
		{"one", []time.Duration{0}, 1},
		{"twice at once", []time.Duration{0, 0}, 2},
		{"thrice in a breath", []time.Duration{0, time.Millisecond, sameBreath - 1}, 3},
		{"a breath later", []time.Duration{0, sameBreath, 2 * sameBreath}, 2},
		{"twice, and once more later", []time.Duration{0, 1, time.Minute, time.Hour}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			signals := make(chan os.Signal, len(tt.after))
			for range tt.after {
				signals <- unix.SIGTERM
			}
			close(signals)
			heard, ended := 0, 0
			obey(signals, func() time.Time {
				heard++
				return start.Add(tt.after[heard-1])
			}, func(os.Signal) { ended++ })
			if heard != tt.heard || ended != 1 {
				t.Errorf("%d signals heard, want %d; asked to end %d times, want once", heard, tt.heard, ended)
			}
		})
	}
}

// hears is a program of TestMain: it catches signals as a run does, which waits for
// its flags to be understood or, with the argument "taken", not any more.
func hears() {
	heard := hearSignals()
	if len(os.Args) > 1 {
		signals := <-heard
		fmt.Println("ready")
		fmt.Println(<-signals)
		return
	}
	time.Sleep(50 * time.Millisecond) // for the signals to be caught; before, they end it anyhow
	fmt.Println("ready")
	time.Sleep(time.Hour)
}

// A signal that comes while a run's flags are understood ends the process, as it ends
// any; later it is passed on.
func TestHearSignals(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1} {
		for _, taken := range []bool{false, true} {
			if !taken && (sig == unix.SIGUSR1 || signal.Ignored(sig)) {
				continue // it does nothing: by itself, or as nohup(1) has it
			}
			args := []string{"hears"}
			if taken {
				args = append(args, "taken")
			}
			cmd := &exec.Cmd{Path: exe, Args: args}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(lines)
			_ = cmd.Wait()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if taken && (string(rest) != sig.String()+"\n" || status.ExitStatus() != 0) || !taken && (!status.Signaled() || status.Signal() != sig) {
				t.Errorf("%v, taken %v: said %q, ended with %#x", sig, taken, rest, status)
			}
		}
	}
}
