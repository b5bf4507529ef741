package secret

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const credential = "s3cr3t-value"

// lab is a proxy between a program and a host.
type lab struct {
	t       *testing.T
	proxy   *Proxy
	address string // of the proxy
	mu      sync.Mutex
	records []Request
	arrived []*http.Request // at the host
	dialErr error
	noted   chan struct{} // gets a value for each record
}

// newCredential returns a credential with a placeholder of its own.
func newCredential(value string) Credential { return found{value: value}.credential() }

func newLab(t *testing.T, s *Secret, host http.HandlerFunc) *lab {
	t.Helper()
	l := &lab{t: t, noted: make(chan struct{}, 10_000)} // more than the records of any test
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.arrived = append(l.arrived, r)
		l.mu.Unlock()
		host(w, r)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	if s.Name == "" {
		s.Name = "API_TOKEN"
	}
	if s.URL.Host == "" {
		s.URL.Host, s.URL.Port = "example.com", 443
	}
	l.proxy = NewProxy(s, newCredential(credential), Options{
		Roots: roots,
		Dial: func(ctx context.Context) (net.Conn, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.dialErr != nil {
				return nil, l.dialErr
			}
			return new(net.Dialer).DialContext(ctx, "tcp", srv.Listener.Addr().String())
		},
		Reserve: func(context.Context, Request) (int64, error) { return 0, nil },
		Record: func(r Request) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.records = append(l.records, r)
			l.noted <- struct{}{}
			return nil
		},
	})
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.address = in.Addr().String()
	served := make(chan struct{})
	go func() { l.proxy.Serve(in); close(served) }()
	t.Cleanup(func() { in.Close(); <-served })
	return l
}

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }

// raw sends bytes to the proxy and returns the first answer and its body.
func (l *lab) raw(request string) (*http.Response, string) {
	l.t.Helper()
	c, err := net.Dial("tcp", l.address)
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		l.t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		l.t.Fatalf("%q: %v", request, err)
	}
	body, _ := io.ReadAll(res.Body)
	return res, string(body)
}

// get sends one request with headers.
func (l *lab) get(target string, headers ...string) (*http.Response, string) {
	l.t.Helper()
	return l.raw("GET " + target + " HTTP/1.1\nHost: api-token.secret.internal\nConnection: close\n" + strings.Join(append(headers, "", ""), "\n"))
}

// last waits for the records of n requests and returns the last one.
func (l *lab) last(n int) Request {
	l.t.Helper()
	for range n {
		<-l.noted
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records[len(l.records)-1]
}

// requests returns the requests that have arrived at the host.
func (l *lab) requests() []*http.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.arrived)
}

// The host gets the owner's credential and no other one. It does not get the headers of the
// program's connection, or headers that some servers take for the method, host or path of the
// request.
func TestCredentialIsAdded(t *testing.T) {
	for _, c := range []struct {
		secret       Secret
		header, want string
	}{
		{Secret{}, "Authorization", "Bearer " + credential},
		{Secret{Header: "x-api-key"}, "X-Api-Key", credential},
		{Secret{Header: "authorization: token"}, "Authorization", "token " + credential},
		{Secret{User: "git"}, "Authorization", "Basic Z2l0OnMzY3IzdC12YWx1ZQ=="},
	} {
		l := newLab(t, &c.secret, hello)
		res, body := l.get("/x?q=1&q=2", "Authorization: Bearer mine", "AUTHORIZATION: twice", "X-Api-Key: mine", "Cookie: a=b", "Proxy-Authorization: x",
			"X-HTTP-Method-Override: DELETE", "X-Original-URL: /admin", "X-Forwarded-For: 1.2.3.4", "Keep-Alive: 5", "X-Request-Id: yes", "Expect: 100-continue",
			"X_Api_Key: mine", "x_http_method_override: DELETE", "X.Http.Method: DELETE", "X_Forwarded_Host: other.test", "X-Forwarded-Prefix: /admin", "X-Original-Host: other.test")
		if res.StatusCode != 200 || body != "hello" {
			t.Fatal(res.Status, body)
		}
		r := l.requests()[0]
		if got := r.Header[c.header]; !slices.Equal(got, []string{c.want}) {
			t.Errorf("%+v: the host got %q", c.secret, got)
		}
		for name := range r.Header {
			if !slices.Contains([]string{c.header, "X-Request-Id", "User-Agent", "Accept-Encoding"}, name) {
				t.Errorf("the host got %s: %q", name, r.Header[name])
			}
		}
		if r.Host != "example.com" || r.RequestURI != "/x?q=1&q=2" {
			t.Errorf("the host got %s for %s", r.RequestURI, r.Host)
		}
		rec := l.last(1)
		if rec.Method != "GET" || rec.Path != "/x" || rec.Host != "example.com" || rec.Status != 200 || rec.Received != 5 || rec.Refused != nil || rec.Failed != nil {
			t.Errorf("on record: %+v", rec)
		}
	}
}

