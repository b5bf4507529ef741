package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// checkRuntime checks the runtime directory, where sessions have their files.
func checkRuntime() check {
	dir, why := control.RuntimePlace()
	c := check{Name: "runtime directory", Path: dir}
	const remedy = "set XDG_RUNTIME_DIR to a directory of your own, mode 0700"
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		parent := filepath.Dir(dir)
		if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
			if why != "" {
				why += ", and "
			}
			return c.fail(remedy, "%s%s cannot be written (%v): no session can start", why, quoteIfNeeded(parent), err)
		}
	} else if _, err := control.EnsureRuntimeDir(); err != nil { // it exists, so this only checks it
		return c.fail("as it says", "%s", oneLine(err))
	}
	if why != "" {
		return c.warn(remedy, "used because %s; every command needs the same environment to find the sessions", why)
	}
	return c.ok("sessions can be kept there")
}

// answerTime bounds how long a session may take to report its status.
const answerTime = 5 * time.Second

// checkSessions removes the remains of dead daemons, and checks the live sessions and the mounts.
func checkSessions(ctx context.Context) []check {
	c := check{Name: "sessions", Path: control.RuntimeDir()}
	runs := cleanup.ClearLeft()
	before := countEntries(c.Path)
	live, err := control.List() // removes what dead daemons left
	if err != nil {
		return append(checkMounts(mountpoint.Ours, mountpoint.ListStale), c.fail("as it says", "%s", oneLine(err)))
	}
	checks := sideBySide(live, func(in control.Info) check { return checkSession(ctx, in) })
	if gone := max(before-countEntries(c.Path), runs); gone > 0 { // a killed run leaves a session, too
		checks = append(checks, c.ok("%d live; what %d ended ones had left was removed", len(live), gone))
	} else {
		checks = append(checks, c.ok("%d live, nothing left behind", len(live)))
	}
	return append(checks, checkMounts(mountpoint.Ours, mountpoint.ListStale)...)
}

func checkSession(ctx context.Context, in control.Info) check {
	s := check{Name: "session", Path: in.Name}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	st, err := control.GetStatus.Call(ctx, control.Dial(in), control.None{})
	if err != nil {
		return s.warn("wait, or end process "+strconv.Itoa(in.PID), "does not answer: %s", oneLine(err))
	}
	if len(st.Paused) > 0 {
		return s.warn("as it says", "%s", st.Paused[0].String())
	}
	if c := st.Ceiling; c != nil && c.Problem != "" {
		return s.warn("have root correct the ceiling", "a file of the ceiling counts as it was at %s: %s", c.Read.Local().Format(time.DateTime), names.Escape(c.Problem))
	}
	where := "without a mountpoint"
	if in.Point != "" {
		where = "mounted at " + quoteIfNeeded(in.Point)
	}
	return s.ok("process %d, %s, %s", in.PID, plural(len(st.Roots), "root"), where)
}

// sideBySide calls ask for all items concurrently, because each call may take its whole time limit.
// The answers are in the order of the list.
func sideBySide[T, R any](list []T, ask func(T) R) []R {
	out := make([]R, len(list))
	var all sync.WaitGroup
	for i, x := range list {
		all.Go(func() { out[i] = ask(x) })
	}
	all.Wait()
	return out
}

func countEntries(dir string) int {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	return len(entries)
}

// checkMounts looks for mounts of this user without a daemon. Each such mount is a failure: until
// the mount is detached, the kernel still answers some accesses from the kernel's caches.
func checkMounts(listMounts func() ([]mountpoint.Info, error), listStale func(func(mountpoint.Info) bool) ([]string, error)) []check {
	c := check{Name: "mounts"}
	mounts, err := listMounts()
	var gone []string
	if err == nil {
		gone, err = listStale(func(mountpoint.Info) bool { return false })
	}
	if err != nil {
		return []check{c.warn("mount /proc", "cannot be listed: %s", oneLine(err))}
	}
	var checks []check
	for _, point := range gone {
		s := check{Name: "mount", Path: point}
		checks = append(checks, s.fail("rootsfs unmount "+names.ShellWord(point), staleText))
	}
	return append(checks, c.ok("%d of rootsfs, %d without a daemon", len(mounts), len(checks)))
}

// staleText describes a mount without a daemon.
const staleText = "its daemon is gone: accesses fail, except those that the kernel answers from its caches"

// staleMounts returns the mountpoints that dead daemons left and that the user has to unmount.
// Mountpoints of runs are left out: the next `rootsfs run`, `mount` or `doctor` removes them.
func staleMounts(live []control.Info) ([]string, error) {
	return mountpoint.ListStale(func(m mountpoint.Info) bool {
		return cleanup.IsInPlace(m.Point) ||
			slices.ContainsFunc(live, func(in control.Info) bool { return in.Point == m.Point })
	})
}
