package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/ahead"
)

// A stage is this program started again: a Go process cannot fork, because only
// one of its threads would be in the child. It is told what to be by stageVar,
// gets its end of a socket on controlFD and its configuration in a memory file
// on configFD, and after those what the caller had to open for it.

// stageVar names the stage. It never reaches a command.
const stageVar = ahead.StageVar

const (
	stageInit   = "init"
	stageInside = "inside" // the init, in the root that it has built
	stageAhead  = ahead.StageAhead

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
	Umask int      `json:"umask"`
	Net   bool     `json:"net"`
	// Listen are the ports that the command may listen on, in the host's network.
	Listen []uint16 `json:"listen,omitempty"`
	// Network: to pass the sockets of the command's network out.
	Network *networkWanted `json:"network,omitempty"`
	// Sockets are the names of the sockets of the host's that are granted.
	Sockets []string `json:"sockets,omitempty"`
	// NoCgroups: the machine allows no cgroup namespaces.
	NoCgroups bool `json:"noCgroups,omitempty"`
	Pids      int  `json:"pids"`
	// TTY says for each standard stream whether it is to be a terminal.
	TTY    [3]bool `json:"tty"`
	Rows   uint16  `json:"rows,omitempty"`
	Cols   uint16  `json:"cols,omitempty"`
	Layout *layout `json:"layout,omitempty"` // Namespaces: the base
	rest
	Late   bool  `json:"late,omitempty"` // the rest comes over the control socket
	Filter wants `json:"filter"`
	// Slack is the command's timer slack in nanoseconds: the caller's, while the
	// init has one of its own.
	Slack uintptr `json:"slack"`
	// Hold: to be told when the command may be started.
	Hold bool `json:"hold,omitempty"`
	// SetID: the init itself changes to these (Bubblewrap as root).
	SetID bool   `json:"setID,omitempty"`
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
	// KeptHome: HOME is a directory of the host's, whose owner stays.
	KeptHome bool       `json:"keptHome,omitempty"`
	Probe    bool       `json:"probe,omitempty"` // end when all is confined
	Stdin    *stdinFile `json:"stdin,omitempty"` // nil: what was passed
	// Stderr is the command's standard error, where bwrap's own is another.
	Stderr int `json:"stderr,omitempty"`
}

// rest is what the init is told of the tree and what depends on it.
type rest struct {
	Env   []string `json:"env"`
	Dir   string   `json:"dir"`
	Tree  *layout  `json:"tree,omitempty"` // Namespaces: what is beyond the base
	Rules rules    `json:"rules"`
}

// wants is what the system call filter refuses beyond its lists.
type wants struct {
	NoSockets bool `json:"noSockets,omitempty"` // but pairs of its own
	// Unix permits sockets of the unix family, where none of the host's can be reached.
	Unix  bool `json:"unix,omitempty"`
	NoIPC bool `json:"noIPC,omitempty"` // what is shared by uid
	// NoSetID: files that others could run with this uid's rights, where what is
	// made stays on the host.
	NoSetID bool `json:"noSetID,omitempty"`
	// Binder has the init make the calls of bind and listen; NoBind refuses them.
	Binder bool `json:"binder,omitempty"`
	NoBind bool `json:"noBind,omitempty"`
	// Init is the pid of the init where it is to be out of reach of signals; 0: the
	// kernel sees to that. The init fills it in.
	Init uint32 `json:"-"`
}

// message is what travels on the control socket, one per packet.
type message struct {
	// From the init: what it has reached, that it has started the command,
	// how that ended, or why nothing was started.
	Kind   string   `json:"kind"`
	Layers []Layer  `json:"layers,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	Stdin  bool     `json:"stdin,omitempty"` // the init has opened standard input itself
	Code   int      `json:"code,omitempty"`
	Signal int      `json:"signal,omitempty"` // to the init: what to send to the command
	Group  bool     `json:"group,omitempty"`  // to its process group
	Full   bool     `json:"full,omitempty"`   // of exited: see privateFull
	Net    bool     `json:"net,omitempty"`    // of exited: see triedNet
	Error  string   `json:"error,omitempty"`
	Errno  int      `json:"errno,omitempty"`
	Step   string   `json:"step,omitempty"` // one of the steps below
	// To the init: what to show of the tree, and where. The answer has the same
	// Code.
	From string `json:"from,omitempty"`
	At   string `json:"at,omitempty"`
}

// The kinds of message.
const (
	kindAwake    = "awake"    // from an init that was started ahead: it is there
	kindBegin    = "begin"    // to an init that was started ahead: carries the configuration and the streams
	kindRest     = "rest"     // to the init: carries a memory file with it, and what its layout names
	kindSocket   = "socket"   // carries a granted socket, which At names
	kindNetwork  = "network"  // carries the sockets that At names; the answer: they are served
	kindTerminal = "terminal" // carries the master side of the pty
	kindReady    = "ready"    // all but the command, which is held
	kindRelease  = "release"  // to the init: start it
	kindStarted  = "started"
	kindExited   = "exited"
	kindFailed   = "failed"
	kindSignal   = "signal"
	kindBind     = "bind"   // to the init
	kindUnbind   = "unbind" // to the init
	kindDone     = "done"   // one of these two, or Error
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

// maxPassed bounds the descriptors of a packet (SCM_MAX_FD of the kernel).
const maxPassed = 253

// send writes one packet, with descriptors.
func send(sock int, m message, fds ...int) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for {
		err := unix.Sendmsg(sock, b, rights, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// receive waits for one packet and the descriptors that came with it; io.EOF
// when the other side is gone.
func receive(sock int) (message, []int, error) {
	var m message
	buf, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxPassed))
	for {
		n, oobn, flags, _, err := unix.Recvmsg(sock, buf, oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		// ECONNRESET comes before what the peer had sent, if it ended without reading all.
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNRESET):
			continue
		case err != nil:
			return m, nil, err
		case n == 0:
			return m, nil, io.EOF
		case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
			return m, nil, fmt.Errorf("a message has more than %d bytes or %d descriptors", maxMessage, maxPassed)
		}
		var fds []int
		if parts, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(parts) == 1 {
			if fds, err = unix.ParseUnixRights(&parts[0]); err != nil {
				fds = nil
			}
		}
		return m, fds, json.Unmarshal(buf[:n], &m)
	}
}

// A stage does its work here and never gets any further: what is initialised after
// this package, and main itself, is not for it (half of what it would take to get
// there, measured). In any other process this does nothing.
func init() {
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
	case stageInit, stageInside, stageAhead:
		runInit(stage)
	default:
		fmt.Fprintf(os.Stderr, "%s names no stage: unset it\n", stageVar)
	}
	os.Exit(exitStage)
}
