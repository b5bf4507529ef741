package testkit

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a testing.TB that records the text of Fatal.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatal(args ...any) {
	r.failure = fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

// failureOf returns the text with which f ended its test, or "" if f did not end it.
func failureOf(f func(testing.TB)) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.failure
}

func TestMust(t *testing.T) {
	if got := failureOf(func(t testing.TB) { Must(t); Must(t, nil); Must(t, nil, nil) }); got != "" {
		t.Errorf("without an error Must says %q", got)
	}
	got := failureOf(func(t testing.TB) { Must(t, nil, fs.ErrExist, errors.New("other")) })
	if want := fs.ErrExist.Error() + "\nother"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUntil(t *testing.T) {
	looks := 0
	got := failureOf(func(t testing.TB) {
		Until(t, "the third look", func() bool { looks++; return looks == 3 })
	})
	if got != "" || looks != 3 {
		t.Errorf("Until looked %d times, want 3, and says %q", looks, got)
	}
}

// A state that is reached while the process is stopped counts, however late the test checks it.
func TestWithin(t *testing.T) {
	for name, tc := range map[string]struct {
		after     int // looks until the state has come; 0: never
		stop      time.Duration
		want      bool
		wantLooks int
	}{
		"at once":           {1, 0, true, 1},
		"after some looks":  {4, 0, true, 4},
		"never":             {0, 0, false, 5}, // after 0, 1, 3, 7 and 15 ms
		"after a long stop": {2, time.Hour, true, 2},
		"never, with stops": {0, time.Hour, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks := 0
				got := within(10*time.Millisecond, func() bool {
					time.Sleep(tc.stop)
					looks++
					return looks == tc.after
				})
				if got != tc.want || looks != tc.wantLooks {
					t.Errorf("%v after %d looks, want %v after %d", got, looks, tc.want, tc.wantLooks)
				}
			})
		})
	}
}
