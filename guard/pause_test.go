package guard_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A pause flushes views while the gate is open, shuts the gate, and then makes views take back
// what they gave. The owner's own operations still work. The record has the cause and the
// reason.
func TestPauseFlushesBeforeItShuts(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	v := &view{}
	var flushed, takenBack error
	v.onFlush = func(guard.Change) { flushed = s.once(req(t, names.OpWrite), 0) }
	v.onInvalidate = func(guard.Change) { takenBack = s.once(req(t, names.OpRead), 0) }
	s.AddView(v)
	wantKind(t, s.Pause(bg, guard.PausedByOwner, "lunch"), 0)
	wantKind(t, flushed, 0)
	wantKind(t, takenBack, names.Paused)
	if got := fmt.Sprint(v.all()); got != "[flush paused]" {
		t.Errorf("views were called: %v", got)
	}
	if !strings.Contains(fmt.Sprint(takenBack), "lunch") {
		t.Errorf("the refusal does not name the reason: %v", takenBack)
	}
	own := req(t, names.OpRead)
	own.Caller.Via = guard.ViaControl
	wantKind(t, s.once(own, 0), 0)
	recs := s.rec.Of(names.OpPause)
	if len(recs) != 1 || recs[0].Cause != "owner" || recs[0].Reason != "lunch" || recs[0].Verdict != guard.Allowed || s.countEvents(guard.EventPaused) != 1 {
		t.Errorf("records %+v, %d events", recs, s.countEvents(guard.EventPaused))
	}
	wantKind(t, s.EndPause(guard.PausedByOwner), 0)
	wantKind(t, s.once(req(t, names.OpRead), 0), 0)
	if recs := s.rec.Of(names.OpResume); len(recs) != 1 || recs[0].Cause != "owner" {
		t.Errorf("records of the end %+v", recs)
	}
	wantKind(t, s.EndPause(guard.PausedByOwner), names.NotExist)
}

// A pause waits for operations that were admitted before. If an operation does not end, Pause
// returns an error, and the operation cannot change the source any more, not even after the pause.
func TestPauseWaitsForOperations(t *testing.T) {
	s := newShort(t)
	l, err := s.Admit(bg, req(t, names.OpWrite))
	wantKind(t, err, 0)
	if err := s.Pause(bg, guard.PausedByOwner, ""); err == nil || !strings.Contains(err.Error(), "still running") {
		t.Errorf("with an operation in flight: %v", err)
	}
	if recs := s.rec.Of(names.OpPause); len(recs) != 1 || recs[0].Verdict != guard.Failed {
		t.Errorf("records %+v", recs)
	}
	wantKind(t, s.EndPause(guard.PausedByOwner), 0)
	if err := l.Change(func() error { return nil }); err == nil {
		t.Error("an operation from before the pause has changed the source")
	}
	_ = l.Done(0, nil)
}

// Files that were open before a pause work again after it.
func TestResumeKeepsHandles(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	l, err := s.Admit(bg, req(t, names.OpOpen))
	wantKind(t, err, 0)
	r := req(t, names.OpRead)
	r.Held = l.Hold()
	wantKind(t, l.Done(0, nil), 0)
	wantKind(t, s.Pause(bg, guard.PausedByOwner, ""), 0)
	wantKind(t, s.once(r, 0), names.Paused)
	if r.Held.Stale() {
		t.Error("the pause made the open file stale")
	}
	wantKind(t, s.EndPause(guard.PausedByOwner), 0)
	wantKind(t, s.once(r, 0), 0)
}

// A root that is revoked during a pause stays dead after it.
func TestRevokeWhilePaused(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	wantKind(t, s.Pause(bg, guard.PausedByOwner, ""), 0)
	wantKind(t, second(s.Revoke(bg, "r")), 0)
	wantKind(t, s.EndPause(guard.PausedByOwner), 0)
	wantKind(t, s.once(req(t, names.OpRead), 0), names.Revoked)
}

