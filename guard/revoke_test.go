package guard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// steps is an auditor that adds the records of grants and their changes (OpGrant and later) to the
// list of a view's calls.
type steps struct{ v *view }

func (s steps) Record(r guard.Record) error {
	if r.Op >= names.OpGrant {
		s.v.note("record " + r.Op.String())
	}
	return nil
}

// A revocation has this order: views flush while the gate is open, the gate shuts, operations
// in flight drain, views take back what they gave, the record is written, the caller gets the
// answer. R070.
func TestRevokeOrder(t *testing.T) {
	v := &view{}
	s := newSetup(t, func(c *guard.Config) { c.Auditor = steps{v} })
	s.AddView(v)
	s.grant(t, "r", "/a", guard.Policy{})
	l, err := s.Admit(bg, req(t, names.OpRead))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-l.Hold().Dead()
		v.note("cancelled")
		_ = l.Done(0, nil)
	}()
	v.onFlush = func(guard.Change) {
		if err := s.once(req(t, names.OpWrite), 1); err != nil {
			t.Errorf("the gate is shut while views flush: %v", err)
		}
	}
	v.onInvalidate = func(c guard.Change) {
		if c.Kind == guard.ChangeEnded {
			wantKind(t, s.once(req(t, names.OpGetattr), 0), names.Revoked)
			v.note("checked")
		}
	}
	ended, err := s.Revoke(bg, "r")
	if err != nil || len(ended) != 1 || ended[0].State != guard.RevokedState {
		t.Errorf("%+v, %v", ended, err)
	}
	want := []string{"record grant", "added", "flush", "cancelled", "ended", "checked", "record revoke"}
	if got := v.all(); !slices.Equal(got, want) {
		t.Errorf("order %q\nwant  %q", got, want)
	}
	if _, ok := s.Lookup("r"); ok {
		t.Error("the root is still listed")
	}
	if s.countEvents(guard.EventRevoked) != 1 {
		t.Error("no event")
	}
}

// A narrowing by Set has the order of a revocation. A widening is recorded first.
func TestSetOrder(t *testing.T) {
	v := &view{}
	s := newSetup(t, func(c *guard.Config) { c.Auditor = steps{v} })
	s.AddView(v)
	s.grant(t, "r", "/a", guard.Policy{Rights: guard.ReadWrite})
	v.onFlush = func(guard.Change) { wantKind(t, s.once(req(t, names.OpWrite), 1), 0) }
	v.onInvalidate = func(c guard.Change) {
		switch c.Kind {
		case guard.ChangeNarrowed:
			wantKind(t, s.once(req(t, names.OpWrite), 1), names.ReadOnly)
		case guard.ChangeWidened:
			wantKind(t, s.once(req(t, names.OpWrite), 1), 0)
		}
	}
	wantKind(t, s.Set(bg, "r", guard.ReadOnly), 0)
	wantKind(t, s.once(req(t, names.OpRead), 1), 0)
	wantKind(t, s.Set(bg, "r", guard.ReadWrite), 0)
	want := []string{"record grant", "added", "flush", "narrowed", "record set", "record set", "widened"}
	if got := v.all(); !slices.Equal(got, want) {
		t.Errorf("order %q\nwant  %q", got, want)
	}
	wantKind(t, s.Set(bg, "r", 0), names.Invalid)
	wantKind(t, s.Set(bg, "r", 1<<13), names.Invalid)
	wantKind(t, s.Set(bg, "none", guard.Read), names.NotExist)
}

// Set waits for operations under the old rights, so that none is left when it returns.
func TestSetDrains(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	l, err := s.Admit(bg, req(t, names.OpWrite))
	if err != nil {
		t.Fatal(err)
	}
	set := make(chan error, 1)
	go func() { set <- s.Set(bg, "r", guard.ReadOnly) }()
	for { // the new rights hold already, while Set waits for the old write
		if err := s.once(req(t, names.OpWrite), 0); errors.Is(err, names.ReadOnly) {
			break
		}
	}
	select {
	case err := <-set:
		t.Fatalf("Set returned %v with a write of the old rights in flight", err)
	default:
	}
	if err := l.Done(0, nil); err != nil {
		t.Error(err)
	}
	if err := <-set; err != nil {
		t.Error(err)
	}
}

// A widening that cannot be recorded is refused, also if it takes another right away.
func TestWideningNeedsItsRecord(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{Rights: guard.ReadOnly})
	s.rec.Fail(errors.New("full"))
	for _, rights := range []guard.Rights{guard.ReadWrite, guard.Read | guard.Write} {
		if err := s.Set(bg, "r", rights); err == nil {
			t.Errorf("%v: no error", rights)
		}
	}
	s.rec.Fail(nil)
	wantKind(t, s.once(req(t, names.OpWrite), 1), names.ReadOnly)
}

