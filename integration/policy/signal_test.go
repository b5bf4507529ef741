package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
)

// rain sends a thread a signal that its process handles, as often as it can, until it is
// stopped. Go's runtime sends itself the same signal.
func rain(tid int) (stop func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
				time.Sleep(100 * time.Microsecond)
			}
		}
	})
	return func() { close(over); wg.Wait() }
}

// moveInRain moves a directory of dir to and fro, and makes others meanwhile, by threads
// that signals rain on.
var moveInRain = childfs.In("moveInRain", func(dir string) error {
	var wg sync.WaitGroup
	moving, failed := make(chan struct{}), make(chan error, 2)
	thread := func(f func()) {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			defer rain(unix.Gettid())()
			f()
		})
	}
	thread(func() {
		defer close(moving)
		for i := range 20 {
			from, to := dir+"/big", dir+"/other/big"
			if i%2 == 1 {
				from, to = to, from
			}
			if err := unix.Rename(from, to); err != nil {
				failed <- fmt.Errorf("rename %d: %w", i, err)
				return
			}
		}
	})
	thread(func() {
		for i := 0; ; i++ {
			select {
			case <-moving:
				return
			default:
			}
			name := filepath.Join(dir, fmt.Sprint("made", i))
			if err := unix.Mkdir(name, 0o755); err != nil {
				failed <- fmt.Errorf("mkdir %d: %w", i, err)
				return
			}
		}
	})
	wg.Wait()
	close(failed)
	return errors.Join(<-failed, <-failed)
})

// rename(2) and mkdir(2) never fail with EINTR. In a root with patterns a rename walks through
// the moved tree, and a mkdir waits for it. Signals that the caller survives interrupt neither,
// however many come. (When the walk used the request's context, a rename was EINTR within a few
// attempts.)
func TestSignalsDoNotInterruptMoves(t *testing.T) {
	tree := []string{"other/"}
	for i := range 40 {
		for j := range 50 {
			tree = append(tree, fmt.Sprintf("big/d%d/f%d=", i, j))
		}
	}
	w := newTwin(t, guard.Patterns{Protect: guard.Texts("kept"), Hide: guard.Texts("**/deep/secret")}, tree...)
	dir := w.at("on", "")
	if err := moveInRain(dir); err != nil {
		t.Error(err)
	}
	if err := childfs.SysRename(dir+"/big", dir+"/kept"); err != unix.EACCES { //nolint:errorlint // bare errno
		t.Errorf("what the rule stops: %v", err)
	}
}
