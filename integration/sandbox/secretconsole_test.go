package sandbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// page is the owner's browser on the console. The field sent keeps the headers and the
// bodies that the browser has read.
type page struct {
	t        *testing.T
	client   *http.Client
	url, key string
	sent     bytes.Buffer
}

// console starts rootsfs console, and returns a browser that has entered by the link that rootsfs
// console prints.
func (o *outside) console() *page {
	t := o.t
	t.Helper()
	cmd := o.driver(order{Args: o.rootsfs("console", "--json")})
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait() // ended by the signal
	})
	var link struct{ URL string }
	testkit.Must(t, json.NewDecoder(out).Decode(&link))
	at, secret, _ := strings.Cut(link.URL, "/#")
	jar, err := cookiejar.New(nil)
	testkit.Must(t, err)
	p := &page{t: t, client: &http.Client{Jar: jar, Transport: &http.Transport{}}, url: at}
	t.Cleanup(p.client.CloseIdleConnections)
	var in struct{ Key string }
	testkit.Must(t, json.Unmarshal([]byte(p.get("POST", "/api/enter", `{"link":"`+secret+`"}`)), &in))
	p.key = in.Key
	return p
}

// open sends a request, and returns the body of the answer. Bytes that are read from the body are
// also kept in p.sent.
func (p *page) open(method, path, body string) io.ReadCloser {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	testkit.Must(p.t, err)
	req.Header.Set("Origin", p.url)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Rootsfs-Key", p.key)
	r, err := p.client.Do(req)
	testkit.Must(p.t, err)
	if r.StatusCode != http.StatusOK {
		p.t.Errorf("%s %s: status %d", method, path, r.StatusCode)
	}
	testkit.Must(p.t, r.Header.Write(&p.sent))
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r.Body, &p.sent), r.Body}
}

func (p *page) get(method, path, body string) string {
	p.t.Helper()
	r := p.open(method, path, body)
	defer r.Close()
	b, err := io.ReadAll(r)
	testkit.Must(p.t, err)
	return string(b)
}

// The credential is in nothing that the browser reads from the console: the stream of events, the
// history, the export, and the answers to verify, policy and revoke.
func TestSecretIsNotInConsole(t *testing.T) {
	t.Parallel()
	a, o := newAPI(t), newOutside(t, callers[1])
	p := o.console()
	const script = `read follows; curl -sS "$API_TOKEN_BASE_URL/hello?key=$API_TOKEN"; curl -sS -X DELETE -H "X: $API_TOKEN" $API_TOKEN_BASE_URL/hello?key=$API_TOKEN; curl -sSN $API_TOKEN_BASE_URL/held`
	cmd := o.driver(o.secretOrder(a, script, "api"))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	in, err := cmd.StdinPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	stream := p.open("GET", "/api/stream", "")
	defer stream.Close()
	lines := bufio.NewReader(stream)
	until := func(texts ...string) {
		for slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(p.sent.String(), text) }) {
			if _, err := lines.ReadBytes('\n'); err != nil {
				t.Fatalf("%v; the programs and rootsfs said %s", err, output.String())
			}
		}
	}
	until(`"session":"` + sessionName + `"`) // the console follows the session: it misses no request from now on
	_, err = io.WriteString(in, "\n")
	testkit.Must(t, err)
	until("status 403", "/held")
	session := url.QueryEscape(sessionName)
	for _, path := range []string{"/api/history", "/api/export", "/api/verify"} {
		if got := p.get("GET", path+"?session="+session, ""); path != "/api/verify" && !strings.Contains(got, "API_TOKEN") {
			t.Errorf("%s lacks the requests: %s", path, got)
		}
	}
	p.get("POST", "/api/policy?session="+session, "{}")
	p.get("POST", "/api/revoke", `{"session":"`+sessionName+`","all":true}`)
	_ = cmd.Wait() // the revocation has broken off its last request
	if got := p.sent.String(); strings.Contains(got, credential) {
		t.Errorf("the console sends the credential: %s", got)
	}
}
