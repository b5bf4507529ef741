package tools_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// testTimeout ends a test that hangs; the questions wait for much longer.
const testTimeout = 30 * time.Second

// queued makes a bench whose questions wait for the owner, as with "rootsfs consent".
func queued(t *testing.T) (*bench, *broker.Queue) {
	b, u := start(t, nil, nil), &broker.Queue{By: "test"}
	b.ask = broker.New(broker.Config{Registry: b.reg, Tree: b.cfg.Tree, Asker: broker.Chain(broker.AskHost, u), AskFor: time.Hour})
	t.Cleanup(b.ask.Close)
	return b, u
}

// awaitQuestions waits until there are n questions, and returns the id of one.
func awaitQuestions(t *testing.T, u *broker.Queue, n int) (id string) {
	t.Helper()
	var list []broker.Question
	if !testkit.Eventually(func() bool { list = u.List(); return len(list) == n }) {
		t.Fatalf("%d questions wait, want %d", len(list), n)
	}
	if n > 0 {
		id = list[0].ID
	}
	return id
}

// checkEnded checks that a question has ended: an answer that comes late is refused.
func checkEnded(t *testing.T, u *broker.Queue, id string) {
	t.Helper()
	awaitQuestions(t, u, 0)
	if err := u.Answer(id, broker.Answer{Decisions: []broker.Decision{{Allow: true}}}); !errors.Is(err, broker.ErrNoQuestion) {
		t.Errorf("a late answer: %v", err)
	}
}

// readsOutside returns a call that reads a path outside the roots, which causes a question.
func readsOutside(id int, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"/usr"}%s}}`, id, meta)
}

// send sends one request in the background, until ctx ends, and drops the answer.
func send(ctx context.Context, t *testing.T, site *httptest.Server, session, body string, change ...func(*http.Request)) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, site.URL, strings.NewReader(body))
	testkit.Must(t, err)
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + token} {
		r.Header.Set(k, v)
	}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	} else {
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", "read_text_file")
	}
	for _, f := range change {
		f(r)
	}
	go func() {
		if res, err := http.DefaultClient.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}()
}

// A question to the owner ends when the request, its connection, the session or the server
// ends.
func TestHTTPWithdrawsQuestions(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, site *httptest.Server, h *tools.HTTP, session string, hangUp func()){
		"disconnect": func(_ *testing.T, _ *httptest.Server, _ *tools.HTTP, _ string, hangUp func()) { hangUp() },
		"cancelled": func(t *testing.T, site *httptest.Server, _ *tools.HTTP, session string, _ func()) {
			status, _ := post(t, site, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`,
				func(r *http.Request) { r.Header.Set("Mcp-Session-Id", session) })
			if status != http.StatusAccepted {
				t.Error(status)
			}
		},
		"delete": func(t *testing.T, site *httptest.Server, _ *tools.HTTP, session string, _ func()) {
			status, _ := post(t, site, "", func(r *http.Request) {
				r.Method = http.MethodDelete
				r.Header.Set("Mcp-Session-Id", session)
			})
			if status != http.StatusNoContent {
				t.Error(status)
			}
		},
		"withdraw": func(_ *testing.T, _ *httptest.Server, h *tools.HTTP, _ string, _ func()) { h.Withdraw() },
		"close":    func(_ *testing.T, _ *httptest.Server, h *tools.HTTP, _ string, _ func()) { h.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			b, u := queued(t)
			site, h := b.siteOf(tools.HTTPOptions{})
			status, session := post(t, site, hello, func(*http.Request) {})
			if status != http.StatusOK {
				t.Fatal(status)
			}
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			send(ctx, t, site, session, readsOutside(7, ""))
			id := awaitQuestions(t, u, 1)
			end(t, site, h, session, hangUp)
			checkEnded(t, u, id)
		})
	}
}

