package availability

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostwatch"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// If the permissions of a root's directory change, an event reports the change. If the directory is
// replaced, the root becomes unavailable, and the new directory does not change that.
func TestPlaceChanges(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	testkit.Must(t, os.Mkdir(dir, 0o755))
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	_, err := reg.GrantAll(t.Context(), []guard.Grant{{Root: "r", Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}}})
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	hub := &events.Hub{}
	subscriber := hub.Subscribe(events.News{})
	m := New(Config{Registry: reg, Paths: hostwatch.New(ctx), Log: slog.New(slog.DiscardHandler), Events: hub})
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	st, _ := reg.Lookup("r")
	if p := m.Place(st.Epoch); p.Permissions == "" || p.Reappeared || p.Free != nil {
		t.Errorf("at the beginning: %+v", p)
	}
	m.AskFree(ctx, reg.Roots())
	if p := m.Place(st.Epoch); p.Free == nil || *p.Free <= 0 {
		t.Errorf("free space: %+v", p)
	}
	testkit.Must(t, os.Chmod(dir, 0o700))
	awaitEvent(t, subscriber, "permissions")
	testkit.Must(t, os.Rename(dir, dir+".old"))
	testkit.Must(t, os.Mkdir(dir, 0o755))
	awaitEvent(t, subscriber, "made again")
	if st, ok := reg.Lookup("r"); !ok || st.State != guard.UnavailableState || !m.Place(st.Epoch).Reappeared {
		t.Errorf("%+v", st)
	}
	_, err = reg.RevokeAll(t.Context())
	testkit.Must(t, err)
	m.Update()
	testkit.Until(t, "the root is not watched", func() bool { return !m.isWatched(st.Epoch) })
	if p := m.Place(st.Epoch); p != (Place{}) {
		t.Errorf("the monitor still has the place of a root that has ended: %+v", p)
	}
}

// awaitEvent waits until a subscriber gets an event of a kind.
func awaitEvent(t *testing.T, subscriber *events.Subscriber, kind string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		news, ok := subscriber.Next(ctx, 0)
		if !ok {
			t.Fatalf("no event %q", kind)
		}
		for _, e := range news.Events {
			if e.Kind == kind && e.Root == "r" {
				return
			}
		}
	}
}

// A caller of a hanging call stops waiting when the caller's context ends. At any time at most one
// call for each key is in progress, and at most maxHanging calls in all.
func TestHangingCalls(t *testing.T) {
	var a hangingCalls[string]
	hang := make(chan struct{})
	ended := make(chan struct{}, maxHanging)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range maxHanging {
		if !a.run(cancelled, fmt.Sprint(i), func() { <-hang; ended <- struct{}{} }) {
			t.Fatalf("call %d was not made", i)
		}
		if a.run(cancelled, fmt.Sprint(i), func() {}) {
			t.Fatalf("call %d was made twice", i)
		}
	}
	if a.run(t.Context(), "another", func() {}) {
		t.Error("more than maxHanging calls were made")
	}
	close(hang)
	for range maxHanging {
		<-ended
	}
	testkit.Until(t, "a call can be made again", func() bool { return a.run(t.Context(), "0", func() {}) })
}
