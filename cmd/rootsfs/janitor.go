package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/janitor"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/mount/sandbox"
	"github.com/rootsfs/rootsfs/mount/sandbox/ahead"
)

// A mount outlives the process that serves it, and so does its directory, if it has
// one, and the session's. So that nothing of `rootsfs run` is left behind when that is
// killed, a janitor watches over it: this program started again, which does nothing but
// wait for the end of the run (package janitor, before anything else) and then cleans
// up, unless it was ended before because everything is in order.

// private is the place of a confined command's mount, where that is not detached (see
// placeless): a directory that nobody but this user, and as root the command's group,
// may enter, with the mountpoint as its only entry, since Landlock's rules hold on to a
// mountpoint's parent.
type private struct {
	dir, point string
	mu         sync.Mutex // held while it is removed
	// scratch is for levels without namespaces, which put HOME and TMPDIR there.
	scratch string
	lock    *os.File // see clearLeft
}

const privatePrefix = "rootsfs-run-"

// newRunName is a name that no other run has, for its place and its control group.
func newRunName() string { return privatePrefix + strings.ToLower(rand.Text()[:12]) }

// makePrivate makes the place of a run.
func makePrivate(run string, owner guard.User) (*private, error) {
	if os.Geteuid() != 0 {
		if _, err := control.EnsureRuntimeDir(); err != nil {
			return nil, err
		}
	}
	dir := filepath.Join(privateBase(), "."+run)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, &control.Error{Text: fmt.Sprintf("no place for the private mount: %v", err), Class: control.System}
	}
	p := privateAt(dir)
	p.lock = lockPlace(dir)
	err := errors.Join(
		os.MkdirAll(p.point, 0o700), os.Mkdir(p.scratch, 0o700),
		os.Chown(p.scratch, int(owner.UID), int(owner.GID)),
	)
	for _, d := range []string{dir, filepath.Dir(p.point)} {
		if os.Geteuid() == 0 {
			err = errors.Join(err, os.Chown(d, 0, int(owner.GID)), os.Chmod(d, 0o710))
		}
	}
	if err != nil {
		p.remove()
		return nil, &control.Error{Text: fmt.Sprintf("no place for the private mount: %v", err), Class: control.System}
	}
	return p, nil
}

// run is the name of the run whose place it is, and of its control group, if it has one.
func (p *private) run() string { return strings.TrimPrefix(filepath.Base(p.dir), ".") }

// remove removes the place. What is still mounted there stays, and with it the
// directories on the way.
func (p *private) remove() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = os.Remove(p.point) // each fails if something is left, which is then to be seen
	_ = os.Remove(filepath.Dir(p.point))
	_ = removeAll(p.scratch)
	_ = os.Remove(p.dir)
}

// watcher is the other process: a janitor, or while the run starts what stands in for
// one (janitor.StandIn).
type watcher struct {
	args, env []string
	run       *os.File // a descriptor of this process

	mu      sync.Mutex // guards the fields below
	over    bool
	standIn *janitor.StandIn
	cmd     *exec.Cmd
	relief  *time.Timer
}

// janitorEnv is for processes that wait, so one thread is enough, however many there
// could be.
var janitorEnv = []string{"GOGC=off", "GOMAXPROCS=1", "GODEBUG=containermaxprocs=0"}

// startJanitor starts one for a run and its place, if it has one.
func startJanitor(run string, p *private) (*watcher, error) {
	what := run
	if p != nil {
		what = p.dir
	}
	self, err := janitor.Self()
	if err != nil {
		return nil, fmt.Errorf("watch over this process: %w", err)
	}
	w := &watcher{
		run: self, args: []string{"rootsfs", janitor.Name, what},
		env: append(os.Environ(), janitorEnv...),
	}
	if w.standIn, err = janitor.Begin(int(self.Fd()), ahead.Program, w.args, w.env); err == nil {
		w.relief = time.AfterFunc(startLasts, w.relieve)
		return w, nil
	}
	if err := w.start(); err != nil {
		_ = self.Close()
		return nil, err
	}
	return w, nil
}

// start starts the program.
func (w *watcher) start() error {
	cmd := &exec.Cmd{
		Path: ahead.Program, Args: w.args, Env: w.env, Stdin: w.run, Dir: "/",
		// Neither the terminal's signals nor those for our group are for it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the process that cleans up: %w", err)
	}
	w.cmd = cmd
	return nil
}

// relieve has a janitor take the place of what stands in for it, which stays if there
// can be none.
func (w *watcher) relieve() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.start() != nil {
		return
	}
	w.standIn.End()
	w.standIn = nil
}

// end ends the janitor, if there is one, and does not wait for its end.
func (w *watcher) end() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked()
}

func (w *watcher) endLocked() {
	if w.over {
		return
	}
	w.over = true
	if w.relief != nil {
		w.relief.Stop()
	}
	if w.standIn != nil {
		w.standIn.Kill()
	}
	if w.cmd != nil {
		_ = w.cmd.Process.Kill() // it may have ended
	}
}

// dismiss ends the janitor, if there is one, and waits until it has ended. It is called
// once.
func (w *watcher) dismiss() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked()
	if w.standIn != nil {
		w.standIn.Wait()
	}
	if w.cmd != nil {
		_ = w.cmd.Wait()
	}
	_ = w.run.Close()
}

// newJanitorCmd is not for people.
func newJanitorCmd(*app) *cobra.Command {
	return &cobra.Command{
		Use: janitor.Name + " DIRECTORY|NAME", Hidden: true, Args: nargs(1, 1, "the run's directory, or its name if it has none"),
		Short: "Clean up after a killed run (started by run itself)",
		RunE: func(cmd *cobra.Command, args []string) error {
			placeless := strings.HasPrefix(args[0], privatePrefix) && !strings.Contains(args[0], "/")
			if !placeless && !strings.HasPrefix(filepath.Base(args[0]), "."+privatePrefix) {
				return usage(errors.New("this is not the directory of a run, nor the name of one"))
			}
			janitor.Wait()
			if placeless {
				sandbox.ForgetMemory(args[0])
				return clearSessions()
			}
			return cleanAfter(cmd.Context(), args[0])
		},
	}
}

// cleanAfter removes what a killed run left: its mount, its directories, its session.
// Nobody can serve the mount any more, so it is taken away whether the kernel calls
// its connection ended or not: a process that was being started in that moment may
// hold the connection's descriptor, and a mount that waits for answers is not stale.
func cleanAfter(ctx context.Context, dir string) error {
	p := privateAt(dir)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := mountpoint.Detach(p.point, true)
		if errors.Is(err, mountpoint.ErrNotMounted) || names.Reason(err) == names.NotExist {
			err = nil
		}
		// Those of its processes that are on their way out may be writing still.
		if p.remove(); p.gone() {
			break
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("%s is left", names.Quote(dir)))
		case <-time.After(20 * time.Millisecond):
		}
	}
	sandbox.ForgetMemory(p.run())
	return clearSessions()
}

// clearSessions removes what dead sessions left.
func clearSessions() error {
	_, err := control.List() // which does that by the way
	return err
}

// gone reports whether nothing is left of the place.
func (p *private) gone() bool {
	if p == nil {
		return true
	}
	_, err := os.Lstat(p.dir)
	return errors.Is(err, fs.ErrNotExist)
}
