package tools_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

const (
	// maxAnswer bounds the contents of one answer in these tests. It is smaller than DefaultAnswer,
	// because longer answers take long with the race detector.
	maxAnswer = tools.DefaultAnswer / 8
	// answersBound is the bound of answers. It has room for two answers with fullAnswer bytes of
	// plain text, but not for the reservation of a third call.
	answersBound = 10 * maxAnswer
	fullAnswer   = maxAnswer * 3 / 4
)

// startBounded makes a bench with a root "data", and a site whose answers are bounded. patience is how
// long a call waits for room. The system buffers only little of an answer.
func startBounded(t *testing.T, patience time.Duration, tree ...string) (*bench, *httptest.Server, *tools.HTTP) {
	t.Helper()
	t.Cleanup(tools.LowerAnswerBounds(answersBound))
	b := start(t, func(c *tools.Config) { c.IgnoreRoots, c.Answer = true, maxAnswer }, nil)
	b.root("data", guard.ReadWrite, append(tree, "f="+strings.Repeat("0123456789abcde\n", fullAnswer/16))...)
	site, h := b.siteWith(tools.HTTPOptions{BodyTimeout: patience, ClientReadTimeout: time.Hour}, func(int) bool { return true })
	return b, site, h
}

// openCount returns how many times a file has been opened.
func (b *bench) openCount() (n int) {
	for _, rec := range b.recs.All() {
		if rec.Op == names.OpOpen && rec.Verdict == guard.Allowed {
			n++
		}
	}
	return n
}

// headOf reads the status and headers of the answer on a connection, and not the rest.
func headOf(t *testing.T, c net.Conn) *http.Response {
	t.Helper()
	testkit.Must(t, c.SetReadDeadline(time.Now().Add(4*testTimeout)))
	res, err := http.ReadResponse(bufio.NewReaderSize(c, 512), nil)
	testkit.Must(t, err)
	return res
}

// checkNoRoom checks that a request was refused because there was no room.
func checkNoRoom(t *testing.T, res *http.Response) {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	testkit.Must(t, err)
	var answer struct {
		ID    int
		Error struct{ Message string }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Errorf("%v: %.300s", err, body)
	}
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "1" || res.Header.Get("Content-Type") != "application/json" ||
		answer.ID != 1 || !strings.Contains(answer.Error.Message, fmt.Sprintf("hold %d bytes, the most at a time", answersBound)) {
		t.Errorf("%s %v: %.300s", res.Status, res.Header, body)
	}
}

// awaitEmpty waits until answers hold no memory.
func awaitEmpty(t *testing.T, h *tools.HTTP) {
	t.Helper()
	if !testkit.Eventually(func() bool { return h.AnswersHeld() == 0 }) {
		t.Fatalf("%d bytes are held", h.AnswersHeld())
	}
}

const (
	readTool     = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"data/f"}` + noHandshakeMeta + `}}`
	readResource = `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file://%s/quotes"` + noHandshakeMeta + `}}`
	readOld      = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"data/f"}}}`
)

// For clients over HTTP that do not read answers, the server holds no more than its bound, over
// all their connections. Requests without room are refused before the file is read. When the
// connections end, their room is free again.
func TestHTTPHoldsBoundedAnswers(t *testing.T) {
	const clients, most = 8, 2 // most is how many answers have room
	for name, c := range map[string]struct {
		revision, body string
	}{
		"tool":        {"2026-07-28", readTool},
		"resource":    {"2026-07-28", readResource},
		"in sessions": {"2025-06-18", readOld},
	} {
		t.Run(name, func(t *testing.T) {
			b, site, h := startBounded(t, 2*time.Second, "small=abcde", "quotes="+strings.Repeat(`"`, fullAnswer)) // JSON escapes quotes: the JSON is twice as long as the text
			body := strings.ReplaceAll(c.body, "%s", b.dir("data"))
			var conns []net.Conn
			for range clients {
				conns = append(conns, slowPost(t, site, c.revision, body))
			}
			served := 0
			for _, conn := range conns {
				if held := h.AnswersHeld(); held > answersBound {
					t.Errorf("answers hold %d bytes", held)
				}
				if res := headOf(t, conn); res.StatusCode == http.StatusOK {
					served++
				} else {
					checkNoRoom(t, res)
				}
			}
			if served == 0 || served > most || b.openCount() > most {
				t.Errorf("%d answers have room, and %d files were opened, want 1 to %d", served, b.openCount(), most)
			}
			if h.AnswersHeld() == 0 {
				t.Error("the unread answers hold no memory")
			}
			for _, conn := range conns {
				testkit.Must(t, conn.Close())
			}
			awaitEmpty(t, h)
			res := headOf(t, slowPost(t, site, c.revision, strings.NewReplacer("data/f", "data/small", "/quotes", "/small").Replace(body)))
			if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(text), "abcde") {
				t.Errorf("afterwards: %s, %v", res.Status, err)
			}
			awaitEmpty(t, h)
		})
	}
}

