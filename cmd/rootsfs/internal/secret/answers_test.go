package secret

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// A host that compresses its answers although it was asked not to does not reveal the credential:
// the program gets the answer decompressed, or an error instead of the answer.
func TestCompressedAnswers(t *testing.T) {
	writers := map[string]func(io.Writer) io.WriteCloser{
		"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"X-GZIP":  func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
		"raw":     func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 6); return z },
		"zstd":    func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z },
	}
	long := strings.Repeat("x", 70000)
	l := newLab(t, &Secret{}, func(w http.ResponseWriter, r *http.Request) {
		coding := r.URL.Query().Get("coding")
		var b bytes.Buffer
		if open := writers[coding]; open != nil {
			z := open(&b)
			fmt.Fprintf(z, "<%s>%s", r.Header.Get("Authorization"), long)
			_ = z.Close()
		} else if coding != "nothing" {
			b.WriteString("compressed: " + r.Header.Get("Authorization"))
		}
		w.Header().Set("Content-Encoding", map[string]string{"raw": "deflate", "nothing": "gzip", "both": "gzip, br"}[coding])
		if w.Header().Get("Content-Encoding") == "" {
			w.Header().Set("Content-Encoding", coding)
		}
		if r.Header.Get("Range") != "" {
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write(b.Bytes())
	})
	for coding := range writers {
		res, body := l.get("/?coding="+coding, "Accept-Encoding: br, gzip")
		if want := "<Bearer " + l.proxy.credential.placeholder + ">" + long; len(l.proxy.credential.placeholder) == len(credential) && body != want || strings.Contains(body, credential) || !strings.HasSuffix(body, ">"+long) {
			t.Errorf("%s: %s %.100q", coding, res.Status, body)
		}
		if res.Header.Get("Content-Encoding") != "" || l.last(1).Received != int64(len(body)) {
			t.Errorf("%s: %v", coding, res.Header)
		}
		if res, body := l.get("/?coding="+coding, "Range: bytes=0-9"); res.StatusCode != 502 || !strings.Contains(body, "without the header Range") {
			t.Errorf("a part of %s: %s %.100q", coding, res.Status, body)
		}
		l.last(1)
	}
	for _, coding := range []string{"br", "compress", "dcb", "both", "gzip,gzip,gzip"} {
		res, body := l.get("/?coding=" + coding)
		if rec := l.last(1); res.StatusCode != 502 || !strings.Contains(body, "is compressed") || strings.Contains(body, "compressed: ") || rec.Failed == nil {
			t.Errorf("%s: %s %q, %+v", coding, res.Status, body, rec)
		}
	}
	for _, coding := range []string{"nothing", "identity", "utf-8"} {
		if res, body := l.get("/?coding=" + coding); res.StatusCode != 200 || strings.Contains(body, credential) || coding != "nothing" && !strings.HasPrefix(body, "compressed: Bearer ") {
			t.Errorf("%s: %s %q", coding, res.Status, body)
		}
		l.last(1)
	}
}

// A host that writes the credential into an answer, as it is or in an encoding of URLs or JSON, does
// not reveal the credential to the program.
func TestSpellingsOfCredential(t *testing.T) {
	const odd = `odd/key+with&"characters"=`
	spelled := map[string]string{
		"as it is": odd, "query": url.QueryEscape(odd), "path": url.PathEscape(odd), "JSON": `odd/key+with\u0026\"characters\"=`,
		"PHP's JSON": `odd\/key+with&"characters"=`, "both": `odd\/key+with\u0026\"characters\"=`,
	}
	l := newLab(t, &Secret{}, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "<%s>", spelled[r.URL.Query().Get("as")]) })
	l.proxy.credential = newCredential(odd)
	l.proxy.header, l.proxy.value = l.proxy.secret.header(Credential{value: odd})
	for as, text := range spelled {
		if _, body := l.get("/?as=" + url.QueryEscape(as)); len(body) != len(text)+2 || strings.Contains(body, "key") {
			t.Errorf("%s: %s", as, body)
		}
	}
}

