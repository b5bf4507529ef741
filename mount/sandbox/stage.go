package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A stage is this program started again: a Go process cannot fork, because only
// one of its threads would be in the child. It is told what to be by stageVar,
// gets its end of a socket on controlFD and its configuration in a memory file
// on configFD, and after those what the caller had to open for it.

// stageVar names the stage. It never reaches a command.
const stageVar = "ROOTSFS_SANDBOX_STAGE"

const (
	stageInit = "init"

	controlFD = 3
	configFD  = 4
	firstFD   = 5
)

// exitStage is the exit code of a stage that failed; nobody but us sees it.
const exitStage = 125

// config is what the init is told.
type config struct {
	Level Level    `json:"level"`
	Args  []string `json:"args"`
	Env   []string `json:"env"`
	Dir   string   `json:"dir"`
	Umask int      `json:"umask"`
	Net   bool     `json:"net"`
	Pids  int      `json:"pids"`
	// TTY says for each standard stream whether it is to be a terminal.
	TTY    [3]bool `json:"tty"`
	Rows   uint16  `json:"rows,omitempty"`
	Cols   uint16  `json:"cols,omitempty"`
	Layout *layout `json:"layout,omitempty"` // Namespaces
	Rules  rules   `json:"rules"`
	Filter wants   `json:"filter"`
	// SetID: the init itself changes to these (Bubblewrap as root).
	SetID bool   `json:"setID,omitempty"`
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
	// KeptHome: HOME is a directory of the host's, whose owner stays.
	KeptHome bool `json:"keptHome,omitempty"`
	Probe    bool `json:"probe,omitempty"` // end when all is confined
	// Stderr is the command's standard error, where bwrap's own is another.
	Stderr int `json:"stderr,omitempty"`
}

// wants is what the system call filter refuses beyond its lists.
type wants struct {
	NoSockets bool `json:"noSockets,omitempty"` // but pairs of its own
	NoIPC     bool `json:"noIPC,omitempty"`     // what is shared by uid
	// NoSetID: files that others could run with this uid's rights, where what is
	// made stays on the host.
	NoSetID bool `json:"noSetID,omitempty"`
}

// message is what travels on the control socket, one per packet.
type message struct {
	// From the init: what it has reached, that it has started the command,
	// how that ended, or why nothing was started.
	Kind   string   `json:"kind"`
	Layers []Layer  `json:"layers,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	Code   int      `json:"code,omitempty"`
	Signal int      `json:"signal,omitempty"` // to the init: what to send to the command
	Group  bool     `json:"group,omitempty"`  // to its process group
	Error  string   `json:"error,omitempty"`
	Errno  int      `json:"errno,omitempty"`
	Step   string   `json:"step,omitempty"` // one of the steps below
}

// The kinds of message.
const (
	kindTerminal = "terminal" // carries the master side of the pty
	kindStarted  = "started"
	kindExited   = "exited"
	kindFailed   = "failed"
	kindSignal   = "signal"
)

// The steps at which an init can fail: the caller falls back to another level
// only when it was the confinement that could not be had.
const (
	stepConfine = "confine"
	stepCommand = "command"
	// Not the command itself is at fault, but the directory it is to work in,
	// or the interpreter that its first line names, or its loader.
	stepDir         = "directory"
	stepInterpreter = "interpreter"
)

// maxMessage bounds a packet; layers and notes are far below it.
const maxMessage = 64 << 10

// send writes one packet, with a descriptor if fd is not negative.
func send(sock int, m message, fd int) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	for {
		err := unix.Sendmsg(sock, b, rights, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// receive waits for one packet; io.EOF when the other side is gone. The
// descriptor is -1 if there is none.
func receive(sock int) (message, int, error) {
	var m message
	buf, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, flags, _, err := unix.Recvmsg(sock, buf, oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return m, -1, err
		case n == 0:
			return m, -1, io.EOF
		case flags&unix.MSG_TRUNC != 0:
			return m, -1, fmt.Errorf("a message has more than %d bytes", maxMessage)
		}
		fd := -1
		if parts, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(parts) == 1 {
			if fds, err := unix.ParseUnixRights(&parts[0]); err == nil && len(fds) == 1 {
				fd = fds[0]
			}
		}
		return m, fd, json.Unmarshal(buf[:n], &m)
	}
}

// Main must be the first thing in main: in a process that is one of this
// package's own stages it does the stage's work and never returns. In any other
// process it does nothing.
func Main() {
	stage, ok := os.LookupEnv(stageVar)
	if !ok {
		return
	}
	var st unix.Stat_t
	if err := unix.Fstat(controlFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		fmt.Fprintf(os.Stderr, "%s is set, but not by rootsfs: unset it\n", stageVar)
		os.Exit(exitStage)
	}
	switch stage {
	case stageInit:
		runInit()
	default:
		fmt.Fprintf(os.Stderr, "%s names no stage: unset it\n", stageVar)
	}
	os.Exit(exitStage)
}