// A question for a request of 2026-07-28 whose client cannot show forms ends with the connection
// or the server. Only the connection shows that the client is still there.
func TestHTTPWithdrawsQuestionsWithoutSession(t *testing.T) {
	const meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}}}}`
	for name, end := range map[string]func(h *tools.HTTP, hangUp func()){
		"disconnect": func(_ *tools.HTTP, hangUp func()) { hangUp() },
		"withdraw":   func(h *tools.HTTP, _ func()) { h.Withdraw() },
		"close":      func(h *tools.HTTP, _ func()) { h.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			b, u := queued(t)
			site, h := b.siteOf(tools.HTTPOptions{})
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			send(ctx, t, site, "", readsOutside(7, meta))
			id := awaitQuestions(t, u, 1)
			end(h, hangUp)
			checkEnded(t, u, id)
		})
	}
}

// The server marks requests with a header. A client that sends this header itself withdraws no
// question, neither its own nor another client's.
func TestHTTPForgedMark(t *testing.T) {
	b, u := queued(t)
	site, _ := b.siteOf(tools.HTTPOptions{})
	_, session := post(t, site, hello, func(*http.Request) {})
	forges := func(r *http.Request) { r.Header.Set("Rootsfs-Request", "forged") }
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	send(ctx, t, site, session, readsOutside(7, ""), forges)
	id := awaitQuestions(t, u, 1)
	send(t.Context(), t, site, session, readsOutside(8, ""), forges)
	awaitQuestions(t, u, 2)
	hangUp()
	if left := awaitQuestions(t, u, 1); left == id {
		t.Error("the question of the client that waits was withdrawn")
	}
}

// A DELETE whose session id is not exactly a session's cancels no request of that session.
func TestHTTPDeleteNeedsExactID(t *testing.T) {
	b, u := queued(t)
	site, _ := b.siteOf(tools.HTTPOptions{})
	_, session := post(t, site, hello, func(*http.Request) {})
	send(t.Context(), t, site, session, readsOutside(7, ""))
	awaitQuestions(t, u, 1)
	for _, other := range []string{"", session[1:], strings.ToLower(session)} {
		if status, _ := post(t, site, "", func(r *http.Request) {
			r.Method = http.MethodDelete
			r.Header.Set("Mcp-Session-Id", other)
		}); status < 400 {
			t.Errorf("%q: %d", other, status)
		}
	}
	awaitQuestions(t, u, 1)
}

// Over standard streams, in both revisions of the protocol, a question ends when the host hangs up
// and when the program is told to stop.
func TestStdioWithdrawsQuestions(t *testing.T) {
	const meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}}}}`
	for revision, lines := range map[string][]string{
		"2025-11-25": {hello, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, readsOutside(7, "")},
		"2026-07-28": {readsOutside(7, meta)},
	} {
		for name, hangsUp := range map[string]bool{"hangs up": true, "signal": false} {
			t.Run(revision+" "+name, func(t *testing.T) {
				b, u := queued(t)
				cfg := b.cfg
				cfg.Subject, cfg.Ask, cfg.ClientAnswers = guard.Subject("test").InSession(1), b.ask.Session("test#1"), true
				srv := tools.New(cfg)
				defer srv.Close()
				ours, theirs, err := os.Pipe()
				testkit.Must(t, err)
				defer theirs.Close()
				ctx, signal := context.WithCancel(t.Context())
				defer signal()
				done := make(chan error, 1)
				var output lockedBuffer
				go func() { done <- srv.Run(ctx, ours, openBuffer{&output}) }()
				for _, line := range lines {
					_, err := io.WriteString(theirs, line+"\n")
					testkit.Must(t, err)
				}
				id := awaitQuestions(t, u, 1)
				if hangsUp {
					testkit.Must(t, theirs.Close())
				} else {
					signal()
				}
				checkEnded(t, u, id)
				select {
				case err := <-done:
					testkit.Must(t, err)
					if hangsUp && !strings.Contains(output.String(), `"id":7`) { // the call must have its answer
						t.Errorf("no answer in %s", &output)
					}
				case <-time.After(testTimeout):
					t.Error("the server does not end")
				}
			})
		}
	}
}

// openBuffer is a buffer as a stream that stays open.
type openBuffer struct{ *lockedBuffer }

func (openBuffer) Close() error { return nil }
