package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/seccomp"
)

// config is what the init is told.
type config struct {
	Level Level    `json:"level"`
	Args  []string `json:"args"`
	Env   []string `json:"env"`
	Dir   string   `json:"dir"`
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
	// Streams says what each standard stream is to be.
	Streams [3]stream      `json:"streams"`
	Rows    uint16         `json:"rows,omitempty"`
	Cols    uint16         `json:"cols,omitempty"`
	Layout  *layout        `json:"layout,omitempty"` // Namespaces
	Rules   landlock.Rules `json:"rules"`
	Filter  seccomp.Wants  `json:"filter"`
	// Files are the descriptors that the caller has opened, by name.
	Files map[string]int `json:"files,omitempty"`
	// SetID: the init itself changes to these (Bubblewrap as root).
	SetID bool   `json:"setID,omitempty"`
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
	// KeptHome: HOME is a directory of the host's, whose owner stays.
	KeptHome bool `json:"keptHome,omitempty"`
	Probe    bool `json:"probe,omitempty"` // end when all is confined
}

// stderrFile is the name of the command's standard error, where bwrap's own is another.
const stderrFile = "stderr"

// stream is what a standard stream of the command is.
type stream string

const (
	passed   stream = "" // what the init was given
	null     stream = "null"
	terminal stream = "terminal"
)

// message is what travels on the control socket, one per packet.
type message struct {
	Kind   string   `json:"kind"`
	Name   string   `json:"name,omitempty"` // of file
	Layers []Layer  `json:"layers,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	Code   int      `json:"code,omitempty"`
	Signal int      `json:"signal,omitempty"` // to the init: what to send to the command
	Group  bool     `json:"group,omitempty"`  // to its process group
	Full   bool     `json:"full,omitempty"`   // of exited: see privateFull
	Error  string   `json:"error,omitempty"`
	Errno  int      `json:"errno,omitempty"`
	Step   string   `json:"step,omitempty"` // one of the steps below
	// Of bind: what to show of the tree, "" for nothing any more, and where. The answer
	// has the same Code.
	From string `json:"from,omitempty"`
	At   string `json:"at,omitempty"`
}

// The kinds of message. The last three are to the init, the others from it.
const (
	kindFile    = "file"    // carries a descriptor, which Name names
	kindReady   = "ready"   // all but the command, which is held
	kindStarted = "started" // the command, with what confines it
	kindFailed  = "failed"  // nothing was started, and why
	kindExited  = "exited"  // how the command ended
	kindDone    = "done"    // the answer to bind, or Error
	kindRelease = "release" // start the command
	kindSignal  = "signal"
	kindBind    = "bind"
)

// The names of what kindFile carries: the master side of the terminal, and, followed by
// names of their own, granted sockets and sockets of the command's network.
const (
	terminalFile = "terminal"
	socketFile   = "socket:"
	networkFile  = "net:"
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
