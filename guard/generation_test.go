package guard_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// These tests use the hook AtStep to make something happen between two steps of an admission, or of
// a change of the source.

// during makes f run once, before the first step of this name.
func during(t *testing.T, step string, f func()) {
	t.Helper()
	done := false
	t.Cleanup(guard.AtStep(func(s string) {
		if s == step && !done {
			done = true
			f()
		}
	}))
}

// newShort returns a setup with the root r, whose changes wait only for a moment.
func newShort(t *testing.T) *setup {
	t.Helper()
	s := newSetup(t, func(c *guard.Config) { c.Deadline = 20 * time.Millisecond })
	s.grant(t, "r", "/a", guard.Policy{})
	return s
}

func (s *setup) admit(t *testing.T, r guard.Request) *guard.Lease {
	t.Helper()
	l, err := s.Admit(bg, r)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// abandonedLease begins an operation on the root r that is answered before its end, and returns
// the lease with which the operation's detached part continues.
func (s *setup) abandonedLease(t *testing.T) *guard.Lease {
	t.Helper()
	l := s.admit(t, req(t, names.OpWrite))
	d, done := l.Detach()
	t.Cleanup(done)
	l.Abandon()
	_ = l.Done(0, &guard.Error{Kind: names.Timeout})
	return d
}

// If a root ends while an operation is being admitted, the operation is not admitted.
func TestRootEndsDuringAdmission(t *testing.T) {
	for _, step := range []string{"admit", "count"} {
		s := newShort(t)
		during(t, step, func() {
			if _, err := s.Revoke(bg, "r"); err != nil {
				t.Errorf("%s: %v", step, err)
			}
		})
		_, err := s.Admit(bg, req(t, names.OpWrite))
		wantKind(t, err, names.Revoked)
	}
}

// If a root's rights are removed and added again just before an operation is counted, the
// operation counts as a new one: the next change waits for it.
func TestRightsChangeTwiceDuringAdmission(t *testing.T) {
	s := newShort(t)
	during(t, "count", func() {
		if err := errors.Join(s.Set(bg, "r", guard.ReadOnly), s.Set(bg, "r", guard.ReadWrite)); err != nil {
			t.Error(err)
		}
	})
	l := s.admit(t, req(t, names.OpWrite))
	if err := s.Set(bg, "r", guard.ReadOnly); err == nil {
		t.Error("the rights were taken while a write that was admitted under them runs")
	}
	_ = l.Done(0, nil)
	if err := s.Set(bg, "r", guard.ReadOnly); err != nil {
		t.Error(err)
	}
}

// An operation is judged by the rights that are in force after it was counted.
func TestRightsChangeDuringAdmission(t *testing.T) {
	for _, step := range []string{"admit", "count"} {
		s := newShort(t)
		during(t, step, func() {
			if err := s.Set(bg, "r", guard.ReadOnly); err != nil {
				t.Errorf("%s: %v", step, err)
			}
		})
		_, err := s.Admit(bg, req(t, names.OpWrite))
		wantKind(t, err, names.ReadOnly)
	}
}

// After a change has given up waiting for an operation, later changes wait for the operation
// again. No older operation is forgotten.
func TestLaterChangesWaitForOlderOperations(t *testing.T) {
	s := newShort(t)
	l := s.admit(t, req(t, names.OpWrite))
	for i := range 5 {
		if err := s.Set(bg, "r", guard.ReadOnly); err == nil {
			t.Errorf("round %d: the rights were taken while a write that was admitted under them runs", i)
		}
		if err := s.Set(bg, "r", guard.ReadWrite); err != nil {
			t.Error(err)
		}
		if err := s.once(req(t, names.OpWrite), 0); err != nil {
			t.Error(err)
		}
	}
	if st, _ := s.Lookup("r"); st.InFlight != 1 {
		t.Errorf("%d operations in flight, want 1", st.InFlight)
	}
	_ = l.Done(0, nil)
	if err := s.Set(bg, "r", guard.ReadOnly); err != nil {
		t.Error(err)
	}
}

// Judgements from one lifetime of a root are not used in the next.
func TestRequestOfAnOlderLifetime(t *testing.T) {
	s := newShort(t)
	r := req(t, names.OpRead)
	r.Epoch, _ = s.EpochOf("r")
	if err := s.once(r, 0); err != nil {
		t.Error(err)
	}
	if _, err := s.Revoke(bg, "r"); err != nil {
		t.Error(err)
	}
	s.grant(t, "r", "/a", guard.Policy{})
	wantKind(t, s.once(r, 0), names.Revoked)
}

// changes lists the changes of a root that take access away.
var changes = map[string]func(s *setup) error{
	"revoke":     func(s *setup) error { return second(s.Revoke(bg, "r")) },
	"revoke all": func(s *setup) error { return second(s.RevokeAll(bg)) },
	"vanish":     func(s *setup) error { return s.vanish("r", "/a") },
	"rights":     func(s *setup) error { return s.Set(bg, "r", guard.ReadOnly) },
	"patterns":   func(s *setup) error { return s.SetPatterns(bg, "r", guard.Patterns{Hide: guard.Texts("x")}) },
	"grant inside": func(s *setup) error {
		return second(s.Grant(bg, guard.Grant{Root: "in", Dir: "/a/in", Policy: guard.Policy{Rights: guard.Read}, Origin: "test"}))
	},
	"suspend": func(s *setup) error { return s.Rejudge(bg, "") },
	"pause":   func(s *setup) error { return s.Pause(bg, guard.PausedByOwner, "") },
}

func second[T any](_ T, err error) error { return err }

const arrives = "1 call that changes the source has not returned and may still arrive"

// After a change of its root, an operation that was answered early changes nothing. The error of
// the change reports the call that had begun before and has not returned.
func TestNothingIsChangedAfterTheAnswer(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			s := newShort(t)
			l := s.abandonedLease(t)
			if err := l.Change(func() error { return nil }); err != nil {
				t.Errorf("before the root changed: %v", err)
			}
			hangs := s.abandonedLease(t)
			err := hangs.Change(func() error {
				err := change(s)
				if err == nil || !strings.Contains(err.Error(), arrives) {
					t.Errorf("while a call is in the source: %v, want: %s", err, arrives)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			for _, l := range []*guard.Lease{l, hangs} {
				if err := l.Change(func() error { t.Error("the source was changed"); return nil }); err == nil {
					t.Error("a change after the root has changed was not refused")
				}
			}
		})
	}
}

// If a call is about to begin when its root changes, either the call is refused, or the change
// waits for the call (and here reports it), because the call is counted before the root is checked.
func TestRootEndsBeforeAChangeBegins(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			s := newShort(t)
			l := s.abandonedLease(t)
			var changed error
			during(t, "change", func() { changed = change(s) })
			began := false
			_ = l.Change(func() error { began = true; return nil })
			if began && changed == nil {
				t.Error("a change began after the root had changed without an error")
			}
		})
	}
}