// R070: an operation that does not end does not block a revocation. The revocation reports an
// error, and the source stays open until the operation ends.
func TestRevokeWithStuckOperation(t *testing.T) {
	s := newSetup(t, func(c *guard.Config) { c.Deadline = 20 * time.Millisecond })
	s.grant(t, "r", "/a", guard.Policy{})
	l, err := s.Admit(bg, req(t, names.OpRead))
	if err != nil {
		t.Fatal(err)
	}
	ended, err := s.Revoke(bg, "r")
	if err == nil || len(ended) != 1 || ended[0].Err == nil {
		t.Errorf("nothing is said of the stuck operation: %+v, %v", ended, err)
	}
	wantKind(t, s.once(req(t, names.OpRead), 0), names.Revoked)
	if s.open.countClosed() != 0 {
		t.Error("the source was closed under the operation")
	}
	recs := s.rec.Of(names.OpRevoke)
	if len(recs) != 1 || recs[0].Verdict != guard.Failed {
		t.Errorf("records %+v", recs)
	}
	_ = l.Done(0, nil)
	testkit.Until(t, "the source is closed", func() bool { return s.open.countClosed() > 0 })
}

func (o *fakeOpener) countClosed() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}

// A second revocation returns the result of the first, or finds no such root. Many at once end
// the root once.
func TestRevokeTwice(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := s.Revoke(bg, "r"); err != nil && !errors.Is(err, names.NotExist) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	_, err := s.Revoke(bg, "r")
	wantKind(t, err, names.NotExist)
	if n := len(s.rec.Of(names.OpRevoke)); n != 1 {
		t.Errorf("%d records of one ending", n)
	}
	if _, err := s.Revoke(bg, "never"); !errors.Is(err, names.NotExist) {
		t.Error(err)
	}
}

// A revocation completes even if its caller has gone.
func TestRevokeOutlivesItsCaller(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if _, err := s.Revoke(ctx, "r"); err != nil {
		t.Error(err)
	}
	wantKind(t, s.once(req(t, names.OpRead), 0), names.Revoked)
}

// An expired grant ends like a revoked one, on its own.
func TestExpiry(t *testing.T) {
	s := newSetup(t, nil)
	v := &view{}
	s.AddView(v)
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		_, err := s.Grant(bg, guard.Grant{Root: "r", Dir: "/a", Policy: guard.Policy{Rights: guard.Read}, Origin: "test", Expires: time.Now().Add(wait)})
		if err == nil {
			break
		}
	}
	testkit.Until(t, "the event of the expiry", func() bool { return s.countEvents(guard.EventExpired) > 0 })
	wantKind(t, s.once(req(t, names.OpRead), 0), names.Revoked)
	if got := v.all(); !slices.Equal(got, []string{"added", "flush", "ended"}) && !slices.Equal(got, []string{"flush", "ended", "added"}) {
		t.Errorf("views were told %q", got)
	}
	if len(s.rec.Of(names.OpExpire)) != 1 {
		t.Error("no record of the expiry")
	}
}

// Granting a root again begins a new lifetime. Files from before stay dead.
func TestOldHoldsStayDead(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	l, err := s.Admit(bg, req(t, names.OpOpen))
	if err != nil {
		t.Fatal(err)
	}
	hold := l.Hold()
	_ = l.Done(0, nil)
	held := req(t, names.OpRead)
	held.Held = hold
	wantKind(t, s.once(held, 1), 0)
	if _, err := s.Revoke(bg, "r"); err != nil {
		t.Fatal(err)
	}
	s.grant(t, "r", "/a", guard.Policy{})
	wantKind(t, s.once(held, 1), names.Revoked)
	wantKind(t, s.once(req(t, names.OpRead), 1), 0)
	select {
	case <-hold.Dead():
	default:
		t.Error("Dead is not closed")
	}
}

// R111, R147: a vanished root is unavailable, stays listed, and can be approved again under its
// name. Revoking it removes it from the list.
func TestUnavailable(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	if err := s.Recheck(bg, "r"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, s.once(req(t, names.OpRead), 0), 0)
	s.open.mu.Lock()
	s.open.vanished["/a"] = true
	s.open.mu.Unlock()
	for range 2 {
		if err := s.Recheck(bg, "r"); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, s.once(req(t, names.OpRead), 0), names.Unavailable)
	if st, ok := s.Lookup("r"); !ok || st.State != guard.UnavailableState {
		t.Errorf("%+v %v", st, ok)
	}
	if s.countEvents(guard.EventUnavailable) != 1 || len(s.rec.Of(names.OpUnavailable)) != 1 {
		t.Error("one event and one record are due")
	}
	wantKind(t, s.Set(bg, "r", guard.Read), names.Unavailable)
	s.grant(t, "r", "/a", guard.Policy{})
	wantKind(t, s.once(req(t, names.OpRead), 0), 0)
	if err := s.vanish("r", "/a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Revoke(bg, "r"); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Lookup("r"); ok {
		t.Error("still listed")
	}
	wantKind(t, s.once(req(t, names.OpRead), 0), names.Revoked)
}

