package guard_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// R111: if a root cannot be checked because descriptors or memory are short, or because the check
// was interrupted, the root does not count as replaced. It is checked again later without a
// request.
func TestFailedCheckKeepsTheRoot(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR} {
		s := newSetup(t, func(c *guard.Config) { c.Deadline = time.Millisecond })
		s.grant(t, "r", "/a", guard.Policy{})
		set := func(cannot error, gone bool) {
			s.open.mu.Lock()
			s.open.checkErr, s.open.vanished["/a"] = cannot, gone
			s.open.mu.Unlock()
		}
		set(&guard.Error{Kind: names.IO, Err: fmt.Errorf("/a: %w", errno)}, true)
		for range 3 {
			if err := s.Recheck(bg, "r"); err != nil {
				t.Fatal(err)
			}
		}
		if st, _ := s.Lookup("r"); st.State != guard.Live || s.countEvents(guard.EventUnavailable) != 0 {
			t.Errorf("%v ended the root", errno)
		}
		set(nil, true) // now it can be seen that the directory is gone
		testkit.Until(t, "the end of the root", func() bool { st, _ := s.Lookup("r"); return st.State != guard.Live })
	}
}

// A grant or a revocation acquires a free lock even if its deadline has already passed.
// (Otherwise revocations could fail on a busy machine.)
func TestFreeLockIsAcquiredAfterDeadline(t *testing.T) {
	s := newSetup(t, func(c *guard.Config) { c.Deadline = time.Nanosecond })
	for i := range 30 {
		name := guard.RootName(fmt.Sprint("r", i))
		s.grant(t, string(name), fmt.Sprint("/a", i), guard.Policy{})
		if _, err := s.Revoke(bg, name); err != nil {
			t.Errorf("revoke: %v", err)
		}
		if st, ok := s.Lookup(name); ok && st.State == guard.Live {
			t.Error("the root is still live")
		}
	}
}
