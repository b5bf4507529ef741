package network

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Servers skip a warning that comes before the handshake (here no_renegotiation and
// user_canceled), so the gate does, too. A hello after a change of ciphers is
// refused: no program begins with a change of ciphers.
func TestServerNameAfterWarnings(t *testing.T) {
	for _, warnings := range []string{"", "\x15\x03\x01\x00\x02\x01\x64", "\x15\x03\x03\x00\x02\x01\x5a\x15\x03\x01\x00\x02\x01\x64"} {
		sent := append([]byte(warnings), hello("evil.test")...)
		for n := range len(sent) {
			if p, enough, err := new(handshake).next(sent[:n]); p.server != "" || enough != (n == 0) || err != nil {
				t.Fatalf("after %x, of %d of %d bytes: %+v, %v, %v", warnings, n, len(sent), p, enough, err)
			}
		}
		if p, enough, err := new(handshake).next(sent); p.server != "evil.test" || !enough || err != nil || p.size != len(sent) || p.isLast {
			t.Errorf("after %x: %+v, %v, %v", warnings, p, enough, err)
		}
	}
	for _, change := range []string{"\x14\x03\x03\x00\x01\x01", "\x14\x03\x03\x00\x00"} { // OpenSSL 3.0 skips an empty one
		begin := append([]byte(change), hello("evil.test")...)
		if _, _, err := new(handshake).next(begin); !errors.Is(err, ErrHello) {
			t.Errorf("after %x: %v", change, err)
		}
	}
}

// helloPair returns the first hello of a handshake, and all bytes that the client sends after that
// hello, among them the second hello. The server asks for a second hello, because the first hello
// has no key for the only curve that the server takes.
func helloPair(t *testing.T, server string) (first, second []byte) {
	t.Helper()
	cert, err := tls.X509KeyPair(testCert(t))
	if err != nil {
		t.Fatal(err)
	}
	port := serve(t, func(c net.Conn) {
		_ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, CurvePreferences: []tls.CurveID{tls.CurveP384}}).Handshake()
	})
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := &sentRecorder{Conn: conn}
	c := tls.Client(sent, &tls.Config{ServerName: server, InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP384}})
	if err := c.Handshake(); err != nil || !c.ConnectionState().HelloRetryRequest {
		t.Fatalf("the server did not ask for a second hello: %v", err)
	}
	return sent.bytes[0], bytes.Join(sent.bytes[1:], nil)
}

// sentRecorder keeps what is written.
type sentRecorder struct {
	net.Conn
	bytes [][]byte
}

func (c *sentRecorder) Write(p []byte) (int, error) {
	c.bytes = append(c.bytes, bytes.Clone(p))
	return c.Conn.Write(p)
}

// follow passes a program's bytes to handshake.next, until the last part, an incomplete part or an
// error. It returns the server names in the hellos, and how many bytes the parts have.
func follow(sent []byte) (servers []string, size int, err error) {
	var h handshake
	for {
		p, enough, err := h.next(sent[size:])
		if err != nil || !enough {
			return servers, size, err
		}
		if p.server != "" {
			servers = append(servers, p.server)
		}
		size += p.size
		if p.isLast {
			return servers, size, nil
		}
	}
}

// records splits a hello's message over records of n bytes.
func records(record []byte, n int) (out []byte) {
	for rest := record[recordHeader:]; len(rest) > 0; {
		k := min(n, len(rest))
		out = append(append(out, handshakeRecord, 3, 3, 0, byte(k)), rest[:k]...)
		rest = rest[k:]
	}
	return out
}

// The name in a second hello is found, also after records that servers skip. A second hello that
// other records interrupt, or that is in the record of the first hello, is refused.
func TestSecondHello(t *testing.T) {
	api, _ := helloPair(t, "api.test")
	_, second := helloPair(t, "evil.test")
	second = bytes.TrimPrefix(second, []byte("\x14\x03\x03\x00\x01\x01")) // comes before it
	second = second[:recordSize(second)]
	if second[0] != handshakeRecord || second[recordHeader] != clientHello {
		t.Fatalf("this is no hello: %x", second)
	}
	early := earlyHello(t, api)
	both := bytes.Clone(api) // in one record
	both = append(both, second[recordHeader:]...)
	both[3], both[4] = byte((len(both)-recordHeader)>>8), byte(len(both)-recordHeader)
	data := []byte("\x17\x03\x03\x00\x03abc")
	finished := append([]byte("\x16\x03\x03\x00\x28\x01\x00\x20"), make([]byte, 0x25)...) // encrypted, and like the beginning of a hello
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, c := range []struct {
		what string
		sent []byte
		want string // the names in the hellos
		err  error
	}{
		{"no second hello", join(api, data), "api.test", nil},
		{"a second hello", join(api, second), "api.test evil.test", nil},
		{"after a change of ciphers", join(api, []byte("\x14\x03\x03\x00\x01\x01"), second), "api.test evil.test", nil},
		{"after a warning", join(api, []byte("\x15\x03\x03\x00\x02\x01\x5a"), second), "api.test evil.test", nil},
		{"after a heartbeat", join(api, []byte("\x18\x03\x03\x00\x03\x01\x00\x00"), second), "api.test evil.test", nil},
		{"after an empty record of data", join(api, []byte("\x17\x03\x03\x00\x00"), second), "api.test evil.test", nil},
		{"after an empty record", join(api, []byte("\x16\x03\x03\x00\x00"), second), "api.test evil.test", nil},
		{"in records of a byte", join(api, records(second, 1)), "api.test evil.test", nil},
		{"in records of 100 bytes, with a warning among them", join(api, records(second, 100)[:105], []byte("\x15\x03\x03\x00\x02\x01\x5a"), records(second, 100)[105:]), "api.test", ErrHello},
		{"in the record of the first", both, "", ErrHello},
		{"after data, which no server takes", join(api, data, second), "api.test", nil},
		{"after early data", join(early, data, data, second), "api.test evil.test", nil},
		{"among early data", join(early, data, records(second, 100)[:105], data, records(second, 100)[105:]), "api.test", ErrHello},
		{"larger than any hello", join(api, []byte("\x16\x03\x03\x40\x00\x01\x02\x00\x00"), make([]byte, 70<<10)), "api.test", ErrHello},
		{"TLS 1.2: the client's key", join(api, []byte("\x16\x03\x03\x00\x05\x10\x00\x00\x01a")), "api.test", nil},
		{"TLS 1.2: an encrypted message like a hello", join(api, []byte("\x14\x03\x03\x00\x01\x01"), finished, data), "api.test", nil},
	} {
		servers, size, err := follow(c.sent)
		if got := strings.Join(servers, " "); got != c.want || !errors.Is(err, c.err) || err != nil && c.err == nil {
			t.Errorf("%s: %q, %v; want %q, %v", c.what, got, err, c.want, c.err)
		}
		if strings.HasSuffix(c.want, "evil.test") && size != len(c.sent) {
			t.Errorf("%s: %d of %d bytes were looked at", c.what, size, len(c.sent))
		}
	}
}

