package secret

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is a connection by HTTP/2 to the door, on which a test can write any frames.
type frames struct {
	*http2.Framer
	c       *tls.Conn
	encoded bytes.Buffer
	encoder *hpack.Encoder
}

func (d *doorLab) frames() *frames {
	d.t.Helper()
	c, err := tls.Dial("tcp", d.at, &tls.Config{ServerName: "example.com", RootCAs: d.trusted, NextProtos: []string{"h2"}})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	f := &frames{Framer: http2.NewFramer(c, c), c: c}
	f.encoder = hpack.NewEncoder(&f.encoded)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = f.WriteSettings()
	return f
}

// block encodes a block of header fields, each of which is written NAME VALUE.
func (f *frames) block(fields ...string) []byte {
	f.encoded.Reset()
	for _, field := range fields {
		name, value, _ := strings.Cut(field, " ")
		_ = f.encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	return bytes.Clone(f.encoded.Bytes())
}

// request returns the header fields of a GET request for /x, followed by more.
func request(more ...string) []string {
	return append([]string{":method GET", ":scheme https", ":authority example.com", ":path /x"}, more...)
}

// answer returns the status of a stream, or says how the stream ended without a status.
func (f *frames) answer(stream uint32) string {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return "the connection ended"
		}
		switch fr := frame.(type) {
		case *http2.MetaHeadersFrame:
			if fr.StreamID == stream {
				return fr.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if fr.StreamID == stream {
				return "reset"
			}
		case *http2.GoAwayFrame:
			return "the connection ended"
		}
	}
}

// By HTTP/2 a program can write requests that HTTP/1 cannot express, such as one with a line break
// in its path. None of them reaches the host as another request than GET /x.
func TestHTTP2Smuggling(t *testing.T) {
	d := newDoorLab(t, hello, &Secret{})
	for _, c := range []struct {
		fields []string
		want   string
	}{
		{request(), "200"},
		{request("host example.com"), "200"},
		{request("host other.test"), "421 reset"},
		{[]string{":method GET", ":scheme https", ":path /x", "host other.test"}, "421"},
		{[]string{":method GET", ":scheme https", ":path /x"}, "421 400"},
		{[]string{":method GET", ":scheme https", ":authority other.test", ":path /x", "host example.com"}, "421 reset"},
		{[]string{":method GET", ":scheme https", ":authority me@example.com", ":path /x"}, "421 400 reset"},
		{[]string{":method GET", ":scheme https", ":authority example.com", ":path https://other.test/x"}, "400 reset"},
		{[]string{":method GET", ":scheme https", ":authority example.com", ":path x"}, "400 reset"},
		{[]string{":method GET", ":scheme https", ":authority example.com", ":path /x HTTP/1.1\r\nHost: other.test\r\n\r\n"}, "400 reset"},
		{[]string{":method GET", ":scheme https", ":authority example.com", ":path /x", ":path /y"}, "reset"},
		{[]string{":method GET\r\nX: y", ":scheme https", ":authority example.com", ":path /x"}, "reset 400"},
		{[]string{":method CONNECT", ":authority example.com:443"}, "400 reset 421"},
		{[]string{":method CONNECT", ":protocol websocket", ":scheme https", ":authority example.com", ":path /x"}, "reset 400"},
		{request("transfer-encoding chunked"), "reset 400"},
		{request("connection close"), "reset 400"},
		{request("upgrade websocket"), "reset 400"},
		{request("x-one a\r\nx-two: b"), "reset 400"},
		{request("x-one: a"), "reset 400"},
		{request("X-One a"), "reset 400"},
		{request("content-length 5"), "200"}, // it has no body
		{append(request("a b"), ":method DELETE"), "reset"},
	} {
		f := d.frames()
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block(c.fields...), EndStream: true, EndHeaders: true})
		got := f.answer(1)
		if !strings.Contains(c.want, got) && !(strings.Contains(c.want, "reset") && got == "the connection ended") {
			t.Errorf("%q: %s, want %s", c.fields, got, c.want)
		}
	}
	for _, r := range d.lab.requests() {
		if r.RequestURI != "/x" || r.Host != "example.com" || r.Method != http.MethodGet || r.Header.Get("X-Two") != "" || r.ContentLength != 0 {
			t.Errorf("arrived: %s %s for %s with %v", r.Method, r.RequestURI, r.Host, r.Header)
		}
	}
	if n := len(d.lab.requests()); n != 3 {
		t.Errorf("%d requests have arrived, want 3", n)
	}
}

// Neither a body that is longer or shorter than its header says, nor trailers, reach the host as a
// second request.
func TestHTTP2Bodies(t *testing.T) {
	d := newDoorLab(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v %v", b, err, r.Trailer)
	}, &Secret{})
	for _, c := range []struct{ length, body, trailer, want string }{
		{"5", "hello", "x-late", "200"},
		{"5", "hello", "authorization", "reset"},
		{"5", "hello", "content-length", "200"}, // the trailer is not sent on
		{"4", "helloGET /admin HTTP/1.1", "x-late", "reset"},
		{"9", "hello", "x-late", "reset 502"},
	} {
		f := d.frames()
		fields := []string{":method POST", ":scheme https", ":authority example.com", ":path /x", "content-length " + c.length, "trailer " + c.trailer}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block(fields...), EndHeaders: true})
		_ = f.WriteData(1, false, []byte(c.body))
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block(c.trailer + " 7"), EndHeaders: true, EndStream: true})
		if got := f.answer(1); !strings.Contains(c.want, got) {
			t.Errorf("%+v: %s", c, got)
		}
	}
	for _, r := range d.lab.requests() {
		if r.URL.Path != "/x" || len(r.Trailer) > 0 || r.Header.Get("Authorization") != "Bearer "+key {
			t.Errorf("arrived: %s %s %v %v", r.Method, r.RequestURI, r.Header, r.Trailer)
		}
	}
}

