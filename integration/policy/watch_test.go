package policy

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
)

// changeHidden creates, changes, renames and removes hidden files of a root on the host. Then it
// creates end/done, so that the event of end/done is the last one.
func (w *twin) changeHidden(root string) {
	w.Helper()
	at := func(rel string) string { return filepath.Join(w.src[root], rel) }
	for _, err := range []error{
		os.WriteFile(at("d/secret-new"), []byte("1"), 0o644),
		os.WriteFile(at("d/secret-old"), []byte("2"), 0o644),
		os.Chmod(at("d/secret-old"), 0o600),
		os.Mkdir(at("d/secret-dir"), 0o755),
		os.WriteFile(at("d/secret-dir/in"), []byte("3"), 0o644),
		os.Rename(at("d/secret-dir"), at("d/secret-moved")),
		os.Rename(at("d/secret-moved"), at("d/dir")), // events may name d/dir, which is not hidden
		os.Rename(at("d/dir"), at("d/secret-again")),
		os.RemoveAll(at("d/secret-again")),
		os.Rename(at("d/secret-old"), at("d/shown")),
		os.Rename(at("d/shown"), at("d/secret-last")),
		os.Remove(at("d/secret-last")),
		os.WriteFile(at("end/done"), nil, 0o644),
	} {
		if err != nil {
			w.Fatal(err)
		}
	}
}

const eventsLimit = time.Minute // only a test that fails waits so long

// No event for a server names a hidden file, whatever happens to the hidden file. R110.
func TestEventsNameNothingHidden(t *testing.T) {
	w := newTwin(t, guard.Patterns{NoDefaults: true, Hide: guard.Texts("secret-*")}, "d/secret-old=s", "end/")
	for _, root := range []string{"on", "off"} {
		ctx, cancel := context.WithTimeout(bg, eventsLimit)
		defer cancel()
		events, err := w.files.Watch(ctx, root, client.WatchOptions{Recursive: true})
		if err != nil {
			t.Fatal(err)
		}
		w.changeHidden(root)
		hiddenNames, done := 0, false
		for !done {
			e, ok := <-events
			if !ok {
				t.Fatalf("%s: the watch ended before the last event", root)
			}
			if strings.Contains(e.Path, "secret") {
				if hiddenNames++; root == "on" {
					t.Errorf("an event names a hidden file: %+v", e)
				}
			}
			done = strings.HasSuffix(e.Path, "end/done")
		}
		if root == "off" && hiddenNames == 0 {
			t.Error("without the rule no event names a hidden file either: the test shows nothing")
		}
	}
}

// A client of rootsfs serve that has subscribed to a directory gets no notification of a change
// of a hidden name in that directory. The client cannot subscribe to the hidden name.
func TestSubscriptionsRevealNothingHidden(t *testing.T) {
	w := newTwin(t, guard.Patterns{NoDefaults: true, Hide: guard.Texts("secret-*")}, "d/secret-old=s", "end/")
	srv := tools.New(tools.Config{Registry: w.reg, Tree: w.tree, Subject: "host"})
	updated := make(chan string, 1000)
	ours, theirs := mcp.NewInMemoryTransports()
	ss, err := srv.MCP().Connect(bg, theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	info := &mcp.Implementation{Name: "test", Version: "1"}
	host, err := mcp.NewClient(info, &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
		updated <- r.Params.URI
	}}).Connect(bg, ours, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close(); _ = ss.Wait(); srv.Close() })
	uri := func(root, rel string) string { return "file://" + filepath.Join(w.src[root], rel) }
	subscribe := func(root, rel string) error { return host.Subscribe(bg, &mcp.SubscribeParams{URI: uri(root, rel)}) }
	if err := subscribe("on", "d/secret-old"); err == nil {
		t.Error("the client can subscribe to a hidden file")
	}
	if err := subscribe("off", "d/secret-old"); err != nil {
		t.Errorf("without the rule: %v", err)
	}
	for _, root := range []string{"on", "off"} {
		for _, rel := range []string{"d", "end"} {
			if err := subscribe(root, rel); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, root := range []string{"off", "on"} {
		// Change only a file that stays hidden.
		for i := range 20 {
			if err := os.WriteFile(filepath.Join(w.src[root], "d/secret-new"), make([]byte, i), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(w.src[root], "end/done"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	limit := time.After(eventsLimit)
	for want := map[string]bool{uri("off", "d"): true, uri("off", "end"): true, uri("on", "end"): true}; len(want) > 0; {
		select {
		case got := <-updated:
			delete(want, got)
			if got == uri("on", "d") {
				t.Error("the client was notified of a directory in which only a hidden file changed")
			}
		case <-limit:
			t.Fatalf("no update of %v", want)
		}
	}
}