// earlyHello adds the extension early_data, without a value, to a hello.
func earlyHello(t *testing.T, record []byte) []byte {
	t.Helper()
	message := bytes.Clone(record[recordHeader:])
	at := messageHeader + 2 + 32
	at += 1 + int(message[at])                           // session
	at += 2 + int(message[at])<<8 + int(message[at+1])   // ciphers
	at += 1 + int(message[at])                           // compression
	size := int(message[at])<<8 + int(message[at+1]) + 4 // of the extensions
	message[at], message[at+1] = byte(size>>8), byte(size)
	message = append(message[:at+2], append([]byte{0, earlyData, 0, 0}, message[at+2:]...)...)
	message[2], message[3] = byte((len(message)-messageHeader)>>8), byte(len(message)-messageHeader)
	return append([]byte{handshakeRecord, 3, 1, byte(len(message) >> 8), byte(len(message))}, message...)
}

func init() {
	// retried does what "tls" does, with a first hello that has no key for P-384. In all later
	// messages it replaces the name args[1] with args[2], which has the same length.
	programs["retried"] = func(args []string) error {
		out, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		c := tls.Client(&forger{Conn: out, from: args[1], to: args[2]}, &tls.Config{
			ServerName: args[1], InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP384},
		})
		b, err := io.ReadAll(c)
		fmt.Printf("%s, second hello: %v\n", b, c.ConnectionState().HelloRetryRequest)
		return err
	}
}

// forger replaces a name in all writes but the first.
type forger struct {
	net.Conn
	from, to string
	isLater  bool
}

func (f *forger) Write(p []byte) (int, error) {
	if f.isLater {
		p = bytes.ReplaceAll(p, []byte(f.from), []byte(f.to))
	}
	f.isLater = true
	return f.Conn.Write(p)
}

// A handshake with a second hello works. If the second hello asks for a server without a rule, the
// second hello does not reach the host, unless any server name is allowed.
func TestSecondHelloIsChecked(t *testing.T) {
	cert, err := tls.X509KeyPair(testCert(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		second  string
		any     bool
		want    string
		arrives bool
	}{
		{"api.test", false, "hello, second hello: true", true},
		{"two.test", false, "error:", true}, // is approved, but the host itself refuses the changed hello
		{"bad.test", false, "error:", false},
		{"bad.test", true, "error:", true},
	} {
		got := make(chan []byte, 1)
		port := serve(t, func(conn net.Conn) {
			var arrived bytes.Buffer
			s := tls.Server(&teeConn{conn, &arrived}, &tls.Config{Certificates: []tls.Certificate{cert}, CurvePreferences: []tls.CurveID{tls.CurveP384}})
			io.WriteString(s, "hello")
			s.Close()
			got <- arrived.Bytes()
		})
		n := newNamespace(t, Options{Rules: mustRules(t, "api.test,two.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local), AnyServerName: c.any})
		if said := n.run("retried", "api.test:"+port, "api.test", c.second); !strings.Contains(said, c.want) {
			t.Errorf("second name %s: the program said %q, want %q", c.second, said, c.want)
		}
		if arrived := bytes.Contains(<-got, []byte(c.second)); arrived != c.arrives {
			t.Errorf("second name %s, any name %v: at the host: %v", c.second, c.any, arrived)
		}
		if e := n.find(Ended, "api.test"); !c.arrives && (!errors.Is(e.Reason, ErrNoRule) || e.ServerName.Raw() != c.second) {
			t.Errorf("second name %s: %+v", c.second, e)
		}
	}
}

// teeConn keeps what is read.
type teeConn struct {
	net.Conn
	copy *bytes.Buffer
}

func (c *teeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.copy.Write(p[:n])
	return n, err
}

// testCert returns a certificate for a server and its key.
func testCert(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	kd, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kd})
}
