//go:build linux

package posix

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// cred is the identity of a child process. With Options.Root, groups holds all supplementary groups
// of the child. Without Options.Root the child keeps the groups of the test process.
type cred struct {
	uid, gid int
	groups   []int
}

// The users of the suite. They need no entry in the password file. No two of them
// share a group, except where a case builds a cred that has another user's group.
var (
	alice = cred{uid: 65434, gid: 65434}
	bob   = cred{uid: 65433, gid: 65433}
	carol = cred{uid: 65432, gid: 65432}
)

func self() cred { return cred{uid: os.Getuid(), gid: os.Getgid()} }

// in returns c with groups as the supplementary groups.
func (c cred) in(groups ...int) cred { c.groups = groups; return c }

func (c cred) key() string { return fmt.Sprint(c.uid, ":", c.gid, ":", c.groups) }

// command is one call for the child to make. Paths are bytes, because a file
// name need not be UTF-8. Fd 0 stands for AT_FDCWD.
type command struct {
	Op    string
	P     []byte          `json:",omitempty"` // the path
	Q     []byte          `json:",omitempty"` // the second path, the target of a symlink, or the name of an attribute
	Fd    int             `json:",omitempty"`
	Fd2   int             `json:",omitempty"`
	Flags int             `json:",omitempty"`
	Mode  uint32          `json:",omitempty"`
	Dev   int             `json:",omitempty"`
	U     int             `json:",omitempty"` // the new owner
	G     int             `json:",omitempty"` // the new group
	Off   int64           `json:",omitempty"`
	Len   int64           `json:",omitempty"`
	Data  []byte          `json:",omitempty"`
	Times []unix.Timespec `json:",omitempty"`
	Lock  *unix.Flock_t   `json:",omitempty"`
}

// reply has the results of the call. Err is set for an error without an errno, such as an
// unknown Op.
type reply struct {
	Errno int            `json:",omitempty"`
	Err   string         `json:",omitempty"`
	N     int64          `json:",omitempty"`
	Data  []byte         `json:",omitempty"`
	Stat  *unix.Stat_t   `json:",omitempty"`
	Fs    *unix.Statfs_t `json:",omitempty"`
	Lock  *unix.Flock_t  `json:",omitempty"`
}

// Actor makes system calls as one user, in a child process of its own, with
// its own umask, working directory, descriptors and locks. Most exported methods
// are named after the call that they make. If the call fails, the method returns a
// unix.Errno. Any other error means that the child or the protocol failed.
type Actor struct {
	cred
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
	mu  sync.Mutex // one call at a time; also guards rel

	rel string // the directory of the scene that the child has entered, or ""
}

// actor returns the child for c, starting it at its first use.
func (r *run) actor(c cred) (*Actor, error) {
	if a := r.actors[c.key()]; a != nil {
		return a, nil
	}
	a, err := r.start(c)
	if err == nil {
		r.actors[c.key()] = a
	}
	return a, err
}

// start starts a new child for c and does not record the child in r.actors. The caller must
// close the child.
func (r *run) start(c cred) (*Actor, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	who, err := json.Marshal(identity{UID: c.uid, GID: c.gid, Groups: c.groups, Change: r.opt.Root})
	if err != nil {
		return nil, err
	}
	a := &Actor{cred: c, cmd: exec.Command(exe)}
	a.cmd.Env = append(os.Environ(), helperEnv+"="+string(who),
		// With -race every process sleeps a second before it ends, and the suite
		// starts some fifty processes.
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	a.cmd.Dir = r.base
	a.cmd.Stderr = os.Stderr
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	a.enc, a.dec = json.NewEncoder(a.in), json.NewDecoder(out)
	return a, nil
}

// close ends the child and waits for its exit. The exit releases the child's locks and descriptors.
func (a *Actor) close() {
	a.in.Close()
	a.cmd.Wait() //nolint:errcheck // the child exits 0 at end of input; if it exits earlier, its calls fail
}

// enter moves the child to rel, the directory of a scene. It closes the descriptors that the
// child opened for the suite and sets umask 0. If the child has entered rel already, enter does
// nothing.
func (a *Actor) enter(rel string) error {
	a.mu.Lock()
	inside := a.rel == rel
	a.rel = rel
	a.mu.Unlock()
	if inside {
		return nil
	}
	_, err := a.do(command{Op: "enter", P: []byte(rel)})
	return err
}

// leave moves the child from the scene to the directory of the suite and closes the descriptors as
// enter does. It returns no error, because after an error the next enter fails, too.
func (a *Actor) leave() {
	a.mu.Lock()
	inside := a.rel != ""
	a.rel = ""
	a.mu.Unlock()
	if inside {
		a.do(command{Op: "enter", P: []byte(".")}) //nolint:errcheck
	}
}

func (a *Actor) do(c command) (reply, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var r reply
	if err := a.enc.Encode(c); err != nil {
		return r, fmt.Errorf("helper %s: %w", a.key(), errProtocol{err})
	}
	if err := a.dec.Decode(&r); err != nil {
		return r, fmt.Errorf("helper %s: %w", a.key(), errProtocol{err})
	}
	if r.Err != "" {
		return r, fmt.Errorf("helper %s: %s", a.key(), r.Err)
	}
	if r.Errno != 0 {
		return r, unix.Errno(r.Errno)
	}
	return r, nil
}

// errProtocol wraps an error of the pipe to the child and hides the errno (EPIPE, for example)
// from errors.As. Otherwise the death of a child could be mistaken for the result of a call.
type errProtocol struct{ err error }

func (e errProtocol) Error() string { return e.err.Error() }
