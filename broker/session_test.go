package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A server that sends a bad frame gets an error, and the session goes on (R091).
func TestBadFrames(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadOnly, map[string]string{"f": "text"})
	p := l.connectFrames("", 64<<10)
	for _, c := range []struct {
		line string
		code int
	}{
		{"this is no JSON", wire.CodeParse},
		{`{"jsonrpc":"2.0","id":1,"method":"files/read","method":"files/write","params":{}}`, wire.CodeParse},
		{`{"jsonrpc":"2.0","id":1,"id":2,"method":"files/read","params":{"path":"r/f"}}`, wire.CodeParse},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"files/read\",\"params\":{\"path\":\"\xff\"}}", wire.CodeParse},
		{`{"jsonrpc":"2.0","id":{},"method":"files/read","params":{"path":"r/f"}}`, wire.CodeInvalidRequest},
		{`{"jsonrpc":"2.0","id":true,"method":"files/read"}`, wire.CodeInvalidRequest},
		{strings.Repeat("x", 70<<10), wire.CodeInvalidRequest},
		{"[1,2]x", wire.CodeParse},
	} {
		p.raw(c.line + "\n")
		var got struct{ Error wire.Error }
		select {
		case s := <-p.stray:
			if err := json.Unmarshal([]byte(s), &got); err != nil || got.Error.Code != c.code || got.Error.Message == "" {
				t.Errorf("%.60q: %s", c.line, s)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%.60q: no answer", c.line)
		}
	}
	p.raw("\n  \n")
	for method, want := range map[string]string{"files/nothing": "files/nothing", "fs.read": "files/read", "files/": "files/"} {
		if e, _ := p.fails(method, `{}`); e.Code != wire.CodeMethodNotFound || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %+v", method, e)
		}
	}
	// A batch of 2025-03-26: each member is answered.
	p.mu.Lock()
	one, two := make(chan reply, 1), make(chan reply, 1)
	p.replies["71"], p.replies["72"] = one, two
	p.mu.Unlock()
	p.raw(`[{"jsonrpc":"2.0","id":71,"method":"files/read","params":{"path":"r/f"}},{"jsonrpc":"2.0","id":72,"method":"files/stat","params":{"path":"r/f"}}]` + "\n")
	for _, ch := range []chan reply{one, two} {
		if r := <-ch; r.Error != nil {
			t.Errorf("in a batch: %+v", r.Error)
		}
	}
	// Ids come back as they were sent.
	for _, id := range []string{"9007199254740993", "1.5", `"ä\u0041"`, "-7"} {
		p.mu.Lock()
		ch := make(chan reply, 1)
		p.replies[id] = ch
		p.mu.Unlock()
		p.raw(`{"jsonrpc":"2.0","id":` + id + `,"method":"files/stat","params":{"path":"r/f"}}` + "\n")
		if r := <-ch; r.Error != nil {
			t.Errorf("id %s: %+v", id, r.Error)
		}
	}
	var r wire.ReadResult
	p.must("files/read", `{"path":"r/f","_meta":{"anything":[1]}}`, &r)
	if r.Content != "text" {
		t.Errorf("after all that: %+v", r)
	}
	// Half a line and a hang-up end the session and leave nothing.
	if _, err := io.WriteString(p.w, `{"jsonrpc":"2.0","id":5,"met`); err != nil {
		t.Fatal(err)
	}
	p.hangUp()
	if n := len(l.b.Sessions()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// Messages for the SDK reach it; messages for the session do not.
func TestPassesOthersOn(t *testing.T) {
	l := newLab(t, nil)
	p := l.connect("")
	p.raw(`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}` + "\n")
	if s := <-p.toSDK; !strings.Contains(s, "Request") {
		t.Errorf("passed on: %s", s)
	}
	p.raw(`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n")
	if s := <-p.toSDK; !strings.Contains(s, "Response") {
		t.Errorf("passed on: %s", s)
	}
	for _, params := range []string{`,"params":{"requestId":99}`, `,"params":{"RequestID":99}`, `,"params":[99]`, ``} {
		p.raw(`{"jsonrpc":"2.0","method":"notifications/cancelled"` + params + "}\n")
		if s := <-p.toSDK; !strings.Contains(s, "Request") {
			t.Errorf("a cancellation that is not the session's: %s: %s", params, s)
		}
	}
	p.raw(`{"jsonrpc":"2.0","method":"files/read","params":{"path":"r/f"}}` + "\n") // a notification, which gets no answer
	p.must("roots/list", `{}`, nil)
	select {
	case s := <-p.toSDK:
		t.Errorf("a message for the session went to the SDK: %s", s)
	default:
	}
}

// Each of a thousand requests at once is answered, by a result or by a refusal that
// says when to try again (R076, R078).
func TestFlood(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Limits.InFlight = 32 })
	l.root("r", guard.ReadOnly, map[string]string{"f": "text"})
	p := l.connect("")
	var wait []chan reply
	for range 1000 {
		_, ch := p.send("files/read", `{"path":"r/f"}`)
		wait = append(wait, ch)
	}
	ok, refused := 0, 0
	for _, ch := range wait {
		r := <-ch
		if r.Error == nil {
			ok++
			continue
		}
		var d wire.ErrorData
		if err := json.Unmarshal(r.Error.Data, &d); err != nil || d.Code != names.QuotaExceeded || !d.Retryable || d.RetryAfterMs <= 0 {
			t.Fatalf("%+v %s", r.Error, r.Error.Data)
		}
		refused++
	}
	if ok == 0 || ok+refused != 1000 {
		t.Errorf("%d answered, %d refused", ok, refused)
	}
	p.awaitReleased(0) // room is released after the answer, so the last requests may still hold theirs
	p.must("files/read", `{"path":"r/f"}`, nil)
	p.awaitReleased(0)
	if st := p.s.Stats(); st.InFlight != 0 || st.Requests != 1001 {
		t.Errorf("%+v", st)
	}
}

// A request beyond a limit is refused, and the error names the limit; permitted requests are
// served. A request after a burst is refused with the time after which to try again (R061, R076,
// R077, R078).
func TestLimits(t *testing.T) {
	l := newLab(t, func(c *Config) {
		c.Limits = Limits{OpsPerSecond: 0.001, Burst: 8, MaxWritten: 10, Watches: 1, MaxChunk: 100}
	})
	l.root("r", guard.ReadWrite, map[string]string{"f": "text"})
	p := l.connect("")
	p.must("files/write", `{"path":"r/f","content":"12345678"}`, nil)
	if _, d := p.fails("files/write", `{"path":"r/f","content":"123"}`); d.Code != names.QuotaExceeded || d.Limit != 10 {
		t.Errorf("total written: %+v", d)
	}
	p.must("files/write", `{"path":"r/f","content":"12"}`, nil) // the refused write was not counted
	p.must("files/watch", `{"path":"r"}`, nil)
	if _, d := p.fails("files/watch", `{"path":"r"}`); d.Code != names.QuotaExceeded || d.Limit != 1 {
		t.Errorf("watches: %+v", d)
	}
	if _, d := p.fails("files/read", `{"path":"r/f","length":101}`); d.Code != names.QuotaExceeded || d.Limit != 100 {
		t.Errorf("chunk: %+v", d)
	}
	if _, d := p.fails("files/write", obj{"path": "r/f", "content": strings.Repeat("x", 101)}); d.Limit != 100 {
		t.Errorf("chunk: %+v", d)
	}
	p.must("files/stat", `{"path":"r/f"}`, nil)
	if _, d := p.fails("files/stat", `{"path":"r/f"}`); d.Code != names.QuotaExceeded || d.Reason != "Rate" || !d.Retryable || d.RetryAfterMs < 1000 {
		t.Errorf("rate: %+v", d)
	}
	found := false
	for _, r := range l.recs.all() {
		found = found || r.Kind == names.Rate && r.Verdict == guard.Refused
	}
	if !found {
		t.Error("R084: the refusal is not on record")
	}
}

// slowAsker holds a request open until the test releases it.
type slowAsker struct{ begun, finish chan struct{} }

func (a slowAsker) Ask(ctx context.Context, _ *Question) (Answer, error) {
	a.begun <- struct{}{}
	select {
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	case <-a.finish:
		return Answer{}, nil
	}
}

// A cancelled request is not answered (MCP, "Cancellation"). The id of a request in progress cannot
// be used again.
func TestCancel(t *testing.T) {
	a := slowAsker{make(chan struct{}), make(chan struct{})}
	l := newLab(t, func(c *Config) { c.Asker = a })
	p := l.connect("")
	id, ch := p.send("files/consent", obj{"message": "m", "requestedPaths": []string{t.TempDir()}})
	<-a.begun
	if n := p.s.Stats().InFlight; n != 1 {
		t.Errorf("R096: %d in flight", n)
	}
	p.raw(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}` + "\n")
	testkit.Until(t, "the end of the request", func() bool { return p.s.Stats().InFlight == 0 })
	p.must("roots/list", `{}`, nil)
	select {
	case r := <-ch:
		t.Errorf("a cancelled request was answered: %+v", r)
	default:
	}
	// The id of a request in progress cannot be used again.
	id, again := p.send("files/consent", obj{"message": "m", "requestedPaths": []string{t.TempDir()}})
	<-a.begun
	p.raw(`{"jsonrpc":"2.0","id":` + id + `,"method":"roots/list"}` + "\n")
	var got struct{ Error *wire.Error }
	select {
	case r := <-again:
		got.Error = r.Error
	case <-time.After(time.Minute):
	}
	if got.Error == nil || got.Error.Code != wire.CodeInvalidRequest {
		t.Errorf("an id used twice: %+v", got.Error)
	}
	close(a.finish)
}

// testOnly is a method for tests. Each test sets the function of the method with setTestMethod. The
// method is registered from the start, because sessions of other tests may still look methods up.
const testOnly = "files/test"

var testMethod atomic.Pointer[func(*Session, *request) (any, error)]

func init() {
	methods[testOnly] = method{run: func(s *Session, r *request) (any, error) { return (*testMethod.Load())(s, r) }}
}

// setTestMethod sets the function that testOnly calls.
func setTestMethod(f func(*Session, *request) (any, error)) { testMethod.Store(&f) }

// A request that hangs is answered with TIMEOUT (R079). A request may take longer than the limit
// while bytes move. A panic is answered with an internal error.
func TestTimeout(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Limits.Timeout = 50 * time.Millisecond })
	p := l.connect("")
	setTestMethod(func(_ *Session, r *request) (any, error) {
		<-r.ctx.Done()
		return nil, r.ctx.Err()
	})
	if e, d := p.fails("files/test", `{}`); d.Code != names.TimeoutCode || e.Code != -31005 || !d.Retryable {
		t.Errorf("%+v %+v", e, d)
	}
	// This limit is long enough for a busy machine: the next requests must not reach it.
	p = newLab(t, func(c *Config) { c.Limits.Timeout = 2 * time.Second }).connect("")
	setTestMethod(func(_ *Session, r *request) (any, error) {
		for range 12 { // longer than the limit, with bytes moving
			time.Sleep(200 * time.Millisecond)
			r.alive()
		}
		return wire.Empty{}, r.ctx.Err()
	})
	p.must("files/test", `{}`, nil)
	setTestMethod(func(*Session, *request) (any, error) { panic("a bug") })
	if e, d := p.fails("files/test", `{}`); d.Reason != "Internal" || e.Code != wire.CodeInternal || strings.Contains(e.Message, "bug") {
		t.Errorf("R025: a panic: %+v %+v", e, d)
	}
	p.must("roots/list", `{}`, nil)
}

