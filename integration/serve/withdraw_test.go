package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// waitForQuestions waits until exactly n questions are open for the owner, and returns the id of
// the first, or "" if n is 0.
func (h *home) waitForQuestions(n int) (id string) {
	h.t.Helper()
	var list []struct{ ID string }
	if !testkit.Eventually(func() bool {
		list = nil
		out := h.mustRun("consent", "list", "--json")
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			h.t.Fatalf("%v: %s", err, out)
		}
		return len(list) == n
	}) {
		h.t.Fatalf("%d questions are open, want %d", len(list), n)
	}
	if n > 0 {
		id = list[0].ID
	}
	return id
}

// startCall sends a call that makes rootsfs ask the owner. The answer is not read. The end of ctx
// closes the client's connection.
func (s *site) startCall(ctx context.Context, session, path string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":%q}}}`, path)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(body))
	testkit.Must(s.t, err)
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + s.token, "Mcp-Session-Id": session} {
		r.Header.Set(k, v)
	}
	go func() {
		if res, err := http.DefaultClient.Do(r); err == nil {
			<-ctx.Done()
			_ = res.Body.Close()
		}
	}()
}

// The question to the owner about a client's call is withdrawn when the client hangs up, and when
// the client's MCP session is deleted. The owner's answer to a withdrawn question gets an error.
// The program ends on SIGTERM, although a question is open.
func TestQuestionsAreWithdrawn(t *testing.T) {
	outside := t.TempDir() + "/f"
	testkit.Must(t, os.WriteFile(outside, []byte("outside"), 0o644))
	for name, shared := range map[string]bool{"own session": false, "shared session": true} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			root := "r=" + t.TempDir()
			var s *site
			if shared {
				base := start(t, h.command("serve", "--root", root, "--name", "base"))
				t.Cleanup(func() { // runs after the cleanup of h.http, when the program of h.http has ended
					_ = base.in.Close()
					testkit.Must(t, base.cmd.Wait())
				})
				s = h.http("--session", "base", "--ask")
			} else {
				s = h.http("--root", root, "--ask")
			}
			_, session := s.post(strings.NewReader(hello), nil)
			ctx, hangUp := context.WithCancel(t.Context())
			s.startCall(ctx, session, outside)
			id := h.waitForQuestions(1)
			hangUp()
			h.waitForQuestions(0)
			out, err := h.command("consent", "approve", id).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "whoever asked waits no more") {
				t.Errorf("a late answer: %v: %s", err, out)
			}
			s.startCall(t.Context(), session, outside)
			h.waitForQuestions(1)
			if status, _ := s.post(nil, func(r *http.Request) {
				r.Method = http.MethodDelete
				r.Header.Set("Mcp-Session-Id", session)
			}); status != http.StatusNoContent {
				t.Errorf("DELETE: %d", status)
			}
			h.waitForQuestions(0)
			// The last question is open when the program gets SIGTERM. The cleanup of h.http checks
			// that the program ends.
			_, session = s.post(strings.NewReader(hello), nil)
			s.startCall(t.Context(), session, outside)
			h.waitForQuestions(1)
			s.end(syscall.SIGTERM)
		})
	}
}

// The program ends when its standard input ends, although a question is open.
func TestStdioQuestionIsWithdrawn(t *testing.T) {
	h := newHome(t)
	s := open(t, h.command("serve", "--root", "r="+t.TempDir(), "--ask")) // open checks that the program ends
	s.request("tools/call", m{"name": "read_text_file", "arguments": m{"path": "/usr"}})
	h.waitForQuestions(1)
}
