package sandbox

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A host that no longer reads the output of a run can still end the run by signals. Unread output
// of the command does not keep rootsfs alive.
func TestUnread(t *testing.T) {
	o := newOutside(t, callers[0])
	for _, c := range []struct {
		what, mcp, script string
		stream            int
	}{
		{"bytes", "off", "exec yes", 1},
		{"messages", "on", `exec yes '{"jsonrpc":"2.0","method":"notifications/message"}'`, 1},
		{"errors", "on", "exec yes >&2", 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			o.t = t
			cmd := o.driver(order{Args: o.rootsfs("run", "--name", sessionName, "--mcp", c.mcp, "--", "sh", "-c", c.script)})
			r, w, err := os.Pipe()
			testkit.Must(t, err)
			defer r.Close()
			cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
			if c.stream == 1 {
				cmd.Stdout = w
			} else {
				cmd.Stderr = w
			}
			in, err := cmd.StdinPipe() // stays open
			testkit.Must(t, err)
			defer in.Close()
			testkit.Must(t, cmd.Start())
			testkit.Must(t, w.Close())
			o.until("a full pipe", func() bool {
				n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
				testkit.Must(t, err)
				size, err := unix.FcntlInt(r.Fd(), unix.F_GETPIPE_SZ, 0)
				testkit.Must(t, err)
				return n > size-os.Getpagesize()
			})
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			limit := time.After(giveUp)
			for hasEnded := false; !hasEnded; {
				_ = cmd.Process.Signal(unix.SIGTERM) // after a second signal the run does not wait for long
				select {
				case err = <-ended:
					hasEnded = true
				case <-time.After(20 * time.Millisecond):
				case <-limit:
					_ = cmd.Process.Kill()
					t.Fatalf("the run did not end within %v", giveUp)
				}
			}
			if code := cmd.ProcessState.ExitCode(); code != 128+int(unix.SIGTERM) && code != 128+int(unix.SIGKILL) {
				t.Errorf("exit code %d, %v", code, err)
			}
			o.until("the end of the session", func() bool { return absent(o.Session) })
			if left := strings.Join(processes(t), "\n"); strings.Contains(left, c.script) {
				t.Errorf("processes are left: %s", left)
			}
		})
	}
}
