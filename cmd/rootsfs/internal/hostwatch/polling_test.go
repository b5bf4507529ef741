package hostwatch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// While the user has no inotify instance or watch left, a path is reported periodically and
// Problem gives the reason. As soon as an instance or watch is available, the path is watched.
func TestUsedUp(t *testing.T) {
	if what := os.Getenv("HOSTWATCH_USED_UP"); what != "" {
		checkUsedUp(t, what)
		return
	}
	for _, what := range []string{"max_inotify_instances", "max_inotify_watches"} {
		t.Run(what, func(t *testing.T) {
			// The limit is set in a user namespace, so that other programs of the user keep
			// theirs.
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestUsedUp$", "-test.v")
			cmd.Env = append(os.Environ(), "HOSTWATCH_USED_UP="+what)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  unix.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
				t.Skip("no user namespaces here: ", err)
			}
			if err != nil || !strings.Contains(string(out), "--- PASS: TestUsedUp") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// checkUsedUp sets the limit of a resource to 0, in a user namespace of this process, checks that the
// path is reported periodically, and restores the limit.
func checkUsedUp(t *testing.T, what string) {
	limit := filepath.Join("/proc/sys/user", what)
	before, err := os.ReadFile(limit)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(limit, []byte("0"), 0))
	file := filepath.Join(t.TempDir(), "f")
	w, changed := New(t.Context()), make(chan struct{})
	w.Watch(file, Path, func() bool { changed <- struct{}{}; return true })
	for range 3 {
		<-changed
		want := "fs.inotify." + strings.Replace(what, "inotify", "user", 1)
		if why := w.Problem(); !strings.Contains(why, want) {
			t.Errorf("Problem says %q, and not %q", why, want)
		}
	}
	testkit.Must(t, os.WriteFile(limit, before, 0))
	for <-changed; w.Problem() != ""; {
		<-changed
	}
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	<-changed
}

// A path that leads to a file system that is not known to be local is reported periodically, because
// the file system might hang. Problem gives the number of such paths.
func TestNotLocal(t *testing.T) {
	w, changed := New(t.Context()), make(chan struct{}, 1)
	w.Signal(t.TempDir(), Path, changed)
	<-changed
	w.Signal("/proc/self/status", Path, changed)
	for range 3 {
		<-changed
	}
	if why, want := w.Problem(), "1 of 2: not on a file system that is known to be local"; why != want {
		t.Errorf("Problem says %q, not %q", why, want)
	}
}

// If events cannot be read (as when the user's epoll watches are used up), the paths are
// reported every recheckEvery. They are watched again when events can be read.
func TestEventsCannotBeRead(t *testing.T) {
	opened, failed := make(chan *fsnotify.Watcher, 2), fmt.Errorf("read: %w", unix.EAGAIN)
	w := start(t.Context(), func() (*fsnotify.Watcher, error) {
		notify, err := fsnotify.NewWatcher()
		opened <- notify
		return notify, err
	})
	file, changed := filepath.Join(t.TempDir(), "f"), make(chan struct{})
	w.Watch(file, Path, func() bool { changed <- struct{}{}; return true })
	<-changed
	(<-opened).Errors <- failed
	<-changed
	if why := w.Problem(); why != errNotify.Error() {
		t.Errorf("Problem says %q", why)
	}
	for <-changed; w.Problem() != ""; {
		<-changed
	}
	<-opened
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	<-changed
}

// fsnotify may report an error, such as one about a directory that was moved and then removed, while
// fsnotify holds the lock that watching needs. So errors are received also while paths are checked,
// and do not end the watching.
func TestErrorWhilePathsAreLookedAt(t *testing.T) {
	opened := make(chan *fsnotify.Watcher, 1)
	w := start(t.Context(), func() (*fsnotify.Watcher, error) {
		notify, err := fsnotify.NewWatcher()
		opened <- notify
		return notify, err
	})
	file, changed, first := filepath.Join(t.TempDir(), "f"), make(chan struct{}), true
	w.Watch(file, Path, func() bool {
		if first {
			(<-opened).Errors <- unix.EINVAL
		}
		first = false
		changed <- struct{}{}
		return true
	})
	<-changed
	<-changed // anything may have been lost
	if why := w.Problem(); why != "" {
		t.Error(why)
	}
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	<-changed
}
