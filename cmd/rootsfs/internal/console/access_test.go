package console

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A link lets one browser in, once, within a time limit. The cookie has the flags that keep scripts
// and other sites from using it.
func TestLinkOnce(t *testing.T) {
	l := newLab(t)
	nobody := &browser{l: l}
	try := func(secret string) int {
		r, _ := nobody.do("POST", "/api/enter", `{"link":"`+secret+`"}`, nil)
		return r.StatusCode
	}
	_, secret, _ := strings.Cut(l.s.Link(), "#")
	if len(secret) != 26 {
		t.Errorf("the secret %q has no 128 bits", secret)
	}
	for _, wrong := range []string{"", "x", secret[1:], secret + "A", strings.ToLower(secret)} {
		if got := try(wrong); got != 401 {
			t.Errorf("%q: %d", wrong, got)
		}
	}
	r, _ := nobody.do("POST", "/api/enter", `{"link":"`+secret+`"}`, nil)
	if r.StatusCode != 200 {
		t.Fatalf("wrong secrets have voided the link: %d", r.StatusCode)
	}
	c := r.Header.Get("Set-Cookie")
	for _, want := range []string{"; HttpOnly", "; SameSite=Strict", "; Path=/", l.s.access.cookie + "="} {
		if !strings.Contains(c, want) {
			t.Errorf("the cookie %q is without %s", c, want)
		}
	}
	if got := try(secret); got != 401 {
		t.Errorf("a stolen link, used a second time: %d", got)
	}
	// A new link makes the previous one invalid, and each link expires.
	_, first, _ := strings.Cut(l.s.Link(), "#")
	_, second, _ := strings.Cut(l.s.Link(), "#")
	if try(first) != 401 {
		t.Error("an earlier link still works")
	}
	l.s.access.mu.Lock()
	l.s.access.linkUntil = time.Now().Add(-time.Second)
	l.s.access.mu.Unlock()
	if try(second) != 401 {
		t.Error("a link works after its time")
	}
}

// A scanner that fetches links in messages does not use a link up: the secret is behind the #,
// and only a POST exchanges it for a cookie.
func TestPrefetchUsesNoLink(t *testing.T) {
	l := newLab(t)
	nobody := &browser{l: l}
	_, secret, _ := strings.Cut(l.s.Link(), "#")
	for _, method := range []string{"GET", "HEAD"} {
		for _, path := range []string{"/", "/?" + secret, "/" + secret, "/%23" + secret, "/api/enter", "/api/enter?link=" + secret} {
			nobody.do(method, path, "", nil)
		}
	}
	for _, want := range []int{200, 401} {
		if r, _ := nobody.do("POST", "/api/enter", `{"link":"`+secret+`"}`, nil); r.StatusCode != want {
			t.Errorf("%d, want %d", r.StatusCode, want)
		}
	}
}

// A cookie of the console's name that another server on the loopback address has set lets nobody in
// and does not keep the owner out.
func TestFixedCookie(t *testing.T) {
	l := newLab(t)
	fixed := l.s.access.cookie + "=AAAAAAAAAAAAAAAAAAAAAAAAAA"
	_, secret, _ := strings.Cut(l.s.Link(), "#")
	thief := &browser{l: l}
	r, _ := thief.do("POST", "/api/enter", `{"link":"`+secret+`"}`, func(r *http.Request) { r.Header.Set("Cookie", fixed) })
	if c := r.Cookies(); r.StatusCode != 200 || len(c) != 1 || c[0].Value == "AAAAAAAAAAAAAAAAAAAAAAAAAA" {
		t.Errorf("the cookie was taken over: %d, %v", r.StatusCode, c)
	}
	b := l.enter()
	for _, cookies := range []string{fixed + "; " + l.s.access.cookie + "=" + b.cookie, l.s.access.cookie + "=" + b.cookie + "; " + fixed} {
		if r, _ := b.do("GET", "/api/verify", "", func(r *http.Request) { r.Header.Set("Cookie", cookies) }); r.StatusCode != 200 {
			t.Errorf("with a second cookie of the same name: %d", r.StatusCode)
		}
	}
	if r, _ := b.do("POST", "/api/leave", "{}", func(r *http.Request) { r.Header.Set("Cookie", fixed) }); r.StatusCode != 401 {
		t.Errorf("leave with only the other server's cookie: %d", r.StatusCode)
	}
}

