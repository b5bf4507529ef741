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

// An RMDIR whose caller is killed does not wait for a source that hangs, and neither does the
// end of the root. Many references are closed during an RMDIR, too.
func TestRmdirBesideHangingClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c refCloser
		hung, killed := make(chan struct{}), make(chan struct{})
		c.add(func() { <-hung })
		synctest.Wait()
		close(killed)
		resume := c.pause(func() <-chan struct{} { return killed })
		n := 0
		for range maxWaitingRefs + 1 {
			c.add(func() { n++ })
		}
		close(hung)
		synctest.Wait()
		if n != 1 {
			t.Errorf("%d references were closed during the RMDIR, want 1: the others may stay open", n)
		}
		if c.closeAll(); n != maxWaitingRefs+1 {
			t.Errorf("%d references were closed at the end of the root, want all", n)
		}
		resume()
	})
}