// With concurrent admissions, grants, changes and revocations, no admission succeeds after a
// revocation has returned. In the end each grant and each ending has one record, and every source
// is closed.
func TestConcurrentChanges(t *testing.T) {
	s := newSetup(t, nil)
	v := &view{}
	s.AddView(v)
	stop := make(chan struct{})
	var wg, workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r := req(t, names.OpWrite)
				r.Bytes = 3
				before, _ := s.Lookup("r")
				if l, err := s.Admit(bg, r); err == nil {
					if l.Epoch() < before.Epoch {
						t.Error("an older lifetime answered")
					}
					_ = l.Done(3, nil)
				}
			}
		})
	}
	for i := range 200 {
		g := guard.Grant{Root: "r", Dir: "/a", Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"}
		if i%4 == 0 {
			g.Expires = time.Now().Add(time.Hour)
		}
		if _, err := s.Grant(bg, g); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _ = s.Set(bg, "r", guard.ReadOnly) })
		wg.Go(func() { _ = s.Set(bg, "r", guard.ReadWrite) })
		epoch, _ := s.Lookup("r")
		if _, err := s.Revoke(bg, "r"); err != nil {
			t.Fatal(err)
		}
		if err := s.once(req(t, names.OpRead), 0); !errors.Is(err, names.Revoked) {
			t.Fatalf("round %d, epoch %d: admitted after the revocation: %v", i, epoch.Epoch, err)
		}
		wg.Wait()
	}
	close(stop)
	workers.Wait()
	if grants, ends := len(s.rec.Of(names.OpGrant)), len(s.rec.Of(names.OpRevoke)); grants != 200 || ends != 200 {
		t.Errorf("%d grants, %d endings on record", grants, ends)
	}
	testkit.Until(t, "the sources are closed when the last operation has ended", func() bool { return s.open.countClosed() == 200 })
}

// A root with an expiry can be granted while another goroutine revokes all roots.
func TestRevokeWhileExpiryIsArmed(t *testing.T) {
	s := newSetup(t, nil)
	for range 100 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				if ended, _ := s.RevokeAll(bg); len(ended) > 0 {
					return
				}
			}
		}()
		if _, err := s.Grant(bg, guard.Grant{Root: "r", Dir: "/a", Policy: guard.Policy{Rights: guard.Read}, Origin: "test",
			Expires: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		<-done
	}
}

// The report names a failing view, and the other views are called nevertheless.
func TestViewThatFails(t *testing.T) {
	s := newSetup(t, nil)
	good := &view{}
	s.AddView(failing{})
	s.AddView(good)
	s.grant(t, "r", "/a", guard.Policy{})
	ended, err := s.Revoke(bg, "r")
	if err == nil || !strings.Contains(ended[0].Err.Error(), "pages of one file") {
		t.Errorf("%v", err)
	}
	if got := good.all(); !slices.Contains(got, "ended") {
		t.Errorf("the other view was told %q", got)
	}
}

type failing struct{}

func (failing) Invalidate(_ context.Context, c guard.Change) error {
	if c.Kind == guard.ChangeEnded {
		return errors.New("pages of one file could not be taken back")
	}
	return nil
}

// Nested roots that end together do not wait for each other: an ending that has locked several roots
// does not wait for the lock of one of them when it narrows the views of that root. Two endings do
// not wait for each other either, if each has a root around a root of the other. A wait that lasts
// until the deadline would be reported in Ended.Err.
func TestEndingsDoNotWaitForEachOther(t *testing.T) {
	s := newSetup(t, nil)
	s.AddView(&view{})
	all := []guard.RootName{"a", "ain", "b", "bin"}
	for range 50 {
		s.grant(t, "a", "/a", guard.Policy{})
		s.grant(t, "ain", "/a/in", guard.Policy{})
		s.grant(t, "b", "/b", guard.Policy{})
		s.grant(t, "bin", "/b/in", guard.Policy{})
		var wg sync.WaitGroup
		for _, which := range [][]guard.RootName{{"ain", "b"}, {"bin", "a"}} {
			wg.Go(func() {
				if _, err := s.Revoke(bg, which...); err != nil {
					t.Errorf("crosswise: %v", err)
				}
			})
		}
		wg.Wait()
		for _, n := range all {
			if _, ok := s.Lookup(n); ok {
				t.Errorf("%s is still there", n)
			}
		}
	}
	s.grant(t, "a", "/a", guard.Policy{})
	s.grant(t, "ain", "/a/in", guard.Policy{})
	s.grant(t, "ainin", "/a/in/in", guard.Policy{})
	ended, err := s.RevokeAll(bg)
	if err != nil || len(ended) != 3 {
		t.Errorf("nested: %+v, %v", ended, err)
	}
}
