package top

import (
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/live"
)

// A chart has a bar for each span, its highest, and shows that something is more
// than nothing.
func TestChart(t *testing.T) {
	of := func(r live.Rate) float64 { return r.Ops }
	rates := func(list ...float64) (out []live.Rate) {
		for _, v := range list {
			out = append(out, live.Rate{Ops: v})
		}
		return out
	}
	for _, tt := range []struct {
		list   []live.Rate
		places int
		want   string
	}{
		{nil, 10, ""},
		{rates(0, 0), 10, "▁▁"},
		{rates(0, 0.01, 50, 100), 10, "▁▂▅█"},
		{rates(1, 9, 0, 0, 3, 18), 3, "▅▁█"},
		{rates(1, 2), 0, ""},
	} {
		if got := chart(tt.list, of, tt.places); got != tt.want {
			t.Errorf("%v in %d: %s, want %s", tt.list, tt.places, got, tt.want)
		}
	}
}
