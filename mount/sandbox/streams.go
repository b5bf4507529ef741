package sandbox

import (
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
)

// relay copies between the caller's streams and the command's. The command holds only its
// own pipes and its own terminal, besides /dev/null. If it held the caller's streams, it could
// open them again through /proc/self/fd, with other rights (a log for reading, a terminal for
// typing).
type relay struct {
	stdin    *os.File // of the caller; nil: not relayed
	into     *os.File // the pipe to which stdin is copied; nil: master
	outs     []*copyJob
	master   *os.File // the command's terminal
	screen   *os.File // gets master's output
	onHangUp func()   // called when stdin is a terminal that was closed

	modeMu sync.Mutex  // guards the next three fields
	cooked *term.State // the mode of the caller's terminal before raw mode; nil: it never was raw
	isRaw  bool
	ended  bool // the terminal never gets raw mode again

	wake    [2]int // a pipe that ends the copying of stdin
	winch   chan os.Signal
	sizing  sync.WaitGroup // the goroutine that passes on the terminal's size
	writers sync.WaitGroup
	reader  sync.WaitGroup
}

// copyJob copies an output stream of the command.
type copyJob struct {
	from, to *os.File
	err      error // why the rest of the stream was lost; set when run returns
}

// makeStreams makes the command's standard streams.
func (p *Process) makeStreams(l *launch) error {
	for i, f := range [3]*os.File{l.o.Stdin, l.o.Stdout, l.o.Stderr} {
		switch {
		case f != nil && IsNull(f):
			l.conf.Streams[i] = initproc.Null
		case f != nil && l.o.TTY && term.IsTerminal(int(f.Fd())):
			l.conf.Streams[i] = initproc.Terminal
			if p.relay.screen == nil || i == 1 {
				p.relay.screen = f
			}
			if size, err := pty.GetsizeFull(f); err == nil {
				l.conf.Rows, l.conf.Cols = size.Rows, size.Cols
			}
			if i == 0 {
				p.relay.stdin = f
			}
		default:
			if err := p.makePipe(l, i, f); err != nil {
				return err
			}
		}
	}
	// The init has /dev/null where there is no pipe; a nil *os.File is no nil interface.
	if f := p.commandEnds[0]; f != nil {
		l.cmd.Stdin = f
	}
	if f := p.commandEnds[1]; f != nil {
		l.cmd.Stdout = f
	}
	if f := p.commandEnds[2]; f != nil {
		l.cmd.Stderr = f
	}
	return nil
}

// makePipe makes a pipe between a stream of the command and f. If f is nil, the caller of Start
// gets the other end.
func (p *Process) makePipe(l *launch, stream int, f *os.File) error {
	r, w, err := os.Pipe()
	if err != nil {
		return failed("make a pipe: %v", err)
	}
	if os.Geteuid() == 0 {
		// Then the command's uid can open /dev/stdout.
		_ = r.Chown(int(l.o.UID), int(l.o.GID)) // the command also works without it
	}
	callerEnd := r
	if stream == 0 {
		p.commandEnds[stream], callerEnd = r, w
	} else {
		p.commandEnds[stream] = w
	}
	switch {
	case f == nil:
		p.callerEnds[stream] = callerEnd
	case stream == 0:
		p.relay.stdin, p.relay.into = f, callerEnd
	default:
		p.relay.outs = append(p.relay.outs, &copyJob{from: callerEnd, to: f})
	}
	return nil
}

