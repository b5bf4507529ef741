package guard_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// requestIn returns the request for another subject and another root.
func requestIn(t testing.TB, r guard.Request, s guard.Subject, root string) guard.Request {
	r.Caller.Subject, r.Path = s, path(t, root, "a")
	return r
}

// R055, R077, R193: each subject has one quota for all its roots. A refusal names the limit.
func TestSubjectQuotas(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	s.grant(t, "q", "/b", guard.Policy{Limits: guard.Limits{MaxWritten: 15}})
	s.SetQuotas(map[guard.Subject]ledger.Quota{"one": {MaxWritten: 20, MaxCreated: 1, MaxFile: 100}, ledger.AnySubject: {MaxWritten: 10}})
	w := req(t, names.OpWrite)
	w.Bytes = 10
	wantKind(t, s.once(requestIn(t, w, "one", "r"), 10), 0)
	wantKind(t, s.once(requestIn(t, w, "one", "q"), 10), 0)
	refused := func(r guard.Request, errno syscall.Errno, limit int64) {
		t.Helper()
		var ge *guard.Error
		if err := s.once(r, r.Bytes); !errors.As(err, &ge) || ge.Kind != names.Quota || ge.Errno() != errno || ge.Limit != limit {
			t.Errorf("%v; want errno %d and limit %d", err, errno, limit)
		}
	}
	refused(requestIn(t, w, "one", "r"), syscall.EDQUOT, 20)
	refused(requestIn(t, w, "two", "q"), syscall.EDQUOT, 15) // the root's quota, of which subject "one" has used 10
	wantKind(t, s.once(requestIn(t, w, "two", "r"), 10), 0)
	refused(requestIn(t, w, "two", "r"), syscall.EDQUOT, 10)
	wantKind(t, s.once(requestIn(t, w, "three", "r"), 10), 0) // AnySubject: each subject has the whole quota
	for range 5 {
		wantKind(t, s.once(requestIn(t, w, "", "r"), 10), 0) // no subject: only the root's quota counts
	}
	big := req(t, names.OpTruncate)
	big.Size = 101
	refused(requestIn(t, big, "one", "r"), syscall.EFBIG, 100)
	mk := req(t, names.OpMkdir)
	mk.Names = 1
	wantKind(t, s.once(requestIn(t, mk, "one", "r"), 0), 0)
	refused(requestIn(t, mk, "one", "q"), syscall.EDQUOT, 1)

	// A changed quota includes the earlier use.
	s.SetQuotas(map[guard.Subject]ledger.Quota{"one": {MaxWritten: 25}})
	refused(requestIn(t, w, "one", "r"), syscall.EDQUOT, 25)
	w.Bytes = 5
	wantKind(t, s.once(requestIn(t, w, "one", "r"), 5), 0)
	use := map[guard.Subject]ledger.Usage{}
	for _, u := range s.Usage() {
		use[u.Subject] = u
	}
	if u := use["one"]; u.Written != 25 || u.Created != 1 || u.Quota.MaxWritten != 25 || use["two"].Written != 10 {
		t.Errorf("usage %+v", use)
	}
	if st, _ := s.Lookup("r"); st.Written != 10+10+10+50+5 || st.Created != 1 {
		t.Errorf("root: written %d, created %d", st.Written, st.Created)
	}
	s.SetQuotas(nil)
	w.Bytes = 1000
	wantKind(t, s.once(requestIn(t, w, "one", "r"), 1000), 0)
}

