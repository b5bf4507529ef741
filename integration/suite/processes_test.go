package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// adoptVar is an environment variable that makes the test binary call adopt.
const adoptVar = "ROOTSFS_SUITE_ADOPT"

// adopt acts as a suite that adopts processes. It starts programs, each of which leaves a process
// running. It prints "gone" when all of these processes have ended and none stays a zombie.
func adopt() error {
	procs, err := adoptOrphans()
	if err != nil {
		return err
	}
	for range 3 {
		var out strings.Builder
		cmd := exec.Command("sh", "-c", "sleep 0.2 >/dev/null & echo $!")
		cmd.Stdout = &out
		if err := procs.start(cmd); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("wait for a child of os/exec's: %w", err)
		}
		orphan := 0
		if _, err := fmt.Sscan(out.String(), &orphan); err != nil {
			return err
		}
		if !testkit.Eventually(func() bool { return errors.Is(unix.Kill(orphan, 0), unix.ESRCH) }) {
			return errors.New("an adopted process stays a zombie")
		}
	}
	fmt.Println("gone")
	return nil
}

// reap takes the exit code of an adopted process that has ended, so that the process does not stay
// a zombie. reap does not wait for the children of os/exec.
func TestAdoptedProcessesAreReaped(t *testing.T) {
	exe, err := os.Executable()
	testkit.Must(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), adoptVar+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "gone\n" {
		t.Errorf("%v, the child process said %q", err, out)
	}
}
