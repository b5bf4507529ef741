package tools_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// reluctant is a client that works without the SDK. It reads only while call waits for an answer.
type reluctant struct {
	t       *testing.T
	w       io.Writer
	r       *bufio.Reader
	id      int
	writing *watched
}

// watched is the stream from the server to the client. It records the bytes of each write when the
// write begins.
type watched struct {
	io.WriteCloser
	mu    sync.Mutex
	begun string
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.begun += string(p)
	w.mu.Unlock()
	return w.WriteCloser.Write(p)
}

func (b *bench) reluctant(t *testing.T) *reluctant {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	x := &reluctant{t: t, w: inW, r: bufio.NewReader(outR), writing: &watched{WriteCloser: outW}}
	ss, err := b.srv.MCP().Connect(context.Background(), &mcp.IOTransport{Reader: inR, Writer: x.writing}, nil)
	testkit.Must(t, err)
	t.Cleanup(func() {
		_ = outR.Close() // else the server would wait for a reader
		_ = inW.Close()
		_ = ss.Wait()
	})
	x.call("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"reluctant","version":"1"}}`)
	_, err = io.WriteString(x.w, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	testkit.Must(t, err)
	return x
}

func (x *reluctant) send(method, params string) {
	x.t.Helper()
	x.id++
	_, err := fmt.Fprintf(x.w, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", x.id, method, params)
	testkit.Must(x.t, err)
}

// call sends a request and reads until its answer.
func (x *reluctant) call(method, params string) {
	x.t.Helper()
	x.send(method, params)
	for {
		line, err := x.r.ReadBytes('\n')
		testkit.Must(x.t, err)
		var m struct {
			ID    int
			Error json.RawMessage
		}
		testkit.Must(x.t, json.Unmarshal(line, &m))
		if m.ID == x.id {
			if m.Error != nil {
				x.t.Fatalf("%s %s: %s", method, params, m.Error)
			}
			return
		}
	}
}

// until waits until the server has begun to write a text.
func (x *reluctant) until(text string) {
	x.t.Helper()
	testkit.Until(x.t, "the server writes "+text, func() bool {
		x.writing.mu.Lock()
		defer x.writing.mu.Unlock()
		return strings.Contains(x.writing.begun, text)
	})
}

// R005: a client that subscribes and does not read does not delay a revocation, a narrowing or the
// end of the server. Other clients' subscriptions still work.
func TestRevokeWithUnreadSubscriptions(t *testing.T) {
	updates := make(chan string, 100)
	b := start(t, nil, &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updates <- r.Params.URI }})
	dir := b.root("r", guard.ReadWrite, "f=1", "g=1")
	narrowed := b.root("n", guard.ReadWrite, "f=1")
	x := b.reluctant(t)
	for _, p := range []string{dir + "/f", dir, narrowed} {
		x.call("resources/subscribe", fmt.Sprintf(`{"uri":"file://%s"}`, p))
	}
	for _, p := range []string{dir, narrowed} {
		testkit.Must(t, os.WriteFile(filepath.Join(p, "f"), []byte("2"), 0o644))
	}
	x.until("resources/updated")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.reg.Set(ctx, "n", guard.ReadOnly); err != nil {
		t.Errorf("narrowing: %v", err)
	}
	b.connect("2025-11-25")
	testkit.Must(t, b.host.Subscribe(ctx, &mcp.SubscribeParams{URI: "file://" + dir + "/g"}))
	testkit.Must(t, os.WriteFile(dir+"/g", []byte("2"), 0o644))
	if uri := <-updates; uri != "file://"+dir+"/g" {
		t.Errorf("an update of %s", uri)
	}
	for _, root := range []guard.RootName{"r", "n"} {
		if _, err := b.reg.Revoke(ctx, root); err != nil {
			t.Errorf("revoke %s: %v", root, err)
		}
	}
	if uri := <-updates; uri != "file://"+dir+"/g" { // the end of a root is a change, too
		t.Errorf("an update of %s", uri)
	}
	b.srv.Close() // returns, although nobody reads
}

// R005: a client that does not read the progress of its copy does not delay the revocation of
// the copy's root.
func TestRevokeWithUnreadProgress(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("r", guard.ReadWrite)
	testkit.Must(t, os.WriteFile(dir+"/big", make([]byte, 32<<20), 0o644)) // more than one step of the copying
	x := b.reluctant(t)
	x.send("tools/call", `{"name":"copy_file","arguments":{"source":"r/big","destination":"r/copy"},"_meta":{"progressToken":1}}`)
	x.until("notifications/progress")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := b.reg.Revoke(ctx, "r"); err != nil {
		t.Errorf("revoke: %v", err)
	}
}

// A session that subscribes and unsubscribes repeatedly leaves no goroutines behind, and does not
// reach the bound of subscriptions.
func TestSubscribeAgainAndAgain(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("r", guard.ReadOnly, "f=1")
	b.connect("2025-11-25")
	uri, ctx := "file://"+dir+"/f", context.Background()
	once := func() {
		testkit.Must(t, b.host.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}))
		testkit.Must(t, b.host.Subscribe(ctx, &mcp.SubscribeParams{URI: uri})) // replaces the first
		testkit.Must(t, b.host.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}))
	}
	once()
	settled := runtime.NumGoroutine() + 50
	for range 1100 { // the bound of subscriptions at a time is 1024
		once()
	}
	if !testkit.Eventually(func() bool { return runtime.NumGoroutine() <= settled }) {
		t.Fatalf("%d goroutines are left; at first there were %d", runtime.NumGoroutine(), settled-50)
	}
}