// R193: many writers of two subjects on two roots write fully, partly or not at all. Their
// total never exceeds any of the four quotas, a quota can be used up, and unused reservations
// are refunded.
func TestQuotasTogetherAreExact(t *testing.T) {
	s := newSetup(t, nil)
	roots, subjects := []string{"r", "q"}, []guard.Subject{"one", "two"}
	for _, r := range roots {
		s.grant(t, r, "/"+r, guard.Policy{Limits: guard.Limits{MaxWritten: 3000, MaxCreated: 70}})
	}
	s.SetQuotas(map[guard.Subject]ledger.Quota{"one": {MaxWritten: 2500, MaxCreated: 60}, "two": {MaxWritten: 3500, MaxCreated: 80}})
	var wrote, made [2][2]atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 400 {
				ri, si := (i+w)%2, (i/2)%2
				r := requestIn(t, req(t, names.OpReplace), subjects[si], roots[ri])
				r.Bytes, r.Names = 7, 1
				l, err := s.Admit(bg, r)
				if err != nil {
					continue
				}
				n, fails := int64(7), error(nil)
				switch i % 4 {
				case 0:
					n, fails = 3, syscall.ENOSPC // a short write, and no new name
				case 1:
					if l.Charges().Add(5, 12, 0) == nil {
						n = 12
					}
				case 2:
					l.Notes().Existing()
				}
				if err := l.Done(n, fails); (err != nil) != (fails != nil) {
					t.Errorf("%v", err)
				}
				wrote[ri][si].Add(n)
				if i%4 != 0 && i%4 != 2 {
					made[ri][si].Add(1)
				}
			}
		})
	}
	wg.Wait()
	// The rest can be used to the last byte and name, so nothing has leaked.
	for ri := range roots {
		for si := range subjects {
			for ok := true; ok; {
				r := requestIn(t, req(t, names.OpReplace), subjects[si], roots[ri])
				r.Bytes = 1
				if ok = s.once(r, 1) == nil; ok {
					wrote[ri][si].Add(1)
				}
			}
			for ok := true; ok; {
				r := requestIn(t, req(t, names.OpMkdir), subjects[si], roots[ri])
				r.Names = 1
				if ok = s.once(r, 0) == nil; ok {
					made[ri][si].Add(1)
				}
			}
		}
	}
	for ri, name := range roots {
		st, _ := s.Lookup(guard.RootName(name))
		w, m := wrote[ri][0].Load()+wrote[ri][1].Load(), made[ri][0].Load()+made[ri][1].Load()
		if st.Written != w || st.Created != m || w > 3000 || m > 70 {
			t.Errorf("root %s: %d bytes and %d names on record, %d and %d in fact", name, st.Written, st.Created, w, m)
		}
	}
	for si, u := range s.Usage() {
		w, m := wrote[0][si].Load()+wrote[1][si].Load(), made[0][si].Load()+made[1][si].Load()
		if u.Written != w || u.Created != m || w > u.Quota.MaxWritten || m > u.Quota.MaxCreated {
			t.Errorf("subject %s: %+v, %d and %d in fact", u.Subject, u, w, m)
		}
	}
	if s.Usage()[0].Written != 2500 || s.Usage()[0].Created != 60 {
		t.Errorf("the smallest quota was not used up: %+v", s.Usage()[0])
	}
}

// If the second account refuses a charge in a dry run, nothing is refunded to the first account,
// because a dry run charges nothing.
func TestDryChargeLeavesTheAccounts(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{Limits: guard.Limits{MaxWritten: 100}})
	s.SetQuotas(map[guard.Subject]ledger.Quota{"one": {MaxWritten: 20, MaxCreated: 2}})
	w := requestIn(t, req(t, names.OpWrite), "one", "r")
	w.Bytes = 10
	wantKind(t, s.once(w, 10), 0)
	w.Dry = &guard.DryRun{}
	l, err := s.Admit(bg, w)
	testkit.Must(t, err)
	wantKind(t, l.Charges().Add(50, 0, 1), names.Quota)
	testkit.Must(t, l.Done(0, nil))
	if st, _ := s.Lookup("r"); st.Written != 10 || st.Created != 0 {
		t.Errorf("%d bytes and %d names are charged, want 10 and 0", st.Written, st.Created)
	}
}

// A nested root's quota also bounds writes to its files through the outer root.
func TestQuotaOfTheNestedRoot(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	s.grant(t, "in", "/a/sub", guard.Policy{Limits: guard.Limits{MaxWritten: 10, MaxFile: 50}})
	in, _ := s.Lookup("in")
	enter := func(n, size int64) error {
		w := req(t, names.OpWrite)
		w.Bytes, w.Size = n, size
		l, err := s.Admit(bg, w)
		if err != nil {
			return err
		}
		_, err = l.EnterIfNested(in.ID, "")
		if err != nil {
			n = 0
		}
		return l.Done(n, err)
	}
	wantKind(t, enter(5, 51), names.Quota)
	wantKind(t, enter(8, 8), 0)
	wantKind(t, enter(5, 8), names.Quota)
	wantKind(t, enter(2, 8), 0)
	for root, want := range map[guard.RootName]int64{"r": 10, "in": 10} {
		if st, _ := s.Lookup(root); st.Written != want {
			t.Errorf("%s: %d bytes, want %d", root, st.Written, want)
		}
	}
}
