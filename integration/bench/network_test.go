package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// The client moves bytes directly, in rootsfs run, and through every other peer that works here.
// Goals against peers that are missing are reported as not measured.
func TestNetworkRows(t *testing.T) {
	l := newLab(t)
	if err := l.findPrograms(t.Context(), "", "bindfs"); err != nil {
		t.Fatal(err)
	}
	r := &report{When: time.Now(), Size: tiny, Repetitions: 1}
	if err := l.networkRows(t.Context(), r, regexp.MustCompile("^network")); err != nil {
		t.Fatal(err)
	}
	if r.Network == nil {
		t.Skip(r.Skipped)
	}
	for _, p := range r.Network.Peers {
		if p.isOwn() && p.Broken != "" || p.Broken == "" && (median(p.Download) <= 0 || median(p.Upload) <= 0 || median(p.First) <= 0) {
			t.Errorf("%+v", p)
		}
	}
	if n := r.Network; n.Broken != "" || len(n.Plain) != 1 || len(n.WithNet) != 1 || len(n.Revoke) != 1 {
		t.Errorf("%+v", n)
	}
	got := judgeNetwork(r)
	if len(got) != 6 || got[2].Status == notMeasured || got[5].Status == notMeasured {
		t.Errorf("%+v", got)
	}
	for _, o := range got[:2] { // the goals against other peers
		if missing := strings.Contains(strings.Join(r.Skipped, " "), o.Goal[strings.LastIndexByte(o.Goal, ' ')+1:]); missing != (o.Status == notMeasured) {
			t.Errorf("%+v, though %q was skipped", o, r.Skipped)
		}
	}
	testSecretRows(t, l)
}
