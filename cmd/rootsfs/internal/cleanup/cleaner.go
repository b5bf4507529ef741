package cleanup

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// Name is the command of a cleaner. Its arguments are runArg and the directory of the run's mount
// (Place.dir), or mountArg and the mount's path, ID and device. The standard input of the cleaner
// is a pidfd of the process that the cleaner watches.
const (
	Name     = "cleanup"
	runArg   = "run"
	mountArg = "mount"
)

// Cleaner is a process that cleans up after this process has been killed.
type Cleaner struct {
	cmd  *exec.Cmd
	once sync.Once
}

// StartForRun starts a cleaner for this process, a run whose mount is in p.
func StartForRun(p *Place) (*Cleaner, error) { return start(runArg, p.dir) }

// StartForMount starts a cleaner for this process, a daemon whose mount is at point.
func StartForMount(point string) (*Cleaner, error) {
	in, err := mountpoint.Find(point)
	if err != nil {
		return nil, fmt.Errorf("watch over this process: %w", err)
	}
	return start(mountArg, in.Point, strconv.Itoa(in.ID), in.Dev)
}

// waitEnv has the environment variables that a cleaner gets in addition. A cleaner mostly waits, so
// one thread is enough.
var waitEnv = []string{"GOGC=off", "GOMAXPROCS=1", "GODEBUG=containermaxprocs=0"}

// start starts a cleaner for this process. args follow Name on its command line.
func start(args ...string) (*Cleaner, error) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return nil, fmt.Errorf("watch over this process: %w", os.NewSyscallError("pidfd_open", err))
	}
	self := os.NewFile(uintptr(fd), "this process")
	defer self.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{"rootsfs", Name}, args...),
		Env: append(os.Environ(), waitEnv...), Dir: "/", Stdin: self, Stderr: os.Stderr,
		// The cleaner gets neither the terminal's signals nor those for the caller's
		// process group.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if args[0] == runArg {
		cmd.Stderr = nil // standard error is the command's: no process may hold it after the command's end
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process that cleans up: %w", err)
	}
	return &Cleaner{cmd: cmd}, nil
}

// kill ends the cleaner and does not wait for its end.
func (w *Cleaner) kill() { _ = w.cmd.Process.Kill() } // fails if the cleaner has ended

// Dismiss ends the cleaner and waits until it has ended.
func (w *Cleaner) Dismiss() {
	w.once.Do(func() {
		w.kill()
		_ = w.cmd.Wait()
	})
}
