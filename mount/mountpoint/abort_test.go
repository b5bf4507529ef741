package mountpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

func TestAbortRefuses(t *testing.T) {
	for _, dev := range []string{"", "45", ":", "0:", ":1", "0:1048576", "4096:0", "8:1", "-1:0", "0:+1", "0:1:2", "0:1/..", "../x:0"} {
		if err := Abort(dev); err == nil {
			t.Errorf("Abort(%q): no error", dev)
		}
	}
}

// Abort is for daemons that do not answer, so it must not send a request to the daemon.
func TestAbortStoppedDaemon(t *testing.T) {
	requireMounts(t)
	point := tempPoint(t, "m", 0)
	cmd := serve(t, point, "rootsfs")
	stop(t, cmd.Process)
	for _, path := range []string{point, point + "/", point + "/.", point + "//./"} {
		if got, err := Resolve(path); got != point || err != nil {
			t.Errorf("%s resolves to %q, %v", path, got, err)
		}
	}
	in, err := Find(point)
	if err != nil {
		t.Fatal(err)
	}

	connections := tempPoint(t, "connections", 0)
	err = abort(connections, in.Dev)
	oneLine(t, err, "fusectl is not mounted", "mount -t fusectl fusectl "+connections)
	if !errors.Is(err, ErrNoFusectl) {
		t.Errorf("got %v", err)
	}
	if err := unix.Mount("fusectl", connections, "fusectl", 0, ""); err != nil {
		t.Fatal(err)
	}

	statErr := make(chan error)
	go func() { // waits for the stopped daemon until the connection ends
		_, err := os.Stat(filepath.Join(point, "never looked up"))
		statErr <- err
	}()
	if err := abort(connections, in.Dev); err != nil {
		t.Fatal(err)
	}
	if err := <-statErr; !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("the waiting request: %v", err)
	}
	if !IsStale(point) {
		t.Error("IsStale is false for an aborted mount")
	}
	kill(cmd)
	if err := ClearStale(point); err != nil {
		t.Fatal(err)
	}
	err = abort(connections, in.Dev)
	oneLine(t, err, "has ended already")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
}

// stop sends SIGSTOP and waits until every thread has stopped. The signal is delivered some
// time after kill(2) has returned, and until then the process answers requests.
func stop(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "all threads are stopped", func() bool {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		if err != nil || len(stats) == 0 {
			t.Fatalf("no threads of %d: %v", p.Pid, err)
		}
		running := 0
		for _, stat := range stats {
			b, err := os.ReadFile(stat)
			// The state follows the last parenthesis (proc_pid_stat(5)).
			if i := bytes.LastIndexByte(b, ')'); err == nil && !bytes.HasPrefix(b[i+1:], []byte(" T")) {
				running++
			}
		}
		return running == 0
	})
}
