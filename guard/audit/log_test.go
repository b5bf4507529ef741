package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

func options(t testing.TB) Options {
	dir := t.TempDir()
	return Options{Dir: filepath.Join(dir, "audit"), Session: "work-1", Anchor: filepath.Join(dir, "state", "anchor")}
}

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err == nil {
		t.Cleanup(func() { l.Close() })
		err = l.Anchored()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustRecord(t testing.TB, l *Log, r guard.Record) {
	t.Helper()
	if err := l.Record(r); err != nil {
		t.Fatal(err)
	}
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// entries reads everything of a session and checks that no number is missing.
func entries(t testing.TB, o Options) []Entry {
	t.Helper()
	files, err := Files(o.Dir, o.Session)
	if err != nil {
		t.Fatal(err)
	}
	var list []Entry
	err = Read(files, Filter{}, func(e Entry) error {
		if n := len(list); n > 0 && e.Seq != list[n-1].Seq+1 {
			t.Errorf("line %d after %d", e.Seq, list[n-1].Seq)
		}
		list = append(list, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func mustVerify(t testing.TB, o Options) Report {
	t.Helper()
	r, err := Verify(o.Dir, o.Session, o.Anchor)
	if err != nil || !r.OK || !r.Anchored {
		t.Fatalf("verify: %+v, %v", r, err)
	}
	return r
}

// R084: when Record returns, a refusal or failure is in the file, after the earlier records. So is a
// record without a verdict.
func TestR084RefusalsAtOnce(t *testing.T) {
	o := options(t)
	l := mustOpen(t, o)
	for i, verdict := range []guard.Verdict{guard.Refused, guard.Failed, 0} {
		before, secret := fmt.Sprint("before", i), fmt.Sprint("secret", i) // equal records would be folded
		mustRecord(t, l, allowed(t, before))
		r := refusal(t, secret)
		r.Verdict = verdict
		mustRecord(t, l, r)
		got := entries(t, o)
		if len(got) != 1+2*(i+1) || got[len(got)-2].Path.Raw() != before || got[len(got)-1].Path.Raw() != secret {
			t.Fatalf("%v: %d lines in the file", verdict, len(got))
		}
	}
}

func TestAllowedAreWrittenWithoutClose(t *testing.T) {
	o := options(t)
	l := mustOpen(t, o)
	mustRecord(t, l, allowed(t, "a"))
	testkit.Until(t, "the writer has written the record", func() bool { return l.Status().Written >= 2 })
	if got := entries(t, o); len(got) != 2 || got[1].Path != "a" {
		t.Errorf("got %+v", got)
	}
}

func TestFileModesAndKey(t *testing.T) {
	o := options(t)
	o.Paths = PathsHash
	l := mustOpen(t, o)
	mustRecord(t, l, refusal(t, "x"))
	mustClose(t, l)
	for path, mode := range map[string]os.FileMode{o.Dir: 0o700, filepath.Dir(o.Anchor): 0o700, o.Anchor: 0o600,
		l.Path(): 0o600, filepath.Join(filepath.Dir(o.Anchor), "audit.key"): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, mode)
		}
	}
	first := entries(t, o)[1].PathHash
	l = mustOpen(t, o)
	mustRecord(t, l, refusal(t, "x"))
	if again := entries(t, o)[3].PathHash; again != first || first == "" {
		t.Errorf("hash %q after restart, %q before: the key must be kept", again, first)
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no dir":          func(o *Options) { o.Dir = "" },
		"no anchor":       func(o *Options) { o.Anchor = "" },
		"climbing name":   func(o *Options) { o.Session = "../x" },
		"slash":           func(o *Options) { o.Session = "a/b" },
		"newline":         func(o *Options) { o.Session = "a\nb" },
		"hidden":          func(o *Options) { o.Session = ".a" },
		"negative":        func(o *Options) { o.MaxBytes = -1 },
		"unknown mode":    func(o *Options) { o.Paths = 7 },
		"writable dir":    func(o *Options) { os.Mkdir(o.Dir, 0o700); os.Chmod(o.Dir, 0o777) },
		"dir is a file":   func(o *Options) { os.WriteFile(o.Dir, nil, 0o600) },
		"short key":       func(o *Options) { o.Paths = PathsHash; o.KeyFile = o.Dir + ".key"; os.WriteFile(o.KeyFile, nil, 0o600) },
		"anchor is a dir": func(o *Options) { os.MkdirAll(o.Anchor+"/x", 0o700) },
		"key for others": func(o *Options) {
			o.Paths = PathsHash
			o.KeyFile = o.Dir + ".key"
			os.WriteFile(o.KeyFile, make([]byte, 32), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			change(&o)
			if l, err := Open(o); err == nil {
				l.Close()
				t.Error("opened")
			}
		})
	}
}

func TestOneLogPerSession(t *testing.T) {
	o := options(t)
	l := mustOpen(t, o)
	if _, err := Open(o); !errors.Is(err, names.Locked) {
		t.Errorf("second log: %v", err)
	}
	mustClose(t, l)
	mustClose(t, mustOpen(t, o))
	if err := l.Record(refusal(t, "x")); !errors.Is(err, ErrClosed) {
		t.Errorf("record after close: %v", err)
	}
	mustClose(t, l) // a second Close is no error
}

// The chain continues after a restart, also after a crash that tore the last line.
func TestRestart(t *testing.T) {
	o := options(t)
	l := mustOpen(t, o)
	mustRecord(t, l, refusal(t, "one"))
	mustClose(t, l)
	f, err := os.OpenFile(l.Path(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"seq":3,"time":"2026-`)
	f.Close()
	for range 2 {
		l = mustOpen(t, o)
		mustRecord(t, l, refusal(t, "two"))
		mustClose(t, l)
	}
	r := mustVerify(t, o)
	if r.Files != 3 || r.Records != 6 || r.To != 6 || r.Torn != 1 {
		t.Errorf("%+v", r)
	}
	files, _ := Files(o.Dir, o.Session)
	var damage *DamageError
	n := 0
	err = Read(files, Filter{}, func(Entry) error { n++; return nil })
	if !errors.As(err, &damage) || len(damage.List) != 1 || !damage.List[0].Torn || damage.List[0].Line != 3 || n != 6 {
		t.Errorf("read %d entries, %v", n, err)
	}
}

func TestConcurrentRecord(t *testing.T) {
	o := options(t)
	o.MaxBytes = 50_000
	l := mustOpen(t, o)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				r := allowed(t, fmt.Sprintf("g%d/%d", g, i))
				if i%10 == 0 {
					r.Verdict = guard.Refused
				}
				if err := l.Record(r); err != nil {
					t.Error(err)
				}
				l.Status()
			}
		})
	}
	wg.Wait()
	mustClose(t, l)
	last, n := map[string]int{}, 0
	for _, e := range entries(t, o) {
		if e.Op != "open" {
			continue
		}
		n++
		var i int
		g, num, _ := strings.Cut(e.Path.Raw(), "/")
		fmt.Sscan(num, &i)
		if i != 0 && i != last[g]+1 {
			t.Errorf("%s: %d after %d", g, i, last[g])
		}
		last[g] = i
	}
	if n != 1600 {
		t.Errorf("%d records", n)
	}
	if r := mustVerify(t, o); r.Files < 5 || r.Records != l.Status().Written {
		t.Errorf("%+v", r)
	}
}

// boundedSink is a sink with room for a number of bytes, like a disk that fills up.
type boundedSink struct {
	sink
	room *atomic.Int64
}

func (f boundedSink) Write(p []byte) (int, error) {
	room := int(f.room.Load())
	if room >= len(p) {
		f.room.Add(-int64(len(p)))
		return f.sink.Write(p)
	}
	f.room.Store(0)
	n, err := f.sink.Write(p[:room])
	return n, errors.Join(err, syscall.ENOSPC)
}

// openBounded opens a log whose files share the returned room, in bytes. At first there is plenty.
func openBounded(t *testing.T, o Options) (*Log, *atomic.Int64) {
	room := new(atomic.Int64)
	room.Store(1 << 40)
	l, err := open(o, func(path string) (sink, error) {
		if room.Load() == 0 {
			return nil, syscall.ENOSPC
		}
		f, err := createFile(path)
		return boundedSink{f, room}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, room
}

// R084: while the sink is full, Record fails for refusals. Once there is room, the queued records are
// written in order. The log accounts for rejected records: refusals in a sum, others by their number.
func TestR084FullSink(t *testing.T) {
	o := options(t)
	o.MaxBytes = 256 << 10 // the queue spans several files
	l, room := openBounded(t, o)
	mustRecord(t, l, allowed(t, "ok"))
	room.Store(100) // the next write stops in the middle of a line
	refused := l.Record(refusal(t, "first"))
	if !errors.Is(refused, syscall.ENOSPC) {
		t.Fatalf("refusal on a full sink: %v", refused)
	}
	mustRecord(t, l, allowed(t, "queued"))
	if err := l.Record(refusal(t, "second")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("second refusal: %v", err)
	}
	taken, long := 0, strings.Repeat(strings.Repeat("n", 200)+"/", 100)+"x"
	for l.Record(allowed(t, fmt.Sprint(long, taken))) == nil { // ends: the queue is bounded
		taken++
	}
	third := refusal(t, long)
	third.Detail = "third"
	err := l.Record(third)
	if !errors.Is(err, ErrFull) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("refusal on a full queue: %v", err)
	}
	if s := l.Status(); s.Lost != 1 || !errors.Is(s.Err, syscall.ENOSPC) || s.Queued > queueLimit+maxLine {
		t.Errorf("status %+v", s)
	}
	room.Store(1 << 40)
	mustRecord(t, l, refusal(t, "after"))
	mustClose(t, l)

	var ops []string
	for _, e := range entries(t, o) {
		switch {
		case e.Op == opSummed:
			ops = append(ops, fmt.Sprint("summed ", e.Count, " ", e.Detail))
		case e.Op == opLost:
			ops = append(ops, fmt.Sprint("lost ", e.Lost))
		case e.Op == "open" && len(e.Path) < 10:
			ops = append(ops, e.Path.Raw())
		case e.Op == "open":
			taken--
		}
	}
	if want := "ok first queued second lost 1 after summed 1 third"; strings.Join(ops, " ") != want {
		t.Errorf("got %v, want %s", ops, want)
	}
	if taken != 0 {
		t.Errorf("%d records that were taken are missing", taken)
	}
	if r := mustVerify(t, o); r.Lost != 1 || r.Files < 4 {
		t.Errorf("%+v", r)
	}
}

// On a full sink the next file cannot be created. Record then fails as for any failed write. Once
// there is room, Record succeeds, and the chain is intact.
func TestRotationOnFullSink(t *testing.T) {
	o := options(t)
	o.MaxBytes = 400 // the header alone is longer, so every record begins a new file
	l, room := openBounded(t, o)
	mustRecord(t, l, refusal(t, "a"))
	room.Store(0)
	if err := l.Record(refusal(t, "b")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%v", err)
	}
	room.Store(1 << 40)
	mustRecord(t, l, refusal(t, "c"))
	mustClose(t, l)
	mustVerify(t, o)
}

// Close and Status report an anchor that cannot be written. Records are still written.
func TestAnchorFails(t *testing.T) {
	o := options(t)
	l := mustOpen(t, o)
	if err := os.RemoveAll(filepath.Dir(o.Anchor)); err != nil {
		t.Fatal(err)
	}
	mustRecord(t, l, refusal(t, "a"))
	if err := l.Close(); err == nil || l.Status().AnchorErr == nil {
		t.Errorf("close: %v, status %+v", err, l.Status())
	}
}

// A log accepts records while it is anchored for the first time. Anchored returns the result.
func TestAnchored(t *testing.T) {
	for _, tt := range []struct {
		name   string
		create func(path string) (sink, error)
		ok     bool
	}{
		{"anchored", createFile, true},
		{"the disk fails", func(path string) (sink, error) {
			f, err := createFile(path)
			return unsynced{f}, err
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t)
			l, err := open(o, tt.create)
			if err != nil {
				t.Fatal(err)
			}
			mustRecord(t, l, refusal(t, "a"))
			if err := l.Anchored(); (err == nil) != tt.ok {
				t.Errorf("anchored: %v", err)
			}
			if a, err := readAnchor(o.Anchor); err != nil || (a != nil) != tt.ok {
				t.Errorf("anchor %+v, %v", a, err)
			}
			if err := l.Close(); (err == nil) != tt.ok {
				t.Errorf("close: %v", err)
			}
			if tt.ok {
				mustVerify(t, o)
			} else if left, _ := filepath.Glob(filepath.Join(filepath.Dir(o.Anchor), ".*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// unsynced is a sink whose Sync fails.
type unsynced struct{ sink }

func (unsynced) Sync() error { return syscall.EIO }
