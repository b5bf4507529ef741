package cli

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

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

// A command's own failure keeps its exit code when its results could not be written, too.
func TestFailureKeepsItsCode(t *testing.T) {
	full, w := io.Pipe()
	a := New(nil, Stdio{Out: w})
	_ = full.CloseWithError(io.ErrShortWrite)
	a.Say("x")
	if got := ExitCode(a.withOutputError(Usage(errors.New("y")))); got != ExitUsage {
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