// Every attack is refused before the request is processed.
func TestAttacks(t *testing.T) {
	l := newLab(t)
	l.session("s", "code")
	b := l.enter()
	testkit.Until(l.t, "the session is seen", func() bool { return slices.Contains(l.s.live.Names(), "s") })
	body := `{"session":"s","all":true}`
	set := func(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(k, v) } }
	del := func(k string) func(*http.Request) { return func(r *http.Request) { r.Header.Del(k) } }
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	port := l.s.access.host[strings.LastIndexByte(l.s.access.host, ':'):]
	for _, tt := range []struct {
		what string
		do   func(*http.Request)
		want int
	}{
		{"no cookie", del("Cookie"), 401},
		{"another cookie", set("Cookie", l.s.access.cookie+"=AAAAAAAAAAAAAAAAAAAAAAAAAA"), 401},
		{"an empty cookie", set("Cookie", l.s.access.cookie+"="), 401},
		{"the cookie without its key", del(keyHeader), 401},
		{"another key", set(keyHeader, "AAAAAAAAAAAAAAAAAAAAAAAAAA"), 401},
		{"the key as the cookie", set("Cookie", l.s.access.cookie+"="+b.key), 401},
		{"a foreign origin", set("Origin", "https://evil.example"), 403},
		{"an origin on another port", set("Origin", "http://127.0.0.1:1"), 403},
		{"two origins", func(r *http.Request) { r.Header.Add("Origin", "https://evil.example") }, 403},
		{"an opaque origin", set("Origin", "null"), 403},
		{"no origin", del("Origin"), 403},
		{"a form's type", set("Content-Type", "application/x-www-form-urlencoded"), 403},
		{"a simple type", set("Content-Type", "text/plain"), 403},
		{"no type", del("Content-Type"), 403},
		{"a form with files", set("Content-Type", "multipart/form-data; boundary=x"), 403},
		{"a type that hides another", set("Content-Type", "text/plain; application/json"), 403},
		{"several types", func(r *http.Request) { r.Header["Content-Type"] = []string{"text/plain", "application/json"} }, 403},
		{"another site, says the browser", set("Sec-Fetch-Site", "cross-site"), 403},
		{"another port, says the browser", set("Sec-Fetch-Site", "same-site"), 403},
		{"a name that was rebound", host("evil.example" + port), 403},
		{"localhost by name", host("localhost" + port), 403},
		{"another port", host("127.0.0.1:1"), 403},
		{"no port", host("127.0.0.1"), 403},
	} {
		if r, data := b.do("POST", "/api/revoke", body, tt.do); r.StatusCode != tt.want || strings.Contains(string(data), "code") {
			t.Errorf("%s: %d %s, want %d", tt.what, r.StatusCode, data, tt.want)
		}
	}
	// Reading has the same checks, except those of headers that a GET does not send.
	for _, path := range []string{"/api/stream", "/api/history", "/api/verify", "/api/export", "/api/policy?session=s", "/api/inside?session=s", "/api/nothing"} {
		for what, do := range map[string]func(*http.Request){"no cookie": del("Cookie"), "no key": del(keyHeader)} {
			if r, _ := b.do("GET", path, "", do); r.StatusCode != 401 {
				t.Errorf("GET %s, %s: %d", path, what, r.StatusCode)
			}
		}
		for what, do := range map[string]func(*http.Request){"origin": set("Origin", "https://evil.example"), "host": host("evil.example"), "site": set("Sec-Fetch-Site", "cross-site")} {
			if r, _ := b.do("GET", path, "", do); r.StatusCode != 403 {
				t.Errorf("GET %s, foreign %s: %d", path, what, r.StatusCode)
			}
		}
	}
	for _, method := range []string{"GET", "PUT", "DELETE", "OPTIONS"} {
		if r, _ := b.do(method, "/api/revoke", "", nil); r.StatusCode == 200 {
			t.Errorf("%s is taken for a POST", method)
		}
	}
	c, err := l.s.live.Client("s")
	if err != nil {
		t.Fatal(err)
	}
	st, err := control.GetStatus.Call(t.Context(), c, control.None{})
	if err != nil || len(st.Roots) != 1 {
		t.Errorf("an attack revoked the root: %+v, %v", st.Roots, err)
	}
}

