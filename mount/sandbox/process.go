package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
)

// Process is a confined command that was started. Its methods may be called
// concurrently.
type Process struct {
	cmd     *exec.Cmd // the init, or bwrap; cmd.Wait returns before dead is closed
	control *os.File  // this process's end of the control socket
	sock    int       // control's descriptor, for calls that block
	level   Level
	report  Report
	group   *memGroup
	pid     int
	binder  binder

	sockets *Sockets

	jobControl bool
	stops      chan struct{} // takes a token when the command is stopped

	relay       relay
	relayOnce   sync.Once     // starts relay
	relaying    chan struct{} // closed when relay was started, or could not be
	callerEnds  [3]*os.File   // this side of the pipes for streams that are nil in Options
	commandEnds [3]*os.File   // the command's side of all pipes, until the init has them
	ended       chan struct{} // closed when the command has ended
	unread      chan struct{} // closed by AbandonOutput
	unreadOnce  sync.Once     // closes unread
	dead        chan struct{} // closed when the init has ended
	done        chan struct{} // closed when exit and err are set, at the very end
	exit        Exit
	err         error

	mu     sync.Mutex // guards closed
	closed bool       // control is closed
}

// Exit describes the end of a command: with a code, or by a signal.
type Exit struct {
	Code   int
	Signal unix.Signal // 0 if it ended by itself
	// Kills is how many processes the kernel has ended because Options.MemoryMax was
	// reached. If the init was among them, every process inside ended with it.
	Kills int
	// IsFull reports that the command left a private directory in memory (HOME, /tmp and
	// the like) full, see Options.TmpSize.
	IsFull bool
	// Lost is the reason why output of the command could not be written to a stream of Options.
	Lost error
}

// Status returns the exit status as a shell has it: the code, or 128 plus the signal's number.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// PID returns the command's process id on the host, or its init's if the command had ended
// before Start returned.
func (p *Process) PID() int { return p.pid }

// Report describes the command's confinement.
func (p *Process) Report() Report { return p.report }

// Stdin returns the pipe to the command's standard input, nil if Options gave a
// stream; the caller closes it. Stdout and Stderr return the pipes from the command in the same
// way; they end when the command and its descendants have ended.
func (p *Process) Stdin() *os.File  { return p.callerEnds[0] }
func (p *Process) Stdout() *os.File { return p.callerEnds[1] } //nolint:revive // see Stdin
func (p *Process) Stderr() *os.File { return p.callerEnds[2] } //nolint:revive // see Stdin

// Signal sends a signal to the command. The signals that a terminal or its shell sends (SIGINT,
// SIGQUIT, SIGHUP, SIGTSTP, SIGCONT) go to the command's process group, as from a terminal.
// SIGHUP and SIGTERM reach also a command that is stopped.
func (p *Process) Signal(sig unix.Signal) error {
	group := slices.Contains([]unix.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTSTP, unix.SIGCONT}, sig)
	return p.send(initproc.Message{Kind: initproc.KindSignal, Signal: int(sig), Group: group})
}

// send sends the init a message, unless the control socket is closed: the descriptor's number may
// then belong to another file.
func (p *Process) send(m initproc.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return os.ErrProcessDone
	}
	err := initproc.Send(p.sock, m)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return os.ErrProcessDone
	}
	return err
}

// hangUp tells the init that no more messages come, so that the init ends. At level Bubblewrap the
// init may outlive bwrap. The kernel sends the init the parent-death signal only if bwrap may
// signal the init, and a bwrap that root has started has dropped the capability for that.
func (p *Process) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		_ = unix.Shutdown(p.sock, unix.SHUT_WR) // the init may have ended
	}
}

// Ended returns a channel that is closed when the command has ended. Processes that the command left
// behind are then being killed: Wait waits for that.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends the command and everything it started, at once. At level None it ends only the init and
// the command.
func (p *Process) Kill() error { return p.cmd.Process.Kill() }

// AbandonOutput makes Wait return even if the command's output is not completely written to the
// streams of Options, such as to a pipe that is not read. It may be called at any time, also
// repeatedly.
func (p *Process) AbandonOutput() { p.unreadOnce.Do(func() { close(p.unread) }) }

