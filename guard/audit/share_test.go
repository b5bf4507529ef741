package audit

import (
	"crypto/rand"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// dirBytes returns the size of the files in a directory.
func dirBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
	}
	return n
}

// A live session is never pruned, and does not fill the disk. Whatever its subjects do, its
// files take little more than its share, which is half of MaxTotal. Beyond that, Pace refuses
// changes, and refusals are summed up.
func TestLiveSessionStaysInItsShare(t *testing.T) {
	o := options(t)
	const share = 4 << 20
	o.MaxTotal, o.MaxBytes = 2*share, 256<<10
	o.work = pace{burst: 1 << 30, perSecond: 1 << 30} // so much that only the share keeps the disk from filling up
	l := mustOpen(t, o)
	var admitted, refusedOps int64
	for i := range 120_000 {
		r := allowed(t, fmt.Sprintf("%s/%d", rand.Text(), i))
		r.Op, r.Subject = names.OpMkdir, guard.Subject(fmt.Sprint("s", i%300))
		if l.Pace(&r, time.Second) > time.Second {
			refusedOps++
			continue
		}
		if err := l.Record(r); err != nil {
			t.Fatal(err)
		}
		admitted++
	}
	if refusedOps == 0 || admitted == 0 {
		t.Errorf("%d operations were admitted, and %d were not", admitted, refusedOps)
	}
	for i := range 30_000 {
		r := refusal(t, fmt.Sprintf("%s/%d", rand.Text(), i))
		r.Subject = guard.Subject(fmt.Sprint("s", i%300))
		if err := l.Record(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	// The owner's own operations still do not wait.
	owner := allowed(t, "x")
	owner.Via = guard.ViaControl
	if wait := l.Pace(&owner, 0); wait != 0 {
		t.Errorf("the owner waits %v", wait)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := dirBytes(t, o.Dir); n > share+o.MaxBytes+shareBurst {
		t.Errorf("the session's files take %d bytes, of a share of %d", n, share)
	}
	if r, err := Verify(o.Dir, o.Session, o.Anchor); err != nil || !r.OK || r.Lost != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	// Every refusal is recorded, by itself or in a sum.
	files, err := Files(o.Dir, o.Session)
	if err != nil {
		t.Fatal(err)
	}
	var refused int64
	if err := Read(files, Filter{}, func(e Entry) error {
		if e.Verdict == "refused" {
			refused += max(1, e.Count)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if refused != 30_000 {
		t.Errorf("%d of 30000 refusals are on record", refused)
	}
}

// Until half of the share is used, no operation waits. From then on, an operation waits longer, the
// less of the share is left.
func TestShareGetsSlower(t *testing.T) {
	o := Options{MaxTotal: 200 << 20, work: pace{workBurst, 1000}, refusals: pace{refusalBurst, 1000}}
	now := time.Unix(1000, 0)
	var last time.Duration
	for _, percent := range []int64{49, 50, 75, 90, 99} {
		l := newLimits(&o)
		l.shareUsed = l.share * percent / 100
		chargeWork(l.budgetsOf("s", now), l.sharedBurst, now, time.Hour) // the most that may be charged without waiting
		wait := chargeWork(l.budgetsOf("s", now), 1000, now, time.Hour)
		if (percent < 50) != (wait == 0) || wait < last {
			t.Errorf("%d%%: %v, after %v", percent, wait, last)
		}
		last = wait
	}
	l := newLimits(&o)
	if l.shareUsed = l.share; chargeWork(l.budgetsOf("s", now), 1, now, time.Hour) <= time.Hour {
		t.Error("without any share left an operation begins")
	}
	l = newLimits(&Options{work: o.work, refusals: o.refusals})
	if l.shareUsed = 1 << 50; chargeWork(l.budgetsOf("s", now), 1<<20, now, 0) != 0 || !chargeRefusal(l.budgetsOf("s", now), 1<<20, now) {
		t.Error("without a bound something waits")
	}
}
