package sandbox

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// terminalShell is an interactive shell of the caller on its own terminal.
type terminalShell struct {
	o      *outside
	master *os.File
	unread string // output of the terminal that no call of shows has matched
	run    string // the beginning of a command line that runs a command confined
	ended  chan struct{}
}

// startTerminalShell starts a shell.
func (o *outside) startTerminalShell(level sandbox.Level) *terminalShell {
	t := o.t
	t.Helper()
	master, slave, err := pty.Open()
	testkit.Must(t, err)
	cmd := o.driver(order{Args: []string{"/bin/bash", "--norc", "--noprofile", "-i"}, Env: append([]string{"PS1=$ ", "HOME=" + o.home, "TERM=dumb"}, o.env...)})
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setctty = true
	testkit.Must(t, cmd.Start())
	testkit.Must(t, slave.Close())
	s := &terminalShell{o: o, master: master, ended: make(chan struct{})}
	s.run = strings.Join(o.rootsfs("run", "--level", level.String(), "--name", sessionName, "--root", "root="+o.root, "--"), " ")
	go func() {
		_ = cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = master.Close()
		_ = cmd.Process.Kill()
		<-s.ended
	})
	s.shows(`\$ $`)
	return s
}

// types writes text to the terminal as a person would type it. The terminal echoes the
// text, so the text must not contain the expected output literally.
func (s *terminalShell) types(text string) {
	s.o.t.Helper()
	_, err := s.master.WriteString(text)
	testkit.Must(s.o.t, err)
}

// shows waits until the terminal shows text that matches pattern, and drops the output up to the
// end of that text.
func (s *terminalShell) shows(pattern string) {
	s.o.t.Helper()
	want := regexp.MustCompile(pattern)
	end := time.Now().Add(giveUp / 4)
	for buf := make([]byte, 4096); ; {
		if at := want.FindStringIndex(s.unread); at != nil {
			s.unread = s.unread[at[1]:]
			return
		}
		fds := []unix.PollFd{{Fd: int32(s.master.Fd()), Events: unix.POLLIN}}
		if n, _ := unix.Poll(fds, 100); n <= 0 && time.Now().Before(end) {
			continue
		}
		n, err := 0, os.ErrDeadlineExceeded
		if fds[0].Revents != 0 {
			n, err = s.master.Read(buf)
		}
		s.unread += string(buf[:n])
		if err != nil {
			s.o.t.Fatalf("%q is not shown, %v; the terminal shows %q", pattern, err, s.unread)
		}
	}
}

// levels are the levels at which rootsfs confines.
var levels = []sandbox.Level{sandbox.Namespaces, sandbox.Bubblewrap, sandbox.Landlock}

// A command that stops itself, as Claude Code does at Ctrl-Z, gives the shell its terminal
// back, and continues with fg. (If the command kept the terminal, no key would have an effect.)
func TestJobs_SelfStop(t *testing.T) {
	eachLevel(t, func(_ *testing.T, o *outside, level sandbox.Level) {
		s := o.startTerminalShell(level)
		s.types(s.run + " sh -c 'echo rea''dy; kill -STOP $$; echo go''es on; kill -TSTP 0; echo a''gain; exit 3'\n")
		for _, want := range []string{"ready", "goes on"} {
			s.shows(want)
			s.shows("Stopped")
			s.types("stty -a | tr ' ' '\\n' | grep -x -e i''canon; fg\n")
			s.shows(`icanon\r\n`) // the terminal is not in raw mode
		}
		s.shows(`again(?s:.*)\$ $`)
		s.types("echo co''de=$?\n")
		s.shows("code=3")
	})
}

// Ctrl-Z stops a command that does not handle it. bg continues it in the background, fg
// in the foreground, and Ctrl-C ends it.
func TestJobs_CtrlZ(t *testing.T) {
	eachLevel(t, func(_ *testing.T, o *outside, level sandbox.Level) {
		s := o.startTerminalShell(level)
		s.types(s.run + " sh -c 'echo rea''dy; read -r x; echo he''ard $x; exec sleep 1000'\n")
		s.shows("ready")
		s.types("\x1a")
		s.shows("Stopped")
		s.types("bg; sleep 0.5; jobs; echo lo''oked\n")
		s.shows("Running(?s:.*)looked") // the run does not read the typed text
		s.types("fg\n")
		s.shows("sleep 1000")
		s.types("word\n")
		s.shows("heard word")
		s.types("\x03")
		s.shows(`\$ $`)
		s.types("echo co''de=$?\n")
		s.shows("code=130")
	})
}

// A job that is begun in the background keeps running there and reads nothing that is typed. (If
// rootsfs set the terminal's mode from the background, the job would be stopped.)
func TestJobs_Background(t *testing.T) {
	o := newOutside(t, callers[0])
	s := o.startTerminalShell(sandbox.Namespaces)
	s.types(s.run + " sh -c 'echo rea''dy; exec sleep 1000' &\n")
	s.shows("ready")
	s.types("sleep 0.5; jobs; echo lo''oked\n")
	s.shows("Running(?s:.*)looked")
	s.types("fg\n")
	s.shows("sleep 1000")
	time.Sleep(500 * time.Millisecond) // until the run has the terminal, ^C goes to the shell
	s.types("\x03")
	s.shows(`\$ $`)
	s.types("echo co''de=$?\n")
	s.shows("code=130")
}

// When a terminal is closed, the session of the run on it ends, even if the command is stopped.
func TestJobs_Hangup(t *testing.T) {
	eachLevel(t, func(t *testing.T, o *outside, level sandbox.Level) {
		for _, stop := range []string{"exec sleep 1000", "kill -STOP $$; exec sleep 1000"} {
			s := o.startTerminalShell(level)
			s.types(s.run + " sh -c 'echo rea''dy; " + stop + "'\n")
			s.shows("ready")
			if stop != "exec sleep 1000" {
				s.shows("Stopped")
			}
			testkit.Must(t, s.master.Close())
			<-s.ended
			o.until("the end of the session", func() bool { return absent(o.Session) })
		}
	})
}

// With nohup(1) a run outlives its terminal, and the command ignores SIGHUP as well.
func TestJobs_Nohup(t *testing.T) {
	o := newOutside(t, callers[0])
	s := o.startTerminalShell(sandbox.Namespaces)
	s.types("nohup " + s.run + " sh -c 'kill -HUP $$; echo beg''un; until test -e go; do sleep 0.1; done' </dev/null 2>&1 | cat &\n")
	s.shows("begun")
	pid, err := os.ReadFile(filepath.Join(o.Session, "pid"))
	testkit.Must(t, err)
	testkit.Must(t, s.master.Close())
	<-s.ended
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err != nil || absent(o.Session) {
		t.Errorf("the run has ended: %v", err)
	}
	testkit.Must(t, os.WriteFile(filepath.Join(o.root, "go"), nil, 0o644))
	o.until("the end of the session", func() bool { return absent(o.Session) })
}
