package network

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Types of TLS records (RFC 8446, 5.1).
const (
	alertRecord     = 0x15
	handshakeRecord = 0x16
)

const (
	recordHeader  = 5 // type, version, length
	messageHeader = 4 // type, length
)

// maxHello bounds what is looked at of a connection's beginning, helloTimeout the time that it
// may take. Handshakes with post-quantum keys need about 2 KiB.
const (
	maxHello     = 64 << 10
	helloTimeout = 10 * time.Second
)

var errHello = errors.New("the connection begins like TLS and is not")

// peekHello waits for the beginning of what a program sends and leaves it there. It returns
// the server name of a TLS handshake, "" if there is none.
func peekHello(conn *net.TCPConn) (server string, err error) {
	from, err := conn.SyscallConn()
	if err != nil {
		return "", err
	}
	isWaiting := false
	perr := peek(from, func(fd int, data []byte) bool {
		var complete bool
		if server, complete, err = readHello(data); complete || err != nil {
			return true
		}
		if hasEnded(fd) {
			err = errHello
			return true
		}
		if !isWaiting {
			isWaiting = true
			_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
		}
		return false
	})
	if isWaiting {
		_ = conn.SetReadDeadline(time.Time{})
	}
	if errors.Is(perr, os.ErrDeadlineExceeded) {
		perr = errHello
	}
	return server, errors.Join(perr, err)
}

// hasEnded reports whether the other side sends nothing more.
func hasEnded(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, _ := retryInterrupted(func() (int, error) { return unix.Poll(fds, 0) })
	return n > 0
}

// readHello reads the server name of a TLS handshake that begin begins with. It is "" if the
// handshake has none, or if this is not TLS. It reports whether begin was enough to know.
func readHello(begin []byte) (server string, complete bool, err error) {
	if len(begin) == 0 || begin[0] != handshakeRecord && begin[0] != alertRecord {
		return "", true, nil
	}
	n, err := helloEnd(begin)
	if n == 0 || err != nil {
		return "", false, err
	}
	var hello *tls.ClientHelloInfo
	_ = tls.Server(&helloConn{rest: bytes.NewReader(begin[:n])}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = h
		return nil, errHello // enough is known
	}}).Handshake()
	if hello == nil {
		return "", false, errHello
	}
	return hello.ServerName, true, nil
}

// helloEnd returns where the records end that hold the first message of a handshake, or 0 if
// more is needed to know. Servers skip warnings before it, Go's among them.
func helloEnd(begin []byte) (int, error) {
	var message []byte
	for at := 0; at < maxHello; {
		record := begin[at:]
		if len(record) < recordHeader {
			return 0, nil
		}
		end := recordHeader + int(binary.BigEndian.Uint16(record[3:]))
		isAlert := record[0] == alertRecord && len(message) == 0
		if !isAlert && record[0] != handshakeRecord || at+end > maxHello {
			return 0, errHello
		}
		if len(record) < end {
			return 0, nil
		}
		at += end
		if isAlert {
			continue
		}
		if message = append(message, record[recordHeader:end]...); len(message) < messageHeader {
			continue
		}
		size := messageHeader + int(message[1])<<16 + int(binary.BigEndian.Uint16(message[2:]))
		if len(message) >= size {
			return at, nil
		}
	}
	return 0, errHello
}

// helloConn gives crypto/tls what a program has sent. It sends nothing: answers are dropped.
type helloConn struct {
	net.Conn
	rest io.Reader
}

func (c *helloConn) Read(p []byte) (int, error)       { return c.rest.Read(p) }
func (c *helloConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *helloConn) Close() error                     { return nil }
func (c *helloConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *helloConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// canonical returns a name as rules have it.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