// A revocation waits for a call that has begun, and does not report the call if the call returns.
func TestRevokeWaitsForChanges(t *testing.T) {
	s := newSetup(t, func(c *guard.Config) { c.Deadline = time.Hour })
	s.grant(t, "r", "/a", guard.Policy{})
	v := &view{}
	s.AddView(v)
	l := s.abandonedLease(t)
	began, invalidated, returned := make(chan struct{}), make(chan struct{}), make(chan error)
	v.onInvalidate = func(guard.Change) { close(invalidated) } // operations have been waited for
	go func() {
		returned <- l.Change(func() error { close(began); <-invalidated; return nil })
	}()
	<-began
	if _, err := s.Revoke(bg, "r"); err != nil {
		t.Error(err)
	}
	if err := <-returned; err != nil {
		t.Error(err)
	}
}

// An operation that a change waits for may still change the source, for example to remove its
// unfinished files.
func TestDrainedOperationsChange(t *testing.T) {
	s := newSetup(t, func(c *guard.Config) { c.Deadline = time.Hour })
	s.grant(t, "r", "/a", guard.Policy{})
	l := s.admit(t, req(t, names.OpWrite))
	go func() {
		<-l.Hold().Dead()
		if err := l.Change(func() error { return nil }); err != nil {
			t.Error(err)
		}
		_ = l.Done(0, nil)
	}()
	if _, err := s.Revoke(bg, "r"); err != nil {
		t.Error(err)
	}
}

