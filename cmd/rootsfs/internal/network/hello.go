package network

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// helloRecord is the first byte of a TLS handshake, alertRecord of an alert (RFC 8446, 5.1).
// Servers, Go's among them, skip warnings that come before the handshake.
const (
	helloRecord = 0x16
	alertRecord = 0x15
)

// maxHello bounds what is kept of a connection's beginning, helloTimeout the time that it may
// take. Handshakes with post-quantum keys need about 2 KiB.
const (
	maxHello     = 64 << 10
	helloTimeout = 10 * time.Second
)

var errHello = errors.New("the connection begins like TLS and is not")

// readHello reads the beginning of what a program sends. It returns the bytes read, which are
// still to be sent on, and the server name of a TLS handshake, "" if there is none. After an
// error of the connection itself, such as io.EOF, the bytes are still to be sent.
func readHello(conn net.Conn) (begin []byte, server string, err error) {
	first := make([]byte, 4096)
	n, err := conn.Read(first)
	begin = first[:n]
	if err != nil || n == 0 || begin[0] != helloRecord && begin[0] != alertRecord {
		return begin, "", err
	}
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
	defer conn.SetReadDeadline(time.Time{})
	tee := &helloConn{Conn: conn, seen: begin}
	var hello *tls.ClientHelloInfo
	_ = tls.Server(tee, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = h
		return nil, errHello // enough is known
	}}).Handshake()
	if hello == nil {
		return nil, "", errHello
	}
	return tee.seen, hello.ServerName, nil
}

// helloConn reads what was seen already, then from the connection, and keeps it. It sends
// nothing: what crypto/tls answers is dropped.
type helloConn struct {
	net.Conn
	seen []byte
	at   int // of seen, read by crypto/tls
}

func (c *helloConn) Read(p []byte) (int, error) {
	if c.at == len(c.seen) {
		if len(c.seen) >= maxHello {
			return 0, io.ErrShortBuffer
		}
		n, err := c.Conn.Read(p)
		c.seen = append(c.seen, p[:n]...)
		if err != nil {
			c.at = len(c.seen)
			return n, err
		}
	}
	n := copy(p, c.seen[c.at:])
	c.at += n
	return n, nil
}

func (c *helloConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *helloConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *helloConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// canonical returns a name as rules have it.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
