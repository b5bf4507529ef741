package guard_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// panicking is an auditor that panics where it is told to.
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

// A lease is released although the auditor panics: no later revocation waits for it.
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

// An operation that waits for the speed limit is judged again afterwards, by the policy
// that holds then, and a change of that does not wait for the operation.
func TestNarrowedWhileWaitingForSpeed(t *testing.T) {
	for {
		s := newSetup(t, func(c *guard.Config) { c.Deadline = 50 * time.Millisecond })
		s.grant(t, "r", "/a", guard.Policy{Limits: guard.Limits{OpsPerSecond: 2, Burst: 1}})
		wantKind(t, s.once(req(t, names.OpWrite), 1), 0)
		got := make(chan error, 1)
		go func() { got <- s.once(req(t, names.OpWrite), 1) }()
		for st, _ := s.Lookup("r"); st.Waiting == 0 && st.Ops < 2; st, _ = s.Lookup("r") {
			time.Sleep(time.Millisecond)
		}
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

// The lock of a directory in which something is moved outlives the root: one that is
// granted at the same place while the move still runs meets it.
func TestMoveOutlivesItsRoot(t *testing.T) {
	s := newShort(t)
	mover := s.admit(t, req(t, names.OpRename))
	unlock, err := mover.Moving(bg)
	wantKind(t, err, 0)
	if _, err := s.Revoke(bg, "r"); err == nil {
		t.Error("the revocation did not tell of the operation that still runs")
	}
	ask := guard.Grant{Root: "r", Dir: "/a", Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}}
	_, err = s.Grant(bg, ask)
	wantKind(t, err, names.Timeout)
	unlock()
	_, err = s.Grant(bg, ask)
	wantKind(t, err, 0)
	_ = mover.Done(0, nil)
}
