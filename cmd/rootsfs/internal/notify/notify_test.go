package notify

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/rootsfs/rootsfs/guard/names"
)

// In a notification, foreign text contains no link that could be followed, and does not reverse the
// direction of our own text.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                     "plain",
		`<a href="x">y</a> & z`:     `&lt;a href="x"&gt;y&lt;/a&gt; &amp; z`,
		"\u202eevil\n\x1b[2J":       `\u{202e}evil\n\u{1b}[2J`,
		names.Quote("/a\u202e\"b"):  `"/a\u{202e}\"b"`, // quoted already
		strings.Repeat("x", 1000):   strings.Repeat("x", maxText) + "…",
		"\xff" + "not UTF-8 \u200b": `\xffnot UTF-8 \u{200b}`,
	} {
		if got := text(in); got != want {
			t.Errorf("%.40q: %q, want %q", in, got, want)
		}
	}
}

// desktop is a notification service that records its calls.
type desktop struct{ got chan []string }

func (d *desktop) Notify(app string, _ uint32, _, summary, body string, actions []string, _ map[string]dbus.Variant, _ int32) (uint32, *dbus.Error) {
	d.got <- append([]string{app, summary, body}, actions...)
	return 1, nil
}

// bus starts a session bus for the test.
func bus(t *testing.T) {
	t.Helper()
	path, err := exec.LookPath("dbus-daemon")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "--session", "--nofork", "--nopidfile", "--print-address=1", "--address=unix:dir="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", strings.TrimSpace(line))
}

// R083: a desktop shows the question, and offers no way to answer it.
func TestShow_R083(t *testing.T) {
	bus(t)
	conn, err := dbus.ConnectSessionBus()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d := &desktop{got: make(chan []string, 10)}
	if err := conn.Export(d, "/org/freedesktop/Notifications", "org.freedesktop.Notifications"); err != nil {
		t.Fatal(err)
	}
	if r, err := conn.RequestName("org.freedesktop.Notifications", dbus.NameFlagDoNotQueue); err != nil || r != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(r, err)
	}
	n := New(func(err error) { t.Error(err) })
	n.Show("A server asks for access to files", "<b>evil\u202e")
	select {
	case got := <-d.got:
		if strings.Join(got, "|") != `rootsfs|A server asks for access to files|&lt;b&gt;evil\u{202e}` {
			t.Errorf("shown: %q", got)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was shown")
	}
	for range maxCalls { // wait for the call to end, before the bus is gone
		n.running <- struct{}{}
	}
}

// Without a notification service or a bus, nothing blocks and no error is fatal.
func TestNoDesktop(t *testing.T) {
	bus(t)
	failed := make(chan error, 1)
	New(func(err error) { failed <- err }).Show("s", "b")
	select {
	case err := <-failed:
		if !strings.Contains(err.Error(), "notifications") {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a missing service is never reported")
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
	New(func(err error) { failed <- err }).Show("s", "b")
	if err := <-failed; !strings.Contains(err.Error(), "session bus") {
		t.Error(err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	New(func(err error) { t.Error(err) }).Show("s", "b")
}

// Show runs no program that it finds by PATH, because the first match may be a file of a project.
// This is also true if the address of the bus asks for a launch.
func TestNothingIsLaunched(t *testing.T) {
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	if err := os.WriteFile(filepath.Join(dir, "dbus-launch"), []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "autolaunch:")
	failed := make(chan error, 1)
	New(func(err error) { failed <- err }).Show("summary", "body")
	if err := <-failed; err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("dbus-launch of PATH was run")
	}
}
