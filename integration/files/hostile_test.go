package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// Reading a path that stalls, crashes or misleads other servers fails with the expected kind of
// error. Writing there fails, too, and so does deleting, creating or watching a path below. The
// session goes on, and the directory outside the root does not change. R051, R064, R091, R098,
// R130.
func TestHostilePaths(t *testing.T) {
	h := newHost(t, nil)
	out := t.TempDir()
	writeFile(t, filepath.Join(out, "secret"), canary)
	dir := t.TempDir()
	guardtest.Tree(t, dir, out, "f=text", "fifo|", "socket@", "device%", "proc => /proc/self/root$OUT/secret",
		"fd => /proc/self/fd/0", "cwd => /proc/self/cwd", "dangling => $OUT/new", "nowhere => gone", "loop => loop", "sub/x=")
	h.grant("r", dir, guard.ReadWrite)
	p := connectRaw(t, h.b)
	long := "r/" + strings.Repeat("a/", 2047) // 4,096 bytes
	for _, c := range []struct {
		path string
		want names.Kind
	}{
		{"r/fifo", names.NotExist}, {"r/socket", names.NotExist}, {"r/device", names.NotExist},
		{"r/proc", names.Escaped}, {"r/fd", names.Escaped}, {"r/cwd", names.Escaped}, {"r/cwd/etc/passwd", names.Escaped},
		{"r/dangling", names.Escaped}, {"r/nowhere", names.NotExist}, {"r/loop", names.Invalid}, {"r/loop/x", names.Invalid},
		{"r/f\x00", names.Invalid}, {"r/\x00/f", names.Invalid}, {long, names.NotExist}, {long + strings.Repeat("b/", 4000), names.NotExist},
		{"r/" + strings.Repeat("n", 256), names.TooLong}, {"r/" + strings.Repeat("n", 1<<20), names.TooLong},
		{"r/f/below", names.NotDir}, {"", names.Invalid}, {"..", names.Invalid}, {"r/..", names.Invalid},
		{"/", names.NoConsent}, {"/proc/self/environ", names.NoConsent}, {"file:///etc/passwd", names.NoConsent},
		{"file:/x", names.Invalid}, {"file://evil/x", names.Invalid}, {"file:///r%2Ff", names.Invalid}, {`C:\x`, names.Invalid}, {`\\h\s`, names.NoConsent},
		{"R/f", names.NoConsent},
	} {
		var res wire.ReadResult
		err := p.ask(wire.Read, wire.ReadParams{Path: c.path}, &res)
		if !errors.Is(err, c.want) {
			t.Errorf("read %.60q: %v (%v) %.20q, want %v", c.path, err, names.Reason(err), res.Content, c.want)
		}
		var refusal *wire.Error
		if errors.As(err, &refusal) && (len(refusal.Message) < 10 || strings.Contains(refusal.Message, dir) || strings.Contains(refusal.Message, out)) {
			t.Errorf("read %.60q: the message %q says too little or too much", c.path, refusal.Message)
		}
		for method, params := range map[string]any{
			wire.Write:  wire.WriteParams{Path: c.path, Content: "x", Create: c.want != names.NotExist},
			wire.Delete: wire.DeleteParams{Path: c.path + "/below", Recursive: true},
			wire.Create: wire.CreateParams{Path: c.path + "/below", Parents: c.want != names.NotExist},
			wire.Watch:  wire.WatchParams{Path: c.path + "/below"},
		} {
			if err := p.ask(method, params, nil); err == nil {
				t.Errorf("%s %.60q succeeded", method, c.path)
			}
		}
		p.checkAlive("r/f", "text")
	}
	if got := snapshot(t, out); strings.Count(got, "\n") != 2 || !strings.Contains(got, canary) {
		t.Errorf("the directory outside the root was changed: %s", got)
	}
}

