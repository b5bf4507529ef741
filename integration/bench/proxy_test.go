package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestServeProxy runs the server of childFiles behind the process of childProxy, and checks that
// the server gets the files that it asks for.
func TestServeProxy(t *testing.T) {
	l := newLab(t)
	dir := l.path("files")
	if err := makeFiles(dir); err != nil {
		t.Fatal(err)
	}
	p, err := newReference(t.Context(), exec.CommandContext(t.Context(), l.self, childProxy, dir, l.self, childFiles), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range filesCases {
		c.load.Count = 5
		if out, err := (&brokeredPeer{host: p.host}).do(t.Context(), c.load); err != nil || out.Median <= 0 || out.P99 < out.Median {
			t.Errorf("%s: %+v, %v", c.name, out, err)
		}
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

func TestProxyGoals(t *testing.T) {
	r := &report{}
	for _, c := range proxyCases {
		r.Proxy = append(r.Proxy, &proxyRow{
			Name: c.name, With: []float64{95}, Without: []float64{100},
			Medians: []time.Duration{time.Millisecond + 300*time.Microsecond}, Plain: []time.Duration{time.Millisecond},
		})
	}
	r.Proxy[1].With[0] = 80
	r.Proxy[2].Broken = "it broke"
	got := map[status]int{}
	for _, o := range judgeProxy(r) {
		got[o.Status]++
	}
	// One row is too slow, and the first adds too much to a call; one was not measured.
	if got[met] != 1 || got[missed] != 2 || got[notMeasured] != 1 {
		t.Errorf("judged %v: %+v", got, judgeProxy(r))
	}
	if text := r.proxyTable(); !strings.Contains(text, "0.95") || !strings.Contains(text, "300µs") || strings.Count(text, "BROKEN") != 1 {
		t.Error(text)
	}
	none := &report{}
	if err := newLab(t).proxyRows(t.Context(), none, regexp.MustCompile("^tar"), time.Second); err != nil || len(none.Proxy) != 0 {
		t.Errorf("rows nobody asked for: %v, %v", none.Proxy, err)
	}
}
