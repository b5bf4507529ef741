package cli

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// TestMain makes this binary hears, too, and what a sandbox starts.
func TestMain(m *testing.M) {
	sandbox.Main()
	if os.Args[0] == "hears" {
		hears()
		return
	}
	os.Exit(m.Run())
}

// A command line that begins with a command's name has that command, and every
// other one has all of them.
func TestCommands(t *testing.T) {
	for _, c := range commands {
		root := newRootCmd(newApp([]string{c.name, "--help"}, Stdio{}))
		if got, _, err := root.Find([]string{c.name}); err != nil || got.Name() != c.name || got == root {
			t.Errorf("%s: found %v, %v", c.name, got.Name(), err)
		}
	}
	for _, args := range [][]string{nil, {"help", "run"}, {"--help"}, {"nosuch"}, {cobra.ShellCompRequestCmd, "r"}} {
		root := newRootCmd(newApp(args, Stdio{}))
		for _, c := range commands {
			if got, _, err := root.Find([]string{c.name}); err != nil || got.Name() != c.name {
				t.Errorf("%q: no %s", args, c.name)
			}
		}
	}
}

// A command's own failure keeps its exit code when its results could not be written, too.
func TestFailureKeepsItsCode(t *testing.T) {
	full, w := io.Pipe()
	a := newApp(nil, Stdio{Out: w})
	_ = full.CloseWithError(io.ErrShortWrite)
	a.say("x")
	if got := exitCode(a.told(usage(errors.New("y")))); got != ExitUsage {
		t.Errorf("exit %d", got)
	}
}

// A path may begin in the home directory.
func TestInHome(t *testing.T) {
	t.Setenv("HOME", "/home/x")
	for in, want := range map[string]string{"~": "/home/x", "~/a": "/home/x/a", "a/~": "a/~", "~b": "~b", "/~/": "/~/"} {
		var got string
		if err := (pathValue{&got}).Set(in); err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
}

// The service manager is told in one datagram; without one nothing happens.
func TestNotifySystemd(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: sock, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", "")
	notifySystemd("READY=0")
	t.Setenv("NOTIFY_SOCKET", sock)
	notifySystemd("READY=1")
	buf := make([]byte, 64)
	n, err := l.Read(buf)
	if err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

// The journal is only taken for ours if standard error is the stream that
// systemd made, not because the variable was inherited.
func TestJournalIsVerified(t *testing.T) {
	for _, v := range []string{"", "8:1", "nonsense", "1"} {
		t.Setenv("JOURNAL_STREAM", v)
		if journal() {
			t.Errorf("JOURNAL_STREAM=%s is believed", v)
		}
	}
}