// A request that is invalid, ambiguous or allowed by no rule is refused, and does not reach the
// host.
func TestRefusedRequests(t *testing.T) {
	rule, err := parseRule("GET /repos/me/**")
	if err != nil {
		t.Fatal(err)
	}
	post, err := parseRule("POST /repos/me/**")
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, &Secret{Allow: []Rule{rule, post}}, hello)
	const host = "Host: api-token.secret.internal\n"
	for _, c := range []struct {
		request string
		status  int
		says    string // "": net/http refuses the request, in its own words
	}{
		{"GET /repos/you/x HTTP/1.1\n" + host + "\n", 403, `no rule of the secret API_TOKEN allows GET "/repos/you/x" ("GET /repos/you/x" in allow of its [[secret]] block would); it allows: GET /repos/me/**`},
		{"DELETE /repos/me/x HTTP/1.1\n" + host + "\n", 403, "no rule"},
		{"GET /repos/me/../you HTTP/1.1\n" + host + "\n", 403, "no rule"},
		{"GET /repos/me/%2e%2e/you HTTP/1.1\n" + host + "\n", 403, "no rule"},
		{"GET /repos/me/..%2fyou HTTP/1.1\n" + host + "\n", 400, "more than one way"},
		{"GET /repos/me/%252e%252e/you HTTP/1.1\n" + host + "\n", 400, "encoded twice"},
		{"GET /repos/me/..;/you HTTP/1.1\n" + host + "\n", 400, "more than one way"},
		{"GET /repos/me/x\\..\\y HTTP/1.1\n" + host + "\n", 400, "more than one way"},
		{"GET /repos/me%3F/x HTTP/1.1\n" + host + "\n", 400, "more than one way"},
		{"GET /repos/me/x?q#r HTTP/1.1\n" + host + "\n", 400, "fragment"},
		{"GET http://example.com/repos/me/x HTTP/1.1\n" + host + "\n", 400, "this is no proxy"},
		{"GET https://other.test/repos/me/x HTTP/1.1\n" + host + "\n", 400, "this is no proxy"},
		{"CONNECT example.com:443 HTTP/1.1\nHost: example.com:443\n\n", 400, "this is no proxy"},
		{"OPTIONS * HTTP/1.1\n" + host + "\n", 400, "does not begin with /"},
		{"TRACE /repos/me/x HTTP/1.1\n" + host + "\n", 405, "TRACE"},
		{"trace /repos/me/x HTTP/1.1\n" + host + "\n", 405, "TRACE"},
		{"TRACK /repos/me/x HTTP/1.1\n" + host + "\n", 405, "TRACE"},
		{strings.Repeat("A", 2048) + " /repos/me/x HTTP/1.1\n" + host + "\n", 501, "the method is longer than 32 bytes"},
		{"GET /repos/me/x HTTP/1.1\n" + host + "Connection: Upgrade\nUpgrade: websocket, tls/1.0\n\n", 501, `the protocol "websocket, tls/1.0" is not possible`},
		{"GET /repos/me/x HTTP/1.1\n" + host + "Connection: Upgrade\nUpgrade: HTTP/2.0\n\n", 501, `the protocol "HTTP/2.0" is not possible`},
		{"GET /repos/you/x HTTP/1.1\n" + host + "Connection: Upgrade\nUpgrade: websocket\n\n", 403, "no rule"},
		{"GET /repos/me/x HTTP/1.1\n" + host + "Host: other.test\n\n", 400, ""},
		{"GET /repos/me/x HTTP/1.1\n\n", 400, ""},
		{"POST /repos/me/x HTTP/1.1\n" + host + "Content-Length: 3\nContent-Length: 4\n\nabcd", 400, ""},
		{"POST /repos/me/x HTTP/1.1\n" + host + "Transfer-Encoding: xchunked\n\n0\n\n", 501, ""},
		{"POST /repos/me/x HTTP/1.1\n" + host + "Transfer-Encoding: chunked, chunked\n\n0\n\n", 501, ""},
		{"GET /repos/me/x HTTP/1.1\n" + host + "Authorization : x\n\n", 400, ""},
		{"GET /repos/me/x HTTP/1.1\n" + host + "X: a\n b\x00: c\n\n", 400, ""},
		{"GET /repos/me/x HTTP/1.1\n" + host + "Expect: something\n\n", 417, ""},
		{"PRI * HTTP/2.0\n\nSM\n\n", 400, ""},
	} {
		res, body := l.raw(c.request)
		if res.StatusCode != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%q: %s %q", c.request, res.Status, body)
		}
		if strings.HasPrefix(body, "rootsfs: ") {
			if rec := l.last(1); rec.Refused == nil || rec.Status != c.status || rec.Failed != nil || len(rec.Method) > maxMethod {
				t.Errorf("%q is on record as %+v", c.request, rec)
			}
		}
	}
	if got := l.requests(); len(got) != 0 {
		t.Errorf("%d requests have arrived at the host, the first for %s", len(got), got[0].RequestURI)
	}
}

