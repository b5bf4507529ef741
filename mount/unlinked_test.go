package mount

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// If a reference to a file of a directory is being closed, an RMDIR of the directory waits until
// the reference is closed. Until the RMDIR has ended, no other reference to a file of the directory
// is closed: the kernel's rmdir(2) would wait in a loop for the file to be freed. References to
// other files are closed meanwhile.
func TestNoReferenceIsClosedDuringRmdir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c refCloser
		dir, other := &node{}, &node{}
		var closed []string
		freed := make(chan struct{})
		go c.add(removedRef{dir, func() { <-freed; closed = append(closed, "first") }})
		synctest.Wait()
		c.beginRmdir(other)() // waits for nothing
		c.add(removedRef{dir, func() { closed = append(closed, "second") }})
		c.add(removedRef{other, func() { closed = append(closed, "other") }})
		started := make(chan func(), 1)
		go func() { started <- c.beginRmdir(dir) }()
		synctest.Wait()
		if len(started) > 0 {
			t.Error("the RMDIR began while a reference was being closed")
		}
		close(freed)
		end := <-started
		synctest.Wait()
		if want := []string{"first", "other"}; !slices.Equal(closed, want) {
			t.Errorf("closed during the RMDIR: %q, want %q", closed, want)
		}
		end()
		synctest.Wait()
		if want := []string{"first", "other", "second"}; !slices.Equal(closed, want) {
			t.Errorf("closed after the RMDIR: %q, want %q", closed, want)
		}
	})
}

// An RMDIR waits no longer than pauseLimit for a source that hangs. The end of the root does not
// wait.
func TestRmdirBesideHangingClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c refCloser
		dir, hung, closed := &node{}, make(chan struct{}), 0
		go c.add(removedRef{dir, func() { <-hung }})
		synctest.Wait()
		began := time.Now()
		end := c.beginRmdir(dir)
		if waited := time.Since(began); waited != pauseLimit {
			t.Errorf("waited %v for a source that hangs, want %v", waited, pauseLimit)
		}
		c.add(removedRef{dir, func() { closed++ }})
		if c.closeAll(); closed != 1 {
			t.Error("a reference was left open at the end of the root")
		}
		close(hung)
		end()
	})
}
