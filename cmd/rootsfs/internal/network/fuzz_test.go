package network

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// FuzzAnswer: no query makes answer fail, an answer is for the query, and gives nobody an
// address but approved names.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"api.test.", "A.wild.test.", "evil.test.", "localhost.", "5.0.18.198.in-addr.arpa.", ".", "\x00.wild.test."} {
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypePTR, dnsmessage.TypeALL} {
			m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{
				{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}}}
			if b, err := m.Pack(); err == nil {
				f.Add(b)
				f.Add(b[:len(b)-1])
			}
		}
	}
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01")) // a name that points to itself
	rules, err := ParseRules("api.test,*.wild.test")
	if err != nil {
		f.Fatal(err)
	}
	g := New(Options{Rules: rules})
	g.log = slog.New(slog.DiscardHandler)
	f.Fuzz(func(t *testing.T, query []byte) {
		reply := g.answer(query)
		if reply == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil {
			t.Fatalf("answer %x cannot be read: %v", reply, err)
		}
		if !m.Response || !bytes.Equal(reply[:2], query[:2]) || len(m.Questions) > 1 || len(m.Answers) > 1 {
			t.Errorf("answer is %+v", m)
		}
		for _, a := range m.Answers {
			r, isA := a.Body.(*dnsmessage.AResource)
			if name := canonical(a.Header.Name.String()); isA && r.A[0] != 127 && (!isName(name) || !g.rules.permitsName(name, 0)) {
				t.Errorf("%q has address %v", name, r.A)
			}
		}
	})
}

// fixedConn gives what it holds, in pieces of size bytes.
type fixedConn struct {
	net.Conn
	rest []byte
	size int
}

func (c *fixedConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.size)], c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *fixedConn) SetReadDeadline(time.Time) error { return nil }

// hello returns what a TLS client that asks for server sends first.
func hello(server string) []byte {
	c := &helloRecorder{}
	_ = tls.Client(c, &tls.Config{ServerName: server, InsecureSkipVerify: true}).Handshake()
	return c.sent
}

type helloRecorder struct {
	net.Conn
	sent []byte
}

func (c *helloRecorder) Write(p []byte) (int, error) {
	c.sent = append(c.sent, p...)
	return len(p), nil
}
func (c *helloRecorder) Read([]byte) (int, error) { return 0, io.EOF }
func (c *helloRecorder) Close() error             { return nil }

// FuzzHello: no beginning makes readHello fail, what it returns is what came, without a gap,
// and it does not depend on how that is split.
func FuzzHello(f *testing.F) {
	whole := hello("api.test")
	f.Add(whole, 4096)
	f.Add(whole, 1)
	f.Add(whole[:100], 7)
	f.Add(append(hello("evil.test"), whole...), 100)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 3)
	f.Add([]byte("\x16\x03\x01\x00\x00\x16\x03\x01\x00\x01\x01"), 2)
	f.Add(append([]byte("\x15\x03\x01\x00\x02\x01\x5a"), whole...), 4096)
	f.Fuzz(func(t *testing.T, sent []byte, size int) {
		if size < 1 {
			return
		}
		begin, server, err := readHello(&fixedConn{rest: sent, size: size})
		if !bytes.HasPrefix(sent, begin) {
			t.Fatalf("%x came, and %x is sent on", sent, begin)
		}
		if len(begin) > maxHello+4096 {
			t.Errorf("%d bytes are held", len(begin))
		}
		_, whole, werr := readHello(&fixedConn{rest: sent, size: len(sent) + 1})
		if server != whole || (err == nil) != (werr == nil) {
			t.Errorf("in pieces of %d: %q, %v; at once: %q, %v", size, server, err, whole, werr)
		}
	})
}
