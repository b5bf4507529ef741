package childfs

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// If a thread still runs, callOf waits until the thread sleeps in a system call, and returns the
// number of the call. The call need not be read(2): the runtime may stop the thread first.
func TestCallOfThreadThatStillRuns(t *testing.T) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	tid, done := make(chan int), make(chan struct{})
	var isAsked atomic.Bool
	go func() {
		defer close(done)
		runtime.LockOSThread()
		tid <- unix.Gettid()
		for !isAsked.Load() { //nolint:revive // the thread keeps running
		}
		for start := time.Now(); time.Since(start) < 20*time.Millisecond; { //nolint:revive // keeps running
		}
		_, _ = unix.Read(ends[0], make([]byte, 1)) // until the other end is closed
	}()
	thread := <-tid
	isAsked.Store(true)
	if nr, err := callOf(thread); nr < 0 || err != nil {
		t.Errorf("call %d, %v", nr, err)
	}
	_ = unix.Close(ends[1])
	<-done
	_ = unix.Close(ends[0])
}
