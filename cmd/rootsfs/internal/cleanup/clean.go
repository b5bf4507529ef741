package cleanup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// Main serves as a cleaner and does not return, if this process was started as one;
// otherwise it does nothing.
func Main(log *slog.Logger) {
	if len(os.Args) < 2 || os.Args[1] != Name {
		return
	}
	// Signals that a service manager or a terminal sends to all processes are not for
	// this one.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP)
	var err error
	switch args := os.Args[2:]; {
	case len(args) == 2 && args[0] == ofRun && strings.HasPrefix(filepath.Base(args[1]), "."+placePrefix):
		wait()
		err = afterRun(context.Background(), &Place{dir: args[1]})
	case len(args) == 4 && args[0] == ofMount:
		wait()
		err = afterMount(log.With("mountpoint", args[1]), args[1], args[2], args[3])
	default:
		fmt.Fprintf(os.Stderr, "rootsfs: %s is started by rootsfs itself; to clean up, run: rootsfs doctor\n", Name)
		os.Exit(2)
	}
	if err != nil {
		log.Error("what the process left could not be removed", "error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// wait waits for the end of the process of which standard input is a descriptor. If it cannot
// wait, it ends this process, because the mount of a living process must not be removed.
func wait() {
	// The confined command must not look into this process. Prctl only fails on kernels without
	// this attribute.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	for watched := []unix.PollFd{{Events: unix.POLLIN}}; ; {
		_, err := unix.Ppoll(watched, nil, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || watched[0].Revents&unix.POLLIN == 0 {
			os.Exit(1) // it is not known whether the process has ended
		}
		return
	}
}

// afterRun removes the mount, the directories and the session of a killed run. No process can
// serve the mount any more. So the mount is detached even if the kernel still has its connection:
// a process that was just being started may hold the connection's descriptor.
func afterRun(ctx context.Context, p *Place) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := mountpoint.Detach(p.Point(), true)
		if errors.Is(err, mountpoint.ErrNotMounted) || names.Reason(err) == names.NotExist {
			err = nil
		}
		// Ending processes of the run may still be writing.
		if p.Remove(); p.isGone() {
			break
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("%s is left", names.Quote(p.dir)))
		case <-time.After(20 * time.Millisecond):
		}
	}
	sandbox.ForgetMemory(p.Run())
	return clearSessions()
}

// afterMount ends the connection of a killed daemon's mount and detaches the mount, if a mount
// with this ID and device is still there. Then it removes the daemon's session.
func afterMount(log *slog.Logger, point, id, device string) error {
	_ = mountpoint.Abort(device) // the kernel ends the connection anyway; this is sooner
	err := detach(point, id, device)
	if err == nil {
		log.Error("the daemon was killed: its mount is detached; what programs had written and not synced is lost")
	} else {
		log.Error("the daemon was killed, and its mount cannot be detached: the kernel answers from its caches until it is",
			"error", err, "remedy", "rootsfs unmount "+names.ShellWord(point))
	}
	return clearSessions()
}

// detach detaches the mount with this ID and device, unless it is gone.
func detach(point, id, device string) error {
	all, err := mountpoint.Mounts()
	isThere := slices.ContainsFunc(all, func(in mountpoint.Info) bool { return strconv.Itoa(in.ID) == id && in.Dev == device })
	if err == nil && !isThere {
		return nil // another process has detached it
	}
	err = mountpoint.Detach(point, true)
	if errors.Is(err, mountpoint.ErrNotMounted) {
		return nil
	}
	return err
}

// clearSessions removes the files of dead sessions.
func clearSessions() error {
	_, err := control.List() // it also removes these files
	return err
}

// ClearLeft removes the places of killed runs, and returns how many.
func ClearLeft() (n int) {
	sandbox.ForgetOldMemory(placePrefix, leftAfter)
	entries, err := os.ReadDir(Base())
	if err != nil {
		return 0 // the directory of places does not exist yet
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "."+placePrefix) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > leftAfter && clearPlace(filepath.Join(Base(), e.Name())) {
			n++
		}
	}
	return n
}

// clearPlace removes a place, if its run has ended, and reports whether nothing is left of it.
func clearPlace(dir string) bool {
	lock := lockPlace(dir)
	if lock == nil {
		return false
	}
	defer lock.Close()
	p := &Place{dir: dir}
	if err := mountpoint.ClearStale(p.Point()); err != nil && !errors.Is(err, mountpoint.ErrNotMounted) && names.Reason(err) != names.NotExist {
		return false // the mount is alive
	}
	p.Remove()
	sandbox.ForgetMemory(p.Run())
	return p.isGone()
}
