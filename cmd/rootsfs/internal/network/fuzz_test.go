package network

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// FuzzAnswer checks that no query makes answer panic, that an answer has the ID of its query, and
// that only approved names get an address other than a loopback address.
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

// hello returns the first bytes of a TLS client that asks for server.
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

// FuzzHello checks that no beginning of a handshake makes the parser panic. A decision about the
// first bytes is the same as about all bytes. More than maxHello bytes are always enough for a
// decision. Only the last part may be empty.
func FuzzHello(f *testing.F) {
	whole := hello("api.test")
	f.Add(whole, 4096)
	f.Add(whole, 1)
	f.Add(whole[:100], 7)
	f.Add(append(hello("evil.test"), whole...), 100)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 3)
	f.Add([]byte("\x16\x03\x01\x00\x00\x16\x03\x01\x00\x01\x01"), 2)
	f.Add(append([]byte("\x15\x03\x01\x00\x02\x01\x5a"), whole...), 4096)
	f.Add(append(append(bytes.Clone(whole), "\x14\x03\x03\x00\x01\x01"...), whole...), 300)
	f.Fuzz(func(t *testing.T, sent []byte, size int) {
		if size < 1 {
			return
		}
		sent = sent[:min(len(sent), copyBuffer)] // peek shows no more bytes at once
		var h handshake
		for {
			before := h
			whole, wholeEnough, wholeErr := h.next(sent)
			for n := size; n < len(sent); n += size {
				some := before
				p, enough, err := some.next(sent[:n])
				if (enough || err != nil) && (p != whole || enough != wholeEnough || (err == nil) != (wholeErr == nil) || some.hasBegun != h.hasBegun || some.hasEarlyData != h.hasEarlyData) {
					t.Fatalf("of %d bytes it says %+v, %v, %v; of all %d it says %+v, %v, %v", n, p, enough, err, len(sent), whole, wholeEnough, wholeErr)
				}
				if len(sent)/size > 1000 { // is slow
					size *= 2
				}
			}
			if !wholeEnough && wholeErr == nil && len(sent) > maxHello {
				t.Errorf("%d bytes are not enough", len(sent))
			}
			if !wholeEnough || whole.isLast || whole.size > len(sent) { // the rest of a record may come later
				return
			}
			if whole.size == 0 {
				t.Fatalf("a part without bytes is not the last: %+v", whole)
			}
			sent = sent[whole.size:]
		}
	})
}
