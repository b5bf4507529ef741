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

// Main does the work of a cleaner and ends the process, if the process was started as a cleaner.
// Otherwise Main does nothing.
func Main(log *slog.Logger) {
	if len(os.Args) < 2 || os.Args[1] != Name {
		return
	}
	// Signals that a service manager or a terminal sends to all processes must not end the cleaner.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP)
	var err error
	switch args := os.Args[2:]; {
	case len(args) == 2 && args[0] == runArg && strings.HasPrefix(filepath.Base(args[1]), "."+placePrefix):
		wait()
		err = afterRun(context.Background(), &Place{dir: args[1]})
	case len(args) == 4 && args[0] == mountArg:
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

// wait waits until the watched process ends. Standard input is a pidfd of that process. If wait
// cannot watch the process, it ends the cleaner, because the mount of a living process must not be
// removed.
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
			os.Exit(1) // the watched process may still live
		}
		return
	}
}

// afterRun removes the mount, the directories, the control group and the session of a killed run.
// No process can serve the mount any more. So afterRun detaches the mount even if the FUSE
// connection of the mount still exists: a process that the run was just starting may hold the
// descriptor of the connection.
func afterRun(ctx context.Context, p *Place) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := mountpoint.Detach(p.Point(), true)
		if errors.Is(err, mountpoint.ErrNotMounted) || names.Reason(err) == names.NotExist {
			err = nil
		}
		// Processes of the run that are about to end may still write in the place.
		if p.Remove(); p.isGone() {
			break
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("%s is left", names.Quote(p.dir)))
		case <-time.After(20 * time.Millisecond):
		}
	}
	sandbox.RemoveControlGroup(p.Run())
	return clearSessions()
}

// afterMount detaches a killed daemon's mount, and ends the FUSE connection of this mount, if a mount
// with this ID and device is still there. Then it removes the files of dead sessions.
func afterMount(log *slog.Logger, point, id, device string) error {
	err := detach(point, id, device)
	if err == nil {
		log.Error("the daemon was killed: its mount is detached; what programs had written and not synced is lost")
	} else {
		log.Error("the daemon was killed, and its mount cannot be detached: the kernel answers from its caches until it is",
			"error", err, "remedy", "rootsfs unmount "+names.ShellWord(point))
	}
	return clearSessions()
}

// detach ends the FUSE connection of the mount with this ID and device, and detaches the mount. If
// no mount has both, detach does nothing: the kernel may have given the device number of the mount
// to a later one. If the mounts cannot be listed, detach ends no connection, and detaches the
// top-most rootsfs mount at point.
func detach(point, id, device string) error {
	all, err := mountpoint.Mounts()
	isThere := slices.ContainsFunc(all, func(in mountpoint.Info) bool { return strconv.Itoa(in.ID) == id && in.Dev == device })
	if err == nil && !isThere {
		return nil // another process has detached it
	}
	if isThere {
		_ = mountpoint.Abort(device) // without Abort the kernel would end the connection, too, but later
	}
	err = mountpoint.Detach(point, true)
	if errors.Is(err, mountpoint.ErrNotMounted) {
		return nil
	}
	return err
}

// clearSessions removes the files of dead sessions.
func clearSessions() error {
	_, err := control.List() // List also removes these files
	return err
}

// ClearLeft removes the places and the control groups that killed runs have left, if they are older
// than leftAfter. It returns the number of removed places.
func ClearLeft() (n int) {
	sandbox.RemoveOldControlGroups(placePrefix, leftAfter)
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

// clearPlace removes a place if the run of the place has ended. It reports whether the place is
// gone.
func clearPlace(dir string) bool {
	lock := lockPlace(dir)
	if lock == nil {
		return false
	}
	defer lock.Close()
	p := &Place{dir: dir}
	if err := mountpoint.ClearStale(p.Point()); err != nil && !errors.Is(err, mountpoint.ErrNotMounted) && names.Reason(err) != names.NotExist {
		return false // the mount is alive, or could not be detached
	}
	p.Remove()
	sandbox.RemoveControlGroup(p.Run())
	return p.isGone()
}
