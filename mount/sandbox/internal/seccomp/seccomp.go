// Package seccomp filters the system calls of a confined command (seccomp(2)), and makes
// the calls bind and listen in the command's place.
//
// # Promises
//
// Install refuses calls that reach out of a sandbox, or into parts of the kernel that no
// command needs, and every system call that is newer than this package. Each call is
// judged by values that are read once, so that the command cannot change them between the
// check and the call.
//
// # Not promised
//
// A filter confines only the calling thread and the processes started from it. It does not
// examine paths, which mounts and Landlock restrict. There is no filter on processors other
// than amd64 and arm64.
package seccomp

// Wants selects the calls that the filter refuses or permits beyond its lists.
type Wants struct {
	NoSockets bool `json:"noSockets,omitempty"` // no sockets except pairs (socketpair(2))
	// Unix permits sockets of the unix family. They can connect to every server whose socket the
	// command can reach.
	Unix bool `json:"unix,omitempty"`
	// Interfaces permits listing the network interfaces. It is for commands with a network of their
	// own.
	Interfaces bool `json:"interfaces,omitempty"`
	// NoIPC refuses System V's objects and POSIX's queues, which all processes of a uid share.
	NoIPC bool `json:"noIPC,omitempty"`
	// NoSetID refuses to make files that other users could run with this uid's rights. It is for
	// commands whose files stay on the host.
	NoSetID bool `json:"noSetID,omitempty"`
	// Trace permits a process to trace others, as debuggers and sanitizers do. It is for commands
	// that can reach only processes that are confined alike.
	Trace bool `json:"-"`
	// With Binder the filter passes the calls bind and listen to the init, which makes them. NoBind
	// refuses these calls. Binder takes precedence.
	Binder bool `json:"binder,omitempty"`
	NoBind bool `json:"noBind,omitempty"`
	// Init is the pid of the init that the filter protects from signals; 0: the kernel
	// protects it. The init fills it in.
	Init uint32 `json:"-"`
}
