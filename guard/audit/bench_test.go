package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

func benchmark(b *testing.B, mode PathMode) {
	o := options(b)
	o.Paths = mode
	l := mustOpen(b, o)
	r := allowed(b, "src/internal/server/handler_test.go")
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Record(r); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	mustClose(b, l)
	b.ReportMetric(float64(l.Status().Bytes)/float64(b.N), "B/record")
}

// BenchmarkRecordAllowed measures the cost of auditing an open(2) that is repeated in the mount, so
// that most of its records are folded.
func BenchmarkRecordAllowed(b *testing.B) { benchmark(b, PathsFull) }

func BenchmarkRecordAllowedHashed(b *testing.B) { benchmark(b, PathsHash) }

func BenchmarkRecordRefused(b *testing.B) {
	l := mustOpen(b, options(b))
	r := refusal(b, "src/internal/server/handler_test.go")
	for b.Loop() {
		if err := l.Record(r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncode is Record without the queue and the writer.
func BenchmarkEncode(b *testing.B) {
	e := newEncoder("work-1", PathsFull, nil, mark{})
	r := allowed(b, "src/internal/server/handler_test.go")
	for b.Loop() {
		e.item(&item{rec: r, count: 1})
	}
}

// BenchmarkRecordCreated measures the cost of auditing the creation and the close of a file, with
// 5000 names in turn.
func BenchmarkRecordCreated(b *testing.B) {
	l := mustOpen(b, options(b))
	var paths []guard.Path
	for i := range 5000 {
		paths = append(paths, at(b, "code", fmt.Sprintf("node_modules/package-%d/lib/file-%d.js", i/20, i)))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := allowed(b, "x")
		r.Op, r.Rights, r.Path = names.OpCreate, guard.Create|guard.Write, paths[i%len(paths)]
		l.Pace(&r, time.Hour)
		var err error
		if r.Room, err = l.Reserve(b.Context(), nil, &r); err != nil {
			b.Fatal(err)
		}
		if err := l.Record(r); err != nil {
			b.Fatal(err)
		}
		r.Op, r.Rights, r.Room, r.Written = names.OpClose, 0, 0, 1000
		if err := l.Record(r); err != nil {
			b.Fatal(err)
		}
	}
}