// inMemory returns a new directory. If the test may mount, the directory is a tmpfs of its own,
// because a disk takes seconds to make and remove thousands of directories.
func inMemory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if unix.Mount("none", dir, "tmpfs", 0, "size=256m") == nil {
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	return dir
}

// A tree 10,000 levels deep is read, listed and removed like any other.
func TestHostileDepth(t *testing.T) {
	h := newHost(t, nil)
	dir := inMemory(t)
	writeFile(t, filepath.Join(dir, "f"), "text")
	h.grant("r", dir, guard.ReadWrite)
	const levels = 10_000
	leaf := guardtest.Deep(t, dir, "d", levels, "deep")
	p := connectRaw(t, h.b)
	p.checkAlive("r/"+leaf, "deep")
	var w wire.WriteResult
	testkit.Must(t, p.ask(wire.Write, wire.WriteParams{Path: "r/" + leaf, Content: "written"}, &w))
	p.checkAlive("r/"+leaf, "written")
	// The paths of all levels together are 100 MB, so the test lists only three pages from the top,
	// and the deepest directory.
	seen, cursor := map[string]bool{}, ""
	for range 3 {
		var l wire.ListResult
		testkit.Must(t, p.ask(wire.List, wire.ListParams{Path: "r", Recursive: true, Limit: 200, Cursor: cursor}, &l))
		for _, e := range l.Entries {
			seen[e.Path] = true
		}
		cursor = l.NextCursor
	}
	if len(seen) != 600 || cursor == "" || !seen["r/"+strings.TrimSuffix(strings.Repeat("d/", 500), "/")] {
		t.Errorf("listed %d entries, with the next cursor %q", len(seen), cursor)
	}
	var l wire.ListResult
	testkit.Must(t, p.ask(wire.List, wire.ListParams{Path: "r/" + filepath.Dir(leaf)}, &l))
	if len(l.Entries) != 1 || l.Entries[0].Path != "r/"+leaf {
		t.Errorf("the deepest directory holds %d entries", len(l.Entries))
	}
	testkit.Must(t, p.ask(wire.Delete, wire.DeleteParams{Path: "r/d", Recursive: true}, nil))
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	p.checkAlive("r/f", "text")
}

