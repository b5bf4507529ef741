package guard_test

import (
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// awaitEnd waits until a root has ended. The time limit of testkit.Until is only reached by a test
// that fails.
func awaitEnd(t *testing.T, s *setup, root guard.RootName) {
	t.Helper()
	testkit.Until(t, "the end of root "+string(root), func() bool { _, ok := s.Lookup(root); return !ok })
}

// R070, R139: an unused root ends by itself, as if revoked. A root in use does not, even if the
// use is one long operation. A refused operation is no use.
func TestIdle(t *testing.T) {
	s := newSetup(t, nil)
	v := &view{}
	s.AddView(v)
	idle, ended := 50*time.Millisecond, 1
	var l *guard.Lease
	for ; ; ended++ { // a busy machine may take longer than idle from one line to the next
		s.grant(t, "r", "/a", guard.Policy{Rights: guard.ReadOnly, Limits: guard.Limits{Idle: idle}})
		var err error
		if l, err = s.Admit(bg, req(t, names.OpRead)); err == nil {
			break
		}
		wantKind(t, err, names.Revoked)
		awaitEnd(t, s, "r")
		idle *= 2
	}
	time.Sleep(3 * idle)
	if _, ok := s.Lookup("r"); !ok {
		t.Error("the root ended in the middle of an operation")
	}
	wantKind(t, l.Done(0, nil), 0)
	stop := make(chan struct{})
	go func() { // refusals, all the time
		for {
			select {
			case <-stop:
				return
			default:
				_ = s.once(req(t, names.OpUnlink), 0)
				time.Sleep(time.Millisecond)
			}
		}
	}()
	awaitEnd(t, s, "r")
	close(stop)
	wantKind(t, s.once(req(t, names.OpRead), 0), names.Revoked)
	testkit.Eventually(func() bool { return s.countEvents(guard.EventExpired) >= ended }) // the event comes after the end
	if calls := v.all(); len(calls) == 0 || calls[len(calls)-1] != "ended" || s.countEvents(guard.EventExpired) != ended {
		t.Errorf("%q, %d expired, want %d", calls, s.countEvents(guard.EventExpired), ended)
	}
}

// A renewed root ends at its new time, and not at the old one.
func TestRenew(t *testing.T) {
	s := newSetup(t, nil)
	soon := func(d time.Duration) time.Time { return time.Now().Add(d) }
	_, err := s.Grant(bg, guard.Grant{Root: "r", Dir: "/a", Origin: "test", Expires: soon(time.Hour), Policy: guard.Policy{Rights: guard.ReadOnly}})
	wantKind(t, err, 0)
	wantKind(t, s.Renew(bg, "nobody", soon(time.Hour)), names.NotExist)
	wantKind(t, s.Renew(bg, "r", soon(-time.Second)), names.Invalid)
	wantKind(t, s.Renew(bg, "r", time.Time{}), 0)
	if st, _ := s.Lookup("r"); !st.Grant.Expires.IsZero() {
		t.Errorf("ends %v, want with the session", st.Grant.Expires)
	}
	end := soon(2 * time.Hour)
	wantKind(t, s.Renew(bg, "r", end), 0)
	if st, _ := s.Lookup("r"); !st.Grant.Expires.Equal(end) {
		t.Errorf("ends %v, want %v", st.Grant.Expires, end)
	}
	var noted int
	for _, r := range s.rec.All() {
		if r.Op == names.OpSet {
			noted++
		}
	}
	if noted != 2 {
		t.Errorf("%d renewals on record, want 2", noted)
	}
	wantKind(t, s.Renew(bg, "r", soon(time.Millisecond)), 0)
	awaitEnd(t, s, "r")
	wantKind(t, s.Renew(bg, "r", soon(time.Hour)), names.NotExist)
}
