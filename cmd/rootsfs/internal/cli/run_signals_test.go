package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// catchingProgram is a program of TestMain: it catches signals as a run does.
func catchingProgram() {
	signals := catchSignals()
	fmt.Println("ready")
	fmt.Println(<-signals)
}

// A signal that comes after a run has begun is caught, so that it can be passed on.
func TestCatchSignals(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR2} {
		cmd := &exec.Cmd{Path: exe, Args: []string{"catches"}}
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
		if err := cmd.Wait(); err != nil || string(rest) != sig.String()+"\n" {
			t.Errorf("%v: printed %q, %v", sig, rest, err)
		}
	}
}

// TestMain makes this binary also the program "catches", and the programs that a sandbox starts.
func TestMain(m *testing.M) {
	sandbox.Main()
	if os.Args[0] == "catches" {
		catchingProgram()
		return
	}
	os.Exit(m.Run())
}