// A compressed answer that comes in parts reaches the program in parts.
func TestCompressedStream(t *testing.T) {
	next := make(chan struct{})
	l := newLab(t, &Secret{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		for _, event := range []string{"one\n", "two\n"} {
			fmt.Fprint(z, event)
			_ = z.Flush()
			w.(http.Flusher).Flush()
			<-next
		}
		_ = z.Close()
	})
	res, err := http.Get("http://" + l.address + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for _, want := range []string{"one\n", "two\n"} {
		if got, err := lines.ReadString('\n'); got != want {
			t.Fatal(got, err)
		}
		next <- struct{}{}
	}
}

// An answer that needs much memory to be decompressed occupies a place of Slots.memory until the
// answer has ended. The places bound the memory of such answers, of which the program may have stored
// many at the host.
func TestDecompressionOccupiesPlace(t *testing.T) {
	next := make(chan struct{})
	l := newLab(t, &Secret{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "zstd")
		z, _ := zstd.NewWriter(w)
		fmt.Fprint(z, "one\n")
		_ = z.Flush()
		w.(http.Flusher).Flush()
		<-next
		_ = z.Close()
	})
	res, err := http.Get("http://" + l.address + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	if got, err := lines.ReadString('\n'); got != "one\n" || len(l.proxy.opt.Slots.memory) != 1 {
		t.Errorf("%q, %v, %d places are taken", got, err, len(l.proxy.opt.Slots.memory))
	}
	close(next)
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	l.last(1)
	if n := len(l.proxy.opt.Slots.memory); n != 0 {
		t.Errorf("%d places are taken at the end", n)
	}
}

// The host's text beside the status of an upgrade, and compressed bytes after the upgrade, would
// reveal the credential. The proxy replaces the text, and does not send the program's offer to
// compress to the host.
func TestUpgradeIsNotCompressed(t *testing.T) {
	l := newLab(t, &Secret{}, func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 101 %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n[%s]", credential, r.Header.Get("Sec-Websocket-Extensions"))
	})
	c, err := net.Dial("tcp", l.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
	answer, err := io.ReadAll(c)
	if text := string(answer); err != nil || !strings.HasPrefix(text, "HTTP/1.1 101 Switching Protocols\r\n") || strings.Contains(text, credential) || !strings.HasSuffix(text, "\r\n\r\n[]") {
		t.Errorf("%q, %v", text, err)
	}
}

// With in = ["query"] the credential takes the place of the placeholder in the query, if the
// placeholder is the value of a parameter that is named like a credential or by pass. The request then
// has no header Authorization. The credential is in no record, and not in an answer that repeats the
// URL.
func TestCredentialIsInQuery(t *testing.T) {
	l := newLab(t, &Secret{In: []string{"query"}, Pass: []string{"appid"}}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "<"+r.RequestURI+"&page=2>; rel=next")
		fmt.Fprint(w, r.RequestURI)
	})
	const odd = "a key/with+odd=characters"
	l.proxy.credential = newCredential(odd)
	l.proxy.header, l.proxy.value = l.proxy.secret.header(Credential{value: odd})
	placeholder := l.proxy.credential.placeholder
	for query, want := range map[string]string{
		"q=1&key=" + placeholder:                             "q=1&key=a+key%2Fwith%2Bodd%3Dcharacters",
		"api%5Fkey=" + placeholder + "&q=%32":                "api_key=a+key%2Fwith%2Bodd%3Dcharacters&q=%32",
		"appid=" + placeholder:                               "appid=a+key%2Fwith%2Bodd%3Dcharacters",
		"title=" + placeholder:                               "title=" + placeholder, // the host would show it to others
		"key=" + strings.Replace(placeholder, "-", "%2D", 1): "key=a+key%2Fwith%2Bodd%3Dcharacters",
		"q=x" + placeholder:                                  "q=x" + placeholder, // not the whole value
		placeholder + "=1":                                   placeholder + "=1",
	} {
		res, body := l.get("/x?" + query)
		got := l.requests()[len(l.requests())-1]
		if got.URL.RawQuery != want || (got.Header.Get("Authorization") == "") != strings.Contains(want, "odd") {
			t.Errorf("%s: sent as %s with %q", query, got.URL.RawQuery, got.Header)
		}
		if text := fmt.Sprint(res.Header, body); strings.Contains(text, "odd") || !strings.HasPrefix(body, "/x?") || res.StatusCode != 200 {
			t.Errorf("%s: %s %s", query, res.Status, text)
		}
		if rec := l.last(1); rec.Path != "/x" || strings.Contains(fmt.Sprintf("%+v", rec), "odd") {
			t.Errorf("%s: on record is %+v", query, rec)
		}
	}
	// Another credential in the query is refused as without in = ["query"].
	if res, body := l.get("/x?key=mine"); res.StatusCode != 400 || !strings.Contains(body, "another credential") {
		t.Errorf("%s %q", res.Status, body)
	}
}