// An answer that is longer than its reservation is refused if there is no further room. But if the
// call has made a change, its answer is then a short text that says so.
func TestHTTPLongAnswerWithoutRoom(t *testing.T) {
	long := strings.Repeat("\x01", fullAnswer/2)
	b, site, h := startBounded(t, time.Hour, "long="+long) // the first reservation is larger than the first answer, so no call waits
	first := slowPost(t, site, "2026-07-28", readTool)
	if res := headOf(t, first); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	checkNoRoom(t, headOf(t, slowPost(t, site, "2026-07-28", strings.Replace(readTool, "data/f", "data/long", 1))))

	edit := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"edit_file","arguments":{"path":"data/long","edits":[{"oldText":"` +
		strings.Repeat(`\u0001`, fullAnswer/2) + `","newText":"short"}]}` + noHandshakeMeta + `}}`
	res := headOf(t, slowPost(t, site, "2026-07-28", edit))
	text, err := io.ReadAll(res.Body)
	testkit.Must(t, err)
	if res.StatusCode != http.StatusOK || !strings.Contains(string(text), "The edits were made. They are not shown") {
		t.Errorf("%s: %.300s", res.Status, text)
	}
	if now, err := os.ReadFile(b.dir("data") + "/long"); err != nil || string(now) != "short" {
		t.Errorf("%.50q, %v", now, err)
	}
	testkit.Must(t, first.Close())
	awaitEmpty(t, h)
}

// If there is no room for its answer, edit_file makes no change. Calls with short answers still
// work. A call without room in a batch is refused by itself.
func TestHTTPWithoutRoom(t *testing.T) {
	b, site, h := startBounded(t, 2*time.Second, "small=1")
	var conns []net.Conn
	for range 2 { // one after the other: the second might wait in vain for the end of the first one's reservation
		c := slowPost(t, site, "2026-07-28", readTool)
		conns = append(conns, c)
		if res := headOf(t, c); res.StatusCode != http.StatusOK {
			t.Fatal(res.Status)
		}
	}
	edit := strings.NewReplacer("read_text_file", "edit_file", `"path":"data/f"`, `"path":"data/small","edits":[{"oldText":"1","newText":"2"}]`).Replace(readTool)
	checkNoRoom(t, headOf(t, slowPost(t, site, "2026-07-28", edit)))
	if now, err := os.ReadFile(b.dir("data") + "/small"); err != nil || string(now) != "1" {
		t.Errorf("%q, %v", now, err)
	}
	for _, to := range []string{"list_directory", "get_file_info"} {
		body := strings.NewReplacer("read_text_file", to, "data/f", "data").Replace(readTool)
		if res := headOf(t, slowPost(t, site, "2026-07-28", body)); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", to, res.Status)
		}
	}
	_, session := post(t, site, strings.Replace(hello, "2025-11-25", "2025-03-26", 1), func(*http.Request) {})
	status, text := postText(t, site, session, "["+readOld+`,{"jsonrpc":"2.0","id":2,"method":"ping"}]`)
	if status != http.StatusOK || !strings.Contains(text, `"id":2,"result"`) || !strings.Contains(text, `"id":1,"error"`) {
		t.Errorf("a batch: %d %.300s", status, text)
	}
	for _, c := range conns {
		testkit.Must(t, c.Close())
	}
	awaitEmpty(t, h)
}