// Subscriptions are bounded over all sessions, and concurrent requests do not exceed the bound.
// A subscription that ends makes room.
func TestSubscriptionsBounded(t *testing.T) {
	b := start(t, nil, nil)
	const most, more = 1024, 16
	var files []string
	for i := range most + more {
		files = append(files, fmt.Sprintf("%d=1", i))
	}
	dir := b.root("r", guard.ReadOnly, files...)
	b.connect("2025-11-25")
	var wg sync.WaitGroup
	var refused atomic.Int64
	for i := range most + more {
		wg.Go(func() {
			err := b.host.Subscribe(context.Background(), &mcp.SubscribeParams{URI: fmt.Sprintf("file://%s/%d", dir, i)})
			if err != nil && strings.Contains(err.Error(), "too many subscriptions") {
				refused.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := refused.Load(); n != more {
		t.Errorf("%d of %d were refused", n, most+more)
	}
	for i := range most + more { // also where the subscription was refused: that changes nothing
		testkit.Must(t, b.host.Unsubscribe(context.Background(), &mcp.UnsubscribeParams{URI: fmt.Sprintf("file://%s/%d", dir, i)}))
	}
	testkit.Must(t, b.host.Subscribe(context.Background(), &mcp.SubscribeParams{URI: "file://" + dir + "/0"}))
}

// R084: each refusal and failure of a tool or a resource leaves one record, with its kind,
// whether or not the gate saw the operation.
func TestEveryRefusalIsRecordedOnce(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("r", guard.ReadWrite, "f=text", "out => /etc/passwd", "d/x=1")
	b.root("ro", guard.ReadOnly, "f=text")
	b.connect("2025-11-25")
	ctx := context.Background()
	tool := func(name string, args m) func() error {
		return func() error {
			if text, _, failed := b.call(name, args); failed {
				return errors.New(text)
			}
			return nil
		}
	}
	read := func(uri string) func() error {
		return func() error {
			_, err := b.host.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
			return err
		}
	}
	for name, c := range map[string]struct {
		run  func() error
		kind names.Kind
	}{
		"no such argument":        {tool("read_text_file", m{"path": "r/f", "lines": 1}), names.Invalid},
		"no path":                 {tool("read_text_file", m{"path": ""}), names.Invalid},
		"contradiction":           {tool("read_text_file", m{"path": "r/f", "head": 1, "tail": 1}), names.Invalid},
		"outside":                 {tool("read_text_file", m{"path": "/etc/passwd"}), names.NoConsent},
		"no such root":            {tool("read_text_file", m{"path": "none/f"}), names.NoConsent},
		"escape":                  {tool("read_text_file", m{"path": "r/out"}), names.Escaped},
		"missing":                 {tool("read_text_file", m{"path": "r/none"}), names.NotExist},
		"one of several":          {func() error { b.ok("read_multiple_files", m{"paths": []string{"r/f", "none/f"}}); return io.EOF }, names.NoConsent},
		"read-only":               {tool("write_file", m{"path": "ro/f", "content": "x"}), names.ReadOnly},
		"read-only, move":         {tool("move_file", m{"source": "ro/f", "destination": "r/g"}), names.ReadOnly},
		"not empty":               {tool("delete_file", m{"path": "r/d"}), names.NotEmpty},
		"no match":                {tool("edit_file", m{"path": "r/f", "edits": []m{{"oldText": "none", "newText": "x"}}}), names.Invalid},
		"bad pattern":             {tool("search_files", m{"path": "r", "pattern": "!(a)"}), names.Invalid},
		"resource outside":        {read("file:///etc/passwd"), names.NoConsent},
		"resource escape":         {read("file://" + dir + "/out"), names.Escaped},
		"subscription outside":    {func() error { return b.host.Subscribe(ctx, &mcp.SubscribeParams{URI: "file:///etc"}) }, names.NoConsent},
		"subscription to nothing": {func() error { return b.host.Subscribe(ctx, &mcp.SubscribeParams{URI: "file://" + dir + "/none"}) }, names.NotExist},
	} {
		before := len(b.recs.All())
		if err := c.run(); err == nil {
			t.Errorf("%s: no error", name)
		}
		var no []guard.Record
		for _, rec := range b.recs.All()[before:] {
			if rec.Verdict != guard.Allowed {
				no = append(no, rec)
			}
		}
		if len(no) != 1 || no[0].Kind != c.kind || no[0].Subject != "test" {
			t.Errorf("%s: want one record of kind %v, have %+v", name, c.kind, no)
		}
	}
}
