package mount

import (
	"testing"
	"testing/synctest"
	"time"
)

// An RMDIR waits for the reference that is being closed, and no other is closed until it has
// ended: the kernel's rmdir(2) would wait in a loop for the file to be freed.
func TestNoReferenceIsClosedDuringRmdir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c refCloser
		var closed []string
		freed := make(chan struct{})
		go c.add(func() { <-freed; closed = append(closed, "first") })
		synctest.Wait()
		c.add(func() { closed = append(closed, "second") })
		synctest.Wait()
		started := make(chan func())
		go func() { started <- c.pause() }()
		synctest.Wait()
		select {
		case <-started:
			t.Error("the RMDIR began while a reference was being closed")
		default:
		}
		close(freed)
		resume := <-started
		synctest.Wait()
		if len(closed) != 1 {
			t.Errorf("closed during the RMDIR: %q", closed)
		}
		resume()
		synctest.Wait()
		if len(closed) != 2 {
			t.Errorf("closed after the RMDIR: %q", closed)
		}
	})
}

// An RMDIR waits for a source that hangs only for pauseLimit, and the end of the root does not
// wait. An RMDIR waits while too many references wait.
func TestRmdirBesideHangingClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c refCloser
		hung := make(chan struct{})
		go c.add(func() { <-hung })
		synctest.Wait()
		began := time.Now()
		resume := c.pause()
		if waited := time.Since(began); waited != pauseLimit {
			t.Errorf("waited %v for a source that hangs, want %v", waited, pauseLimit)
		}
		n := 0
		for range maxWaitingRefs + 1 {
			c.add(func() { n++ })
		}
		close(hung)
		synctest.Wait()
		if n != 0 {
			t.Errorf("%d references were closed during the RMDIR", n)
		}
		second := make(chan struct{})
		go func() {
			defer close(second)
			c.pause()()
		}()
		synctest.Wait()
		select {
		case <-second:
			t.Error("another RMDIR began, although too many references wait")
		default:
		}
		resume()
		<-second
		synctest.Wait()
		if n != maxWaitingRefs+1 {
			t.Errorf("%d references were closed after the RMDIRs", n)
		}
		last := c.pause()
		c.add(func() { n = 0 })
		if c.closeAll(); n != 0 {
			t.Error("a reference was left open at the end of the root")
		}
		last()
	})
}
