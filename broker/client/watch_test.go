package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

func changed(p, event, id string) wire.ChangedParams {
	return wire.ChangedParams{Path: p, Event: event, WatchID: id, Timestamp: "2026-11-21T10:00:00Z"}
}

func TestWatch(t *testing.T) {
	h := newHost(t, map[string]string{"p/d/": ""})
	f := filesOf(t, h, nil)
	ctx, cancel := context.WithCancel(bg)
	events, err := f.Watch(ctx, "p/d", client.WatchOptions{Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	h.tell(wire.Changed, changed("p/other", wire.EventCreated, "w99")) // no watch has this id
	h.tell(wire.Changed, "malformed")
	h.tell(wire.Changed, changed("p/d/x", wire.EventCreated, "w1"))
	if ev := <-events; ev.Path != "p/d/x" || ev.Event != wire.EventCreated || !ev.Time.Equal(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)) {
		t.Fatalf("got %+v", ev)
	}
	// The next notifications name no watch, so their paths decide.
	h.tell(wire.Changed, changed("p/dx/y", wire.EventCreated, ""))
	h.tell(wire.Changed, changed("p/d/e/y", wire.EventDeleted, ""))
	if ev := <-events; ev.Path != "p/d/e/y" || ev.Event != wire.EventDeleted {
		t.Fatalf("got %+v", ev)
	}
	cancel()
	for range events { //nolint:revive // until the channel is closed
	}
	testkit.Until(t, "the request that ends the watch", func() bool { return h.count(wire.Unwatch) > 0 })
}

// An event may arrive before the reply that names its watch.
func TestWatchEarlyEvent(t *testing.T) {
	h := newHost(t, map[string]string{"p/d/": ""})
	f := filesOf(t, h, nil)
	h.on(wire.Watch, func(context.Context, json.RawMessage) (any, error) {
		h.tell(wire.Changed, changed("p/d/early", wire.EventCreated, "w7"))
		return wire.WatchResult{WatchID: "w7"}, nil
	})
	events, err := f.Watch(bg, "p/d", client.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ev := <-events; ev.Path != "p/d/early" {
		t.Fatalf("got %+v", ev)
	}
	h.tell(wire.Changed, wire.ChangedParams{Path: "p/d", Event: wire.EventDeleted, WatchID: "w7", Ended: true})
	if ev := <-events; !ev.Ended {
		t.Fatalf("got %+v", ev)
	}
	if _, open := <-events; open {
		t.Fatal("the channel is open after the end")
	}
}

// A slow reader loses events, and is told so.
func TestWatchOverflow(t *testing.T) {
	h := newHost(t, map[string]string{"p/d/": "", "p/a": "x"})
	f := filesOf(t, h, nil)
	events, err := f.Watch(bg, "p/d", client.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const sent = 3000
	for i := range sent {
		h.tell(wire.Changed, changed(fmt.Sprintf("p/d/%d", i), wire.EventCreated, "w1"))
	}
	if _, err := f.ReadFile(bg, "p/a"); err != nil { // the reply comes after all notifications
		t.Fatal(err)
	}
	h.tell(wire.Changed, wire.ChangedParams{Path: "p/d", Event: wire.EventDeleted, WatchID: "w1", Ended: true})
	n, overflow, ended := 0, false, false
	for ev := range events {
		n++
		if ev.Overflow {
			overflow = true
			if ev.Path != "p/d" || ev.Event != wire.EventModified {
				t.Errorf("overflow names %+v", ev)
			}
		}
		ended = ev.Ended
	}
	if n >= sent || !overflow || !ended {
		t.Fatalf("%d events, overflow %v, ended %v", n, overflow, ended)
	}
}

func TestWatchNeedsID(t *testing.T) {
	h := newHost(t, map[string]string{"p/d/": ""})
	f := filesOf(t, h, nil)
	h.on(wire.Watch, func(context.Context, json.RawMessage) (any, error) { return wire.Empty{}, nil })
	if _, err := f.Watch(bg, "p/d", client.WatchOptions{}); err == nil {
		t.Fatal("Watch accepts a result without a watchId")
	}
}

// Events may come directly after the reply that names their watch, in the same write. None is
// lost or out of order.
func TestWatchEventsBehindReply(t *testing.T) {
	const events = 600
	for _, tc := range []struct{ name, field string }{{"by watch", `,"watchId":"w1"`}, {"by path", ""}} {
		t.Run(tc.name, func(t *testing.T) {
			h := newWireHost(t, 0, func(id, method string, _ json.RawMessage) string {
				if method != wire.Watch {
					return "" // files/unwatch, which may come after the end
				}
				text := `{"jsonrpc":"2.0","id":"` + id + `","result":{"watchId":"w1"}}` + "\n"
				for i := range events {
					text += fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/files/changed","params":{"path":"p/d/%d","event":"created","timestamp":"2026-11-27T10:00:00Z"%s}}`+"\n", i, tc.field)
				}
				return text
			})
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			received, err := h.f.Watch(ctx, "p/d", client.WatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range events {
				if ev := <-received; ev.Path != fmt.Sprintf("p/d/%d", i) || ev.Overflow {
					t.Fatalf("event %d is %+v", i, ev)
				}
			}
		})
	}
}

// A bounded number of events is kept for a watch whose reply has not been read. The loss of
// further events is reported.
func TestWatchEarlyOverflow(t *testing.T) {
	h := newHost(t, map[string]string{"p/d/": ""})
	f := filesOf(t, h, nil)
	const early = 3000
	h.on(wire.Watch, func(context.Context, json.RawMessage) (any, error) {
		for i := range early {
			h.tell(wire.Changed, changed(fmt.Sprintf("p/d/%d", i), wire.EventCreated, "w7"))
		}
		return wire.WatchResult{WatchID: "w7"}, nil
	})
	events, err := f.Watch(bg, "p/d", client.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h.tell(wire.Changed, wire.ChangedParams{Path: "p/d", Event: wire.EventDeleted, WatchID: "w7", Ended: true})
	n, overflow := 0, false
	for ev := range events {
		n++
		overflow = overflow || ev.Overflow
	}
	if n >= early || !overflow {
		t.Fatalf("%d events, overflow %v", n, overflow)
	}
}

// The channel of a watch is closed when the context ends (even if the channel is not read), when
// the client gives the watch's id to another watch, and when the session ends (after the earlier
// events).
func TestWatchEnds(t *testing.T) {
	h := newHost(t, map[string]string{"p/d/": "", "p/a": "x"})
	b := client.New(nil)
	ss, cs := connect(t, newServer(), b, h, legacy)
	f, err := b.Files(ss)
	if err != nil {
		t.Fatal(err)
	}
	h.on(wire.Watch, func(context.Context, json.RawMessage) (any, error) { return wire.WatchResult{WatchID: "same"}, nil })
	watch := func(ctx context.Context) <-chan client.Event {
		t.Helper()
		events, err := f.Watch(ctx, "p/d", client.WatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
	tell := func() {
		h.tell(wire.Changed, changed("p/d/x", wire.EventCreated, "same"))
		if _, err := f.ReadFile(bg, "p/a"); err != nil { // the reply comes after the event
			t.Fatal(err)
		}
	}
	count := func(events <-chan client.Event) (n int) {
		for range events {
			n++
		}
		return n
	}
	first := watch(bg)
	tell()
	ctx, cancel := context.WithCancel(bg)
	second := watch(ctx)
	if n := count(first); n != 1 {
		t.Errorf("%d events before another watch had the id", n)
	}
	tell()
	cancel()
	testkit.Until(t, "the request that ends the watch", func() bool { return h.count(wire.Unwatch) > 0 })
	if n := count(second); n != 0 {
		t.Errorf("%d events after the end of the context", n)
	}
	third := watch(bg)
	tell()
	_ = cs.Close()
	if n := count(third); n != 1 {
		t.Errorf("%d events before the end of the session", n)
	}
}