// The host reads each request as the proxy has read it, although the request has Content-Length
// beside Transfer-Encoding, a trailer, or bytes after its end. Trailers are not sent, and each
// request has the owner's credential alone.
func TestSmuggling(t *testing.T) {
	l := newLab(t, &Secret{}, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %q %v %v", r.URL.Path, b, err, r.Trailer)
	})
	for request, want := range map[string]string{
		"POST /a HTTP/1.1\nHost: x\nContent-Length: 4\nTransfer-Encoding: chunked\n\n1\nZ\n0\n\nGET /admin HTTP/1.1\nHost: x\n\n":   `/a "Z" <nil> map[]`,
		"POST /b HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\nTrailer: Authorization\n\n1\nZ\n0\nAuthorization: mine\nX: y\n\n":   `/b "Z" <nil> map[]`,
		"GET /c HTTP/1.1\nHost: x\nContent-Length: 0\nConnection: keep-alive, Authorization, X-Api-Key\n\n":                         `/c "" <nil> map[]`,
		"GET /d HTTP/1.1\nHost: x\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\n\n": `/d "" <nil> map[]`,
	} {
		if res, body := l.raw(request); res.StatusCode != 200 || body != want {
			t.Errorf("%q: %s %q, want %q", request, res.Status, body, want)
		}
	}
	for _, r := range l.requests() {
		if r.URL.Path == "/admin" {
			continue // the proxy may read the bytes after POST /a as another request, and then sends it, too
		}
		if got := r.Header["Authorization"]; !slices.Equal(got, []string{"Bearer " + credential}) {
			t.Errorf("%s: the host got %q", r.URL.Path, got)
		}
	}
}

