package sandbox

import (
	"os"
	"os/signal"
	"runtime"
	"time"
	"unsafe"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A shell gives its terminal to a job, and takes the terminal back when the job is stopped. The
// command has another terminal, inside the sandbox. So when the command is stopped there, this
// process has to stop outside, and when this process is continued, it has to continue the command.

// controlJob stops and continues this process together with the command until the command has
// ended.
func (p *Process) controlJob() {
	signals := make(chan os.Signal, 4)
	caught := []os.Signal{unix.SIGCONT}
	if !signal.Ignored(unix.SIGTSTP) {
		caught = append(caught, unix.SIGTSTP)
	}
	signal.Notify(signals, caught...)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-p.ended:
				return
			case <-p.stops:
				if p.relay.master != nil && p.relay.stdin != nil {
					p.relay.flush()
					p.relay.setCooked(false)
					stopSelf(true)
					p.continueCommand()
				}
			case sig := <-signals:
				if sig == unix.SIGCONT {
					p.continueCommand()
					continue
				}
				_ = p.Signal(unix.SIGTSTP) // the command may have ended
				if p.relay.master == nil { // otherwise the init reports that the command has stopped
					stopSelf(false)
					p.continueCommand()
				}
			}
		}
	}()
}

// continueCommand continues the command after this process was continued.
func (p *Process) continueCommand() {
	if p.relay.master != nil && p.relay.stdin != nil {
		_ = p.relay.setRaw() // the terminal may have been hung up
		_ = pty.InheritSize(p.relay.screen, p.relay.master)
	}
	_ = p.Signal(unix.SIGCONT) // the command may have ended
}

// stopSelf stops this process, or its whole group, as SIGTSTP does in a program that does not
// catch the signal. stopSelf returns when this process is continued. The kernel ignores SIGTSTP
// where no shell would continue the group: then stopSelf returns at once.
func stopSelf(group bool) {
	runtime.LockOSThread() // a signal to this thread takes effect before the call returns
	defer runtime.UnlockOSThread()
	// Ignore the SIGCONT that continues this process: after stopSelf the command is continued
	// anyway. If the signal were caught, its handling might come late, and continue a command
	// that was stopped again.
	cont := setAction(unix.SIGCONT, sigaction{handler: ignore})
	stop := setAction(unix.SIGTSTP, sigaction{handler: ignore})
	if group {
		_ = unix.Kill(0, unix.SIGTSTP) // for the other processes of the group
	}
	// The Go runtime does not restore the default action of a signal that was caught.
	setAction(unix.SIGTSTP, sigaction{})
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGTSTP)
	setAction(unix.SIGTSTP, stop)
	setAction(unix.SIGCONT, cont)
}

// sigaction is the kernel's struct sigaction; the zero value is the default action.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

const ignore = 1 // SIG_IGN

// setAction sets the action of a signal in this process, and returns the previous action.
func setAction(sig unix.Signal, action sigaction) (old sigaction) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), uintptr(unsafe.Pointer(&old)), unsafe.Sizeof(action.mask), 0, 0)
	return old
}

// backgroundPoll is the time, in milliseconds, between two checks whether this process is in
// the foreground. This process has to poll, because a shell that brings a job to the foreground
// sends a signal only to a job that was stopped.
const backgroundPoll = 200

// inBackground reports whether a file is the terminal of this process's session and another job
// has it.
func inBackground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

// setRaw sets the caller's terminal to raw mode, unless the terminal belongs to another job, or
// setCooked was called with ended set.
func (r *relay) setRaw() error {
	r.modeMu.Lock()
	defer r.modeMu.Unlock()
	fd := int(r.stdin.Fd())
	if r.ended || inBackground(fd) {
		return nil
	}
	was, err := term.MakeRaw(fd)
	if err == nil && !r.isRaw {
		r.cooked, r.isRaw = was, true
	}
	return err
}

// setCooked restores the mode that the caller's terminal had before raw mode, unless the terminal
// belongs to another job. If ended is set, the terminal never gets raw mode again.
func (r *relay) setCooked(ended bool) {
	r.modeMu.Lock()
	defer r.modeMu.Unlock()
	r.ended = r.ended || ended
	if !r.isRaw {
		return
	}
	if fd := int(r.stdin.Fd()); !inBackground(fd) {
		_ = term.Restore(fd, r.cooked) // the terminal may have been hung up
	}
	r.isRaw = false
}

// flush waits until the command's terminal has had no output for some 20 ms, but at most some
// 200 ms: the kernel passes the output on with a delay.
func (r *relay) flush() {
	for quiet, looks := 0, 0; quiet < 10 && looks < 100; looks++ {
		fds := []unix.PollFd{{Fd: int32(r.master.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); err != nil || n == 0 {
			quiet++
		} else {
			quiet = 0
		}
		time.Sleep(2 * time.Millisecond)
	}
}
