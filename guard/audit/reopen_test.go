package audit

import (
	"os"
	"path/filepath"
	"testing"
)

// However a run of a session has ended, the next run continues the session's chain. If the last file
// is gone, the next run at least begins.
func TestReopen(t *testing.T) {
	for _, tt := range []struct {
		name   string
		meddle func(t *testing.T, o *Options)
	}{
		{"closed in order", func(*testing.T, *Options) {}},
		{"closed in order, continued", func(t *testing.T, o *Options) {
			long := *o
			long.MaxBytes = 1
			l := mustOpen(t, long)
			mustRecord(t, l, refusal(t, "a"))
			mustClose(t, l)
			mustClose(t, mustOpen(t, *o)) // the anchor names a file with a shorter name than before
		}},
		{"killed", func(t *testing.T, o *Options) {
			l := mustOpen(t, *o)
			mustRecord(t, l, refusal(t, "a"))
			simulateKill(t, *o, l)
		}},
		{"killed before the first anchor", func(t *testing.T, o *Options) {
			l, err := open(*o, func(path string) (sink, error) {
				f, err := createFile(path)
				return unsynced{f}, err
			})
			if err != nil || l.Anchored() == nil {
				t.Fatalf("%v, or it was anchored", err)
			}
			simulateKill(t, *o, l)
		}},
		{"the file is gone", func(t *testing.T, o *Options) {
			l := mustOpen(t, *o)
			mustClose(t, l)
			if err := os.Rename(l.Path(), filepath.Join(o.Dir, "elsewhere")); err != nil {
				t.Fatal(err)
			}
		}},
		{"no anchor", func(t *testing.T, o *Options) {
			if err := os.Remove(o.Anchor); err != nil {
				t.Fatal(err)
			}
		}},
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
			mustRecord(t, l, refusal(t, "b"))
			mustClose(t, l)
			if tt.name == "the file is gone" {
				return // Verify reports it
			}
			if r := mustVerify(t, o); r.From != 1 || r.Files != len(before)+1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// simulateKill ends a log, and leaves the files as a kill of its process would.
func simulateKill(t *testing.T, o Options, l *Log) {
	t.Helper()
	contents := map[string][]byte{}
	for _, pattern := range []string{o.Dir + "/*", o.Anchor} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if contents[path], err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.Close()
	paths, _ := filepath.Glob(o.Dir + "/*")
	for _, path := range append(paths, o.Anchor) {
		os.Remove(path)
	}
	for path, data := range contents {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
