package live

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// points are n points from a number on, a second apart, for the named roots.
func points(from uint64, n int, roots ...string) Figures {
	f := Figures{Last: from + uint64(n) - 1, Rates: map[string][]Rate{}}
	for i := range n {
		f.Times = append(f.Times, int64(from+uint64(i))*1000)
		f.Total = append(f.Total, Rate{Ops: float64(from) + float64(i)})
		for _, r := range roots {
			f.Rates[r] = append(f.Rates[r], Rate{Ops: float64(from) + float64(i)})
		}
	}
	return f
}

// Whoever asks for what follows, in whatever steps and from whenever on, comes to
// have what the session has.
func TestFiguresAreTheSameForAll(t *testing.T) {
	var session Figures
	early, late := Figures{}, Figures{}
	for n := uint64(1); n < 3*kept; n++ {
		roots := []string{"a"}
		if n > 100 && n < 400 {
			roots = append(roots, "b")
		}
		session.Add(points(n, 1, roots...))
		if rand.IntN(3) == 0 {
			early.Add(session.after(early.Last))
		}
		if n > 700 {
			late.Add(session.after(late.Last))
		}
		if len(session.Times) > kept || session.Last != n {
			t.Fatalf("point %d: %d points, the last is %d", n, len(session.Times), session.Last)
		}
	}
	early.Add(session.after(early.Last))
	if !reflect.DeepEqual(early, session) || !reflect.DeepEqual(late, session) {
		t.Errorf("%d points, %d of an early looker, %d of a late one", len(session.Times), len(early.Times), len(late.Times))
	}
	if got := session.after(session.Last); len(got.Times) != 0 || got.Times == nil || got.Last != session.Last {
		t.Errorf("nothing follows: %+v", got)
	}
	if now, roots := session.Now(); now.Ops != 3*kept-1 || len(roots) != 1 || roots["a"] != now {
		t.Errorf("now: %+v, %+v", now, roots)
	}
}

// A root that came later has zeros before; one that has ended is gone.
func TestFiguresOfRoots(t *testing.T) {
	var f Figures
	f.Add(points(1, 3, "a"))
	f.Add(points(4, 2, "b"))
	if len(f.Rates) != 1 || len(f.Rates["b"]) != 5 || f.Rates["b"][2] != (Rate{}) || f.Rates["b"][3].Ops != 4 {
		t.Errorf("%+v", f.Rates)
	}
	// A clock that was set back begins anew: times rise.
	back := points(2, 1, "b")
	back.Last = 6
	f.Add(back)
	if len(f.Times) != 1 || f.Last != 6 || len(f.Rates["b"]) != 1 {
		t.Errorf("set back: %+v", f)
	}
	if total, roots := (Figures{}).Now(); total != (Rate{}) || len(roots) != 0 {
		t.Error("nothing has a speed")
	}
}

// Speeds are made of counters; a root that was granted anew begins again.
func TestFigures(t *testing.T) {
	var f speeds
	at := time.Unix(1000, 0)
	root := func(epoch uint64, ops, read int64) []control.Root {
		return []control.Root{{Name: "a", Epoch: epoch, Ops: ops, BytesRead: read}}
	}
	for i, step := range []struct {
		roots []control.Root
		want  Rate
	}{
		{root(1, 100, 1000), Rate{}}, // how long that took is not known
		{root(1, 110, 3000), Rate{Ops: 5, Read: 1000}},
		{root(1, 110, 3000), Rate{}},
		{root(1, 111, 3001), Rate{Ops: 0.5, Read: 0.5}},
		{root(2, 7, 70), Rate{}}, // granted anew
		{root(2, 9, 70), Rate{Ops: 1}},
	} {
		at = at.Add(2 * time.Second)
		f.count(at, step.roots)
		total, roots := f.Now()
		if total != step.want || roots["a"] != step.want || f.Last != uint64(i+1) {
			t.Errorf("%+v: %+v and %+v, want %+v", step.roots, total, roots, step.want)
		}
	}
	// A state that an event brings is no point.
	if f.count(at.Add(time.Millisecond), root(2, 1000, 70)); f.Last != 6 {
		t.Errorf("%d points", f.Last)
	}
}

// However many roots there are, and for however long, what is kept is bounded; the
// total is that of all.
func TestFiguresAreBounded(t *testing.T) {
	var f speeds
	at := time.Unix(1000, 0)
	roots := make([]control.Root, 2*MaxRoots)
	for range kept + 10 {
		for i := range roots {
			roots[i].Name, roots[i].Epoch = fmt.Sprintf("%04d", i), uint64(i)
			roots[i].Ops++
		}
		at = at.Add(time.Second)
		f.count(at, slices.Clone(roots))
	}
	total, each := f.Now()
	if len(f.Times) != kept || len(each) != MaxRoots || len(f.Rates["0000"]) != kept || total.Ops != float64(len(roots)) {
		t.Errorf("%d points, %d roots, %v operations a second", len(f.Times), len(each), total.Ops)
	}
	f.count(at.Add(time.Second), nil)
	if _, each := f.Now(); len(each) != 0 || len(f.counts) != 0 {
		t.Errorf("%d roots that have ended are kept", len(each)+len(f.counts))
	}
}