// start begins to copy. It is called when the command runs.
func (r *relay) start() error {
	if r.stdin != nil {
		if err := unix.Pipe2(r.wake[:], unix.O_CLOEXEC); err != nil {
			return failed("make a pipe: %v", err)
		}
		into := r.into
		if into == nil {
			into = r.master
			if err := r.setRaw(); err != nil {
				return failed("set the terminal to raw mode: %v", err)
			}
		}
		r.reader.Go(func() { r.copyIn(into) })
	}
	for _, job := range r.outs {
		r.writers.Go(func() { job.run() })
	}
	if r.master != nil {
		r.writers.Go(func() {
			// A terminal whose other side is closed answers EIO. If the caller's terminal is
			// closed, the command may go on, and its output is dropped.
			_, _ = io.Copy(r.screen, r.master)
			_, _ = io.Copy(io.Discard, r.master)
		})
		r.winch = make(chan os.Signal, 1)
		signal.Notify(r.winch, unix.SIGWINCH)
		r.sizing.Go(func() {
			for range r.winch {
				_ = pty.InheritSize(r.screen, r.master) // after an error, the next change of size is passed on
			}
		})
	}
	return nil
}

// run copies until the command's end is closed, or the caller's stream cannot be written
// any more. In the second case the command gets SIGPIPE when it writes again, as it would for an
// unread stream without this relay. Output that the command wrote before is lost without an error
// for the command.
func (c *copyJob) run() {
	_, c.err = io.Copy(c.to, c.from)
	c.from.Close()
}

// lost returns the reason why output to a stream of outs was lost, nil if all of it was written.
// Lost output to a terminal is not reported. lost may be called only after everything was copied.
func (r *relay) lost() error {
	for _, c := range r.outs {
		if c.err != nil {
			return c.err
		}
	}
	return nil
}

// copyIn copies the caller's input until the input ends, the command has closed its standard input,
// or the command has ended. It waits with poll, because a read from a terminal cannot be cancelled.
func (r *relay) copyIn(into *os.File) {
	fd := int(r.stdin.Fd())
	buf := make([]byte, 32<<10)
	isTerminal, isAway := term.IsTerminal(fd), true // isAway: the terminal belonged to another job
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(r.wake[0]), Events: unix.POLLIN}}
		wait := -1
		switch {
		case !isTerminal:
		case inBackground(fd): // the input is for the shell: reading it would stop this process
			fds[0].Events, wait, isAway = 0, backgroundPoll, true
		case isAway && into == r.master:
			_, isAway = r.setRaw(), false // the terminal may have been hung up
		}
		if n, err := unix.Poll(fds, wait); err == unix.EINTR {
			continue
		} else if err != nil || fds[1].Revents != 0 {
			break
		} else if n == 0 || isTerminal && fds[0].Events != 0 && inBackground(fd) { // the terminal was taken away since the check above
			continue
		}
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if n <= 0 {
			if into == r.master {
				r.onHangUp()
			}
			break
		}
		if _, err := into.Write(buf[:n]); err != nil {
			break
		}
	}
	if into != r.master {
		into.Close()
	}
}

// wait waits until everything is copied, or unread is closed, and restores the terminal. If unread
// was closed, a goroutine that writes to an unread stream stays blocked. wait returns the reason why
// output was lost, nil if unread was closed first.
func (r *relay) wait(unread <-chan struct{}) (lost error) {
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		r.writers.Wait()
	}()
	select {
	case <-copied:
		lost = r.lost()
	case <-unread:
	}
	if r.stdin != nil && r.wake[1] != 0 {
		unix.Close(r.wake[1])
		if r.into != nil {
			r.into.Close() // ends a write that the command does not read
		}
		r.reader.Wait()
		unix.Close(r.wake[0])
	}
	r.restore()
	return lost
}

func (r *relay) restore() {
	if r.winch != nil {
		signal.Stop(r.winch)
		close(r.winch)
		r.sizing.Wait() // the goroutine must not use the descriptors after they are closed
	}
	r.setCooked(true)
	if r.master != nil {
		r.master.Close()
	}
}

// abandon closes the pipes of a command that was not started.
func (r *relay) abandon() {
	if r.into != nil {
		r.into.Close()
	}
	for _, job := range r.outs {
		job.from.Close()
	}
	if r.master != nil {
		r.master.Close()
	}
}

// IsNull reports whether a file is /dev/null. The Go runtime opens it in the place of a
// standard stream that was closed when the process began.
func IsNull(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}
