package auditview

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A timeline counts every record in a bounded number of spans, whether the records are seconds,
// hours or days apart.
func TestTimeline(t *testing.T) {
	verdicts := []string{"allowed", "refused", "failed", ""}
	for _, tt := range []struct {
		records int
		every   time.Duration
	}{{0, 0}, {1, 0}, {7, 0}, {100, time.Second}, {20_000, time.Second}, {30_000, time.Hour}, {20_000, 365 * 24 * time.Hour / 100}} {
		c, at := newSpanCounter(), time.Unix(1_700_000_000, 0)
		for i := range tt.records {
			c.add(&audit.Entry{Time: at, Verdict: names.Foreign(verdicts[i%4])})
			at = at.Add(tt.every)
			if len(c.n) > maxSpans+1 {
				t.Fatalf("the counter has %d spans", len(c.n))
			}
		}
		line := c.timeline()
		sum := [3]int{}
		for i := range line.Allowed {
			sum[0] += line.Allowed[i]
			sum[1] += line.Refused[i]
			sum[2] += line.Failed[i]
		}
		if want := [3]int{(tt.records+3)/4 + tt.records/4, (tt.records + 2) / 4, (tt.records + 1) / 4}; sum != want {
			t.Errorf("%+v: %v, want %v", tt, sum, want)
		}
		if len(line.Allowed) > buckets+1 || len(line.Refused) != len(line.Allowed) || line.Allowed == nil {
			t.Errorf("%+v: %d spans", tt, len(line.Allowed))
		}
		if tt.records > 1 {
			end := line.From.Add(time.Duration(line.StepMS*int64(len(line.Allowed))) * time.Millisecond)
			if line.From.After(time.Unix(1_700_000_000, 0)) || end.Before(at.Add(-tt.every)) {
				t.Errorf("%+v: from %v to %v", tt, line.From, end)
			}
		}
	}
}

// Filter.Denied selects only refusals, whatever Verdict is.
func TestDeniedIsHonoured(t *testing.T) {
	dir := t.TempDir()
	log, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "audit"), Session: "s", Anchor: filepath.Join(dir, "anchor")})
	testkit.Must(t, err)
	for _, v := range []guard.Verdict{guard.Allowed, guard.Refused} {
		testkit.Must(t, log.Record(guard.Record{Time: time.Now(), Op: names.OpWrite, Via: guard.ViaFUSE, Verdict: v}))
	}
	testkit.Must(t, log.Close())
	s := &Store{Dir: filepath.Join(dir, "audit")}
	for _, tt := range []struct {
		q    Query
		want int
	}{
		{Query{}, 2},
		{Query{Filter: audit.Filter{Denied: true}}, 1},
		{Query{Verdict: "refused"}, 1},
		{Query{Verdict: "allowed"}, 1},
		{Query{Filter: audit.Filter{Denied: true}, Verdict: "allowed"}, 0},
	} {
		tt.q.Limit = 10
		if got, err := s.Find(context.Background(), tt.q); err != nil || got.Matched != tt.want {
			t.Errorf("%+v: %d records (%v), want %d", tt.q, got.Matched, err, tt.want)
		}
	}
}
