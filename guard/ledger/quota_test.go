package ledger_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// R193: a charge is made whole or not at all. The error names the limit, and Refund reverts the
// charge. A dry run has the same result and charges nothing.
func TestCharge(t *testing.T) {
	var a ledger.Account
	a.SetQuota(ledger.Quota{MaxFile: 50, MaxWritten: 100, MaxCreated: 2})
	for _, c := range []struct {
		name                 string
		bytes, size, created int64
		dry                  bool
		errno                syscall.Errno // 0: no error
		limit                int64
		written, names       int64 // on the account afterwards
	}{
		{"a dry run", 100, 50, 2, true, 0, 0, 0, 0},
		{"bytes and a name", 60, 50, 1, false, 0, 0, 60, 1},
		{"a file too large", 1, 51, 0, false, syscall.EFBIG, 50, 60, 1},
		{"too many bytes", 41, 0, 0, false, syscall.EDQUOT, 100, 60, 1},
		{"a dry run of too many bytes", 41, 0, 0, true, syscall.EDQUOT, 100, 60, 1},
		{"bytes, and too many names", 10, 0, 2, false, syscall.EDQUOT, 2, 60, 1},
		{"a dry run of too many names", 10, 0, 2, true, syscall.EDQUOT, 2, 60, 1},
		{"to the last byte and name", 40, 50, 1, false, 0, 0, 100, 2},
		{"nothing, at the limit", 0, 50, 0, false, 0, 0, 100, 2},
		{"given back", -30, 0, -1, false, 0, 0, 70, 1},
	} {
		err := a.Charge(c.bytes, c.size, c.created, c.dry)
		var e *names.Error
		if c.errno == 0 && err != nil || c.errno != 0 && (!errors.As(err, &e) || e.Kind != names.Quota || e.Errno() != c.errno || e.Limit != c.limit) {
			t.Errorf("%s: %v", c.name, err)
		}
		if a.Written() != c.written || a.Created() != c.names {
			t.Errorf("%s: %d bytes and %d names on the account, want %d and %d", c.name, a.Written(), a.Created(), c.written, c.names)
		}
	}
	a.Refund(20, 1)
	if a.Written() != 50 || a.Created() != 0 {
		t.Errorf("after a refund %d bytes and %d names", a.Written(), a.Created())
	}
	a.SetQuota(ledger.Quota{MaxWritten: 40})
	if err := a.Charge(1, 1000, 10, false); err == nil || a.BoundsFiles() {
		t.Errorf("a quota below what is used: %v, bounds files %v", err, a.BoundsFiles())
	}
	a.SetQuota(ledger.Quota{})
	if err := a.Charge(1000, 1000, 10, false); err != nil || a.Written() != 1050 {
		t.Errorf("without a quota: %v, %d bytes", err, a.Written())
	}
}

// R193: after concurrent charges and refunds, the account holds exactly the charges that were not
// refunded, and no more than the quota. The rest of the quota can still be charged.
func TestChargesTogetherAreExact(t *testing.T) {
	var a ledger.Account
	a.SetQuota(ledger.Quota{MaxWritten: 1000, MaxCreated: 300})
	var charged, made atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 400 {
				if a.Charge(7, 0, 1, false) != nil {
					continue
				}
				if i%3 == 0 {
					a.Refund(7, 1)
					continue
				}
				charged.Add(7)
				made.Add(1)
			}
		})
	}
	wg.Wait()
	for a.Charge(1, 0, 0, false) == nil {
		charged.Add(1)
	}
	if a.Written() != charged.Load() || a.Written() != 1000 || a.Created() != made.Load() || made.Load() > 300 {
		t.Errorf("%d bytes and %d names on the account, %d and %d charged", a.Written(), a.Created(), charged.Load(), made.Load())
	}
}

// R193: charges together never exceed a quota, however close together they come.
func TestChargesAtTheLimit(t *testing.T) {
	var a ledger.Account
	a.SetQuota(ledger.Quota{MaxWritten: 1})
	var inUse atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200_000 {
				if a.Charge(1, 0, 0, false) != nil {
					continue
				}
				if n := inUse.Add(1); n > 1 {
					t.Errorf("%d bytes are charged to a quota of 1", n)
				}
				inUse.Add(-1)
				a.Refund(1, 0)
			}
		})
	}
	wg.Wait()
}

// R055: a subject has one account for all its sessions, with its own quota or that of AnySubject.
// A caller without a name has no account. While no quotas are set, no subject gets an account.
func TestSubjectsAccounts(t *testing.T) {
	var q ledger.Quotas
	if q.Of("a") != nil {
		t.Error("an account without quotas")
	}
	q.Set(map[rules.Subject]ledger.Quota{"a": {MaxWritten: 20}, ledger.AnySubject: {MaxWritten: 10}})
	if q.Of("a#1") != q.Of("a") || q.Of("a") == q.Of("b") || q.Of("") != nil {
		t.Error("subjects share an account, or sessions do not")
	}
	charge := func(who rules.Subject, n int64, ok bool) {
		t.Helper()
		if err := q.Of(who).Charge(n, 0, 0, false); (err == nil) != ok {
			t.Errorf("%s, %d bytes: %v", who, n, err)
		}
	}
	charge("a", 20, true)
	charge("b", 11, false)
	charge("b", 10, true)
	charge("c", 10, true)
	q.Set(map[rules.Subject]ledger.Quota{"a": {MaxWritten: 25}})
	charge("a#2", 6, false)
	charge("a#2", 5, true)
	charge("b", 1000, true) // b has no quota any more, and its account still counts
	for i, want := range []ledger.Usage{{Subject: "a", Written: 25, Quota: ledger.Quota{MaxWritten: 25}}, {Subject: "b", Written: 1010}, {Subject: "c", Written: 10}} {
		if list := q.Usage(); len(list) != 3 || list[i] != want {
			t.Errorf("%+v, want %+v at %d", list, want, i)
		}
	}
}

// A budget admits requests up to its bound. A larger request is admitted when nothing is in use. A
// release closes the channel that a refused request got.
func TestBudget(t *testing.T) {
	b := ledger.NewBudget(10)
	acquire := func(n int64, want bool) <-chan struct{} {
		t.Helper()
		changed, ok := b.TryAcquire(n)
		if ok != want {
			t.Errorf("%d: acquired %v, want %v", n, ok, want)
		}
		return changed
	}
	acquire(6, true)
	acquire(4, true)
	changed := acquire(1, false)
	select {
	case <-changed:
		t.Error("woken before anything was released")
	default:
	}
	b.Release(4)
	<-changed
	acquire(5, false)
	b.Release(6)
	acquire(11, true)
	acquire(1, false)
	b.Release(11)
	acquire(10, true)
}
