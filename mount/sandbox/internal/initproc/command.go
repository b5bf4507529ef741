package initproc

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// openStreams opens the command's terminal and /dev/null in the sandbox, so that their paths are
// valid there. It passes the master side of the terminal to the caller.
func (p *initProc) openStreams() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return step(err, "open %s", os.DevNull)
	}
	defer null.Close()
	var slave *os.File
	for i, kind := range p.conf.Streams {
		if kind != inherited {
			// This /dev/null replaces the host's: the command must not hold a file of the host's
			// mounts.
			if err := unix.Dup3(int(null.Fd()), i, unix.O_CLOEXEC); err != nil {
				return step(err, "take over stream %d", i)
			}
		}
		if kind != Terminal {
			p.files[i] = os.NewFile(uintptr(i), "stream")
			continue
		}
		if slave == nil {
			if slave, err = p.openTerminal(); err != nil {
				return err
			}
		}
		p.files[i] = slave
	}
	return nil
}

// openTerminal makes a pty, sends its master side to the caller, and returns the command's
// side.
func (p *initProc) openTerminal() (*os.File, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, step(err, "open a terminal")
	}
	defer master.Close()
	if err := pty.Setsize(master, &pty.Winsize{Rows: p.conf.Rows, Cols: p.conf.Cols}); err != nil {
		return nil, step(err, "set the size of the terminal")
	}
	// The init leads the terminal's session, as a shell does. If the command led it, Ctrl-Z
	// could not stop the command: the kernel stops a process group only if another process of
	// its session can continue it.
	if err := unix.IoctlSetInt(int(slave.Fd()), unix.TIOCSCTTY, 0); err != nil {
		return nil, step(err, "make the terminal the session's")
	}
	return slave, step(passOut(terminalFile, int(master.Fd())), "hand the terminal out")
}

// startCommand starts the command from this thread, in a process group of its own. step is the
// step that failed.
func (p *initProc) startCommand() (pid int, step string, err error) {
	attr := &syscall.ProcAttr{
		Dir: p.conf.Dir, Env: p.conf.Env,
		Sys: &syscall.SysProcAttr{Setpgid: true},
	}
	if os.Getpid() != 1 {
		attr.Sys.Pdeathsig = syscall.SIGKILL // of this thread, which is the init's main one
	}
	for i, f := range p.files {
		attr.Files = append(attr.Files, f.Fd())
		if p.conf.Streams[i] == Terminal {
			attr.Sys.Foreground, attr.Sys.Ctty = true, int(f.Fd())
		}
	}
	path := p.conf.Program
	if path == "" {
		var err error
		if path, err = findProgram(p.conf.Args[0], p.conf.Env); err != nil {
			return 0, stepCommand, err
		}
	}
	if pid, err = syscall.ForkExec(path, p.conf.Args, attr); err != nil {
		return 0, p.failedStep(path, err), err
	}
	for i, f := range p.files {
		f.Close()
		if p.conf.Streams[i] == Terminal {
			unix.Close(i) // the /dev/null that openStreams has put there
		}
	}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &lim) == nil {
		lim.Cur = lim.Max
		_ = unix.Setrlimit(unix.RLIMIT_NPROC, &lim) // only for our own threads; see setLimits
	}
	return pid, "", nil
}

// failedStep returns the step at which a start failed: the error is the same for a missing
// working directory, program and interpreter.
func (p *initProc) failedStep(path string, err error) (step string) {
	fd, derr := unix.Open(p.conf.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if derr != nil {
		return StepDir
	}
	defer unix.Close(fd)
	if unix.Faccessat(fd, ".", unix.X_OK, 0) != nil {
		return StepDir
	}
	// A relative path begins at the working directory.
	if errors.Is(err, unix.ENOENT) && unix.Faccessat(fd, path, unix.F_OK, 0) == nil {
		return StepInterpreter
	}
	return stepCommand
}

// findProgram finds a program in the sandbox, on the command's own PATH.
func findProgram(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return "", err
			}
		}
	}
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return "", unix.ENOENT
	}
	return path, err
}

// serveCaller obeys the caller's messages, and ends everything when the caller is gone.
func (p *initProc) serveCaller(pid int) {
	for {
		m, _, err := Receive(controlFD)
		if err != nil {
			p.end(exitFailed)
		}
		switch m.Kind {
		case KindBind:
			p.bindLate(m)
		case KindSignal:
			to := pid
			if m.Group {
				to = -pid
			}
			sig := unix.Signal(m.Signal)
			_ = unix.Kill(to, sig) // the command may have ended
			if sig == unix.SIGHUP || sig == unix.SIGTERM {
				_ = unix.Kill(to, unix.SIGCONT) // a stopped process would not get the signal
			}
		}
	}
}

// reap waits for children until the command has ended. Then it sends the caller the command's
// status and ends this process.
func (p *initProc) reap(pid int) {
	for {
		var st unix.WaitStatus
		got, err := unix.Wait4(-1, &st, unix.WALL|unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			p.end(exitFailed) // impossible: no child is left, and the command's end was not seen
		case st.Stopped():
			if sig := st.StopSignal(); !detach(got, sig) && got == pid {
				_ = Send(controlFD, Message{Kind: KindStopped, Signal: int(sig)})
			}
			continue
		case got != pid:
			continue
		}
		m := Message{Kind: KindExited, Code: st.ExitStatus(), Full: (p.conf.Layout != nil || p.conf.Bwrap) && isPrivateFull()}
		if st.Signaled() {
			m.Code, m.Signal = 0, int(st.Signal())
		}
		_ = Send(controlFD, m)
		p.end(0)
	}
}

// detach releases a child that has made this process its tracer (PTRACE_TRACEME), so that
// the signal reaches it. It reports false if the child is not traced and has really stopped.
func detach(pid int, sig syscall.Signal) bool {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, uintptr(sig), 0, 0)
	return errno == 0
}

// end ends this process and everything started from it.
func (p *initProc) end(code int) {
	if os.Getpid() != 1 {
		End(func() []int { return Descendants(os.Getpid()) })
	}
	os.Exit(code)
}

// fullBelow says when a file system counts as full: when less than 1/fullBelow of its size is
// free. A program that found no room for a block of data leaves less than that.
const fullBelow = 100

// isPrivateFull reports whether any private file system is full. A file system that is not mounted,
// or does not answer, does not count.
func isPrivateFull() bool {
	return slices.ContainsFunc([]string{layout.PrivateDir, "/tmp", "/var/tmp", "/run", "/dev/shm"}, func(dir string) bool {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) != nil || st.Type != unix.TMPFS_MAGIC {
			return false
		}
		return st.Bavail < st.Blocks/fullBelow || st.Files > 0 && st.Ffree < st.Files/fullBelow
	})
}
