package main

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// R092: every command says what it does at length, with examples, and every
// reporting command takes --json.
func TestEveryCommandIsExplained(t *testing.T) {
	// These do something else than report.
	noJSON := map[string]bool{"rootsfs": true, "roots": true, "audit": true}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Long == "" || c.Example == "" {
			t.Errorf("%s: no long help or no example", c.CommandPath())
		}
		if c.Flags().Lookup("json") == nil && !noJSON[c.Name()] {
			t.Errorf("%s: no --json", c.CommandPath())
		}
		for _, line := range strings.Split(c.Long, "\n") {
			if len(line) > 90 {
				t.Errorf("%s: a line of the help is too long: %q", c.CommandPath(), line)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCmd(newApp(nil, stdio{})))
}

// run is testable in process.
func TestRunInProcess(t *testing.T) {
	for _, tt := range []struct {
		args string
		want int
		out  string
		err  string
	}{
		{"version", exitOK, "rootsfs ", ""},
		{"version --json", exitOK, `"go": "go`, ""},
		{"", exitOK, "Usage:", ""},
		{"frobnicate", exitUsage, "", "rootsfs: unknown command \"frobnicate\"; see: rootsfs help\n"},
		{"version --frobnicate", exitUsage, "", "rootsfs: unknown flag: --frobnicate; see: rootsfs version --help\n"},
	} {
		var out, errs bytes.Buffer
		got := run(strings.Fields(tt.args), stdio{in: strings.NewReader(""), out: &out, err: &errs})
		if got != tt.want || !strings.Contains(out.String(), tt.out) || errs.String() != tt.err {
			t.Errorf("%q: exit %d, out %q, err %q", tt.args, got, out.String(), errs.String())
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