// The headers of every answer keep the page from loading other sites, and other sites from
// embedding it.
func TestHeaders(t *testing.T) {
	l := newLab(t)
	b := l.enter()
	for _, path := range []string{"/", "/app.js", "/style.css", "/vendor/uPlot.js", "/nothing", "/../server.go", "/web/index.html", "/api/verify"} {
		r, body := b.do("GET", path, "", nil)
		csp := r.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; script-src 'self'; style-src 'self'; ") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: %q", path, csp)
		}
		for k, v := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin"} {
			if r.Header.Get(k) != v {
				t.Errorf("%s: %s is %q", path, k, r.Header.Get(k))
			}
		}
		if strings.Contains(path, "nothing") || strings.Contains(path, "server.go") || strings.HasPrefix(path, "/web") {
			if r.StatusCode != 404 && r.StatusCode != 307 {
				t.Errorf("%s: %d", path, r.StatusCode)
			}
		} else if r.StatusCode != 200 || len(body) == 0 {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
	_, page := b.do("GET", "/", "", nil)
	for _, bad := range []string{"<style", " style=", " onclick", "http://", "https://", "<script>"} {
		if strings.Contains(string(page), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}

// The size of requests is bounded. A body with an unknown field or other mistakes is refused with
// an error. The error about a wrong value in a query names the field.
func TestBounds(t *testing.T) {
	l := newLab(t)
	b := l.enter()
	for body, want := range map[string]int{
		`{"session":"` + strings.Repeat("x", maxBody) + `"}`: 413,
		`{"all":true,"frobnicate":1}`:                        400,
		`{"all":true}{"all":true}`:                           400,
		`[`:                                                  400,
		``:                                                   400,
		`{}`:                                                 422,
		`{"everything":true,"session":"s"}`:                  422,
	} {
		if r, data := b.do("POST", "/api/revoke", body, nil); r.StatusCode != want || !strings.HasPrefix(string(data), `{"error":`) {
			t.Errorf("%.40s: %d %s, want %d", body, r.StatusCode, data, want)
		}
	}
	if r, _ := b.do("GET", "/api/history?path="+strings.Repeat("x", 2*maxHeader), "", nil); r.StatusCode != 431 {
		t.Errorf("an address that is too long: %d", r.StatusCode)
	}
	for _, q := range []string{"since=yesterday", "limit=x", "until=1"} {
		if r, data := b.do("GET", "/api/history?"+q, "", nil); r.StatusCode != 400 || !strings.Contains(string(data), q[:5]) {
			t.Errorf("%s: %d %s", q, r.StatusCode, data)
		}
	}
	for _, q := range []string{"verdict=maybe", "limit=0", "limit=1001"} {
		if r, data := b.do("GET", "/api/history?"+q, "", nil); r.StatusCode != 400 || !strings.Contains(string(data), q[:5]) {
			t.Errorf("%s: %d %s", q, r.StatusCode, data)
		}
	}
}

// A request without an end is cut off, also from a browser that has the secrets.
func TestEndlessRequest(t *testing.T) {
	l := newLab(t)
	b := l.enter()
	for what, who := range map[string]*browser{"the owner": b, "a stranger": {l: l}} {
		req := b.request("POST", "/api/revoke", "", nil)
		if who != b {
			req.Header.Del(keyHeader)
		}
		c := l.dial()
		fmt.Fprintf(c, "POST /api/revoke HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n", l.s.access.host)
		if err := req.Header.Write(c); err != nil {
			t.Fatal(err)
		}
		_, err := fmt.Fprint(c, "\r\n")
		sent := 0
		chunk := "1000\r\n" + strings.Repeat(" ", 0x1000) + "\r\n"
		for ; err == nil && sent < 1<<30; sent += len(chunk) {
			_ = c.SetWriteDeadline(time.Now().Add(30 * time.Second))
			_, err = fmt.Fprint(c, chunk)
		}
		_ = c.Close()
		if err == nil || isTimeout(err) || sent > 64<<20 {
			t.Errorf("%s may send %d bytes: %v", what, sent, err)
		}
	}
}

// A thousand idle event streams do not keep the owner out: the oldest ones are ended.
func TestManyStreams(t *testing.T) {
	l := newLab(t)
	b := l.enter()
	var conns []net.Conn
	for range 1000 {
		c := l.dial()
		conns = append(conns, c)
		req := b.request("GET", "/api/stream", "", nil)
		if err := req.Write(c); err != nil {
			t.Fatal(err)
		}
		// When the first line has come, the stream has begun.
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	l.s.streams.mu.Lock()
	n := len(l.s.streams.list)
	l.s.streams.mu.Unlock()
	if n > maxStreams {
		t.Errorf("%d streams are kept", n)
	}
	if r, data := b.do("GET", "/api/verify", "", nil); r.StatusCode != 200 {
		t.Errorf("the owner is kept out: %d %s", r.StatusCode, data)
	}
	// The newest stream still gets updates: the state is sent every second while a session is
	// live.
	l.session("late", "x")
	testkit.Until(l.t, "the newest stream gets an update", func() bool {
		_ = conns[len(conns)-1].SetReadDeadline(time.Now().Add(20 * time.Second))
		line, err := bufio.NewReader(conns[len(conns)-1]).ReadString('\n')
		return err == nil && (strings.Contains(line, `"late"`) || len(line) > 0)
	})
}

// Silent connections are closed to make room for connections that send requests.
func TestManySilentConnections(t *testing.T) {
	l := newLab(t)
	b := l.enter()
	first := l.dial()
	for range 4*maxConns - 1 {
		l.dial()
	}
	if r, data := b.do("GET", "/api/verify", "", nil); r.StatusCode != 200 {
		t.Errorf("the owner is kept out: %d %s", r.StatusCode, data)
	}
	_ = first.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := first.Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
		t.Errorf("the oldest silent connection is still open: %d, %v", n, err)
	}
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// A browser loses access when it leaves, when too many newer browsers are let in, and when it was
// idle for too long.
func TestLeaving(t *testing.T) {
	l := newLab(t)
	b := l.enter()
	in := func(b *browser) bool {
		r, _ := b.do("GET", "/api/verify", "", nil)
		return r.StatusCode == 200
	}
	if !in(b) {
		t.Fatal("not in")
	}
	if r, _ := b.do("POST", "/api/leave", "{}", nil); r.StatusCode != 200 || in(b) {
		t.Error("in after leaving")
	}
	first := l.enter()
	for range maxLogins {
		l.enter()
	}
	if in(first) {
		t.Error("the oldest of too many is in")
	}
	last := l.enter()
	now := time.Now()
	l.s.access.mu.Lock()
	l.s.access.now = func() time.Time { return now.Add(loginFor + time.Minute) }
	l.s.access.mu.Unlock()
	if in(last) {
		t.Error("in after having been away for long")
	}
}

// The console listens only on the loopback address.
func TestLoopbackOnly(t *testing.T) {
	l := newLab(t)
	addr, ok := l.s.l.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsLoopback() || addr.Port == 0 {
		t.Errorf("listens on %v", l.s.l.Addr())
	}
	if got := fmt.Sprint(addr); got != l.s.access.host {
		t.Errorf("listens on %s, but requests must name %s", got, l.s.access.host)
	}
}
