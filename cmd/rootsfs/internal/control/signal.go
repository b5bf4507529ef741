package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// SIGUSR1 to a session's process revokes every root. Sending it needs no socket, no descriptor
// and, by a shell's built-in kill, no process. The file pid in the session's directory has the
// process id. The session writes the result to revoked.json.

const (
	pidFile     = "pid"
	revokedFile = "revoked.json"
)

// SignalRevoked is the contents of revoked.json.
type SignalRevoked struct {
	Time  time.Time `json:"time"`
	Ended []Ended   `json:"ended"`
	Error string    `json:"error,omitempty"`
}

// PublishRevoked writes the results of the revocations after a signal.
func (d *Dir) PublishRevoked(a SignalRevoked) error {
	data, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	return d.replace(revokedFile, append(data, '\n'))
}

// replace writes a file of the session's directory as a whole.
func (d *Dir) replace(name string, data []byte) error {
	if err := replaceFile(filepath.Join(d.path, name), data); err != nil {
		return fmt.Errorf("write the session file: %w", err)
	}
	return nil
}

// replaceFile replaces a file in the runtime directory. It does not sync the file, because nothing
// in that directory is of use after the machine's next boot. Only one process at a time may
// replace the same file.
func replaceFile(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Unreachable reports whether an error of a client's call means that the session could not be
// reached, or has not answered. It reports false for a refusal, and for an error of the caller's
// context.
func Unreachable(err error) bool {
	var remote *Error
	return err != nil && !errors.As(err, &remote) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// signalTimeout bounds how long a session may take to report the results.
const signalTimeout = 10 * time.Second

// RevokeBySignal revokes every root of the session by SIGUSR1, and returns when the session has
// reported the results. The error wraps ErrNoSession if the session has ended.
func (c *Client) RevokeBySignal(ctx context.Context) ([]Ended, error) {
	before := c.lastReport()
	if err := c.signal(unix.SIGUSR1); err != nil {
		return nil, err
	}
	for end := time.Now().Add(signalTimeout); time.Now().Before(end); {
		if a := c.lastReport(); a != nil && (before == nil || !a.Time.Equal(before.Time)) {
			if a.Error != "" {
				return a.Ended, &Error{Text: a.Error, Class: Failure}
			}
			return a.Ended, nil
		}
		if in, ok := readSession(c.info.path, c.info.Name); !ok || in.Start != c.info.Start {
			return nil, c.endingError()
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		pause()
	}
	return nil, fmt.Errorf("session %s was sent SIGUSR1 and has not said within %v that its roots are revoked: end it: kill -KILL %d",
		names.Quote(c.info.Name), signalTimeout, c.info.PID)
}

// lastReport returns the session's last report of a revocation by signal, or nil.
func (c *Client) lastReport() *SignalRevoked {
	data, err := readFile(filepath.Join(c.info.path, revokedFile), maxBody)
	var a SignalRevoked
	if err != nil || json.Unmarshal(data, &a) != nil {
		return nil
	}
	return &a
}

// signal sends a signal to the session's process, and not to a later process with the same id. For
// that, it first opens a descriptor of the process, and then compares the start time of the process
// with that of the session. Without such a descriptor, the id may get to another process between the
// comparison and the signal.
func (c *Client) signal(sig unix.Signal) error {
	if !c.info.Signal {
		return fmt.Errorf("session %s is of an older version, which SIGUSR1 would kill: end it: kill -TERM %d", names.Quote(c.info.Name), c.info.PID)
	}
	pidfd, err := unix.PidfdOpen(c.info.PID, 0)
	if err == nil {
		defer unix.Close(pidfd)
	} else if errors.Is(err, unix.ESRCH) {
		return c.endingError()
	}
	start := startTime(c.info.PID)
	switch {
	case start != 0 && start != c.info.Start:
		return c.endingError()
	case start == 0:
		return fmt.Errorf("session %s: its process %d cannot be looked at in /proc: send it SIGUSR1: kill -USR1 %[2]d", names.Quote(c.info.Name), c.info.PID)
	case err == nil:
		err = unix.PidfdSendSignal(pidfd, sig, nil, 0)
	default: // there is no free descriptor, or the kernel has no pidfds
		err = unix.Kill(c.info.PID, sig)
	}
	if errors.Is(err, unix.ESRCH) {
		return c.endingError()
	}
	if err != nil {
		return fmt.Errorf("session %s: signal its process %d: %w", names.Quote(c.info.Name), c.info.PID, err)
	}
	return nil
}

// readFile reads at most limit bytes of a file.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// publishPID writes the file pid, for shells.
func (d *Dir) publishPID() error {
	return d.replace(pidFile, []byte(strconv.Itoa(os.Getpid())+"\n"))
}
