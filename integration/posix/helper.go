//go:build linux

package posix

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// helperEnv is the environment variable that makes the test binary act as a child of the suite. Its
// value is an identity, as JSON.
const helperEnv = "ROOTSFS_POSIX_HELPER"

// identity is the wanted identity of the child. Change is false when the child cannot change its
// identity and keeps the identity of the test process.
type identity struct {
	UID, GID int
	Groups   []int
	Change   bool
}

// Main is for TestMain. In a child of the suite, Main makes calls as the wanted user until the
// standard input ends. In any other process Main runs the tests. Main returns the exit code.
func Main(m *testing.M) int {
	who := os.Getenv(helperEnv)
	if who == "" {
		return m.Run()
	}
	if err := serve(who, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "posix helper:", err)
		return 1
	}
	return 0
}

// helper is the child's state.
type helper struct {
	base int          // descriptor of the suite's directory
	open map[int]bool // descriptors opened for the suite, closed by enter
}

func serve(who string, in io.Reader, out io.Writer) error {
	var id identity
	if err := json.Unmarshal([]byte(who), &id); err != nil {
		return err
	}
	base, err := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if id.Change {
		if err := become(id); err != nil {
			return err
		}
	}
	h := &helper{base: base, open: map[int]bool{}}
	dec := json.NewDecoder(bufio.NewReader(in))
	enc := json.NewEncoder(out)
	for {
		var c command
		if err := dec.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := enc.Encode(h.handle(&c)); err != nil {
			return err
		}
	}
}

// become gives all threads of the process the identity id, for good.
func become(id identity) error {
	if err := syscall.Setgroups(id.Groups); err != nil {
		return err
	}
	if err := syscall.Setresgid(id.GID, id.GID, id.GID); err != nil {
		return err
	}
	if err := syscall.Setresuid(id.UID, id.UID, id.UID); err != nil {
		return err
	}
	// A change of the uid makes root the owner of /proc/self, but cases
	// reopen descriptors through /proc/self/fd.
	return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
}

func (h *helper) handle(c *command) reply {
	var r reply
	f := ops[c.Op]
	if f == nil {
		r.Err = "no such call: " + c.Op
		return r
	}
	if c.Fd == 0 {
		c.Fd = unix.AT_FDCWD
	}
	if c.Fd2 == 0 {
		c.Fd2 = unix.AT_FDCWD
	}
	var errno unix.Errno
	switch err := f(h, c, &r); {
	case errors.As(err, &errno):
		r.Errno = int(errno)
	case err != nil:
		r.Err = err.Error()
	}
	return r
}

func (h *helper) enter(c *command, _ *reply) error {
	for fd := range h.open {
		unix.Close(fd)
	}
	clear(h.open)
	unix.Umask(0)
	if err := unix.Fchdir(h.base); err != nil {
		return err
	}
	return unix.Chdir(string(c.P))
}

// addOpen puts the new descriptor fd into r and records fd, so that enter closes it. If err is set,
// addOpen only returns err.
func (h *helper) addOpen(fd int, err error, r *reply) error {
	if err == nil {
		h.open[fd] = true
		r.N = int64(fd)
	}
	return err
}

func (h *helper) close(c *command, _ *reply) error {
	delete(h.open, c.Fd)
	return unix.Close(c.Fd)
}

// bind makes a socket with a name. It closes the socket at once, because only the name
// matters.
func bind(_ *helper, c *command, _ *reply) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrUnix{Name: string(c.P)})
}
