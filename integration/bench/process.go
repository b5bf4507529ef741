package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopGrace is how long a daemon may take to unmount after SIGTERM. A healthy
// one needs milliseconds, or seconds when a million inodes are to be forgotten on a
// busy machine.
const stopGrace = time.Minute

// spawner starts every long-lived child from one thread that lives as long as
// the program: PR_SET_PDEATHSIG fires when the *thread* that forked ends, and Go
// ends threads when it likes.
type spawner struct{ queue chan func() }

func newSpawner() *spawner {
	s := &spawner{queue: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range s.queue {
			f()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	result := make(chan error)
	s.queue <- func() { result <- cmd.Start() }
	return <-result
}

// process is a running child whose standard output is read by lines.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string   // closed at end of output
	done  chan struct{} // closed when the child has been reaped
	err   error         // how it ended; read after done
	log   *tail
	// exitsWith is an exit status that stop takes for a clean end, besides 0.
	exitsWith int
}

// launch starts argv with env added to the environment. The child has a process group of its own:
// ^C does not reach the child, and this process stops the child in order. The child gets SIGTERM if
// this process dies before that.
func (s *spawner) launch(name string, argv, env []string) (*process, error) {
	p := &process{
		name: name, cmd: exec.Command(argv[0], argv[1:]...),
		lines: make(chan string, 16), done: make(chan struct{}), log: &tail{},
	}
	p.cmd.Env = append(p.cmd.Environ(), env...)
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go p.reap(out)
	return p, nil
}

// reap passes the child's lines on until its output ends, and then waits for the child. While
// p.lines is full, it drops lines, so that a talkative daemon never blocks.
func (p *process) reap(out io.Reader) {
	for sc := bufio.NewScanner(out); sc.Scan(); {
		select {
		case p.lines <- sc.Text():
		default:
		}
	}
	close(p.lines)
	p.err = p.cmd.Wait()
	close(p.done)
}

// line waits for the next line of output.
func (p *process) line(ctx context.Context) (string, error) {
	select {
	case s, ok := <-p.lines:
		if !ok {
			<-p.done
			return "", p.ended()
		}
		return s, nil
	case <-ctx.Done():
		return "", fmt.Errorf("%s printed no line: %w", p.name, ctx.Err())
	}
}

// cpu returns the CPU time that the peer's process has used; 0 for the native peer, or if the time
// is not known.
func (m *startedPeer) cpu() time.Duration {
	if m.process == nil {
		return 0
	}
	const schedulerClock = 2 // CPUCLOCK_SCHED of linux/posix-timers.h
	var used unix.Timespec
	if unix.ClockGettime(int32(^m.cmd.Process.Pid)<<3|schedulerClock, &used) != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// ended describes a child that ended when it should not have.
func (p *process) ended() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended early (%s): %s", p.name, how, p.log)
}

// kill ends the child at once; stop asks it first.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

// stop ends the child by SIGTERM. It is an error if the child had to be killed or
// did not exit cleanly.
func (p *process) stop() error {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		p.kill()
		<-p.done
		return fmt.Errorf("%s did not end within %v of SIGTERM: %s", p.name, stopGrace, p.log)
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		ws, ok := exit.Sys().(syscall.WaitStatus)
		if ok && ws.Signaled() && ws.Signal() == syscall.SIGTERM {
			return nil // the child has no handler, so the default action of SIGTERM ended it
		}
		if ok && ws.Exited() && ws.ExitStatus() == p.exitsWith {
			return nil
		}
		return fmt.Errorf("%s: %w: %s", p.name, p.err, p.log)
	}
	return p.err
}

// tail keeps the end of a child's standard error. It is safe for concurrent use.
type tail struct {
	mu  sync.Mutex // guards buf
	buf []byte
}

const tailSize = 2048 // enough for an error and some context, not for a debug log

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if n := len(t.buf) - tailSize; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := strings.TrimSpace(string(t.buf)); s != "" {
		return s
	}
	return "(nothing on standard error)"
}