// No path leads out of the URL's prefix, and the path that was compared is the one that is
// sent.
func TestPrefix(t *testing.T) {
	l := newLab(t, &Secret{URL: URL{Host: "example.com", Port: 443, Prefix: "/v1"}}, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.RequestURI)
	})
	for target, want := range map[string]string{
		"/v1/x":            "/v1/x",
		"/v1":              "/v1",
		"//v1//%78/.":      "/v1/x/",
		"/v2/../v1/a%2fb":  "/v1/a%2Fb",
		"/v1/x/../y?a=../": "/v1/y?a=../",
		"/":                "403",
		"/v1/../v2":        "403",
		"/v1%2fx":          "403",
		"/v10":             "403",
		"/V1/x":            "403",
	} {
		res, body := l.get(target)
		if want == "403" && res.StatusCode != 403 || want != "403" && body != want {
			t.Errorf("%s: %s %q", target, res.Status, body)
		}
	}
}

// A redirect to the host reaches the program with the proxy's URL, and any other redirect as it is.
// Cookies, and headers that hold the credential, do not reach the program.
func TestAnswers(t *testing.T) {
	l := newLab(t, &Secret{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.Header().Set("Link", `<https://example.com/p?page=2>; rel="next", <https://other.test/>; rel="x"`)
		for _, name := range []string{"Set-Cookie", "Set-Cookie2", "X-Set-Cookie", "Set_Cookie", "X-Amzn-Remapped-Set-Cookie"} {
			w.Header().Set(name, "session=1")
		}
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		w.Header().Set("X-Kept", "yes")
		w.WriteHeader(302)
	})
	for to, want := range map[string]string{
		"https://example.com/b":     "http://api-token.secret.internal/b",
		"https://example.com.test/": "https://example.com.test/",
		"https://other.test/c":      "https://other.test/c",
		"/d":                        "/d",
	} {
		res, _ := l.get("/?to=" + to)
		if res.StatusCode != 302 || res.Header.Get("Location") != want {
			t.Errorf("%s: %s, to %s", to, res.Status, res.Header.Get("Location"))
		}
		if got := res.Header.Get("Link"); got != `<http://api-token.secret.internal/p?page=2>; rel="next", <https://other.test/>; rel="x"` {
			t.Errorf("the link is %s", got)
		}
		for name := range res.Header {
			if strings.Contains(name, "ookie") {
				t.Errorf("the answer has %s", name)
			}
		}
		if res.Header.Get("X-Echo") != "" || res.Header.Get("X-Kept") != "yes" {
			t.Errorf("the answer has %v", res.Header)
		}
	}
	if n := len(l.requests()); n != 4 {
		t.Errorf("%d requests have arrived", n)
	}
}

