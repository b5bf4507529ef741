package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// actLab has a machine m1 with one session. The handler that newActLab got answers the requests to
// the session.
type actLab struct {
	*lab
	actor    *actor
	remote   *Remote
	in       control.Info
	requests atomic.Int64   // requests that the session got
	isFull   atomic.Bool    // the audit log rejects records
	seen     chan *nats.Msg // messages to the machine
}

func newActLab(t *testing.T, handler http.HandlerFunc) *actLab {
	t.Helper()
	l := &actLab{lab: newLab(t), seen: make(chan *nats.Msg, 64)}
	m := l.join("m1")
	l.Setenv("XDG_RUNTIME_DIR", l.TempDir())
	b, err := m.dial(false)
	l.must(err)
	l.Cleanup(b.Close)
	log := slog.New(slog.DiscardHandler)
	l.actor = &actor{m: m, bus: b, log: log, allows: func() []control.Access { return []control.Access{control.AccessGrant} }}
	l.actor.record = func(guard.Record) error {
		if l.isFull.Load() {
			return errors.New("the disk is full")
		}
		return nil
	}
	_, err = l.owner.Bus.Conn.ChanSubscribe(b.Names.Do("m1"), l.seen)
	l.must(err)
	l.must(l.owner.Bus.Conn.Flush())
	l.must(l.actor.listen(context.Background()))
	l.must(b.Conn.Flush())
	dir, err := control.Create("s")
	l.must(err)
	s, err := dir.Relay(log, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.requests.Add(1)
		handler(w, r)
	}))
	l.must(err)
	l.Cleanup(func() { s.Close(); _ = dir.Remove() })
	l.must(dir.Publish(control.Info{}))
	all, err := l.owner.Remotes(context.Background(), []string{"m1"}, 10*time.Second)
	l.must(err)
	l.remote = all[0]
	sessions, err := l.remote.sessions(context.Background())
	l.must(err)
	l.in = sessions[0]
	return l
}

// act sends a request to the session, and returns the status and the body of the answer.
func (l *actLab) act(path, body string) (int, string) {
	l.Helper()
	a, err := l.remote.act(context.Background(), l.in, path, []byte(body))
	l.must(err)
	defer a.Close()
	data, err := io.ReadAll(a)
	l.must(err)
	return a.Status, string(data)
}

// An act counts if an owner has signed it: once, at its machine, and within a short time.
func TestActsCountOnce(t *testing.T) {
	l := newActLab(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	if status, body := l.act("/v1/roots.add", "{}"); status != http.StatusOK || body != "{}" || l.requests.Load() != 1 {
		t.Fatalf("an act: %d %s, asked %d times", status, body, l.requests.Load())
	}
	l.must(l.owner.Bus.Conn.Flush())
	for range len(l.seen) { // send every message to the machine again
		l.must(l.owner.Bus.Conn.Publish(l.owner.Names.Do("m1"), (<-l.seen).Data))
	}
	send := func(key *Key, change func(*act)) {
		t.Helper()
		number, bus, err := l.remote.challenge(context.Background())
		l.must(err)
		a := act{Machine: "m1", Number: number, Stream: newInviteID(), Session: "s", PID: l.in.PID, Start: l.in.Start, Path: "/v1/roots.add"}
		change(&a)
		sealed, err := seal(key, l.owner.Names.ID, kindAct, a)
		l.must(err)
		l.must((&Answer{r: l.remote, bus: bus}).send(toMachine{Act: sealed}))
	}
	send(l.actor.m.key, func(*act) {})
	keeper, err := loadKey(l.server.dir.signing())
	l.must(err)
	send(keeper, func(*act) {})
	send(l.owner.key, func(a *act) { a.Machine = "m2" })
	send(l.owner.key, func(a *act) { a.Number = newInviteID() })
	send(l.owner.key, func(a *act) { a.Start++ })
	send(l.owner.key, func(*act) {
		l.actor.mu.Lock()
		defer l.actor.mu.Unlock()
		for number := range l.actor.numbers {
			l.actor.numbers[number] -= challengeTime + time.Second
		}
	})
	if l.act("/v1/roots.add", "{}"); l.requests.Load() != 2 {
		t.Errorf("the session was asked %d times, want 2: some act counted that should not", l.requests.Load())
	}
}

// A progress is refused if no owner has signed it, or if it is for another machine. The error says
// which of the two.
func TestProgressIsRefused(t *testing.T) {
	l := newActLab(t, func(http.ResponseWriter, *http.Request) {})
	for _, c := range []struct {
		key     *Key
		machine string
		want    string
	}{
		{l.actor.m.key, "m1", errSigner.Error()},
		{l.owner.key, "m2", "it is for another machine"},
	} {
		sealed, err := seal(c.key, l.owner.Names.ID, kindProgress, progress{Machine: c.machine})
		l.must(err)
		data, err := json.Marshal(toMachine{Progress: sealed})
		l.must(err)
		if err := l.actor.hear(context.Background(), &nats.Msg{Data: data}); err == nil || err.Error() != c.want {
			t.Errorf("to %s: %v, want %s", c.machine, err, c.want)
		}
	}
}

// An act that the machine's user does not allow, or that shows or changes files, does not reach the
// session. A grant or a look that cannot be put on record is refused. A revocation or a denial is
// carried out even without a record.
func TestActsAreJudged(t *testing.T) {
	l := newActLab(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	for path, body := range map[string]string{
		"/v1/tools": "{}", "/v1/http": "{}", "/v1/stage.contents": "{}", "/v1/stage.apply": "{}", "/v1/policy.set": "{}", "/v1/trash.empty": "{}", "/v1/../v1/status": "{}",
		"/v1/consent.answer": `{"id":"a","approve":true}`, "/v1/consent.forget": "{}", "/v1/nothing": "{}", "/x/status": "{}",
	} {
		if status, got := l.act(path, body); status != control.RefusalStatus || l.requests.Load() != 0 {
			t.Errorf("%s: %d %s, and the session was asked %d times", path, status, got, l.requests.Load())
		}
	}
	l.isFull.Store(true)
	for _, path := range []string{"/v1/net.add", "/v1/status"} {
		if status, got := l.act(path, "{}"); status != control.RefusalStatus || !strings.Contains(got, "cannot put it on record") {
			t.Errorf("%s without a record: %d %s", path, status, got)
		}
	}
	for _, c := range [][2]string{{"/v1/revoke", "{}"}, {"/v1/consent.answer", `{"id":"a","ID":"b"}`}} {
		if status, got := l.act(c[0], c[1]); status != http.StatusOK {
			t.Errorf("%s without a record: %d %s", c[0], status, got)
		}
	}
}

// If the text of a machine's metrics cannot be passed on to its end, the reader gets an error.
func TestCutMetricsAreAnError(t *testing.T) {
	l := newActLab(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "whole 1\n%s\n", strings.Repeat("x", bufio.MaxScanTokenSize))
	})
	server := httptest.NewServer(relay{l.remote, l.in, "m/s"})
	defer server.Close()
	resp, err := http.Get(server.URL + "/metrics")
	l.must(err)
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil || string(text) != "whole 1\n" {
		t.Errorf("read %q, %v", text, err)
	}
}

