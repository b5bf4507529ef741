package secret

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// pipes is a listener whose connections are in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// slowPause is the time between two bytes of a slow program. No timeout of a silent connection is
// shorter.
const slowPause = 5 * time.Second

// drip writes the bytes of a text one by one, and then the last one again and again.
func drip(w io.Writer, text string) {
	for i := 0; ; i++ {
		time.Sleep(slowPause)
		if _, err := w.Write([]byte{text[min(i, len(text)-1)]}); err != nil {
			return
		}
	}
}

// slowClients are programs on a connection that send nothing, or send something as slowly as they
// can. Each returns the stream that it reads from.
var slowClients = map[string]func(c net.Conn, trusted *x509.CertPool) io.Reader{
	"nothing": func(c net.Conn, _ *x509.CertPool) io.Reader { return c },
	"the beginning of TLS": func(c net.Conn, _ *x509.CertPool) io.Reader {
		go drip(c, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
		return c
	},
	"TLS alone":            func(c net.Conn, trusted *x509.CertPool) io.Reader { return tlsClient(c, trusted, "http/1.1") },
	"TLS alone for HTTP/2": func(c net.Conn, trusted *x509.CertPool) io.Reader { return tlsClient(c, trusted, "h2") },
	"headers": func(c net.Conn, trusted *x509.CertPool) io.Reader {
		h1 := tlsClient(c, trusted, "http/1.1")
		go drip(h1, "GET /x HTTP/1.1\r\nHost: example.com\r\nX-Slow: y")
		return h1
	},
	"the preface of HTTP/2": func(c net.Conn, trusted *x509.CertPool) io.Reader {
		h2 := tlsClient(c, trusted, "h2")
		go drip(h2, http2.ClientPreface)
		return h2
	},
	"headers by HTTP/2": func(c net.Conn, trusted *x509.CertPool) io.Reader {
		h2 := tlsClient(c, trusted, "h2")
		go func() {
			f := http2.NewFramer(h2, nil)
			_, err := io.WriteString(h2, http2.ClientPreface)
			err = errors.Join(err, f.WriteSettings(), f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})) // :method GET
			for err == nil {
				time.Sleep(slowPause)
				err = f.WriteContinuation(1, false, []byte{0x82})
			}
		}()
		return h2
	},
}

// tlsClient returns a TLS connection to the door over c. The handshake takes place at its first
// use.
func tlsClient(c net.Conn, trusted *x509.CertPool, protocol string) *tls.Conn {
	return tls.Client(c, &tls.Config{ServerName: "example.com", RootCAs: trusted, NextProtos: []string{protocol}})
}

// A connection on which a program is silent or slow is closed: before and within the ClientHello of
// TLS, after the TLS handshake, and within the preface of HTTP/2 or the headers of a request.
func TestSlowConnectionsEnd(t *testing.T) {
	for name, begin := range slowClients {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { awaitEnd(t, begin) })
		})
	}
}

// awaitEnd runs a slow program, and fails the test if the door does not close the program's
// connection in time.
func awaitEnd(t *testing.T, begin func(c net.Conn, trusted *x509.CertPool) io.Reader) {
	t.Helper()
	s := &Secret{Name: "API_TOKEN", URL: URL{Host: "example.com", Port: 443}}
	authority, err := NewAuthority([]*Secret{s})
	if err != nil {
		t.Fatal(err)
	}
	door, err := NewDoor(authority, []*Proxy{NewProxy(s, newCredential(key), Options{
		Dial:    func(context.Context) (net.Conn, error) { return nil, errors.New("there is no host") },
		Reserve: func(context.Context, Request) (int64, error) { return 0, nil },
		Record:  func(Request) error { return nil },
	})})
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority.PEM())
	in := make(pipes)
	served := make(chan struct{})
	go func() { door.Serve(in); close(served) }()
	ours, theirs := net.Pipe()
	in <- theirs
	began := time.Now()
	_ = ours.SetDeadline(began.Add(time.Hour))
	from := begin(ours, trusted)
	if h, ok := from.(*tls.Conn); ok {
		if err := h.Handshake(); err != nil {
			t.Error(err)
		}
	}
	_, _ = io.Copy(io.Discard, from) // until the door closes the connection
	if after := time.Since(began); after > idleTimeout+headerTimeout {
		t.Errorf("the connection has ended after %v", after)
	}
	ours.Close()
	close(in)
	<-served
	time.Sleep(2 * slowPause) // the program notices that the connection is closed
}