// Wait relays the streams of Options, and waits until the command and its descendants have
// ended and their output is written to these streams (but see AbandonOutput). Nothing is relayed
// before the first call, so that the caller can print its messages about the start first. After an
// error it is not known how the command ended.
func (p *Process) Wait() (Exit, error) {
	p.relayOnce.Do(func() {
		p.relay.onHangUp = func() { _ = p.Signal(unix.SIGHUP) } // the command may have ended
		if p.err = p.relay.start(); p.err != nil {
			_ = p.Kill() // the init may have ended
		} else if p.jobControl {
			p.controlJob()
		}
		close(p.relaying)
	})
	<-p.done
	return p.exit, p.err
}

// supervise receives the init's messages until the init has ended. Then it ends what is left of
// the command, and sets p.exit and p.err. It calls stop so that the end of Start's context kills
// nothing any more.
func (p *Process) supervise(stop func() bool) {
	go func() {
		<-p.dead
		p.hangUp()
	}()
	ended := false
	for {
		m, _, err := initproc.Receive(p.sock)
		if err != nil {
			break
		}
		switch m.Kind {
		case initproc.KindStopped:
			select {
			case p.stops <- struct{}{}:
			default: // a token is waiting already
			}
		case initproc.KindExited:
			if !ended {
				p.exit, ended = Exit{Code: m.Code, Signal: unix.Signal(m.Signal), IsFull: m.Full}, true
				close(p.ended)
			}
		case initproc.KindDone:
			p.binder.deliver(m)
		}
	}
	<-p.dead
	p.sockets.cutAll()
	if !ended {
		close(p.ended)
	}
	stop()
	var err error
	if !ended {
		// The kernel killed the command with its init.
		p.exit = Exit{Signal: unix.SIGKILL}
		if st := p.cmd.ProcessState; st != nil && st.Exited() {
			err = failed("the confined init failed (code %d); how the command ended is not known", st.ExitCode())
		}
	}
	if p.level == Landlock {
		sweep()
	}
	p.exit.Kills = p.group.kills()
	p.group.remove()
	<-p.relaying
	p.err = cmp.Or(p.err, err)
	p.exit.Lost = p.relay.wait(p.unread)
	p.mu.Lock()
	p.closed = true
	p.control.Close()
	p.mu.Unlock()
	close(p.done)
}

// closeCommandEnds closes the command's ends of the pipes.
func (p *Process) closeCommandEnds() {
	for i, f := range p.commandEnds {
		if f != nil {
			f.Close()
			p.commandEnds[i] = nil
		}
	}
}

// abandon closes everything of a command that was not started.
func (p *Process) abandon() {
	p.closeCommandEnds()
	p.relay.abandon()
	for _, f := range p.callerEnds {
		if f != nil {
			f.Close()
		}
	}
	p.control.Close()
}

// findPID returns the pid of the command, which is the only child of the init so far. At level
// Bubblewrap the init is the only child of bwrap. It returns the parent's pid if a child has ended.
func (p *Process) findPID() int {
	pid := p.cmd.Process.Pid
	if p.level == Bubblewrap {
		pid = cmp.Or(onlyChild(pid), pid)
	}
	return cmp.Or(onlyChild(pid), pid)
}

// sweep ends the processes that a killed init at level Landlock has left. They are descendants of
// this process now, and have more seccomp filters than this process.
func sweep() {
	own := countFilters(os.Getpid())
	initproc.End(func() []int {
		return slices.DeleteFunc(initproc.Descendants(os.Getpid()), func(pid int) bool { return countFilters(pid) <= own })
	})
}

// onlyChild returns the pid of the only child of a process's main thread; 0 if there is none.
func onlyChild(parent int) (child int) {
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", parent)) // the process may have ended
	_, _ = fmt.Sscan(string(list), &child)                                      // there may be no child
	return child
}

// countFilters returns how many seccomp filters a process has; 0 if it has ended.
func countFilters(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	n, _ := strconv.Atoi(field(string(status), "Seccomp_filters:"))
	return n
}
