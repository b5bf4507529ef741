package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// command starts the command from this very thread. step is where it failed.
func (p *initProc) command() (pid int, step string, err error) {
	attr := &syscall.ProcAttr{
		Dir: p.conf.Dir, Env: p.conf.Env,
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	if os.Getpid() != 1 {
		attr.Sys.Pdeathsig = syscall.SIGKILL // of this thread, which is the init's main one
	}
	for i, f := range p.files {
		attr.Files = append(attr.Files, f.Fd())
		if p.conf.Streams[i] == terminal && !attr.Sys.Setctty {
			attr.Sys.Setctty, attr.Sys.Ctty = true, i
		}
	}
	path, err := look(p.conf.Args[0], p.conf.Env)
	if err != nil {
		return 0, stepCommand, err
	}
	if pid, err = syscall.ForkExec(path, p.conf.Args, attr); err != nil {
		return 0, p.blame(path, err), err
	}
	for i, f := range p.files {
		f.Close()
		if p.conf.Streams[i] == terminal {
			unix.Close(i) // what is in its place
		}
	}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &lim) == nil {
		lim.Cur = lim.Max
		_ = unix.Setrlimit(unix.RLIMIT_NPROC, &lim) // only for our own threads; see limits
	}
	return pid, "", nil
}

// blame says what a failed start is to be blamed on: the error is the same for a
// working directory, a program and an interpreter that are not there.
func (p *initProc) blame(path string, err error) (step string) {
	fd, derr := unix.Open(p.conf.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if derr != nil {
		return stepDir
	}
	defer unix.Close(fd)
	if unix.Faccessat(fd, ".", unix.X_OK, 0) != nil {
		return stepDir
	}
	// A relative path is one from there.
	if errors.Is(err, unix.ENOENT) && unix.Faccessat(fd, path, unix.F_OK, 0) == nil {
		return stepInterpreter
	}
	return stepCommand
}

// look finds a command as the command itself would: inside, on its own PATH.
func look(name string, env []string) (string, error) {
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

// listen does what the caller says, and ends everything when the caller is gone.
func (p *initProc) listen(pid int) {
	for {
		m, _, err := receive(controlFD)
		if err != nil {
			p.end(exitStage)
		}
		switch m.Kind {
		case kindBind:
			p.later(m)
		case kindSignal:
			to := pid
			if m.Group {
				to = -pid
			}
			_ = unix.Kill(to, unix.Signal(m.Signal)) // it may have ended
		}
	}
}

// reap waits for every child that ends until the command has.
func (p *initProc) reap(pid int) {
	for {
		var st unix.WaitStatus
		got, err := unix.Wait4(-1, &st, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			p.end(exitStage) // no child is left, and the command was not seen to end: it cannot be
		case got != pid:
			continue
		}
		m := message{Kind: kindExited, Code: st.ExitStatus(), Full: p.conf.Level < Landlock && privateFull()}
		if st.Signaled() {
			m.Code, m.Signal = 0, int(st.Signal())
		}
		_ = send(controlFD, m)
		p.end(0)
	}
}

// end takes everything with it.
func (p *initProc) end(code int) {
	if os.Getpid() != 1 {
		killChildren()
	}
	os.Exit(code)
}
