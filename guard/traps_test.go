package guard_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// panicking is an auditor whose Reserve or Record panics while the flag for it is set.
type panicking struct{ inReserve, inRecord atomic.Bool }

func (p *panicking) Record(guard.Record) error {
	if p.inRecord.Load() {
		panic("record")
	}
	return nil
}

func (p *panicking) Reserve(context.Context, <-chan struct{}, *guard.Record) (int64, error) {
	if p.inReserve.Load() {
		panic("reserve")
	}
	return 0, nil
}

func (*panicking) Pace(*guard.Record, time.Duration) time.Duration { return 0 }
func (*panicking) Release(int64)                                   {}

// A lease is released even if the auditor panics, so no later revocation waits for it.
func TestPanickingAuditor(t *testing.T) {
	for name, arm := range map[string]func(*panicking, bool){
		"reserve": func(p *panicking, on bool) { p.inReserve.Store(on) },
		"record":  func(p *panicking, on bool) { p.inRecord.Store(on) },
	} {
		t.Run(name, func(t *testing.T) {
			p := &panicking{}
			s := newSetup(t, func(c *guard.Config) { c.Auditor, c.Deadline = p, 50*time.Millisecond })
			s.grant(t, "r", "/a", guard.Policy{})
			arm(p, true)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the auditor did not panic")
					}
				}()
				_ = s.once(req(t, names.OpMkdir), 0)
			}()
			arm(p, false)
			if st, _ := s.Lookup("r"); st.InFlight != 0 {
				t.Errorf("%d operations are in flight", st.InFlight)
			}
			if _, err := s.Revoke(bg, "r"); err != nil {
				t.Error(err)
			}
		})
	}
}

// An operation that waits for the speed limit is judged again after the wait, by the policy of
// that time. A change of the policy does not wait for the operation.
func TestNarrowedWhileWaitingForSpeed(t *testing.T) {
	for {
		s := newSetup(t, func(c *guard.Config) { c.Deadline = 50 * time.Millisecond })
		s.grant(t, "r", "/a", guard.Policy{Limits: guard.Limits{OpsPerSecond: 2, Burst: 1}})
		wantKind(t, s.once(req(t, names.OpWrite), 1), 0)
		got := make(chan error, 1)
		go func() { got <- s.once(req(t, names.OpWrite), 1) }()
		testkit.Until(t, "the operation waits or has run", func() bool { st, _ := s.Lookup("r"); return st.Waiting > 0 || st.Ops >= 2 })
		if err := s.Set(bg, "r", guard.ReadOnly); err != nil {
			t.Errorf("the change waited for the operation: %v", err)
		}
		st, _ := s.Lookup("r")
		err := <-got
		if st.Waiting == 0 {
			continue // it was admitted before the change: try again
		}
		wantKind(t, err, names.ReadOnly)
		return
	}
}

// The lock that a move holds outlives the root: while the move runs, no root is granted at the
// same directory.
func TestMoveOutlivesItsRoot(t *testing.T) {
	s := newShort(t)
	mover := s.admit(t, req(t, names.OpRename))
	unlock, err := mover.Moving(bg)
	wantKind(t, err, 0)
	if _, err := s.Revoke(bg, "r"); err == nil {
		t.Error("Revoke did not report the operation that is still running")
	}
	ask := guard.Grant{Root: "r", Dir: "/a", Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}}
	_, err = s.Grant(bg, ask)
	wantKind(t, err, names.Timeout)
	unlock()
	_, err = s.Grant(bg, ask)
	wantKind(t, err, 0)
	_ = mover.Done(0, nil)
}

// A flush that hangs delays only the shutting of its own root and of roots inside it.
func TestHungFlushDelaysItsOwnRoot(t *testing.T) {
	v := &view{}
	s := newSetup(t, nil)
	s.AddView(v)
	for name, dir := range map[string]string{"hung": "/hung", "inside": "/hung/in", "other": "/other"} {
		s.grant(t, name, dir, guard.Policy{})
	}
	on := func(root string) error {
		return s.once(guard.Request{Caller: who, Op: names.OpWrite, Path: path(t, root, "a")}, 1)
	}
	v.onFlush = func(c guard.Change) {
		if c.Root != "hung" {
			return
		}
		until := time.Now().Add(guard.EndDeadline) // so that the test ends if it fails
		for names.Reason(on("other")) != names.Revoked {
			if time.Now().After(until) {
				t.Error("the other root is still live at the deadline")
				return
			}
			time.Sleep(time.Millisecond)
		}
		// Dirty data of the inner root may be flushed through the outer root, too, so the inner
		// root is still live.
		wantKind(t, on("inside"), 0)
	}
	if _, err := s.Revoke(bg, "hung", "inside", "other"); err != nil {
		t.Error(err)
	}
}

// Two concurrent changes of roots that lie in each other, through a bind mount, do not wait for
// each other.
func TestNarrowingsDoNotWaitForEachOther(t *testing.T) {
	v := &view{}
	s := newSetup(t, nil)
	s.open.at = map[string]string{"/a": "/disk/b/a", "/a/b": "/disk/b"}
	s.AddView(v)
	s.grant(t, "a", "/a", guard.Policy{})
	s.grant(t, "b", "/a/b", guard.Policy{})
	for _, n := range []guard.RootName{"a", "b"} {
		if st, _ := s.Lookup(n); len(st.Nested) != 1 {
			t.Fatalf("%s has %q in it", n, st.Nested)
		}
	}
	var mu sync.Mutex
	arrived := map[guard.RootName]bool{}
	both := make(chan struct{})
	v.onInvalidate = func(c guard.Change) {
		if c.Kind != guard.ChangeNarrowed {
			return
		}
		mu.Lock()
		if arrived[c.Root] = true; len(arrived) == 2 && both != nil {
			close(both)
			both = nil
		}
		wait := both
		mu.Unlock()
		if wait != nil {
			<-wait
		}
	}
	var wg sync.WaitGroup
	for _, n := range []guard.RootName{"a", "b"} {
		wg.Go(func() {
			if err := s.Set(bg, n, guard.ReadOnly); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// When Revoke has returned, no earlier operation is left and nobody has a lease.
func TestNoLeaseOutlivesRevoke(t *testing.T) {
	for range 300 {
		s := newSetup(t, nil)
		s.grant(t, "r", "/a", guard.Policy{})
		var revoked atomic.Bool
		var callers sync.WaitGroup
		begun := make(chan struct{}, 4)
		for range cap(begun) {
			callers.Go(func() {
				for first := true; ; first = false {
					l, err := s.Admit(bg, req(t, names.OpWrite))
					if err != nil {
						return
					}
					if first {
						begun <- struct{}{}
					}
					runtime.Gosched()
					if revoked.Load() {
						t.Error("a lease is held although Revoke has returned")
					}
					_ = l.Done(0, nil)
				}
			})
		}
		<-begun
		if _, err := s.Revoke(bg, "r"); err != nil {
			t.Error(err)
		}
		revoked.Store(true)
		callers.Wait()
	}
}
