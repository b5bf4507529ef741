package sandbox

import (
	"context"
	"slices"
	"testing"
)

// R113: Probe reports the levels that Start reaches: each level that works, and the
// layers of the strongest.
func TestProbe(t *testing.T) {
	rep := Probe(context.Background(), nil)
	strongest := Level(0)
	for i, level := range confining {
		p, err := Start(context.Background(), Options{Level: level, Tree: tree(t), Private: private(t), Args: []string{"true"}})
		if err == nil {
			if strongest == 0 {
				strongest = level
			}
			p.Stdin().Close()
			if _, err := p.Wait(); err != nil {
				t.Fatal(err)
			}
			p.Stdout().Close()
			p.Stderr().Close()
		}
		if r := rep.Levels[i]; r.Level != level || r.OK != (err == nil) || r.OK != (r.Why == "") {
			t.Errorf("%s: %+v, and starting a command: %v", level, r, err)
		}
	}
	if rep.Level != strongest || !slices.ContainsFunc(rep.Layers, func(l Layer) bool { return l.Name == "seccomp" && l.State == On }) {
		t.Errorf("the strongest level is %v; reported is %+v", strongest, rep)
	}
}