// roots/list shows a subject its own roots and the roots of no subject, but no other subject's
// (R115, R127), a page at a time (R180, R181, R182, R183, R184, R185, R186, R187).
func TestRootsList(t *testing.T) {
	l := newLab(t, func(c *Config) { c.PageSize = 3 })
	base := t.TempDir()
	for i := range 7 {
		dir := filepath.Join(base, fmt.Sprintf("r%d ü#%%", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		l.grant(guard.Grant{Root: guard.RootName(fmt.Sprintf("r%d", i)), Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadOnly}})
	}
	l.grant(guard.Grant{Root: "mine", Dir: names.Foreign(t.TempDir()), Subject: "alice", Policy: guard.Policy{Rights: guard.ReadOnly}})
	p, alice := l.connect(""), l.connect("alice")
	list := func(p *peer) (all []string, pages int) {
		params := obj{}
		for {
			var r wire.RootsResult
			p.must("roots/list", params, &r)
			pages++
			for _, root := range r.Roots {
				all = append(all, root.Name)
				if !strings.HasPrefix(root.URI, "file:///") {
					t.Errorf("URI %q", root.URI)
				}
			}
			if r.NextCursor == "" {
				if last := p.call("roots/list", params); strings.Contains(string(last.Result), "nextCursor") {
					t.Errorf("R181: the last page is %s", last.Result)
				}
				return
			}
			params["cursor"] = r.NextCursor
		}
	}
	if all, pages := list(p); len(all) != 7 || pages != 3 {
		t.Errorf("%v in %d pages", all, pages)
	}
	if all, _ := list(alice); len(all) != 8 || all[0] != "mine" {
		t.Errorf("alice sees %v", all)
	}
	if _, d := p.fails("files/list", `{"path":"mine"}`); d.Reason != "NoConsent" {
		t.Errorf("somebody else's root: %+v", d)
	}
	for _, c := range []string{"garbage", "e30", cursor{1, -1}.String(), cursor{l.reg.Version(), 99}.String(), cursor{l.reg.Version(), 0}.String()} {
		if e, _ := p.fails("roots/list", obj{"cursor": c}); e.Code != wire.CodeInvalidParams {
			t.Errorf("cursor %q: %+v", c, e)
		}
	}
	var first wire.RootsResult
	p.must("roots/list", obj{}, &first)
	if _, err := l.reg.Revoke(t.Context(), "r0"); err != nil {
		t.Fatal(err)
	}
	e, _ := p.fails("roots/list", obj{"cursor": first.NextCursor})
	var versions struct{ Expected, Received uint64 }
	if err := json.Unmarshal(e.Data, &versions); err != nil || e.Code != wire.CodeInvalidParams || versions.Expected <= versions.Received || versions.Received == 0 ||
		!strings.Contains(e.Message, "list again without a cursor") {
		t.Errorf("R184: %+v %s", e, e.Data)
	}
	if all, _ := list(p); len(all) != 6 {
		t.Errorf("after a revocation: %v", all)
	}
}

// Many changes in a short time are announced in fewer notifications, and the last state is
// announced. None is sent when list_changed is switched off (R012, R142, R143, R144, R221).
func TestListChanged(t *testing.T) {
	for _, off := range []bool{false, true} {
		l := newLab(t, func(c *Config) { c.NoListChanged = off; c.Debounce = 30 * time.Millisecond })
		p := l.connect("")
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				l.grant(guard.Grant{Root: guard.RootName(fmt.Sprintf("r%d", i)), Dir: names.Foreign(t.TempDir()), Policy: guard.Policy{Rights: guard.ReadOnly}})
			})
		}
		wg.Wait()
		if off {
			if n := p.s.Stats().Notified; n != 0 {
				t.Errorf("R013: %d notifications though switched off", n)
			}
			continue
		}
		// After the last notification a reader sees the last state.
		p.until(wire.RootsChanged, func(json.RawMessage) bool {
			var r wire.ListResult
			p.must("files/list", `{}`, &r)
			return len(r.Entries) == 100
		})
		if n := p.s.Stats().Notified; n > 60 {
			t.Errorf("%d notifications for 100 changes", n)
		}
	}
}

