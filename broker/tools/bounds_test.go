package tools_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The sessions and the requests under way of one subject of the issuer are bounded. The log names
// the bound that was reached. Other subjects are served.
func TestOAuthUserIsBounded(t *testing.T) {
	var log lockedBuffer
	_, site, i := trustingWith(t, tools.HTTPOptions{Sessions: 8, UserSessions: 3, BodyTimeout: time.Hour, Log: slog.New(slog.NewJSONHandler(&log, nil))})
	tokenOf := func(sub string) string { return i.Token(audience, m{"sub": sub, "scope": "files"}) }
	var session string
	for n := range 6 {
		status, id := post(t, site, hello, with(tokenOf("alice"), ""))
		if want := map[bool]int{true: 200, false: 429}[n < 3]; status != want {
			t.Errorf("session %d of alice: %d, want %d", n+1, status, want)
		}
		if id != "" {
			session = id
		}
	}
	if status, _ := post(t, site, hello, with(tokenOf("bob"), "")); status != 200 {
		t.Errorf("bob: %d", status)
	}
	// A session that ends makes room for another.
	if status, _ := post(t, site, "", func(r *http.Request) {
		with(tokenOf("alice"), session)(r)
		r.Method = http.MethodDelete
	}); status != http.StatusNoContent {
		t.Errorf("DELETE: %d", status)
	}
	testkit.Until(t, "room for a session: the ended one is closed after its answer", func() bool {
		status, id := post(t, site, hello, with(tokenOf("alice"), ""))
		session = id
		return status == 200
	})
	// Requests whose body has not begun stay under way.
	beginRequest := func() {
		c, err := net.Dial("tcp", site.Listener.Addr().String())
		testkit.Must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
			"Accept: application/json, text/event-stream\r\nContent-Length: 10\r\n\r\n", tokenOf("alice"))
		testkit.Must(t, err)
	}
	for range tools.SessionRequests * 3 {
		beginRequest()
	}
	const list = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	testkit.Until(t, "the limit of requests under way", func() bool {
		if status, _ := post(t, site, list, with(tokenOf("alice"), session)); status == http.StatusTooManyRequests {
			return true
		}
		beginRequest() // the list request above may have taken the place of a request that has ended
		return false
	})
	if status, _ := post(t, site, hello, with(tokenOf("bob"), "")); status != 200 {
		t.Errorf("bob: %d", status)
	}
	if !testkit.Eventually(func() bool {
		text := log.String()
		return strings.Contains(text, `\"oauth:alice\" has 3, the most of one user`) && strings.Contains(text, `\"oauth:alice\" has 12 requests under way`)
	}) {
		t.Fatalf("the log does not name the bounds:\n%s", log.String())
	}
}

// A request whose Content-Length is too large is refused at once, before its body comes.
func TestHTTPTooLargeByItsHeader(t *testing.T) {
	b := start(t, nil, nil)
	site := b.site(tools.HTTPOptions{BodyTimeout: time.Hour})
	for _, session := range []string{"", "Mcp-Session-Id: x\r\n", "Mcp-Protocol-Version: 2026-07-28\r\n"} {
		c, err := net.Dial("tcp", site.Listener.Addr().String())
		testkit.Must(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
			"Accept: application/json, text/event-stream\r\n%sContent-Length: 99999999999\r\n\r\n", token, session)
		testkit.Must(t, err)
		testkit.Must(t, c.SetReadDeadline(time.Now().Add(testTimeout)))
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		testkit.Must(t, err)
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%q: %s", session, res.Status)
		}
		_ = res.Body.Close()
	}
}

// OnAdmitted is called once for each request that was let in, and for no other request.
func TestHTTPAdmitted(t *testing.T) {
	b := start(t, nil, nil)
	admitted := make(chan *http.Request, 10)
	site := b.site(tools.HTTPOptions{OnAdmitted: func(r *http.Request) { admitted <- r }})
	post(t, site, hello, func(r *http.Request) { r.Header.Del("Authorization") })
	post(t, site, hello, func(r *http.Request) { r.Host = "evil.example" })
	post(t, site, hello, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") })
	if n := len(admitted); n != 0 {
		t.Errorf("%d refused requests were reported", n)
	}
	post(t, site, hello, func(*http.Request) {})
	if n := len(admitted); n != 1 {
		t.Errorf("one request was reported %d times", n)
	}
}
