package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// rootsfs returns a command line of rootsfs.
func (o *outside) rootsfs(args ...string) []string {
	return append([]string{filepath.Join(programsDir(o.t), "rootsfs")}, args...)
}

// orderCmd is the command of an order. It is started in the surroundings that the order asks for.
type orderCmd struct {
	*exec.Cmd
	order order
}

// driver returns a command that carries an order out as the caller. Only a bare order needs a
// process before the command's own, the driver. Every other command is started by this process,
// which is cheaper: the driver is a copy of this large program.
func (o *outside) driver(ord order) *orderCmd {
	o.t.Helper()
	ord.UID, ord.Mounts = o.caller.uid, o.mounts
	if ord.Env == nil {
		ord.Env = o.env
	}
	if ord.Bare {
		raw, err := json.Marshal(ord)
		testkit.Must(o.t, err)
		cmd := exec.Command(filepath.Join(programsDir(o.t), "driver"))
		cmd.Env = []string{driverVar + "=" + string(raw), "PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Unshareflags: unix.CLONE_NEWNS} // the process's mounts end with it
		return &orderCmd{Cmd: cmd}
	}
	cmd := exec.Command(ord.Args[0], ord.Args[1:]...)
	cmd.Env = ord.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if id := uint32(ord.UID); id != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: id, Gid: id}
	}
	return &orderCmd{Cmd: cmd, order: ord}
}

// Start starts the command. If the order has mounts, or features that the command must not have, a
// thread of its own starts the command: the command inherits the thread's mount namespace and
// filter of system calls. The thread ends with the goroutine that is locked to it.
func (c *orderCmd) Start() error {
	if len(c.order.Mounts) == 0 && len(c.order.Weak) == 0 {
		return c.Cmd.Start()
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := c.order.surround()
		if err == nil {
			err = c.Cmd.Start()
		}
		started <- err
	}()
	return <-started
}

// Run starts the command and waits until it ends.
func (c *orderCmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output.
func (c *orderCmd) Output() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	return out.Bytes(), err
}

// CombinedOutput runs the command and returns its standard output and standard error.
func (c *orderCmd) CombinedOutput() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

// ownerCommand returns a command of the caller that speaks to a session, and neither mounts nor
// starts anything. So it runs without the caller's mounts, which driver would make for it.
func (o *outside) ownerCommand(args ...string) *exec.Cmd {
	o.t.Helper()
	line := o.rootsfs(args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = o.env
	id := uint32(o.caller.uid)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: id, Gid: id}}
	return cmd
}

// result is the output of the hostile program for an attempt.
type result struct {
	Name   string
	Worked bool
	Detail string
}

// giveUp is how long a run may take before it counts as hung and is killed.
const giveUp = 2 * time.Minute

// command returns the order for a run of a program in the root, such as the hostile program.
// args begins with the program's path in the root; more are further flags of rootsfs run.
func (o *outside) command(r run, more []string, args ...string) order {
	if r.level == bare {
		return order{Bare: true, Args: append([]string{o.root + "/" + args[0]}, args[1:]...), Env: append(o.env, "HOME="+o.home)}
	}
	flags := []string{"run", "--name", sessionName, "--level", r.level.String(), "--root", "root=" + o.root + ":rw", "--home", o.home,
		"--pids-max", fmt.Sprint(pidsMax)}
	if r.net != "" {
		flags = append(flags, r.net)
	}
	flags = append(append(flags, more...), "--", "./"+args[0])
	return order{Args: o.rootsfs(append(flags, args[1:]...)...)}
}

// rootInside returns the path at which a run's command finds the root. At level Landlock the
// root is in the mount, and the command begins in the root.
func (o *outside) rootInside(r run) string {
	if r.level == sandbox.Landlock {
		return "."
	}
	return o.root
}

// run resets the files and the root, and carries an order out. It returns the command's standard
// output, the text on standard error as log, and the exit code. If the order has a terminal, the
// terminal is standard input and output.
func (o *outside) run(ord order) (stdout, log string, code int) {
	t := o.t
	t.Helper()
	o.resetFiles()
	o.resetRoot()
	cmd := o.driver(ord)
	logFile, err := os.OpenFile(filepath.Join(o.base, "log"), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o666)
	testkit.Must(t, err)
	defer logFile.Close()
	testkit.Must(t, os.Chmod(logFile.Name(), 0o666))
	_, err = logFile.WriteString(o.Log + "\n")
	testkit.Must(t, err)
	cmd.Stderr = logFile
	leak, err := os.Open(o.Secret)
	testkit.Must(t, err)
	defer leak.Close()
	cmd.ExtraFiles = []*os.File{leak} // as if a careless host had left the file open
	var out io.Reader
	if ord.Terminal {
		master, slave := terminal(t)
		defer master.Close()
		cmd.Stdin, cmd.Stdout, out = slave, slave, master
		testkit.Must(t, cmd.Start())
		testkit.Must(t, slave.Close())
	} else {
		out, err = cmd.StdoutPipe()
		testkit.Must(t, err)
		testkit.Must(t, cmd.Start())
	}
	timer := time.AfterFunc(giveUp, func() { _ = cmd.Process.Kill() })
	b, err := io.ReadAll(out)
	if !errors.Is(err, unix.EIO) { // the end of a terminal
		testkit.Must(t, err)
	}
	_ = cmd.Wait() // the exit code is returned below
	if !timer.Stop() {
		t.Fatalf("the run did not end within %v", giveUp)
	}
	text, err := os.ReadFile(logFile.Name())
	testkit.Must(t, err)
	return string(b), strings.TrimPrefix(string(text), o.Log+"\n"), cmd.ProcessState.ExitCode()
}

// terminal opens a terminal that does not echo: text that the hostile program types into the
// terminal must not look like the program's results.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, slave, err := pty.Open()
	testkit.Must(t, err)
	testkit.Must(t, slave.Chmod(0o666))
	state, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	testkit.Must(t, err)
	state.Lflag &^= unix.ECHO
	testkit.Must(t, unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, state))
	return master, slave
}