// A request with invalid parameters, an ambiguous request, and a text that is not a request are
// answered with an error. Later requests are served. R091.
func TestHostileText(t *testing.T) {
	h := newHost(t, nil)
	dir := h.root("r", guard.ReadWrite, "f=text")
	p := connectRaw(t, h.b)
	for _, params := range []string{
		`{"path":1}`, `{"path":"r/f","offset":"7"}`, `{"path":"r/f","length":"7"}`, `{"path":"r/f","length":1e400}`,
		`{"path":"r/f","length":-1}`, `{"path":"r/f","offset":-1}`, `{"path":"r/f","length":1.5}`, `{"path":null,"encoding":"utf-8"}`,
		`{"path":["r/f"]}`, `{"path":"r/f","surprise":1}`, `{"Path":"r/f"}`, `{"path":"r/f","encoding":"latin1"}`, `[]`, `"r/f"`, `7`,
	} {
		if r := <-p.send(wire.Read, params); r.Error == nil || r.Error.Code != wire.CodeInvalidParams || r.Error.Message == "" {
			t.Errorf("%s: %s %+v, want %d", params, r.Result, r.Error, wire.CodeInvalidParams)
		}
	}
	broken := []string{
		`{"jsonrpc":"2.0","id":"x","method":"files/read","params":{"path":"r/f","path":"r/g"}}`,
		"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"files/read\",\"params\":{\"path\":\"r/\xff\xfe\"}}",
		`{"jsonrpc":"2.0","id":"x","method":"files/read","params":{"path":"r/\ud800"}}`,
		`{"jsonrpc":"2.0","id":"x","method":"files/delete","params":{"path":"r/f"},"method":"files/read"}`,
		`{"jsonrpc":"2.0","id":"x","method":"files/read","params":` + strings.Repeat(`{"a":`, 20_000) + `1` + strings.Repeat(`}`, 20_000) + `}`,
		`{"jsonrpc":"2.0"`, "\x00\x01\x02", "nonsense", strings.Repeat("y", 5<<20),
	}
	for _, line := range broken {
		p.line(line + "\n")
		p.checkAlive("r/f", "text")
	}
	// Answers to the broken lines may still arrive. Each broken line gets one answer.
	testkit.Eventually(func() bool { return len(p.strays()) >= len(broken) })
	if got := p.strays(); len(got) != len(broken) || slices.ContainsFunc(got, func(s string) bool { return !strings.Contains(s, `"error":{"code":-32`) }) {
		t.Errorf("%d answers to %d broken lines: %.300q", len(got), len(broken), got)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != "text" {
		t.Errorf("the file holds %q, %v", b, err)
	}
}

// Each of a thousand concurrent requests gets its own answer: the bytes, or a refusal that says
// when to try again. The refused requests are sent again until all are served. R076, R078.
func TestThousandRequests(t *testing.T) {
	h := newHost(t, func(c *broker.Config) { c.Limits.InFlight = 32 })
	dir := h.root("r", guard.ReadOnly)
	for i := range 100 {
		writeFile(t, filepath.Join(dir, fmt.Sprint(i)), strings.Repeat(fmt.Sprintf("%03d", i), 300))
	}
	p := connectRaw(t, h.b)
	todo := make([]int, 1000)
	for i := range todo {
		todo[i] = i
	}
	refused := 0
	for round := 0; len(todo) > 0; round++ {
		if round > 200 {
			t.Fatalf("%d requests are still not served", len(todo))
		}
		replies := make([]chan reply, len(todo))
		for i, n := range todo {
			replies[i] = p.send(wire.Read, wire.ReadParams{Path: fmt.Sprintf("r/%d", n%100)})
		}
		var again []int
		for i, ch := range replies {
			r := <-ch
			if r.Error != nil {
				if err := r.err(); !errors.Is(err, names.Rate) || !strings.Contains(string(r.Error.Data), `"retryAfterMs":`) {
					t.Fatalf("request %d: %v %s", todo[i], err, r.Error.Data)
				}
				again = append(again, todo[i])
				continue
			}
			if want := strings.Repeat(fmt.Sprintf("%03d", todo[i]%100), 300); !strings.Contains(string(r.Result), want) {
				t.Fatalf("request %d got %.60s", todo[i], r.Result)
			}
		}
		refused += len(again)
		todo = again
	}
	t.Logf("%d refusals", refused)
}

// A server that sends half a line and hangs up ends only its own session. The upload that the
// server began is discarded.
func TestHangUp(t *testing.T) {
	h := newHost(t, func(c *broker.Config) { c.Limits.InFlight = 10_000 })
	dir := h.root("r", guard.ReadWrite, "f=text")
	stays := connectRaw(t, h.b)
	for range 20 {
		p := connectRaw(t, h.b)
		var u wire.WriteResult
		testkit.Must(t, p.ask(wire.Write, wire.WriteParams{Path: "r/up", Content: "half", Create: true, Upload: true}, &u))
		testkit.Must(t, p.ask(wire.Watch, wire.WatchParams{Path: "r", Recursive: true}, nil))
		for range 50 {
			p.send(wire.Read, wire.ReadParams{Path: "r/f"})
		}
		p.line(`{"jsonrpc":"2.0","id":1,"method":"files/wri`)
		p.hangUp()
	}
	stays.checkAlive("r/f", "text")
	if n := len(h.b.Sessions()); n != 1 {
		t.Errorf("%d sessions are left, want the one that stays", n)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the uploads left %v, %v", left, err)
	}
	// The name is free again: there is no upload to it any more.
	testkit.Must(t, stays.ask(wire.Write, wire.WriteParams{Path: "r/up", Content: "x", Create: true, Upload: true, Last: true}, nil))
}
