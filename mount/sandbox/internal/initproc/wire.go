package initproc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/seccomp"
)

// Config is the caller's configuration of the init.
type Config struct {
	Args []string
	// Program is the path of the program to execute. "": Args[0], which is searched in PATH if it
	// has no slash.
	Program string
	Env     []string
	Dir     string
	Umask   int
	// Layout is the root to build; nil: the init is in its root already.
	Layout *layout.Layout
	// Bwrap reports that bwrap has started the init, in the root that bwrap has made.
	Bwrap bool
	// Unconfined turns all confinement off.
	Unconfined bool
	Net        bool     // the host's network
	Listen     []uint16 // ports that the command may listen on, in the host's network
	// OpenNetwork makes the init pass the sockets of the command's network to the caller. Listeners
	// is how many of them are for listening on a single port each.
	OpenNetwork bool
	Listeners   int
	Sockets     []string // names of the granted sockets of the host
	NoCgroups   bool     // the machine allows no cgroup namespaces
	Pids        int
	Ignore      []int     // signals that the command is to ignore, as under nohup(1)
	Streams     [3]Stream // the kind of each standard stream
	Rows, Cols  uint16    // of the terminal
	Rules       landlock.Rules
	Filter      seccomp.Wants
	Files       map[string]int // descriptors that the caller has opened, by name
	// SetID makes the init itself change to UID and GID (bwrap as root).
	SetID    bool
	UID, GID uint32
	KeptHome bool // HOME is a directory of the host's; the init does not change its owner
	Probe    bool // end when the confinement is complete, without starting a command
	// HomeFiles are written into HOME, which is empty before.
	HomeFiles []HomeFile
}

// HomeFile is a file of the command's HOME, by its path there.
type HomeFile struct {
	Path string
	Data []byte
}

// StderrFile is the name, in Config.Files, of the command's standard error. It is there only if the
// init was started with bwrap's standard error instead.
const StderrFile = "stderr"

// Stream is the kind of a standard stream of the command.
type Stream string

// The kinds of streams.
const (
	inherited Stream = "" // the stream that the init was started with
	Null      Stream = "null"
	Terminal  Stream = "terminal"
)

// State is the state of a layer.
type State string

// The states. Their texts are part of `status --json`.
const (
	On           State = "on"
	Off          State = "off"           // not wanted at this level or with these options
	NotAvailable State = "not available" // wanted, and this machine does not have it
)

// Layer is one layer of the confinement.
type Layer struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"`
}

// Message is one packet on the control socket.
type Message struct {
	Kind   string
	Name   string  `json:",omitempty"` // of KindFile: the name of the descriptor
	Layers []Layer `json:",omitempty"`
	Code   int     `json:",omitempty"`
	Signal int     `json:",omitempty"` // to the init: what to send to the command
	Group  bool    `json:",omitempty"` // send Signal to the command's process group
	Full   bool    `json:",omitempty"` // of KindExited: a private file system is (almost) full
	Error  string  `json:",omitempty"`
	Errno  int     `json:",omitempty"`
	Step   string  `json:",omitempty"` // one of the steps below
	// In a KindBind message, From is the path in the tree to show ("" to unbind), and At is the
	// path in the sandbox. The answer, KindDone, has the same Code.
	From string `json:",omitempty"`
	At   string `json:",omitempty"`
}

// The kinds of message. The last three are sent to the init, the others by it. KindStopped is
// sent each time the command is stopped.
const (
	KindFile    = "file"    // carries one descriptor or several, which Name names
	KindReady   = "ready"   // the confinement is complete; the init waits for KindRelease
	KindStarted = "started" // the command was started (with Probe: could be); has the layers
	KindFailed  = "failed"  // nothing was started; has the reason
	KindStopped = "stopped" // a signal has stopped the command
	KindExited  = "exited"  // the command has ended; has the status
	KindDone    = "done"    // the answer to KindBind; has the error if there was one
	KindRelease = "release" // start the command
	KindSignal  = "signal"
	KindBind    = "bind"
)

// The names of the descriptors that KindFile carries. SocketFile is followed by the name of a
// granted socket, NetworkFile by the names of the network's sockets, separated by commas.
const (
	terminalFile = "terminal"
	SocketFile   = "socket:"
	NetworkFile  = "net:"
)

// The steps at which an init can fail. The caller falls back to another level only after
// StepConfine.
const (
	StepConfine = "confine"
	stepCommand = "command"
	// StepDir: the command's working directory cannot be entered.
	StepDir = "directory"
	// StepInterpreter: the command's file exists, but the interpreter that its first line names,
	// or its loader, does not.
	StepInterpreter = "interpreter"
)

// maxMessage bounds a packet. Messages with layers are far smaller.
const maxMessage = 64 << 10

// maxDescriptors bounds the descriptors of a packet (SCM_MAX_FD of the kernel).
const maxDescriptors = 253

// Send writes one packet, with descriptors.
func Send(sock int, m Message, fds ...int) error {
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

// packets has buffers for Receive. A new buffer for each message would take 16 new pages.
var packets = sync.Pool{New: func() any { return new([maxMessage]byte) }}

// Receive waits for one packet and the descriptors that came with it. It returns io.EOF when the
// other side is gone.
func Receive(sock int) (Message, []int, error) {
	var m Message
	packet := packets.Get().(*[maxMessage]byte)
	defer packets.Put(packet)
	buf, oob := packet[:], make([]byte, unix.CmsgSpace(4*maxDescriptors))
	for {
		n, oobn, flags, _, err := unix.Recvmsg(sock, buf, oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		// If the peer ended without reading everything, ECONNRESET comes before the data that
		// it had sent.
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNRESET):
			continue
		case err != nil:
			return m, nil, err
		case n == 0:
			return m, nil, io.EOF
		case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
			return m, nil, fmt.Errorf("a message has more than %d bytes or %d descriptors", maxMessage, maxDescriptors)
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
