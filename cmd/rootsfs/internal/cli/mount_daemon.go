package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A daemon is this program started again, without the terminal (setsid(2)). Over a pipe on
// descriptor 3 it reports that the mount answers, or why not. (A Go process cannot fork: the child
// would have only one of its threads.)

// daemonVar is the variable that tells the child that it is a daemon.
const daemonVar = "ROOTSFS_DAEMON_PIPE"

const daemonFD = 3

// daemonEnd is the child's end of the pipe.
type daemonEnd struct {
	pipe *os.File
	log  string // path of the log file; "": the log goes to the journal
	sent bool   // the answer is sent; no other follows
}

// readyMessage is the child's answer, and the output of `mount --json`.
type readyMessage struct {
	Session string `json:"session,omitempty"`
	Point   string `json:"mountpoint,omitempty"`
	Line    string `json:"message,omitempty"`
	Log     string `json:"log,omitempty"`
	Error   string `json:"error,omitempty"`
	Exit    int    `json:"exit,omitempty"`
}

// daemonPipe returns the child's end in a daemon, and nil in any other process.
func daemonPipe() (*daemonEnd, error) {
	if os.Getenv(daemonVar) == "" {
		return nil, nil
	}
	_ = os.Unsetenv(daemonVar) // fails only for an impossible name
	var st unix.Stat_t
	if err := unix.Fstat(daemonFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil, usage(fmt.Errorf("%s is set, but not by rootsfs: unset it", daemonVar))
	}
	unix.CloseOnExec(daemonFD)
	return &daemonEnd{pipe: os.NewFile(daemonFD, "daemon pipe")}, nil
}

func (d *daemonEnd) sendError(err error) {
	d.send(readyMessage{Error: oneLine(err), Exit: exitCode(err)})
}

func (d *daemonEnd) send(m readyMessage) {
	if d.sent {
		return
	}
	d.sent = true
	// An error means that the parent is gone.
	_ = json.NewEncoder(d.pipe).Encode(m)
	_ = d.pipe.Close()
}

// logger opens the daemon's log file and makes it standard output and error, so that a crash
// leaves its trace there. If standard error goes to the journal, the log goes there instead.
func (d *daemonEnd) logger(f *sessionFlags, name string) (*slog.Logger, error) {
	if logsToJournal() {
		return f.logger(name)
	}
	file, path, err := openLog(name)
	if err != nil {
		return nil, err
	}
	d.log = path
	for fd := 1; fd <= 2; fd++ {
		if err := unix.Dup3(int(file.Fd()), fd, 0); err != nil {
			return nil, fmt.Errorf("redirect output to the log: %w", err)
		}
	}
	return newLog(file, f.Level(slog.LevelInfo), logAttr), nil
}

// spawn starts this command line again as a daemon and returns when the mount
// answers, or with the child's error.
func (a *app) spawn(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer r.Close()
	cmd := &exec.Cmd{
		// This very program, even if its path leads to another file by now.
		Path: "/proc/self/exe", Args: append([]string{"rootsfs"}, a.Args...),
		Env:         append(os.Environ(), fmt.Sprintf("%s=%d", daemonVar, daemonFD)),
		ExtraFiles:  []*os.File{w},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if logsToJournal() {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return fmt.Errorf("start the daemon: %w", err)
	}
	_ = w.Close()
	ctx, cancel := interruptible(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(unix.SIGTERM) })
	defer stop()
	done := a.waiting("mounting")
	defer done()
	return a.relay(r, cmd)
}

// relay reads the child's answer, and prints it or returns the error in it.
func (a *app) relay(r io.Reader, cmd *exec.Cmd) error {
	var m readyMessage
	if err := json.NewDecoder(r).Decode(&m); err != nil {
		state := "it was told to"
		if err := cmd.Wait(); err != nil {
			state = err.Error()
		}
		return fmt.Errorf("the daemon ended before the mount answered (%s); run it without --daemon to see why", state)
	}
	if m.Error != "" {
		_ = cmd.Wait() // its error is known already
		return &exitError{Code: m.Exit, Err: errors.New(m.Error)}
	}
	_ = cmd.Process.Release() // the daemon outlives this process
	if a.JSON {
		return a.line(m)
	}
	a.say("%s", m.Line)
	return nil
}

// notifySystemd sends the state to the service manager, if there is one, as sd_notify(3) does:
// one datagram.
func notifySystemd(state string) {
	addr := os.Getenv("NOTIFY_SOCKET")
	if addr == "" {
		return
	}
	if strings.HasPrefix(addr, "@") {
		addr = "\x00" + addr[1:] // the abstract namespace
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: addr, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state)) // an error means that the manager is gone
}