// An operation that a change has given up waiting for changes nothing afterwards. Two changes are
// exceptions, and let the operation go on: a grant inside its root, and the suspension of a server.
func TestOperationsWaitedForInVainChangeNothing(t *testing.T) {
	exceptions := map[string]bool{"grant inside": true, "suspend": true}
	for name, change := range changes {
		s := newShort(t)
		l := s.admit(t, req(t, names.OpWrite))
		if err := change(s); err == nil || !strings.Contains(err.Error(), "still running") {
			t.Errorf("%s: %v, want an error: the operation runs", name, err)
		}
		if err := l.Change(func() error { return nil }); (err == nil) != exceptions[name] {
			t.Errorf("%s: a change of the source: %v", name, err)
		}
		_ = l.Done(0, nil)
	}
}

// If a root vanishes while a call is in its source, the end of the root reports the call. So does a
// later revocation of the root.
func TestRevokeOfAVanishedRootReportsChanges(t *testing.T) {
	s := newShort(t)
	err := s.abandonedLease(t).Change(func() error {
		if err := s.vanish("r", "/a"); err == nil || !strings.Contains(err.Error(), arrives) {
			t.Errorf("the root vanishes: %v", err)
		}
		ended, err := s.Revoke(bg, "r")
		if err == nil || !strings.Contains(err.Error(), arrives) || len(ended) != 1 || ended[0].Err == nil {
			t.Errorf("it is revoked: %+v, %v", ended, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A change of a nested root also applies to operations through the outer root, including those
// that have entered the nested root only after they were detached.
func TestNestedRootEndsForDetachedOperations(t *testing.T) {
	for name, change := range map[string]func(s *setup) error{
		"revoke": func(s *setup) error { return second(s.Revoke(bg, "in")) },
		"rights": func(s *setup) error { return s.Set(bg, "in", guard.ReadOnly) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShort(t)
			s.grant(t, "in", "/a/in", guard.Policy{})
			crossing := func() (l, d *guard.Lease) {
				l = s.admit(t, req(t, names.OpWrite))
				d, done := l.Detach()
				t.Cleanup(done)
				if _, err := d.EnterIfNested((&fakeSource{path: "/a/in"}).ID(), ""); err != nil {
					t.Fatal(err)
				}
				return l, d
			}
			answer := func(l *guard.Lease) {
				l.Abandon()
				_ = l.Done(0, &guard.Error{Kind: names.Timeout})
			}
			l, d := crossing()
			if err := change(s); err == nil || !strings.Contains(err.Error(), "operations on root in are still running") {
				t.Errorf("an operation in the root that is not answered: %v", err)
			}
			if err := d.Change(func() error { return nil }); err == nil {
				t.Error("the operation changes the source after it was waited for in vain")
			}
			answer(l)

			s = newShort(t)
			s.grant(t, "in", "/a/in", guard.Policy{})
			l, d = crossing()
			answer(l)
			err := d.Change(func() error {
				if err := change(s); err == nil || !strings.Contains(err.Error(), "root in: "+arrives) {
					t.Errorf("an answered operation with a call in the source: %v", err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if err := d.Change(func() error { return nil }); err == nil {
				t.Error("the operation changes the source after its answer")
			}
		})
	}
}

// If an operation concerns a root and a nested root, has made its system calls and is not
// answered yet, the ending of each root reports the operation, in whichever order they end.
func TestUnansweredOperationIsReportedByBoth(t *testing.T) {
	for _, order := range [][]guard.RootName{{"r", "in"}, {"in", "r"}} {
		s := newShort(t)
		s.grant(t, "in", "/a/in", guard.Policy{})
		l := s.admit(t, req(t, names.OpRead))
		d, done := l.Detach()
		if _, err := d.EnterIfNested((&fakeSource{path: "/a/in"}).ID(), ""); err != nil {
			t.Fatal(err)
		}
		done()
		for _, n := range order {
			if _, err := s.Revoke(bg, n); err == nil {
				t.Errorf("%q: the ending of %s does not report the operation", order, n)
			}
		}
		_ = l.Done(0, nil)
	}
}
