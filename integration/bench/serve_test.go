package main

import (
	"regexp"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/files"
)

// Every row's call works on both servers. An answer that is too short breaks the row.
func TestServeRows(t *testing.T) {
	if _, err := files.InstallPeers(t.Context()); err != nil {
		t.Skip(err)
	}
	l := newLab(t)
	if err := l.findPrograms(t.Context(), "", "bindfs"); err != nil {
		t.Fatal(err)
	}
	r := &report{When: time.Now(), Size: tiny, Repetitions: 1}
	if err := l.serveRows(t.Context(), r, regexp.MustCompile("^serve"), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if len(r.Serve) != len(serveCases(false)) {
		t.Errorf("%d rows", len(r.Serve))
	}
	for _, row := range r.Serve {
		if row.Broken != "" || row.ratio() <= 0 || row.p99() <= 0 {
			t.Errorf("%+v", row)
		}
	}
	if got := judgeServe(r); len(got) != len(r.Serve) || got[0].Status == notMeasured {
		t.Errorf("%+v", got)
	}
	c := serveCases(false)[0]
	c.least *= 10
	row := &filesRow{Name: c.name}
	peers, err := files.InstallPeers(t.Context())
	if err == nil {
		err = l.serveRow(t.Context(), row, r, &c, peers, time.Millisecond)
	}
	if err != nil || row.Broken == "" {
		t.Errorf("a short answer was taken: %+v, %v", row, err)
	}
}
