package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/janitor"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// A mount outlives the process that serves it, and so does its directory. So
// that nothing of `rootsfs run` is left behind when that is killed, a janitor
// watches over it: this program started again, which does nothing but wait for
// the end of a pipe (package janitor, before anything else), and cleans up
// unless it was told that everything is in order.

// private is the place of a confined command's mount: a directory that nobody
// but this user, and as root the command's group, may enter, with the mountpoint
// as its only entry, since Landlock's rules hold on to a mountpoint's parent.
type private struct {
	dir, point string
	mu         sync.Mutex // held while it is removed
	// scratch is for levels without namespaces, which put HOME and TMPDIR there.
	scratch string
	lock    *os.File // see clearLeft
}

const privatePrefix = "rootsfs-run-"

// makePrivate makes the place.
func makePrivate(owner guard.User) (*private, error) {
	if os.Geteuid() != 0 {
		if _, err := control.EnsureRuntimeDir(); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(privateBase(), "."+privatePrefix)
	if err != nil {
		return nil, &control.Error{Text: fmt.Sprintf("no place for the private mount: %v", err), Class: control.System}
	}
	p := privateAt(dir)
	p.lock = lockPlace(dir)
	err = errors.Join(
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

// group is the name of the control group of the run, if it has one.
func (p *private) group() string { return strings.TrimPrefix(filepath.Base(p.dir), ".") }

// remove removes the place. What is still mounted there stays, and with it the
// directories on the way.
func (p *private) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = os.Remove(p.point) // each fails if something is left, which is then to be seen
	_ = os.Remove(filepath.Dir(p.point))
	_ = removeAll(p.scratch)
	_ = os.Remove(p.dir)
}

// watcher is the other process.
type watcher struct {
	pipe *os.File
	cmd  *exec.Cmd
	told sync.Once
}

// startJanitor starts one for a place.
func startJanitor(p *private) (*watcher, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	exe, err := os.Executable()
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: exe, Args: []string{"rootsfs", janitor.Name, p.dir}, Stdin: r,
		// It waits, so one thread is enough, however many there could be.
		Env: append(os.Environ(), "GOGC=off", "GOMAXPROCS=1", "GODEBUG=containermaxprocs=0",
			janitor.OfVar+"="+strconv.Itoa(os.Getpid())),
		// Neither the terminal's signals nor those for our group are for it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, Dir: "/",
	}
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("start the process that cleans up: %w", err)
	}
	return &watcher{pipe: w, cmd: cmd}, nil
}

// tell tells the janitor that there is nothing to do.
func (j *watcher) tell() {
	j.told.Do(func() {
		_, _ = io.WriteString(j.pipe, janitor.Done)
		_ = j.pipe.Close()
	})
}

// dismiss tells the janitor, if there is one, and waits until it has ended.
func (j *watcher) dismiss() {
	if j == nil {
		return
	}
	j.tell()
	_ = j.cmd.Wait()
}

// newJanitorCmd is not for people.
func newJanitorCmd(*app) *cobra.Command {
	return &cobra.Command{
		Use: janitor.Name + " DIRECTORY", Hidden: true, Args: nargs(1, 1, "the directory"),
		Short: "Clean up after a killed run (started by run itself)",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.HasPrefix(filepath.Base(args[0]), "."+privatePrefix) {
				return usage(errors.New("this is not the directory of a run"))
			}
			janitor.Wait()
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
		err := mount.Detach(p.point, true)
		if errors.Is(err, mount.ErrNotMounted) || names.Reason(err) == names.NotExist {
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
	sandbox.ForgetMemory(p.group())
	awaitParent(ctx)
	_, err := control.List() // which removes what dead sessions left
	return err
}

// awaitParent waits until the killed run has let go of all it had. Its session would
// still pass for a live one before, and stay.
func awaitParent(ctx context.Context) {
	run := []unix.PollFd{{Fd: int32(janitor.Parent()), Events: unix.POLLIN}}
	for run[0].Fd >= 0 && run[0].Revents == 0 && ctx.Err() == nil {
		if _, err := unix.Poll(run, 100); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// gone reports whether nothing is left of the place.
func (p *private) gone() bool {
	_, err := os.Lstat(p.dir)
	return errors.Is(err, fs.ErrNotExist)
}
