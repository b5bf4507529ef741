package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// R008, R055: a server that watches all it can, in as many sessions as it likes, is
// refused with the limit and a remedy. Another server still gets watches and their
// events.
func TestWatchesOfOneServerLeaveRoom(t *testing.T) {
	l := newLab(t, func(c *Config) {
		hub := c.Tree.NewHub(watch.HubOptions{MaxWatches: 40, MaxEach: 15})
		c.Registry.AddView(hub)
		t.Cleanup(func() { c.Registry.RemoveView(hub); hub.Close() })
		c.Hub = hub
	})
	files := map[string]string{}
	for i := range 4 {
		files[fmt.Sprintf("d/%d/f", i)] = ""
	}
	l.root("r", guard.ReadWrite, files)
	const all = `{"path":"r/d","recursive":true}` // 5 directories
	for n := range uint64(3) {
		l.connect(guard.Subject("hostile").InSession(n)).must(wire.Watch, all, nil)
	}
	for n := range uint64(4) {
		_, d := l.connect(guard.Subject("hostile").InSession(n)).fails(wire.Watch, all)
		if d.Reason != names.Quota.String() || d.Limit != 15 || d.Hint == "" || d.Retryable {
			t.Errorf("session %d: %+v", n, d)
		}
	}
	p := l.connect("other")
	p.must(wire.Watch, all, nil)
	p.must(wire.Write, `{"path":"r/d/3/new","create":true,"content":"x"}`, nil)
	p.until(wire.Changed, func(raw json.RawMessage) bool {
		var c wire.ChangedParams
		return json.Unmarshal(raw, &c) == nil && c.Path == "r/d/3/new"
	})
}

// R070: a server that has as many recursive watches as it may, and does not read, does not block
// a revocation. When the server reads again, it gets for each watch the event that the watch ended.
func TestRevokeWithMostWatchesUnread(t *testing.T) {
	const most = 64
	l := newLab(t, nil)
	files := map[string]string{}
	for i := range 5 {
		files[fmt.Sprintf("%d/f", i)] = ""
	}
	dir := l.root("r", guard.ReadOnly, files)
	s, line, out := l.connectSlowReader()
	for i := range most + 1 {
		line(i, wire.Watch, `{"path":"r","recursive":true}`)
		text, err := out.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var m struct{ Error *wire.Error }
		if err := json.Unmarshal(text, &m); err != nil || (m.Error != nil) != (i == most) {
			t.Fatalf("watch %d: %s", i+1, text)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "3", "new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "each notification is being sent", func() bool { return s.Stats().Notified >= most })
	if _, err := l.reg.Revoke(context.Background(), "r"); err != nil {
		t.Error(err)
	}
	if n, dirs := l.b.hub.Counts(); n != 0 || dirs != 0 {
		t.Errorf("%d watches on %d directories are left", n, dirs)
	}
	for ended := map[string]bool{}; len(ended) < most; {
		text, err := out.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%v after the end of %d watches", err, len(ended))
		}
		var m struct{ Params wire.ChangedParams }
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		if m.Params.Ended {
			ended[m.Params.WatchID] = true
		}
	}
}