// A grant that expires during a pause ends. A root that is granted during a pause is paused.
func TestPauseAndExpiry(t *testing.T) {
	w := &wall{}
	s := w.newSetup(t, 10*time.Millisecond, guard.Limits{}, time.Hour)
	wantKind(t, s.Pause(bg, guard.PausedByOwner, ""), 0)
	w.offset.Store(int64(2 * time.Hour))
	awaitEnd(t, s, "r")
	s.grant(t, "later", "/b", guard.Policy{})
	later := req(t, names.OpRead)
	later.Path = path(t, "later", "a")
	wantKind(t, s.once(later, 0), names.Paused)
	wantKind(t, s.EndPause(guard.PausedByOwner), 0)
	wantKind(t, s.once(later, 0), 0)
	wantKind(t, s.once(req(t, names.OpRead), 0), names.Revoked)
}

// If the lease runs out and nobody pauses the registry, because a timer is late, the gate
// itself refuses operations and makes views take back what they gave.
func TestGateComparesTheClockItself(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	v := &view{}
	s.AddView(v)
	var isOver atomic.Bool
	s.SetMachineLease(0, isOver.Load, "the fleet acme")
	wantKind(t, s.once(req(t, names.OpRead), 0), 0) // isOver says that the lease is not over
	isOver.Store(true)
	dry := req(t, names.OpRead)
	dry.Dry = &guard.DryRun{}
	wantKind(t, s.once(dry, 0), names.Paused)
	if len(s.Paused()) != 0 {
		t.Error("a dry run has paused the registry")
	}
	wantKind(t, s.once(req(t, names.OpRead), 0), names.Paused)
	testkit.Until(t, "the pause", func() bool { return s.countEvents(guard.EventPaused) == 1 })
	if got := fmt.Sprint(v.all()); got != "[flush paused]" {
		t.Errorf("views were called: %v", got)
	}
	if list := s.Paused(); len(list) != 1 || list[0].Cause != guard.PausedByLease || list[0].Reason != "the fleet acme" {
		t.Errorf("paused: %+v", list)
	}

	// The gate opens only after both the owner's pause and the lease's pause have ended.
	wantKind(t, s.Pause(bg, guard.PausedByOwner, ""), 0)
	isOver.Store(false)
	s.SetMachineLease(time.Hour, isOver.Load, "the fleet acme")
	wantKind(t, s.EndPause(guard.PausedByLease), 0)
	wantKind(t, s.once(req(t, names.OpRead), 0), names.Paused)
	wantKind(t, s.EndPause(guard.PausedByOwner), 0)
	wantKind(t, s.once(req(t, names.OpRead), 0), 0)
}

// The gate calls isOver only when the lease may have run out: not within the lease, and once for
// an operation after it.
func TestIsOverIsCalledOnlyAfterTheLease(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	var asked atomic.Int64
	ask := func() bool { asked.Add(1); return false }
	s.SetMachineLease(time.Hour, ask, "")
	wantKind(t, s.once(req(t, names.OpRead), 0), 0)
	if n := asked.Load(); n != 0 {
		t.Errorf("asked %d times within the lease", n)
	}
	s.SetMachineLease(-time.Second, ask, "")
	wantKind(t, s.once(req(t, names.OpRead), 0), 0)
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times for one operation after the lease", n)
	}
}

// A lease that runs out while an operation waits for the speed limit refuses that operation.
func TestLeaseRunsOutWhileWaiting(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{Limits: guard.Limits{OpsPerSecond: 20, Burst: 1}})
	wantKind(t, s.once(req(t, names.OpRead), 0), 0)
	began := time.Now()
	s.SetMachineLease(25*time.Millisecond, func() bool { return time.Since(began) >= 25*time.Millisecond }, "")
	if err := s.once(req(t, names.OpRead), 0); !errors.Is(err, names.Paused) {
		t.Errorf("admitted after the lease had run out: %v", err)
	}
}

// A refusal during a pause does not count against the server that is refused.
func TestPauseIsNoAbuse(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	s.SetAbuse(ledger.Abuse{Refusals: 3, Suspend: true})
	wantKind(t, s.Pause(bg, guard.PausedByOwner, ""), 0)
	for range 20 {
		wantKind(t, s.once(requestAs(t, "a", names.OpRead), 0), names.Paused)
	}
	wantKind(t, s.EndPause(guard.PausedByOwner), 0)
	wantKind(t, s.once(requestAs(t, "a", names.OpRead), 0), 0)
}
