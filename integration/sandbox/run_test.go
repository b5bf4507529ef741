package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// rootsfs returns a command line of it.
func (o *outside) rootsfs(args ...string) []string {
	return append([]string{filepath.Join(built(o.t), "rootsfs")}, args...)
}

// driver returns a process that carries an order out, as the caller.
func (o *outside) driver(ord order) *exec.Cmd {
	o.t.Helper()
	ord.UID, ord.Mounts = o.who.uid, o.mounts
	if ord.Env == nil {
		ord.Env = o.env
	}
	raw, err := json.Marshal(ord)
	testkit.Must(o.t, err)
	cmd := exec.Command(filepath.Join(built(o.t), "driver"))
	cmd.Env = []string{driverVar + "=" + string(raw), "PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if ord.Bare || len(o.mounts) > 0 {
		cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNS // its mounts are gone with it
	}
	return cmd
}

// result is the output of the hostile program for an attempt.
type result struct {
	Name   string
	Worked bool
	Detail string
}

// giveUp ends a run that hangs; no test waits for it.
const giveUp = 2 * time.Minute

// command returns the order for a run of the hostile program, or of another program of the
// root, by its path there.
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

// rootInside returns where a run's command finds the root. At level Landlock that is a
// place of the mount's own, in which it begins.
func (o *outside) rootInside(r run) string {
	if r.level == sandbox.Landlock {
		return "."
	}
	return o.root
}

// run carries an order out and returns its output and the log afterwards. With a
// terminal, that is standard input and output.
func (o *outside) run(ord order) (stdout, log string, code int) {
	t := o.t
	t.Helper()
	o.files()
	o.plant()
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
	cmd.ExtraFiles = []*os.File{leak} // as a careless host leaves it open
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
	_ = cmd.Wait() // its exit code is asked for below
	if !timer.Stop() {
		t.Fatalf("the run did not end within %v", giveUp)
	}
	text, err := os.ReadFile(logFile.Name())
	testkit.Must(t, err)
	return string(b), strings.TrimPrefix(string(text), o.Log+"\n"), cmd.ProcessState.ExitCode()
}

// terminal is a terminal that does not echo: text that the hostile program types into it
// must not look like its results.
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