// Each frame of an answer fits into one record of TLS. The program may send no frame that is larger
// than a quarter of maxUnsent.
func TestHTTP2Frames(t *testing.T) {
	d := newDoorLab(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 50000)) }, &Secret{})
	f := d.frames()
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block(request()...), EndHeaders: true, EndStream: true})
	for got := 0; got < 50000; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch fr := frame.(type) {
		case *http2.DataFrame:
			if got += len(fr.Data()); len(fr.Data()) > frameData {
				t.Errorf("a frame has %d bytes", len(fr.Data()))
			}
		case *http2.SettingsFrame:
			if most, ok := fr.Value(http2.SettingMaxFrameSize); !fr.IsAck() && (!ok || most > maxUnsent/4) {
				t.Errorf("the program may send frames of %d bytes", most)
			}
		}
	}
}

// watch reads frames until the connection ends, or the door says that it ends the connection for an
// error. It closes isCut then, and answered when a ping is answered.
func (f *frames) watch() (isCut, answered chan struct{}) {
	isCut, answered = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(isCut)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch fr := frame.(type) {
			case *http2.GoAwayFrame:
				if fr.ErrCode != http2.ErrCodeNo {
					return
				}
			case *http2.PingFrame:
				close(answered)
			}
		}
	}()
	return isCut, answered
}

// flood calls write up to count times, each time with a new stream. It stops when the connection is
// cut or write returns an error.
func (f *frames) flood(count uint32, isCut <-chan struct{}, write func(f *frames, stream uint32) error) error {
	for n := range count {
		select {
		case <-isCut:
			return nil
		default:
		}
		if err := write(f, 2*n+1); err != nil {
			return err
		}
	}
	return nil
}

// A program that floods the door with headers or window updates is cut off. A flood of settings is
// answered. A flood of streams that are reset has no more than maxStreams requests under way. After
// each flood, requests on other connections are answered. A request with too large headers is not
// sent.
func TestHTTP2Floods(t *testing.T) {
	var busy, most atomic.Int64
	d := newDoorLab(t, func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), busy.Add(1)))
		defer busy.Add(-1)
		if r.URL.Path == "/held" {
			<-r.Context().Done()
		}
	}, &Secret{})
	const resets, settings = "streams that are reset at once", "settings"
	floods := map[string]func(f *frames, stream uint32) error{
		resets: func(f *frames, stream uint32) error {
			fields := f.block(":method GET", ":scheme https", ":authority example.com", ":path /held")
			return errors.Join(f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: fields, EndHeaders: true, EndStream: true}),
				f.WriteRSTStream(stream, http2.ErrCodeCancel))
		},
		"headers without an end": func(f *frames, stream uint32) error {
			if stream == 1 {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block(request()...)})
			}
			return f.WriteContinuation(1, false, f.block("x-more "+strings.Repeat("y", 8000)))
		},
		settings:                     func(f *frames, _ uint32) error { return f.WriteSettings() },
		"a window that is too large": func(f *frames, stream uint32) error { return f.WriteWindowUpdate(0, 1<<31-1) },
	}
	for name, write := range floods {
		f := d.frames()
		isCut, answered := f.watch()
		count := uint32(1000)
		if name == settings {
			count = 20000 // net/http queues fewer answers
		}
		err := f.flood(count, isCut, write)
		switch {
		case name == settings: // each is answered, and the connection goes on
			_ = f.WritePing(false, [8]byte{})
			select {
			case <-answered:
			case <-isCut:
				t.Errorf("%s: the connection ended", name)
			}
		case name != resets && err == nil: // resets cost no more than other requests
			<-isCut // the door has not yet read all frames
		}
		f.c.Close()
		<-isCut
		if res, body := d.do(d.client(true), "https://example.com/x", "A", "b"); res.StatusCode != 200 {
			t.Errorf("%s: then %s %q", name, res.Status, body)
		}
	}
	if n := most.Load(); n > maxStreams+1 {
		t.Errorf("%d requests were under way at a time", n)
	}
	req, _ := http.NewRequest(http.MethodGet, "https://example.com/large", nil)
	req.Header.Set("X-Large", strings.Repeat("y", 2*maxHeader))
	if res, err := d.client(true).Do(req); err == nil {
		res.Body.Close()
	}
	if slices.ContainsFunc(d.lab.requests(), func(r *http.Request) bool { return r.URL.Path == "/large" }) {
		t.Error("a request with large headers has arrived")
	}
}

// Requests beyond maxRequests are refused, on whatever connections they come. The other requests
// are answered.
func TestRequestsAreBounded(t *testing.T) {
	arrived, open := make(chan struct{}, maxRequests+maxStreams), make(chan struct{})
	d := newDoorLab(t, func(w http.ResponseWriter, r *http.Request) { arrived <- struct{}{}; <-open }, &Secret{})
	var all []*frames
	for range maxRequests/maxStreams + 1 {
		f := d.frames()
		all = append(all, f)
		for i := range uint32(maxStreams) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: f.block(request()...), EndHeaders: true, EndStream: true})
		}
	}
	for range maxRequests {
		<-arrived
	}
	for range maxStreams {
		if rec := d.last(1); rec.Status != 503 || rec.Refused == nil || !strings.Contains(rec.Refused.Error(), "128 requests") {
			t.Fatalf("on record is %+v", rec)
		}
	}
	close(open)
	for range maxRequests {
		d.last(1)
	}
	if n := len(d.lab.requests()); n != maxRequests {
		t.Errorf("%d requests have arrived", n)
	}
	for _, f := range all {
		f.c.Close()
	}
}
