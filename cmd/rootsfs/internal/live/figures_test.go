package control

import (
	"math/rand/v2"
	"reflect"
	"testing"
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
	for n := uint64(1); n < 3*FiguresKept; n++ {
		roots := []string{"a"}
		if n > 100 && n < 400 {
			roots = append(roots, "b")
		}
		session.Add(points(n, 1, roots...))
		if rand.IntN(3) == 0 {
			early.Add(session.After(early.Last))
		}
		if n > 700 {
			late.Add(session.After(late.Last))
		}
		if len(session.Times) > FiguresKept || !session.whole() || session.Last != n {
			t.Fatalf("point %d: %d points, the last is %d", n, len(session.Times), session.Last)
		}
	}
	early.Add(session.After(early.Last))
	if !reflect.DeepEqual(early, session) || !reflect.DeepEqual(late, session) {
		t.Errorf("%d points, %d of an early looker, %d of a late one", len(session.Times), len(early.Times), len(late.Times))
	}
	if got := session.After(session.Last); len(got.Times) != 0 || got.Times == nil || got.Last != session.Last {
		t.Errorf("nothing follows: %+v", got)
	}
	if got := session.After(session.Last + 7); len(got.Times) != FiguresKept {
		t.Errorf("a number from another session: %d points", len(got.Times))
	}
	if now, roots := session.Now(); now.Ops != 3*FiguresKept-1 || len(roots) != 1 || roots["a"] != now {
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
	if total, roots := (&Figures{}).Now(); total != (Rate{}) || len(roots) != 0 {
		t.Error("nothing has a speed")
	}
}
