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

// cred is the identity of a child. Its supplementary groups are exactly groups.
type cred struct {
	uid, gid int
	groups   []int
}

// The people of the suite. None of them exists in the password file, and none
// shares a group with another unless a case says so.
var (
	alice = cred{uid: 65434, gid: 65434}
	bob   = cred{uid: 65433, gid: 65433}
	carol = cred{uid: 65432, gid: 65432}
)

func self() cred { return cred{uid: os.Getuid(), gid: os.Getgid()} }

// in returns c with supplementary groups.
func (c cred) in(groups ...int) cred { c.groups = groups; return c }

func (c cred) key() string { return fmt.Sprint(c.uid, ":", c.gid, ":", c.groups) }

// command is one call for the child to make. Paths are bytes, because a file
// name need not be UTF-8. Fd 0 stands for AT_FDCWD.
type command struct {
	Op    string
	P     []byte          `json:",omitempty"` // the path
	Q     []byte          `json:",omitempty"` // the second path, the target of a link, or the name of an attribute
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

// reply has the results of the call. Err is for a failure of the protocol itself.
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
// its own umask, working directory, descriptors and locks. Its methods are
// named after the calls; the error of each is nil or a unix.Errno.
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

// start starts a child that no other case shares (for locks, which belong to
// processes). The caller closes it.
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
		// With -race every process sleeps a second before it ends, and there
		// are some fifty of them.
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

// close ends the child and waits for it; its locks and descriptors go with it.
func (a *Actor) close() {
	a.in.Close()
	a.cmd.Wait() //nolint:errcheck // the child exits 0 at end of input; an earlier end made a call fail
}

// enter puts the child into a scene with nothing open and umask 0, unless the
// child is there already.
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

// leave takes the child out of its scene. If that fails, the next enter fails, too.
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

// errProtocol hides the errno inside a broken pipe, so that a dead child is
// never taken for the outcome of a call.
type errProtocol struct{ err error }

func (e errProtocol) Error() string { return e.err.Error() }
