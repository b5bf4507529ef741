package revoke

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// modeVar is the environment variable that makes the test binary run as a child, in the named mode.
const modeVar = "ROOTSFS_REVOKE_MODE"

// mode is a child's program: it gets one command at a time and answers it.
type mode interface {
	do(cmd string, arg json.RawMessage) (any, error)
}

// newMode returns the mode with the given name, or nil if no mode has that name.
func newMode(name string) mode {
	switch name {
	case "holder":
		return &holder{}
	case "storm":
		return &stormer{}
	case "slowfs":
		return &slowfs{}
	case "daemon":
		return &daemon{}
	}
	return nil
}

func TestMain(m *testing.M) {
	if name := os.Getenv(modeVar); name != "" {
		os.Exit(runMode(newMode(name), os.Stdin, os.Stdout))
	}
	code := childfs.Main(m)
	atEnd()
	os.Exit(code)
}

type command struct {
	Cmd string
	Arg json.RawMessage `json:",omitempty"`
}

type answer struct {
	Err   string          `json:",omitempty"`
	Errno syscall.Errno   `json:",omitempty"`
	Val   json.RawMessage `json:",omitempty"`
}

func runMode(m mode, in io.Reader, out io.Writer) int {
	dec, enc := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var c command
		if err := dec.Decode(&c); err != nil {
			return 0 // the test has ended
		}
		var a answer
		v, err := m.do(c.Cmd, c.Arg)
		if err != nil {
			a.Err = err.Error()
			_ = errors.As(err, &a.Errno)
		}
		if v != nil {
			if a.Val, err = json.Marshal(v); err != nil {
				a.Err = err.Error()
			}
		}
		if err := enc.Encode(a); err != nil {
			return 1
		}
	}
}

// child is a process that runs the test binary in a mode.
type child struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	done chan struct{}
	once sync.Once
}

// callTimeout is the time after which a child counts as hung. It bounds how long a failing
// test waits; no test measures time with it.
const callTimeout = 60 * time.Second

// builds is a directory for the programs that the tests build; every user may execute them. atEnd
// removes it.
var builds = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp(guardtest.SharedTemp(), "rootsfs-revoke-test")
	if err != nil {
		return "", err
	}
	atEnd = func() { _ = os.RemoveAll(dir) }
	return dir, os.Chmod(dir, 0o755)
})

var atEnd = func() {}

// childBinary is the program of the children: this test binary, or, if it has the race detector,
// the same without the race detector. A child tries what a program can do, and a race detector
// there would see only the child. With it a child takes five times the processor time to start, and
// the tests start hundreds. ROOTSFS_SOAK=1 keeps the race detector.
var childBinary = sync.OnceValues(func() (string, error) {
	if !testkit.IsRaced() || soak() {
		return "/proc/self/exe", nil
	}
	dir, err := builds()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "child")
	// testkit.Build has the same settings, so that shared packages are compiled once.
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-trimpath", "-ldflags=-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the children's program: %w\n%s", err, out)
	}
	return path, os.Chmod(path, 0o755)
})

// start runs the children's program in a mode. The process is killed when the test ends.
func start(t testing.TB, name string, attr *syscall.SysProcAttr, files ...*os.File) *child {
	t.Helper()
	binary, err := childBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run=^$")
	cmd.Env = append(os.Environ(), modeVar+"="+name)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attr
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.ExtraFiles = files
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, name: name, cmd: cmd, in: in, out: json.NewDecoder(bufio.NewReader(out)), done: make(chan struct{})}
	t.Cleanup(c.stop)
	return c
}

// stop kills the child and waits a while for its end. A child that hangs in a file system ends
// only when that file system ends.
func (c *child) stop() {
	c.once.Do(func() {
		_ = c.cmd.Process.Kill()
		go func() {
			_ = c.cmd.Wait()
			close(c.done)
		}()
	})
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		c.t.Logf("child %s (pid %d) is stuck", c.name, c.cmd.Process.Pid)
	}
}

type remoteError struct {
	msg   string
	errno syscall.Errno
}

func (e *remoteError) Error() string { return e.msg }
func (e *remoteError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

var errHung = errors.New("no answer in time")

// try makes the child run one command.
func (c *child) try(cmd string, arg, val any) error {
	if err := c.send(cmd, arg); err != nil {
		return err
	}
	return c.receive(cmd, val)
}

// send gives a command without waiting for its answer.
func (c *child) send(cmd string, arg any) error {
	raw, err := json.Marshal(arg)
	if err != nil {
		return err
	}
	return json.NewEncoder(c.in).Encode(command{cmd, raw})
}

// receive waits for the answer to the last command.
func (c *child) receive(cmd string, val any) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	got := make(chan error, 1)
	var a answer
	go func() { got <- c.out.Decode(&a) }()
	select {
	case err := <-got:
		if err != nil {
			return fmt.Errorf("child %s, %s: %w", c.name, cmd, err)
		}
	case <-ctx.Done():
		return fmt.Errorf("child %s, %s: %w", c.name, cmd, errHung)
	}
	if a.Err != "" {
		return &remoteError{a.Err, a.Errno}
	}
	if val != nil {
		return json.Unmarshal(a.Val, val)
	}
	return nil
}

// call is try for a command that must not fail.
func (c *child) call(cmd string, arg, val any) {
	c.t.Helper()
	if err := c.try(cmd, arg, val); err != nil {
		c.t.Fatalf("%s: %s: %v", c.name, cmd, err)
	}
}