// A long answer arrives whole, even if the owner reads it late. Until then, the machine stops after
// about frameWindow frames. When the owner closes an answer, the session's answer ends, too.
func TestAnswersInFrames(t *testing.T) {
	whole := bytes.Repeat([]byte("0123456789abcdef"), 3*frameWindow*maxFrameData/16)
	ended := make(chan struct{})
	l := newActLab(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = w.Write(whole)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // after that, the server notices the end of the connection
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	if _, got := l.act("/metrics", ""); got != string(whole) {
		t.Errorf("%d bytes of %d came", len(got), len(whole))
	}
	a, err := l.remote.act(context.Background(), l.in, "/metrics", nil)
	l.must(err)
	sent := func() uint64 {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.last
	}
	testkit.Until(t, "the machine has sent what it may", func() bool { return sent() >= frameWindow })
	time.Sleep(100 * time.Millisecond) // a machine that does not wait goes on
	if n := sent(); n > frameWindow+frameWindow/4 {
		t.Errorf("%d frames were sent, and none was read", n)
	}
	late, err := io.ReadAll(a)
	if l.must(a.Close()); err != nil || !bytes.Equal(late, whole) {
		t.Errorf("read late: %d bytes of %d came, %v", len(late), len(whole), err)
	}
	a, err = l.remote.act(context.Background(), l.in, "/v1/watch", []byte("{}"))
	l.must(err)
	l.must(a.Close())
	select {
	case <-ended:
	case <-time.After(silenceTime / 2): // after silenceTime it ends in any case
		t.Error("the session still answers")
	}
}

// A machine's texts are escaped. Its paths are left out, so that no path is taken for a local one,
// and its sessions are named like s@m1.
func TestAnswersAreClean(t *testing.T) {
	var out bytes.Buffer
	err := cleanJSON(&out, strings.NewReader(`{"status":{"session":"x","config":"/etc/passwd","audit_file":"/a","n":12345678901234567890,"roots":[{"name":"a\u001b[2J\u202e"}]},"\u001b":1}`+"\n"+`{"session":"y","stale":true}`), "s@m1")
	const want = `{"\\u{1b}":1,"status":{"n":12345678901234567890,"roots":[{"name":"a\\u{1b}[2J\\u{202e}"}],"session":"s@m1"}}` + "\n" + `{"session":"s@m1"}` + "\n"
	if !errors.Is(err, io.EOF) || out.String() != want {
		t.Errorf("%v\n%s, want\n%s", err, out.String(), want)
	}
	out.Reset()
	if err := cleanText(&out, strings.NewReader("a 1\nb{x=\"\x1b\"} 2\n")); err != nil || out.String() != "a 1\nb{x=\"\\u{1b}\"} 2\n" {
		t.Errorf("%v %q", err, out.String())
	}
	if err := cleanJSON(io.Discard, io.MultiReader(strings.NewReader(`"`), strings.NewReader(strings.Repeat("a", maxClean))), "s"); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a value without an end: %v", err)
	}
}