// No header of an answer tells the program the credential: not one of an informational answer,
// not a trailer, not by its name, and not in the encoding of HTTP Basic or of URLs.
func TestCredentialIsNotEchoed(t *testing.T) {
	for _, s := range []Secret{{}, {User: "git"}, {Header: "x-api-key"}} {
		l := newLab(t, &s, func(w http.ResponseWriter, r *http.Request) {
			got := r.Header.Get("Authorization") + r.Header.Get("X-Api-Key")
			_, got, _ = strings.Cut(" "+got, " ")
			got = strings.TrimPrefix(got, "Basic ")
			w.Header().Set("Link", "</"+got+">; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			name := "X-" + strings.Trim(strings.TrimPrefix(got, "Bearer "), "=") // case does not matter in the names of headers
			w.Header().Set("Trailer", "X-Echo, X-Kept, Set-Cookie, "+name+"-Trailer")
			w.Header().Set(name, "1")
			w.Header().Set("Location", "/?key=%zz"+strings.ReplaceAll(got, "-", "%2D"))
			fmt.Fprint(w, "hello")
			w.(http.Flusher).Flush()
			for name, value := range map[string]string{"X-Echo": got, "X-Kept": "yes", "Set-Cookie": "a=b", name + "-Trailer": "1"} {
				w.Header().Set(name, value)
			}
		})
		c, err := net.Dial("tcp", l.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n")
		raw, err := io.ReadAll(c)
		answer := string(raw)
		for _, bad := range []string{credential, "czNjcjN0", "Z2l0OnMzY3IzdC12YWx1ZQ", "s3cr3t%2Dvalue", "Set-Cookie: a", "HTTP/1.1 103"} {
			if strings.Contains(strings.ToLower(answer), strings.ToLower(bad)) {
				t.Errorf("%+v: the answer has %s:\n%s", s, bad, answer)
			}
		}
		if err != nil || !strings.Contains(answer, "\r\nX-Kept: yes\r\n") || !strings.Contains(answer, "hello") {
			t.Errorf("%+v: %q, %v", s, answer, err)
		}
	}
}

// An answer without a valid final status does not reach the program. Unsolicited bytes of a host,
// which could hold the credential, do not reach package log, to which net/http writes them.
func TestWrongAnswers(t *testing.T) {
	var logged bytes.Buffer
	log.SetOutput(&logged)
	defer log.SetOutput(io.Discard)
	l := newLab(t, &Secret{}, func(w http.ResponseWriter, r *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 %s x\r\nContent-Length: 0\r\n\r\n%s", r.URL.Query().Get("status"), r.Header.Get("Authorization"))
	})
	l.proxy.transport.ForceAttemptHTTP2 = false // a connection by HTTP/2 cannot be hijacked
	for _, status := range []string{"000", "099", "101", "103", "1000", "2x0"} {
		if res, body := l.get("/?status=" + status); res.StatusCode != 502 || !strings.HasPrefix(body, "rootsfs: ") {
			t.Errorf("%s: %s %q", status, res.Status, body)
		}
		if rec := l.last(1); rec.Status != 502 || rec.Failed == nil || strings.Contains(rec.Failed.Error(), credential) {
			t.Errorf("%s is on record as %+v", status, rec)
		}
	}
	if res, _ := l.get("/?status=200"); res.StatusCode != 200 {
		t.Error(res.Status)
	}
	log.Print("what net/http says")
	if logged.Len() > 0 {
		t.Errorf("logged: %s", &logged)
	}
}

// By the proxy's HTTP/2 settings, a host may send at most maxUnread bytes of an answer that the
// program does not read.
func TestUnreadAnswerIsBounded(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	windows := make(chan uint32, 1)
	host := func(c net.Conn) {
		defer close(windows)
		defer c.Close()
		tc := tls.Server(c, &tls.Config{Certificates: srv.TLS.Certificates, NextProtos: []string{"h2"}})
		head := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")+9) // the preface, and the header of the settings frame
		if _, err := io.ReadFull(tc, head); err != nil {
			return
		}
		settings := make([]byte, binary.BigEndian.Uint16(head[len(head)-8:]))
		_, _ = io.ReadFull(tc, settings)
		for ; len(settings) >= 6; settings = settings[6:] {
			if binary.BigEndian.Uint16(settings) == 4 { // SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113, 6.5.2)
				windows <- binary.BigEndian.Uint32(settings[2:])
			}
		}
	}
	p := NewProxy(&Secret{URL: URL{Host: "example.com", Port: 443}}, newCredential(credential), Options{
		Roots: roots,
		Dial: func(context.Context) (net.Conn, error) {
			inside, outside := net.Pipe()
			go host(outside)
			return inside, nil
		},
	})
	req, _ := http.NewRequest(http.MethodGet, "https://example.com/", nil)
	if res, err := p.transport.RoundTrip(req); err == nil {
		res.Body.Close()
	}
	if got := <-windows; got != maxUnread {
		t.Errorf("the host may send %d bytes, want %d", got, maxUnread)
	}
}
