package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

var bg = context.Background()

// R014, R097, R124: without the capability Broker.Files returns ErrNotSupported, with a message
// that names the capability. Nothing is sent, and the server still works.
func TestWithoutBroker(t *testing.T) {
	for _, tc := range []struct {
		name, caps string
		want       bool
	}{
		{"declared", `{"roots":{"filesystemBrokering":true}}`, true},
		{"as an extension only, for SDKs that drop the field", `{"extensions":{"io.github.rootsfs/files":{}}}`, true},
		{"plain host", `{"roots":{"listChanged":true}}`, false},
		{"no roots", `{}`, false},
		{"false", `{"roots":{"filesystemBrokering":false}}`, false},
		{"text is not true", `{"roots":{"filesystemBrokering":"true"}}`, false},
		{"another spelling", `{"roots":{"filesystembrokering":true}}`, false},
		{"extension switched off", `{"extensions":{"io.github.rootsfs/files":null}}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t, map[string]string{"p/a": "x"})
			h.caps = tc.caps
			b := client.New(nil)
			ss, cs := connect(t, newServer(), b, h, legacy)
			f, err := b.Files(ss)
			if tc.want {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.ReadFile(bg, "p/a"); err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, client.ErrNotSupported) || !strings.Contains(err.Error(), "filesystemBrokering") {
				t.Fatalf("got %v, want ErrNotSupported that names the capability", err)
			}
			if f != nil {
				t.Fatal("Broker.Files returned files/* calls together with the error")
			}
			if err := cs.Ping(bg, nil); err != nil {
				t.Fatalf("the server does not go on: %v", err)
			}
			if len(h.log) != 0 {
				t.Fatalf("the host was asked %v", h.log)
			}
		})
	}
}

// A Broker returns no Files for a session whose transport the Broker did not wrap.
func TestForeignSession(t *testing.T) {
	h := newHost(t, nil)
	ss, _ := connect(t, newServer(), nil, h, legacy)
	if _, err := client.New(nil).Files(ss); !errors.Is(err, client.ErrNotSupported) {
		t.Fatalf("got %v", err)
	}
}

// R098, R104: after one consent, operations ask no further question. A denial, a question
// without an answer and a grant without paths are errors of the kind NoConsent.
func TestConsent(t *testing.T) {
	h := newHost(t, map[string]string{"p/a": "x"})
	f := filesOf(t, h, nil)
	r, err := f.Consent(bg, "to read it", "p/a")
	if err != nil || len(r.ApprovedPaths) != 1 || r.ApprovedPaths[0] != "p/a" {
		t.Fatalf("got %+v, %v", r, err)
	}
	for range 2 {
		if _, err := f.ReadFile(bg, "p/a"); err != nil {
			t.Fatal(err)
		}
	}
	if h.prompts != 1 {
		t.Fatalf("%d questions", h.prompts)
	}
	for _, reason := range []string{"denied", "timeout"} {
		h.on(wire.Consent, func(context.Context, json.RawMessage) (any, error) {
			return wire.ConsentResult{ApprovedPaths: []string{}, Reason: reason}, nil
		})
		r, err := f.Consent(bg, "again", "p")
		if !errors.Is(err, names.NoConsent) || r.Granted || !strings.Contains(err.Error(), reason) {
			t.Fatalf("got %+v, %v", r, err)
		}
	}
	// a reply that says granted and has no path grants nothing
	h.on(wire.Consent, func(context.Context, json.RawMessage) (any, error) { return wire.ConsentResult{Granted: true}, nil })
	if r, err := f.Consent(bg, "again", "p"); !errors.Is(err, names.NoConsent) || r.Granted {
		t.Fatalf("got %+v, %v", r, err)
	}
}

// R099, R133: each kind of error from the client arrives as the same kind. An error reply that
// has one of the seven codes, and no reason of that code, gets a kind with this code.
func TestErrorKinds(t *testing.T) {
	h := newHost(t, map[string]string{"p/a": "x"})
	f := filesOf(t, h, nil)
	read := func(reply error) error {
		h.on(wire.Read, func(context.Context, json.RawMessage) (any, error) { return nil, reply })
		_, err := f.ReadFile(bg, "p/a")
		return err
	}
	for k := names.Invalid; k.String() != names.Other.String(); k++ {
		err := read(fail(k, "p/a"))
		var e *names.Error
		if !errors.As(err, &e) || e.Kind != k || e.Code() != k.Code() || e.Op != names.OpRead || e.Path.String() != "p/a" {
			t.Errorf("%v arrived as %#v", k, err)
		}
	}
	for code, kind := range map[names.Code]names.Kind{
		names.FileNotFound: names.NotExist, names.PermissionDenied: names.Permission, names.InvalidPath: names.Invalid, names.IOError: names.IO,
		names.TimeoutCode: names.Timeout, names.ConcurrencyConflict: names.Conflict, names.QuotaExceeded: names.Quota,
	} {
		// a client that sends the code only, with a number of its own
		err := read(&jsonrpc.Error{Code: -32000, Message: "m", Data: json.RawMessage(`{"code":"` + string(code) + `"}`)})
		if !errors.Is(err, kind) {
			t.Errorf("code %s arrived as %v", code, err)
		}
		// a reason that belongs to another code does not count
		err = read(&jsonrpc.Error{Code: -32000, Data: json.RawMessage(`{"reason":"Internal","code":"` + string(code) + `"}`)})
		if got := names.Reason(err).Code(); got != code {
			t.Errorf("code %s with another reason arrived as %s", code, got)
		}
		// and the number alone
		if err := read(&jsonrpc.Error{Code: int64(wire.Number(code)), Message: "m"}); names.Reason(err).Code() != code {
			t.Errorf("number of %s arrived as %v", code, err)
		}
	}
	if err := read(&jsonrpc.Error{Code: wire.CodeInvalidParams, Message: "bad"}); !errors.Is(err, names.Invalid) {
		t.Errorf("-32602 arrived as %v", err)
	}
	if err := read(&jsonrpc.Error{Code: wire.CodeMethodNotFound, Message: "no"}); !errors.Is(err, client.ErrNotSupported) {
		t.Errorf("-32601 arrived as %v", err)
	}
	if err := read(fail(names.NotExist, "p/a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not fs.ErrNotExist: %v", err)
	}
	// a client's text is escaped
	if err := read(&jsonrpc.Error{Code: -32000, Message: "a\nb\x1b[31m"}); strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("control characters come through: %q", err)
	}
}

// R099: a call without an answer ends with a timeout, and the client is told to cancel the
// request. A call whose context is cancelled ends in the same way, with context.Canceled.
func TestTimeoutAndCancel(t *testing.T) {
	h := newHost(t, map[string]string{"p/a": "x"})
	handlerEnded := make(chan struct{}, 2)
	h.on(wire.Read, func(ctx context.Context, _ json.RawMessage) (any, error) {
		<-ctx.Done() // ends only when our notification arrives
		handlerEnded <- struct{}{}
		return nil, ctx.Err()
	})
	f := filesOf(t, h, &client.Options{Timeout: 200 * time.Millisecond})
	_, err := f.ReadFile(bg, "p/a")
	if !errors.Is(err, names.Timeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	<-handlerEnded
	ctx, cancel := context.WithCancel(bg)
	f = filesOf(t, h, nil)
	go func() {
		defer cancel()
		testkit.Eventually(func() bool { return h.count(wire.Read) >= 2 })
	}()
	if _, err := f.ReadFile(ctx, "p/a"); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	<-handlerEnded
	h.on(wire.Read, nil)
	if b, err := f.ReadFile(bg, "p/a"); err != nil || string(b) != "x" {
		t.Fatalf("the session does not go on: %q, %v", b, err)
	}
}

// R100: a request is repeated once if its refusal has the code QUOTA_EXCEEDED, is retryable, and
// names a waiting time that MaxRetryWait and the deadline allow. Other requests are not repeated.
func TestRetry(t *testing.T) {
	after := func(ms int64, retryable bool) func(*wire.ErrorData) {
		return func(d *wire.ErrorData) { d.RetryAfterMs, d.Retryable = ms, retryable }
	}
	for _, tc := range []struct {
		name     string
		refusals int
		reply    error
		deadline time.Duration
		calls    int
		ok       bool
	}{
		{"once", 1, fail(names.Rate, "p", after(5, true)), 0, 2, true},
		{"not twice", 2, fail(names.Rate, "p", after(5, true)), 0, 2, false},
		{"not retryable", 1, fail(names.Quota, "p", after(5, false)), 0, 1, false},
		{"no time", 1, fail(names.Rate, "p", after(0, true)), 0, 1, false},
		{"longer than allowed", 1, fail(names.Rate, "p", after(60_000, true)), 0, 1, false},
		{"later than the deadline", 1, fail(names.Rate, "p", after(9_900, true)), 9 * time.Second, 1, false},
		{"another code", 1, fail(names.Locked, "p", after(5, true)), 0, 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t, map[string]string{"p/a": "x"})
			f := filesOf(t, h, nil)
			var mu sync.Mutex
			left := tc.refusals
			h.on(wire.Delete, func(context.Context, json.RawMessage) (any, error) {
				mu.Lock()
				defer mu.Unlock()
				if left--; left >= 0 {
					return nil, tc.reply
				}
				return wire.Empty{}, nil
			})
			ctx := bg
			if tc.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(bg, tc.deadline)
				defer cancel()
			}
			err := f.Delete(ctx, "p/a", client.DeleteOptions{})
			if (err == nil) != tc.ok || h.count(wire.Delete) != tc.calls {
				t.Fatalf("%d calls, %v", h.count(wire.Delete), err)
			}
			if err != nil && names.Reason(err) == names.Timeout {
				t.Fatalf("the refusal is lost: %v", err)
			}
		})
	}
}

// R112: the host's error about a root that became unavailable reaches the caller.
func TestRootGone(t *testing.T) {
	h := newHost(t, map[string]string{"p/a": "x"})
	f := filesOf(t, h, nil)
	for _, k := range []names.Kind{names.Unavailable, names.Revoked} {
		h.on(wire.Read, func(context.Context, json.RawMessage) (any, error) { return nil, fail(k, "p/a") })
		_, err := f.ReadFile(bg, "p/a")
		if !errors.Is(err, k) || !strings.Contains(err.Error(), k.String()) {
			t.Errorf("%v arrived as %v", k, err)
		}
	}
}

func TestOperations(t *testing.T) {
	h := newHost(t, map[string]string{"p/a": "alpha", "p/.hidden": "", "p/d/x": "", "q/": ""})
	f := filesOf(t, h, nil)
	list := func(dir string, o client.ListOptions) string {
		var out []string
		for e, err := range f.List(bg, dir, o) {
			if err != nil {
				return err.Error()
			}
			out = append(out, e.Name)
		}
		return strings.Join(out, " ")
	}
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for _, tc := range []struct {
		dir  string
		o    client.ListOptions
		want string
	}{
		{"", client.ListOptions{}, "p"}, {".", client.ListOptions{}, "p"},
		{"p", client.ListOptions{}, "a d"}, {"p", client.ListOptions{Hidden: true, PageSize: 1}, ".hidden a d"},
	} {
		if got := list(tc.dir, tc.o); got != tc.want && got != strings.TrimSpace(tc.want+" q") {
			t.Errorf("list %q %+v: %q, want %q", tc.dir, tc.o, got, tc.want)
		}
	}
	_, err := f.Mkdir(bg, "p/n/m", true)
	ok("mkdir", err)
	_, err = f.Create(bg, "p/n/f", false)
	ok("create", err)
	if _, err := f.Create(bg, "p/n/f", false); !errors.Is(err, names.Exist) {
		t.Errorf("create twice: %v", err)
	}
	_, err = f.Copy(bg, "p/a", "p/b", client.MoveOptions{})
	ok("copy", err)
	if _, err := f.Rename(bg, "p/a", "p/b", client.MoveOptions{}); !errors.Is(err, names.Exist) {
		t.Errorf("rename onto a file: %v", err)
	}
	_, err = f.Rename(bg, "p/a", "p/b", client.MoveOptions{Overwrite: true})
	ok("rename", err)
	s, err := f.Stat(bg, "p/b")
	ok("stat", err)
	if s.Type != wire.TypeFile || s.Size != 5 {
		t.Errorf("stat: %+v", s)
	}
	if err := f.Delete(bg, "p/n", client.DeleteOptions{}); !errors.Is(err, names.NotEmpty) {
		t.Errorf("delete a non-empty directory: %v", err)
	}
	ok("delete", f.Delete(bg, "p/n", client.DeleteOptions{Recursive: true}))
	if got := list("p", client.ListOptions{}); got != "b d" {
		t.Errorf("in the end: %q", got)
	}
	// a client that knows only SEP-1708
	h.sepOnly = true
	if s, err := f.Stat(bg, "p/b"); err != nil || s.Size != 5 || s.Type != wire.TypeFile {
		t.Errorf("stat by listing: %+v, %v", s, err)
	}
	if _, err := f.Stat(bg, "p/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat by listing of a missing name: %v", err)
	}
	if _, err := f.Copy(bg, "p/b", "p/c", client.MoveOptions{}); !errors.Is(err, client.ErrNotSupported) {
		t.Errorf("copy: %v", err)
	}
}

// A listing whose cursors go in a circle ends with an error.
func TestListOfCursorsInACircle(t *testing.T) {
	for _, circle := range []int{1, 2, 3, 7} {
		h := newHost(t, nil)
		pages := 0
		h.on(wire.List, func(context.Context, json.RawMessage) (any, error) {
			pages++
			if pages > 100 {
				return nil, errors.New("the listing does not end")
			}
			return wire.ListResult{NextCursor: fmt.Sprint(pages % circle)}, nil
		})
		for _, err := range filesOf(t, h, nil).List(bg, "p", client.ListOptions{}) {
			if err == nil || !strings.Contains(err.Error(), "same cursor") {
				t.Errorf("a circle of %d pages: %v", circle, err)
			}
		}
	}
}

// Append asks only a client that declares the extension: another one could replace the file.
func TestAppendNeedsTheExtension(t *testing.T) {
	h := newHost(t, map[string]string{"p/a": "x"})
	h.caps = `{"roots":{"filesystemBrokering":true}}`
	if _, err := filesOf(t, h, nil).Append(bg, "p/a", []byte("y"), false); !errors.Is(err, client.ErrNotSupported) || h.count(wire.Write) != 0 {
		t.Errorf("%v, %d writes", err, h.count(wire.Write))
	}
}

// The top of an fs.FS has its modification time unless it is a root by name, which has none.
func TestFSTimeOfTheTop(t *testing.T) {
	h := newHost(t, nil)
	h.on(wire.Stat, func(context.Context, json.RawMessage) (any, error) {
		return wire.StatResult{Type: wire.TypeDirectory, MTime: "2026-11-28T10:00:00Z"}, nil
	})
	f := filesOf(t, h, nil)
	for top, timed := range map[string]bool{"p": false, "p/d": true, "/home/p": true, `C:\p`: true, `\\host\share\p`: true} {
		info, err := f.FS(bg, top).Stat(".")
		if err != nil || info.ModTime().IsZero() == timed {
			t.Errorf("%s: %v, %v", top, info, err)
		}
	}
}

// R101: the fs.FS follows the rules of package fs, with a client that has rootsfs's extensions of
// SEP-1708 and with a client that knows only SEP-1708.
func TestFS(t *testing.T) {
	files := map[string]string{"p/a.txt": "alpha", "p/d/b": strings.Repeat("b", 5000), "p/d/e/c": "", "p/.h": "hidden"}
	for _, sepOnly := range []bool{false, true} {
		h := newHost(t, files)
		h.sepOnly = sepOnly
		f := filesOf(t, h, &client.Options{Chunk: 1000})
		if err := fstest.TestFS(f.FS(bg, "p"), "a.txt", "d/b", "d/e/c", ".h"); err != nil {
			t.Errorf("SEP-1708 only: %v: %v", sepOnly, err)
		}
		if err := fstest.TestFS(f.FS(bg, ""), "p/a.txt"); err != nil {
			t.Errorf("all roots, SEP-1708 only: %v: %v", sepOnly, err)
		}
		for _, bad := range []string{"..", "../p/a.txt", "/a.txt", "d/../a.txt", "", "./a.txt", "d//b", "d/"} {
			if _, err := f.FS(bg, "p").Open(bad); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%q: %v", bad, err)
			}
		}
		if _, err := fs.ReadFile(f.FS(bg, "p"), "none"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("absent: %v", err)
		}
	}
}

// Each of 200 concurrent reads gets its own answer.
func TestConcurrent(t *testing.T) {
	files := map[string]string{}
	for i := range 200 {
		files[fmt.Sprintf("p/%d", i)] = fmt.Sprintf("content %d", i)
	}
	f := filesOf(t, newHost(t, files), nil)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if b, err := f.ReadFile(bg, fmt.Sprintf("p/%d", i)); err != nil || string(b) != fmt.Sprintf("content %d", i) {
				t.Errorf("%d: %q, %v", i, b, err)
			}
		})
	}
	wg.Wait()
}

// Calls in flight when the session ends fail at once, and so do later ones.
func TestSessionEnds(t *testing.T) {
	h := newHost(t, map[string]string{"p/a": "x"})
	b := client.New(nil)
	ss, cs := connect(t, newServer(), b, h, legacy)
	f, err := b.Files(ss)
	if err != nil {
		t.Fatal(err)
	}
	events, err := f.Watch(bg, "p", client.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	h.on(wire.Read, func(ctx context.Context, _ json.RawMessage) (any, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	failed := make(chan error)
	go func() { _, err := f.ReadFile(bg, "p/a"); failed <- err }()
	<-started
	cs.Close()
	if err := <-failed; !errors.Is(err, names.IO) {
		t.Errorf("in flight: %v", err)
	}
	if _, err := f.Stat(bg, "p/a"); !errors.Is(err, names.IO) {
		t.Errorf("afterwards: %v", err)
	}
	if _, open := <-events; open {
		t.Error("the watch goes on")
	}
	ss.Wait()
	if _, err := b.Files(ss); !errors.Is(err, client.ErrNotSupported) {
		t.Errorf("the session is still known: %v", err)
	}
}

// R166, R167: under revision 2026-07-28 files/* works inside an open request of the client.
// Outside such a request nothing is sent.
func TestOnlyInsideRequests(t *testing.T) {
	h := newHost(t, map[string]string{"p/a": "x"})
	b := client.New(nil)
	s := newServer()
	mcp.AddTool(s, &mcp.Tool{Name: "read"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		f, err := b.Files(req.Session)
		if err != nil {
			return nil, nil, err
		}
		data, err := f.ReadFile(ctx, "p/a")
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(data)}}}, nil, err
	})
	ss, cs := connect(t, s, b, h, "")
	if v := cs.InitializeResult().ProtocolVersion; v != "2026-07-28" {
		t.Fatalf("revision %s", v)
	}
	res, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "read"})
	if err != nil || res.IsError || res.Content[0].(*mcp.TextContent).Text != "x" {
		t.Fatalf("%+v, %v", res, err)
	}
	before := len(h.log)
	f, err := b.Files(ss)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadFile(bg, "p/a"); !errors.Is(err, client.ErrNoOpenRequest) {
		t.Fatalf("got %v", err)
	}
	if len(h.log) != before {
		t.Fatalf("sent %v", h.log[before:])
	}
}
