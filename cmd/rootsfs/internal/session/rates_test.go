package session

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
)

// Speeds are made of counters; a root that was granted anew begins again.
func TestFigures(t *testing.T) {
	var f figures
	at := time.Unix(1000, 0)
	root := func(epoch uint64, ops, read int64) []guard.Status {
		return []guard.Status{{Grant: guard.Grant{Root: "a"}, Epoch: epoch, Ops: ops, BytesRead: read}}
	}
	for i, step := range []struct {
		roots []guard.Status
		want  control.Rate
	}{
		{root(1, 100, 1000), control.Rate{}}, // how long that took is not known
		{root(1, 110, 3000), control.Rate{Ops: 5, Read: 1000}},
		{root(1, 110, 3000), control.Rate{}},
		{root(1, 111, 3001), control.Rate{Ops: 0.5, Read: 0.5}},
		{root(2, 7, 70), control.Rate{}}, // granted anew
		{root(2, 9, 70), control.Rate{Ops: 1}},
	} {
		at = at.Add(2 * time.Second)
		f.add(at, step.roots)
		total, roots := f.kept.Now()
		if total != step.want || roots["a"] != step.want || f.kept.Last != uint64(i+1) {
			t.Errorf("%+v: %+v and %+v, want %+v", step.roots, total, roots, step.want)
		}
	}
}

// However many roots there are, and for however long, what is kept is bounded; the
// total is that of all.
func TestFiguresAreBounded(t *testing.T) {
	var f figures
	at := time.Unix(1000, 0)
	roots := make([]guard.Status, 2*control.FiguresRoots)
	for range control.FiguresKept + 10 {
		for i := range roots {
			roots[i].Grant.Root, roots[i].Epoch = guard.RootName(fmt.Sprintf("%04d", i)), uint64(i)
			roots[i].Ops++
		}
		at = at.Add(time.Second)
		f.add(at, roots)
	}
	total, each := f.kept.Now()
	if len(f.kept.Times) != control.FiguresKept || len(each) != control.FiguresRoots || len(f.kept.Rates["0000"]) != control.FiguresKept || total.Ops != float64(len(roots)) {
		t.Errorf("%d points, %d roots, %v operations a second", len(f.kept.Times), len(each), total.Ops)
	}
	f.add(at.Add(time.Second), nil)
	if _, each := f.kept.Now(); len(each) != 0 || len(f.last) != 0 {
		t.Errorf("%d roots that have ended are kept", len(each)+len(f.last))
	}
}

// A root that was allowed to requests without a session says who else has it.
func TestRootsSaySharing(t *testing.T) {
	st := control.Status{
		Roots: []control.Root{{Name: "a", Subject: "s#1"}, {Name: "b", Subject: "s#2"}, {Name: "c"}},
		Files: []broker.Stats{{Subject: "s#2"}, {Subject: "s#1", SharedBy: "all"}, {SharedBy: "nobody in particular"}},
	}
	addSharing(&st)
	if st.Roots[0].SharedBy != "all" || st.Roots[1].SharedBy != "" || st.Roots[2].SharedBy != "" {
		t.Errorf("%+v", st.Roots)
	}
}

// Nothing is counted while there are no operations; whoever looks sees that time all the
// same, as one of no speed.
func TestFiguresOfAnIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := guard.NewRegistry(guard.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var f figures
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.run(ctx, reg)
		}()
		for range 3 {
			time.Sleep(100*time.Second + control.FiguresEvery/2)
			_, _ = reg.Admit(ctx, guard.Request{}) // refused, which is an operation all the same
		}
		time.Sleep(100 * time.Second)
		first, all := f.after(1), f.after(0)
		if len(first.Times) != control.FiguresKept || all.Last < control.FiguresKept || all.Total[0] != (control.Rate{}) {
			t.Errorf("%d points, the last is the %dth: %+v", len(first.Times), all.Last, all.Total[0])
		}
		for i, at := range all.Times[1:] {
			if d := at - all.Times[i]; d < 500 || d > 1500 {
				t.Errorf("point %d lies %d ms after the one before", i+1, d)
			}
		}
		cancel()
		<-ended
	})
}
