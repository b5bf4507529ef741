package mount

import (
	"testing"
	"testing/synctest"
)

// An RMDIR waits for the reference that is being closed, and no other is closed until it has
// ended: the kernel's rmdir(2) would wait in a loop for the file to be freed.
func TestNoReferenceIsClosedDuringRmdir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c refCloser
		var closed []string
		freed := make(chan struct{})
		c.add(func() { <-freed; closed = append(closed, "first") })
		c.add(func() { closed = append(closed, "second") })
		synctest.Wait()
		started := make(chan func())
		go func() { started <- c.pause(func() <-chan struct{} { return nil }) }()
		synctest.Wait()
		select {
		case <-started:
			t.Error("the RMDIR began while a reference was being closed")
		default:
		}
		close(freed)
		resume := <-started
		c.add(func() { closed = append(closed, "third") })
		synctest.Wait()
		if got := closed[len(closed)-1]; got == "third" {
			t.Errorf("closed during the RMDIR: %q", closed)
		}
		resume()
		synctest.Wait()
		if len(closed) != 3 {
			t.Errorf("closed after the RMDIR: %q", closed)
		}
	})
}

// An RMDIR whose caller is killed does not wait for a source that hangs, and neither does the
// end of the root. An RMDIR waits while too many references wait.
func TestRmdirBesideHangingClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c refCloser
		hung, killed := make(chan struct{}), make(chan struct{})
		close(killed)
		c.add(func() { <-hung })
		synctest.Wait()
		resume := c.pause(func() <-chan struct{} { return killed })
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
			c.pause(func() <-chan struct{} { return nil })()
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
		last := c.pause(func() <-chan struct{} { return nil })
		c.add(func() { n = 0 })
		if c.closeAll(); n != 0 {
			t.Error("a reference was left open at the end of the root")
		}
		last()
	})
}
