package broker

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A negative Timeout means that requests have no time limit.
func TestNoTimeout(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Limits.Timeout = -1 })
	l.root("r", guard.ReadWrite, map[string]string{"f": strings.Repeat("x", 1<<20)})
	p := l.connect("")
	for range 100 {
		p.must("files/write", `{"path":"r/x","create":true,"content":"x"}`, nil)
		p.must("files/read", `{"path":"r/f","length":1000}`, nil)
	}
	p.must("files/read", `{"path":"r/f"}`, nil)
	p.must("files/copy", `{"oldPath":"r/f","newPath":"r/g"}`, nil)
}

// A request of a permitted length passes the speed limit, even if it is longer than what may pass in
// a second. A request immediately after it is refused, with the time after which to try again.
func TestBytesPerSecond(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		read   string
	}{
		"the largest chunk, and bytes around it": {Limits{BytesPerSecond: 1 << 10}, `{"path":"r/f","offset":3,"length":4194304}`},
		"no limit for a chunk":                   {Limits{BytesPerSecond: 1000, MaxChunk: -1}, `{"path":"r/f","length":5000000}`},
		"half a byte a second":                   {Limits{BytesPerSecond: 0.5}, `{"path":"r/f","length":1000}`},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, func(cfg *Config) { cfg.Limits = c.limits })
			dir := l.root("r", guard.ReadWrite, nil)
			if err := os.WriteFile(dir+"/f", []byte(strings.Repeat("x", 5<<20)), 0o644); err != nil {
				t.Fatal(err)
			}
			p := l.connect("")
			p.must("files/read", c.read, nil)
			if _, d := p.fails("files/read", c.read); d.Reason != names.Rate.String() || !d.Retryable || d.RetryAfterMs <= 0 {
				t.Errorf("the request immediately after it: %+v", d)
			}
		})
	}
}

// R078: requests with unknown methods count against OpsPerSecond, too.
func TestOpsPerSecondOfUnknownMethods(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Limits = Limits{OpsPerSecond: 0.001, Burst: 3} })
	p := l.connect("")
	for i := range 6 {
		e, d := p.fails("files/nonsense", `{}`)
		if unknown := e.Code == wire.CodeMethodNotFound; unknown != (i < 3) || !unknown && d.Reason != names.Rate.String() {
			t.Errorf("request %d: %+v %+v", i, e, d)
		}
	}
}

// An error about an invalid id, or about a member of a batch that is no object, gives the
// reason.
func TestIDsAndBatches(t *testing.T) {
	l := newLab(t, nil)
	p := l.connect("")
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", longestID) + `","method":"files/stat"}`: "id is longer than 1024 bytes",
		`{"jsonrpc":"2.0","id":[1],"method":"files/stat"}`:                                      "id must be a string or a number",
		`[5]`:   "a member of the batch is no object",
		`["x"]`: "a member of the batch is no object",
		`[[]]`:  "a member of the batch is no object",
	} {
		if _, err := io.WriteString(p.w, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if s := <-p.stray; !strings.Contains(s, want) || !strings.Contains(s, "-32600") {
			t.Errorf("%.60s: %s", line, s)
		}
	}
}

// A request that has changed something is answered even if there is no room for the
// answer: otherwise the server might make the change again. A listing is refused.
func TestChangesAreAnsweredWithoutRoom(t *testing.T) {
	const most = 2 << 20
	l := newLab(t, func(c *Config) { c.Limits.BytesInFlight = most })
	l.root("r", guard.ReadWrite, map[string]string{"f": ""})
	p := l.connect("")
	// Each character of long takes three bytes in a request and six in an answer.
	long := strings.Repeat("\u2028", 60)
	for _, c := range []struct {
		id, method, params string
		refused            bool
	}{
		{"1", "files/list", `{"path":"r"}`, true},
		{"2", "files/write", `{"path":"r/f","content":""}`, false},
		{"3", "files/write", `{"path":"r/f","upload":true}`, false},
		{"4", "files/create", `{"path":"r/c` + long + `"}`, false},
		{"5", "files/create", `{"path":"r/d` + long + `","type":"directory"}`, false},
		{"6", "files/copy", `{"oldPath":"r/f","newPath":"r/h` + long + `"}`, false},
		{"7", "files/rename", `{"oldPath":"r/f","newPath":"r/g` + long + `"}`, false},
		{"8", "files/list", `{"path":"r"}`, true},
	} {
		line := `{"jsonrpc":"2.0","id":` + c.id + `,"method":"` + c.method + `","params":` + c.params + "}\n"
		other := p.occupy(most - int64(len(line))) // the request just fits
		ch := make(chan reply, 1)
		p.mu.Lock()
		p.replies[c.id] = ch
		p.mu.Unlock()
		p.raw(line)
		r := <-ch
		if refused := r.Error != nil; refused != c.refused || refused && r.Error.Code != wire.Number(names.QuotaExceeded) {
			t.Errorf("%s %s: %+v %s", c.method, c.params, r.Error, r.Result)
		}
		if size := len(r.Result) + len(`{"jsonrpc":"2.0","id":1,"result":}`); !c.refused && size <= len(line) {
			t.Errorf("%s: the answer has %d bytes, for which there is room", c.method, size)
		}
		other.Release()
		p.awaitReleased(0)
	}
}
