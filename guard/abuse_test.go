package guard_test

import (
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// requestAs returns a request of a subject.
func requestAs(t *testing.T, s guard.Subject, op guard.Op) guard.Request {
	t.Helper()
	r := req(t, op)
	r.Caller.Subject = s
	return r
}

// R093: too many refusals raise one event a minute and leave a record. Without Suspend there is
// no other effect. Each subject counts by itself.
func TestAbuseIsReported(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{Rights: guard.ReadOnly})
	s.SetAbuse(ledger.Abuse{Refusals: 10})
	for range 10 {
		wantKind(t, s.once(requestAs(t, "a", names.OpUnlink), 0), names.ReadOnly)
		wantKind(t, s.once(requestAs(t, "b", names.OpRead), 0), 0)
	}
	if n := s.countEvents(guard.EventAbuse); n != 0 {
		t.Fatalf("%d events at the bound", n)
	}
	for range 20 {
		wantKind(t, s.once(requestAs(t, "a", names.OpUnlink), 0), names.ReadOnly)
	}
	if n := s.countEvents(guard.EventAbuse); n != 1 || len(s.rec.Of(names.OpAbuse)) != 1 || s.rec.Of(names.OpAbuse)[0].Subject != "a" {
		t.Errorf("%d events, records %+v", n, s.rec.Of(names.OpAbuse))
	}
	wantKind(t, s.once(requestAs(t, "a", names.OpRead), 0), 0)
	if len(s.Suspended()) != 0 {
		t.Error("a subject is suspended, although Suspend is not set")
	}
}

// R093: the number of attempted escapes has a bound of its own. A subject that exceeds it is
// suspended until it is resumed: everything is refused to the subject, and views take back what
// they handed out to it. Other subjects and the owner are not affected.
func TestAbuseSuspends(t *testing.T) {
	s := newSetup(t, nil)
	v := &view{}
	s.AddView(v)
	s.grant(t, "r", "/a", guard.Policy{Rights: guard.ReadOnly})
	s.SetAbuse(ledger.Abuse{Escapes: 3, Refusals: 1000, Suspend: true})
	escape := func() error {
		l, err := s.Admit(bg, requestAs(t, "a", names.OpReadlink))
		if err != nil {
			return err
		}
		return l.Done(0, &guard.Error{Kind: names.Escaped})
	}
	for range 4 {
		wantKind(t, escape(), names.Escaped)
	}
	for range 3 {
		wantKind(t, escape(), names.Suspended)
		wantKind(t, s.once(requestAs(t, "a", names.OpLookup), 0), names.Suspended)
	}
	wantKind(t, s.once(requestAs(t, "", names.OpRead), 0), 0)
	wantKind(t, s.once(requestAs(t, "b", names.OpRead), 0), 0)
	owner := requestAs(t, "a", names.OpGetattr)
	owner.Caller.Via = guard.ViaControl
	wantKind(t, s.once(owner, 0), 0)
	list := s.Suspended()
	if len(list) != 1 || list[0].Subject != "a" || list[0].Why != "more than 3 attempts to leave a root in a minute" || list[0].Since.IsZero() {
		t.Errorf("%+v", list)
	}
	testkit.Eventually(func() bool { calls := v.all(); return len(calls) > 0 && calls[len(calls)-1] == "narrowed" })
	if calls := v.all(); calls[len(calls)-1] != "narrowed" {
		t.Errorf("nothing was taken back: %q", calls)
	}
	if n := s.countEvents(guard.EventSuspended); n != 1 || len(s.rec.Of(names.OpSuspend)) != 1 {
		t.Errorf("%d events, %d records", n, len(s.rec.Of(names.OpSuspend)))
	}
	wantKind(t, s.Resume("b"), names.NotExist)
	wantKind(t, s.Resume("a"), 0)
	wantKind(t, s.Resume("a"), names.NotExist)
	wantKind(t, s.once(requestAs(t, "a", names.OpRead), 0), 0)
	for range 3 { // counted anew
		wantKind(t, escape(), names.Escaped)
	}
	wantKind(t, s.once(requestAs(t, "a", names.OpRead), 0), 0)
	if s.countEvents(guard.EventResumed) != 1 || len(s.rec.Of(names.OpResume)) != 1 {
		t.Error("the resumption does not have one event and one record")
	}
}

// R093: looking up or opening a hidden name does not count as a refusal, because git and every shell
// look up many such names. The look-up is recorded nevertheless. Creating a hidden name counts.
func TestHiddenIsNoAbuse(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{Rights: guard.ReadWrite})
	s.SetAbuse(ledger.Abuse{Refusals: 5, Suspend: true})
	judge := func(op guard.Op) error {
		l, err := s.Admit(bg, requestAs(t, "a", op))
		if err != nil {
			return err
		}
		return l.Done(0, l.Judge().Name("", ".env"))
	}
	for range 50 {
		wantKind(t, judge(names.OpLookup), names.Hidden)
		wantKind(t, judge(names.OpOpen), names.Hidden)
	}
	if len(s.Suspended()) != 0 {
		t.Fatalf("suspended: %+v", s.Suspended())
	}
	if n := len(s.rec.Of(names.OpLookup)); n != 50 {
		t.Errorf("%d records of look-ups, want 50", n)
	}
	for range 6 {
		wantKind(t, judge(names.OpCreate), names.Permission)
	}
	if len(s.Suspended()) != 1 {
		t.Error("making hidden names is not counted")
	}
}

// Once a suspension is visible, no operation of the subject is admitted, even if many are under
// way.
func TestSuspendedAmongMany(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{Rights: guard.ReadOnly})
	s.SetAbuse(ledger.Abuse{Refusals: 50, Suspend: true})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				_ = s.once(requestAs(t, "a", names.OpUnlink), 0)
				before := s.IsSuspended("a")
				if err := s.once(requestAs(t, "a", names.OpRead), 0); before && names.Reason(err) != names.Suspended {
					t.Errorf("admitted: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if len(s.Suspended()) != 1 || s.countEvents(guard.EventSuspended) != 1 {
		t.Errorf("%+v, %d events", s.Suspended(), s.countEvents(guard.EventSuspended))
	}
}
