package broker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// logCounter counts the lines and bytes that are logged.
type logCounter struct{ lines, bytes atomic.Int64 }

func (c *logCounter) Write(p []byte) (int, error) {
	c.lines.Add(int64(bytes.Count(p, []byte("\n"))))
	c.bytes.Add(int64(len(p)))
	return len(p), nil
}

// silent is a server that writes and does not read.
type silent struct {
	s *Session
	w io.WriteCloser
	// unread is the end of the connection that the peer does not read.
	unread io.ReadCloser
	close  func() error
}

func (l *lab) silent(t *testing.T) *silent {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &silent{s: l.b.Session("silent"), w: inW, unread: outR}
	conn, err := p.s.Lines(inR, outW, 0).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := conn.Read(context.Background()); err != nil {
				return
			}
		}
	}()
	p.close = conn.Close
	t.Cleanup(func() {
		_ = inW.Close()
		_ = conn.Close()
		_ = outR.Close()
		p.s.Close()
	})
	return p
}

// The connection stops reading from a peer that sends rubbish and does not read the errors. So
// the number of goroutines is bounded, and the log does not fill.
func TestRubbishUnread(t *testing.T) {
	for name, line := range map[string]string{"lines": strings.Repeat("x\n", 200_000), "a batch": "[" + strings.Repeat("{},5,", 10_000) + "{}]\n"} {
		t.Run(name, func(t *testing.T) {
			var log logCounter
			l := newLab(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
			before := runtime.NumGoroutine()
			p := l.silent(t)
			written := make(chan error, 1)
			go func() {
				_, err := io.WriteString(p.w, line+strings.Repeat("x\n", 100_000))
				written <- err
			}()
			// The connection reads no more, so the writer waits.
			for range 50 {
				time.Sleep(time.Millisecond)
				if n := runtime.NumGoroutine() - before; n > 20 {
					t.Fatalf("%d goroutines", n)
				}
			}
			_ = p.close()
			if err := <-written; err == nil {
				t.Error("the connection read everything, though the peer read no answer")
			}
			p.s.Close()
			if n := log.lines.Load(); n > 6 {
				t.Errorf("%d lines of log", n)
			}
		})
	}
}

// Unread answers count among the bytes held. When there is no room for a listing, it is refused.
// When the peer has read all answers, no bytes are held.
func TestListsUnread(t *testing.T) {
	const limit = 4 << 20
	l := newLab(t, func(c *Config) { c.Limits.BytesInFlight = limit })
	files := map[string]string{}
	for i := range 1000 {
		files[strings.Repeat("\x01", 200)+strconv.Itoa(i)] = ""
	}
	l.root("r", guard.ReadOnly, files)
	p := l.silent(t)
	for i := range 40 {
		if _, err := fmt.Fprintf(p.w, `{"jsonrpc":"2.0","id":%d,"method":"files/list","params":{"path":"r"}}`+"\n", i); err != nil {
			t.Fatal(err)
		}
	}
	// When a request is no longer in flight, the bytes of its listing are already counted.
	var st Stats
	testkit.Eventually(func() bool {
		st = p.s.Stats()
		return st.InFlight == 0 && st.HeldBytes >= limit/2
	})
	if st.HeldBytes < limit/2 || st.HeldBytes > limit+100*1024 || st.Unread == 0 {
		t.Errorf("%+v", st)
	}
	// Once the peer reads, it gets an answer to each request: a listing, or a refusal if there
	// was no room.
	listed, refused := 0, 0
	r := bufio.NewReader(p.unread)
	for range 40 {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.Contains(line, `"entries"`):
			listed++
		case strings.Contains(line, string(names.QuotaExceeded)):
			refused++
		}
	}
	if listed == 0 || listed+refused != 40 {
		t.Errorf("%d listed, %d refused", listed, refused)
	}
	testkit.Until(t, "the bytes of the answers are released", func() bool { return p.s.Stats().HeldBytes == 0 })
}

