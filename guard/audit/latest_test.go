package audit

import (
	"os"
	"path/filepath"
	"testing"
)

// A session that was closed in order goes on in its latest file without a look at
// all the others; whatever else happened to it, they are looked at. The chain is
// whole either way.
func TestLatest(t *testing.T) {
	lock := func(o Options) string { return filepath.Join(o.Dir, "."+o.Session+".lock") }
	// killed ends a log as the end of its process does.
	killed := func(t *testing.T, l *Log) {
		l.kill()
		if err := l.lock.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		meddle func(t *testing.T, o *Options)
		asked  bool // the directory
	}{
		{"closed in order", func(*testing.T, *Options) {}, false},
		{"closed in order, continued", func(t *testing.T, o *Options) {
			long := *o
			long.MaxBytes = 1
			l := mustOpen(t, long)
			mustRecord(t, l, refusal(t, "a"))
			mustClose(t, l)
			mustClose(t, mustOpen(t, *o)) // a shorter name over a longer one
		}, false},
		{"killed", func(t *testing.T, o *Options) {
			l := mustOpen(t, *o)
			mustRecord(t, l, refusal(t, "a"))
			killed(t, l)
		}, true},
		{"killed before the first anchor", func(t *testing.T, o *Options) {
			later := *o
			later.AnchorLater = true
			l, err := open(later, func(path string) (sink, error) {
				f, err := createFile(path)
				return unsynced{f}, err
			})
			if err != nil || l.Anchored() == nil {
				t.Fatalf("%v, or it was anchored", err)
			}
			killed(t, l)
		}, true},
		{"the file is gone", func(t *testing.T, o *Options) {
			l := mustOpen(t, *o)
			mustClose(t, l)
			if err := os.Rename(l.Path(), filepath.Join(o.Dir, "elsewhere")); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"an older file is named", func(t *testing.T, o *Options) {
			was, err := os.ReadFile(lock(*o))
			if err != nil {
				t.Fatal(err)
			}
			mustClose(t, mustOpen(t, *o))
			if err := os.WriteFile(lock(*o), was, 0o600); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"no file is named", func(t *testing.T, o *Options) {
			if err := os.Truncate(lock(*o), 0); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"no anchor", func(t *testing.T, o *Options) {
			if err := os.Remove(o.Anchor); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"files are pruned", func(_ *testing.T, o *Options) { o.Keep = 100 }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t)
			for range 3 {
				mustClose(t, mustOpen(t, o))
			}
			tt.meddle(t, &o)
			before, err := Files(o.Dir, o.Session)
			if err != nil {
				t.Fatal(err)
			}
			l := mustOpen(t, o)
			if known := len(l.w.names) - 1; known != 1 && !tt.asked || known != len(before) && tt.asked {
				t.Errorf("%d files are known of %d", known, len(before))
			}
			mustRecord(t, l, refusal(t, "b"))
			mustClose(t, l)
			if tt.name == "the file is gone" {
				return // which Verify tells
			}
			if r := mustVerify(t, o); r.From != 1 || r.Files != len(before)+1 {
				t.Errorf("%+v", r)
			}
		})
	}
}
