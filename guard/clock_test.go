package guard_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// wall is a wall clock that can be set to differ from the machine's, or stopped.
type wall struct {
	stopped time.Time
	offset  atomic.Int64
}

func (w *wall) now() time.Time {
	if !w.stopped.IsZero() {
		return w.stopped
	}
	return time.Now().Add(time.Duration(w.offset.Load()))
}

// newSetup returns a setup with the clock w and with the root r. By that clock, the root ends when
// lifetime has passed; 0: the root has no end. Timers check the clock every checkInterval.
func (w *wall) newSetup(t *testing.T, checkInterval time.Duration, l guard.Limits, lifetime time.Duration) *setup {
	t.Helper()
	s := newSetup(t, nil)
	s.SetWall(w.now, checkInterval)
	ask := guard.Grant{Root: "r", Dir: "/a", Policy: guard.Policy{Rights: guard.ReadWrite, Limits: l}, Origin: "test"}
	if lifetime != 0 {
		ask.Expires = w.now().Add(lifetime)
	}
	_, err := s.Grant(bg, ask)
	wantKind(t, err, 0)
	return s
}

// R070: stopping the wall clock does not extend a grant, renewed or not. Setting the clock back
// does not extend the time that a root may go unused.
func TestClockSetBack(t *testing.T) {
	t.Run("granted", func(t *testing.T) {
		w := &wall{stopped: time.Now()}
		awaitEnd(t, w.newSetup(t, time.Minute, guard.Limits{}, 50*time.Millisecond), "r")
	})
	t.Run("renewed", func(t *testing.T) {
		w := &wall{stopped: time.Now()}
		s := w.newSetup(t, time.Minute, guard.Limits{}, time.Hour)
		wantKind(t, s.Renew(bg, "r", w.now().Add(50*time.Millisecond)), 0)
		awaitEnd(t, s, "r")
	})
	t.Run("not used", func(t *testing.T) {
		w := &wall{}
		s := w.newSetup(t, 10*time.Millisecond, guard.Limits{Idle: time.Second}, 0)
		_ = s.once(req(t, names.OpRead), 0) // on a slow machine it may have ended
		w.offset.Store(int64(-time.Hour))
		awaitEnd(t, s, "r")
	})
}

// R070: the end of a root may fall into a sleep of the machine, or be skipped by a change of
// the clock. The root then refuses the next operation. If no operation comes, the root ends by
// itself.
func TestClockSetForward(t *testing.T) {
	for name, l := range map[string]guard.Limits{"end": {}, "not used": {Idle: 30 * time.Minute}} {
		in := time.Duration(0)
		if l.Idle == 0 {
			in = 30 * time.Minute
		}
		t.Run(name+", with an operation", func(t *testing.T) {
			w := &wall{}
			s := w.newSetup(t, time.Hour, l, in)
			wantKind(t, s.once(req(t, names.OpRead), 0), 0)
			w.offset.Store(int64(time.Hour))
			wantKind(t, s.once(req(t, names.OpRead), 0), names.Revoked)
			awaitEnd(t, s, "r")
		})
		t.Run(name+", without an operation", func(t *testing.T) {
			w := &wall{}
			s := w.newSetup(t, 10*time.Millisecond, l, in)
			w.offset.Store(int64(time.Hour))
			awaitEnd(t, s, "r")
		})
	}
}

// flusher writes back dirty data when the view is flushed.
type flusher struct{ write func() error }

func (f *flusher) Invalidate(context.Context, guard.Change) error { return nil }
func (f *flusher) Flush(_ context.Context, c guard.Change) error  { return f.write() }

// If a root ends late, its dirty data is still written back.
func TestOverdueFlushes(t *testing.T) {
	w := &wall{}
	s := w.newSetup(t, time.Hour, guard.Limits{}, 30*time.Minute)
	written := make(chan error, 1)
	s.AddView(&flusher{func() error {
		err := s.once(req(t, names.OpWrite), 1)
		written <- err
		return err
	}})
	w.offset.Store(int64(time.Hour))
	wantKind(t, s.once(req(t, names.OpRead), 0), names.Revoked)
	wantKind(t, <-written, 0)
	awaitEnd(t, s, "r")
}