// A page is bounded by its size as JSON: control characters take six bytes, in the name
// and in the path. The pages together have as many entries as the directory.
func TestListPageBytes(t *testing.T) {
	l := newLab(t, nil)
	files := map[string]string{}
	for i := range 3000 {
		files[strings.Repeat("\x01", 240)+strconv.Itoa(i)] = ""
	}
	l.root("r", guard.ReadOnly, files)
	p := l.connect("")
	seen, params := 0, obj{"path": "r", "limit": 10_000}
	for {
		r := p.call("files/list", params)
		if n := len(r.Result); n > DefaultFrame {
			t.Errorf("a page of %d bytes", n)
		}
		var page wire.ListResult
		if err := json.Unmarshal(r.Result, &page); err != nil {
			t.Fatal(err)
		}
		seen += len(page.Entries)
		if page.NextCursor == "" {
			break
		}
		params["cursor"] = page.NextCursor
	}
	if seen != 3000 {
		t.Errorf("%d entries", seen)
	}
}

// An error about a long message does not make the answer, the log or the record long.
func TestBriefAnswers(t *testing.T) {
	var log logCounter
	l := newLab(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	l.root("r", guard.ReadWrite, nil)
	p := l.connect("")
	long := strings.Repeat("\u202e", 300_000)
	for method, params := range map[string]obj{
		"files/" + long: {}, "files/read": {long: 1}, "files/watch": {"path": "r", "events": []string{long}}, "files/stat": {"path": long},
		"files/list": {"path": "r", "glob": long}, "files/delete": {"path": "r/" + strings.Repeat("x/", 500_000)}, "files/create": {"path": "file://" + long},
		"files/consent": {"message": "m", "requestedPaths": []string{"/x"}, "mode": long},
	} {
		e, _ := p.fails(method, params)
		if n := len(e.Message) + len(e.Data); n > 20_000 {
			t.Errorf("%.20s: the answer has %d bytes", method, n)
		}
	}
	p.raw(`{"` + long + `":1,"` + long + `":2}` + "\n")
	if s := <-p.stray; len(s) > 10_000 {
		t.Errorf("the complaint has %d bytes", len(s))
	}
	for _, r := range l.recs.all() {
		if len(r.Detail) > 10_000 {
			t.Errorf("the detail of a record of %v has %d bytes", r.Op, len(r.Detail))
		}
	}
	p.hangUp()
	if log.bytes.Load() > 20_000 {
		t.Errorf("%d bytes of log", log.bytes.Load())
	}
}

// A request that is malformed or too long gets an error with its id, if the id can be read: the
// peer does not wait in vain (R025, R091).
func TestUnreadableIsAnswered(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadWrite, map[string]string{"f": "text"})
	p := l.connectFrames("", 64<<10)
	for id, c := range map[string]struct {
		line string
		code int
	}{
		`"a"`: {`{"method":"files/write","params":{"path":"r/f","content":"\ud800"},"jsonrpc":"2.0","id":"a"}`, wire.CodeParse},
		`2`:   {"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"files/read\",\"params\":{\"path\":\"r/\xff\"}}", wire.CodeParse},
		`"c"`: {`{"jsonrpc":"2.0","id":"c","method":"files/write","params":{"path":"r/f","content":"` + strings.Repeat("x", 70<<10) + `"}}`, wire.CodeInvalidRequest},
	} {
		ch := make(chan reply, 1)
		p.mu.Lock()
		p.replies[id] = ch
		p.mu.Unlock()
		p.raw(c.line + "\n")
		select {
		case r := <-ch:
			if r.Error == nil || r.Error.Code != c.code {
				t.Errorf("%.60q: %+v", c.line, r.Error)
			}
		case s := <-p.stray:
			t.Errorf("%.60q: %s", c.line, s)
		case <-time.After(time.Minute):
			t.Fatalf("%.60q: no answer", c.line)
		}
	}
	var r wire.ReadResult
	if p.must("files/read", `{"path":"r/f"}`, &r); r.Content != "text" {
		t.Errorf("%+v", r)
	}
}
