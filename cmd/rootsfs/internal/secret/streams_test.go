package secret

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// An event reaches the program before the host has sent the rest of the answer, and a part of a
// body reaches the host before the program has sent the rest of the request.
func TestStreams(t *testing.T) {
	next := make(chan struct{})
	l := newLab(t, &Secret{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).EnableFullDuplex()
		one := make([]byte, 1)
		if r.Method == http.MethodPost {
			_, _ = io.ReadFull(r.Body, one)
		}
		fmt.Fprintf(w, "data: %s\n\n", one)
		w.(http.Flusher).Flush()
		<-next
		fmt.Fprint(w, "data: 2\n\n")
	})
	body, more := io.Pipe()
	req, _ := http.NewRequest(http.MethodPost, "http://"+l.address+"/", body)
	go func() { _, _ = more.Write([]byte("1")) }()
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	r := bufio.NewReader(res.Body)
	if line, err := r.ReadString('\n'); line != "data: 1\n" {
		t.Fatal(line, err)
	}
	close(next)
	more.Close()
	rest, err := io.ReadAll(r)
	if string(rest) != "\ndata: 2\n\n" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if rec := l.last(1); rec.Sent != 1 || rec.Received != 18 || rec.Failed != nil {
		t.Errorf("on record: %+v", rec)
	}
}

// If there is no answer, the program learns the reason, but neither an address of the machine's
// network nor the credential.
func TestNoAnswer(t *testing.T) {
	l := newLab(t, &Secret{}, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	l.proxy.transport.DisableKeepAlives = true
	try := func(want string) {
		t.Helper()
		res, body := l.get("/x")
		rec := l.last(1)
		if res.StatusCode != 502 || !strings.Contains(body, want) || rec.Status != 502 || rec.Failed == nil {
			t.Errorf("%s %q, on record: %+v", res.Status, body, rec)
		}
		if strings.Contains(body, "10.0.0.2") || strings.Contains(body+rec.Failed.Error(), credential) {
			t.Errorf("the program is told too much: %s; on record: %v", body, rec.Failed)
		}
	}
	try("broke the connection off")
	for err, want := range map[error]string{
		&net.DNSError{Err: "no such host", Name: "example.com", Server: "10.0.0.2:53"}: "cannot be resolved",
		&net.OpError{Op: "dial", Err: errors.New("10.0.0.2: refused")}:                 "cannot be reached",
		context.DeadlineExceeded:             "did not answer in time",
		errors.New("it holds " + credential): "cannot be reached",
	} {
		l.mu.Lock()
		l.dialErr = err
		l.mu.Unlock()
		try(want)
	}
	l.dialErr = nil
	l.proxy.transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	try("the TLS certificate of example.com is not trusted")
}
