package audit

import "testing"

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
	b.ReportMetric(float64(l.Last().Bytes)/float64(b.N), "B/record")
}

// BenchmarkRecordAllowed is what auditing adds to an open(2) in the mount.
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
		e.record(&r)
	}
}