// Revocation ends watches and uploads, and later requests are refused (R070).
func TestRevocationEndsAll(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("r", guard.ReadWrite, map[string]string{"f": "text"})
	p := l.connect("")
	p.must("files/watch", `{"path":"r"}`, nil)
	var up wire.WriteResult
	p.must("files/write", `{"path":"r/up","content":"x","upload":true,"create":true}`, &up)
	if _, err := l.reg.Revoke(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if st := p.s.Stats(); st.Uploads != 0 {
		t.Errorf("uploads after the revocation: %+v", st)
	}
	for method, params := range map[string]string{
		"files/read": `{"path":"r/f"}`, "files/list": `{"path":"r"}`, "files/stat": `{"path":"r/f"}`,
		"files/write": fmt.Sprintf(`{"path":"r/up","content":"y","uploadId":%q,"offset":1,"last":true}`, up.UploadID),
		"files/watch": `{"path":"r"}`,
	} {
		if _, d := p.fails(method, params); d.Code != names.PermissionDenied && d.Code != names.ConcurrencyConflict {
			t.Errorf("%s after the revocation: %+v", method, d)
		}
	}
	p.until(wire.Changed, func(raw json.RawMessage) bool {
		var c wire.ChangedParams
		return json.Unmarshal(raw, &c) == nil && c.Ended
	})
	if err := os.WriteFile(dir+"/late", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(dir + "/up"); err == nil {
		t.Errorf("the upload appeared: %q", b)
	}
}
