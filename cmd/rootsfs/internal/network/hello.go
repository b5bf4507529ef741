package network

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Types of TLS records (RFC 8446, 5.1), and numbers within them.
const (
	changeCipherRecord = 0x14
	alertRecord        = 0x15
	handshakeRecord    = 0x16
	dataRecord         = 0x17

	clientHello = 1  // a message
	earlyData   = 42 // an extension
)

const (
	recordHeader  = 5 // type, version, length
	messageHeader = 4 // type, length
)

// maxHello bounds the bytes of a hello that are read, and helloTimeout the time until it is
// complete. Hellos with post-quantum keys need about 2 KiB. No server accepts a hello of
// noHello bytes.
const (
	maxHello     = 64 << 10
	helloTimeout = 10 * time.Second
	noHello      = 3 << 16
)

var (
	// ErrHello ends a connection whose server name cannot be known.
	ErrHello    = errors.New("the connection begins like TLS and is not, see --net-any-sni")
	errNotHello = fmt.Errorf("%w: there is another message than a hello", ErrHello)
)

// handshake follows a program's bytes until no ClientHello can come any more. There may be
// two: a server that lacks a key of its choice in the first one asks for another
// (HelloRetryRequest).
type handshake struct {
	hasBegun bool // the first hello was seen
	isEarly  bool // it announces data that may come before the second hello (0-RTT)
	// taken is the header of the next record, once the first hello was seen. It is sent before
	// all that is still in the connection.
	taken []byte
}

// part is the next part of the bytes that a program sends.
type part struct {
	size   int    // bytes, after which next must look again
	server string // the server name in a hello among them; "": none
	isLast bool   // no hello comes after these bytes
}

// peek waits for the next bytes of a program and leaves them in the connection, except
// h.taken.
func (h *handshake) peek(conn *net.TCPConn) (p part, err error) {
	if h.hasBegun {
		if err := h.readHeader(conn); err != nil {
			return part{}, err
		}
		if p, isEnough, err := h.next(h.taken); isEnough || err != nil {
			return p, err
		}
	}
	from, err := conn.SyscallConn()
	if err != nil {
		return part{}, err
	}
	isWaiting := false
	perr := peek(from, func(fd int, data []byte) bool {
		var isEnough bool
		if len(h.taken) > 0 {
			data = slices.Concat(h.taken, data)
		}
		if p, isEnough, err = h.next(data); isEnough || err != nil {
			return true
		}
		if hasEnded(fd) {
			err = ErrHello
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
		perr = ErrHello
	}
	return p, errors.Join(perr, err)
}

// readHeader takes the header of the next record, or nothing if the program sends no more. The
// beginning of a header must not stay in the connection: the kernel frees received data in
// large pieces, so a few bytes can keep it from receiving the rest.
func (h *handshake) readHeader(conn *net.TCPConn) error {
	header := make([]byte, recordHeader)
	h.taken = nil
	n, err := conn.Read(header)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil && n < len(header) {
		_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
		_, err = io.ReadFull(conn, header[n:])
		_ = conn.SetReadDeadline(time.Time{})
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrHello
	}
	h.taken = header
	return err
}

// hasEnded reports whether the other side sends nothing more.
func hasEnded(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, _ := retryInterrupted(func() (int, error) { return unix.Poll(fds, 0) })
	return n > 0
}

// next returns the next part of begin. isEnough is false if it needs more bytes. An empty begin
// means that the program sends no more.
func (h *handshake) next(begin []byte) (p part, isEnough bool, err error) {
	last := part{isLast: true}
	if len(begin) == 0 || !h.hasBegun && !mayBeTLS(begin) {
		return last, true, nil
	}
	if h.hasBegun {
		if len(begin) < recordHeader {
			return part{}, false, nil
		}
		switch size := recordSize(begin); {
		case begin[0] == dataRecord && size > recordHeader && !h.isEarly:
			return last, true, nil
		case begin[0] != handshakeRecord, size == recordHeader: // servers may skip it
			return part{size: size}, true, nil
		}
	}
	end, err := helloEnd(begin)
	if errors.Is(err, errNotHello) && h.hasBegun && !h.isEarly {
		return last, true, nil // the server has chosen TLS 1.2, or refuses the handshake
	}
	if end == 0 || err != nil {
		return part{}, false, err
	}
	hello := parseHello(begin[:end])
	if hello == nil {
		return part{}, false, ErrHello
	}
	p = part{size: end, server: hello.ServerName, isLast: h.hasBegun}
	h.hasBegun, h.isEarly = true, slices.Contains(hello.Extensions, earlyData)
	return p, true, nil
}

// mayBeTLS reports whether a connection begins like TLS, or with a change of ciphers, which may
// be empty. No client begins with the latter, but some servers accept it.
func mayBeTLS(begin []byte) bool {
	switch begin[0] {
	case handshakeRecord, alertRecord:
		return true
	case changeCipherRecord:
		return len(begin) < recordHeader || recordSize(begin) <= recordHeader+1
	}
	return false
}

// parseHello returns the fields of a ClientHello, or nil if crypto/tls does not accept
// it.
func parseHello(records []byte) (hello *tls.ClientHelloInfo) {
	_ = tls.Server(&helloConn{rest: bytes.NewReader(records)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = h
		return nil, ErrHello // enough is known
	}}).Handshake()
	return hello
}

// recordSize returns how long a record is that begins with a whole header.
func recordSize(begin []byte) int { return recordHeader + int(binary.BigEndian.Uint16(begin[3:])) }

// helloEnd returns the end of the records with a ClientHello, or 0 if more bytes are needed.
// Servers skip warnings before it; Go's do, too. An encrypted message may begin like a hello,
// but data records follow it, which never interrupt a hello.
func helloEnd(begin []byte) (int, error) {
	var message []byte
	for at := 0; at < maxHello; {
		record := begin[at:]
		if len(record) < recordHeader {
			return 0, nil
		}
		end := recordSize(record)
		isSkipped := record[0] == alertRecord && len(message) == 0
		switch {
		case record[0] == dataRecord:
			return 0, errNotHello
		case !isSkipped && record[0] != handshakeRecord, at+end > maxHello:
			return 0, ErrHello
		case isSkipped && len(record) < end:
			return 0, nil
		case isSkipped:
			at += end
			continue
		}
		message = append(message, record[recordHeader:min(end, len(record))]...)
		size, err := messageSize(message)
		switch {
		case err != nil:
			return 0, err
		case len(record) < end:
			return 0, nil
		case size > 0 && len(message) > size:
			return 0, ErrHello // a second message in one record, which not all servers refuse
		case size > 0 && len(message) == size:
			return at + end, nil
		}
		at += end
	}
	return 0, ErrHello
}

// messageSize returns the length of a ClientHello, or 0 if more bytes are needed.
func messageSize(begin []byte) (int, error) {
	if len(begin) > 0 && begin[0] != clientHello {
		return 0, errNotHello
	}
	if len(begin) < messageHeader {
		return 0, nil
	}
	size := messageHeader + int(begin[1])<<16 + int(binary.BigEndian.Uint16(begin[2:]))
	if size >= noHello {
		return 0, errNotHello
	}
	return size, nil
}

// helloConn gives a program's bytes to crypto/tls. It sends nothing: answers are dropped.
type helloConn struct {
	net.Conn
	rest io.Reader
}

func (c *helloConn) Read(p []byte) (int, error)       { return c.rest.Read(p) }
func (c *helloConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *helloConn) Close() error                     { return nil }
func (c *helloConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *helloConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// canonical returns a name in the form of rules.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
