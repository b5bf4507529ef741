package main

import (
	"regexp"
	"testing"
	"time"
)

// testSecretRows is part of TestNetworkRows, which has built the programs. It checks that the
// requests through --secret and the requests without a sandbox have results, and that every goal
// is measured.
func testSecretRows(t *testing.T, l *lab) {
	t.Helper()
	r := &report{When: time.Now(), Size: tiny, Repetitions: 1}
	if err := l.secretRows(t.Context(), r, regexp.MustCompile("^secret")); err != nil {
		t.Fatal(err)
	}
	s := r.Secret
	for _, way := range []secretWay{s.Direct, s.Ours} {
		if s.Broken != "" || median(way.Download) <= 0 || median(way.Upload) <= 0 || median(way.First) <= 0 || median(way.Request) <= 0 {
			t.Errorf("%+v", s)
		}
	}
	for _, o := range judgeSecret(r) {
		if o.Status == notMeasured {
			t.Errorf("%+v", o)
		}
	}
}
