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

// sendSignals sends a thread of this process a signal about every 100 µs until stop is called.
// The process handles the signal: Go's runtime uses the same one.
func sendSignals(tid int) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
				time.Sleep(100 * time.Microsecond)
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// moveUnderSignals moves the directory big to and fro in dir in one thread, and creates
// directories in another one. Both threads get signals all the time.
var moveUnderSignals = childfs.In("moveUnderSignals", func(dir string) error {
	var wg sync.WaitGroup
	moveDone, failed := make(chan struct{}), make(chan error, 2)
	thread := func(f func()) {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			defer sendSignals(unix.Gettid())()
			f()
		})
	}
	thread(func() {
		defer close(moveDone)
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
			case <-moveDone:
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

// rename(2) and mkdir(2) never fail with EINTR. In a root with patterns a rename walks through the
// moved tree, and a mkdir waits for the rename. Signals that the caller survives interrupt neither
// call, however many come. (If the walk used the request's context, a rename would fail with EINTR
// within a few attempts.)
func TestSignalsDoNotInterruptMoves(t *testing.T) {
	tree := []string{"other/"}
	for i := range 40 {
		for j := range 50 {
			tree = append(tree, fmt.Sprintf("big/d%d/f%d=", i, j))
		}
	}
	w := newTwin(t, guard.Patterns{Protect: guard.Texts("kept"), Hide: guard.Texts("**/deep/secret")}, tree...)
	dir := w.at("on", "")
	if err := moveUnderSignals(dir); err != nil {
		t.Error(err)
	}
	if err := childfs.SysRename(dir+"/big", dir+"/kept"); err != unix.EACCES { //nolint:errorlint // bare errno
		t.Errorf("a rename to a protected name: %v", err)
	}
}
