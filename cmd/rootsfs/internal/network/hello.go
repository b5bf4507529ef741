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

	clientHello = 1  // type of a handshake message
	earlyData   = 42 // type of an extension
)

const (
	recordHeader  = 5 // type, version, length
	messageHeader = 4 // type, length
)

// maxHello bounds the bytes of a hello that are read, and helloTimeout the time until it is
// complete. Hellos with post-quantum keys need about 2 KiB. A message of noHello bytes
// or more is no hello, because no server accepts such a large hello.
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

// handshake follows a program's bytes until no ClientHello can come any more. There may be two
// hellos: if the first hello has no key for the group that the server chooses, the server asks for
// a second hello (HelloRetryRequest).
type handshake struct {
	hasBegun bool // the first hello was seen
	// hasEarlyData is set if the latest hello announces data that may come before the second
	// hello (0-RTT).
	hasEarlyData bool
	// taken is the header of the next record, once the first hello was seen. readHeader has read
	// the header from the connection. It is sent before the bytes that are still in the connection.
	taken []byte
}

// part is the next part of the bytes that a program sends.
type part struct {
	// size is in bytes. After the caller has sent these bytes on, it calls handshake.peek for the
	// next part, unless isLast is set.
	size   int
	server string // the server name in a hello among these bytes; "": none
	isLast bool   // no hello comes after these bytes
}

// peek waits for the next part of a program's bytes, and returns it. The bytes stay in the
// connection, except h.taken.
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

// readHeader reads the header of the next record into h.taken. If the program sends no more,
// h.taken is empty. The beginning of a header must not stay in the connection: the kernel frees
// received data in large pieces, so a few bytes can keep it from receiving the rest.
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

// next returns the next part of a program's bytes. begin has the bytes after the previous part,
// as far as they have come. isEnough is false if next needs more bytes. An empty begin means that
// the program sends no more.
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
		case begin[0] == dataRecord && size > recordHeader && !h.hasEarlyData:
			return last, true, nil
		case begin[0] != handshakeRecord, size == recordHeader: // servers may skip such a record
			return part{size: size}, true, nil
		}
	}
	end, err := helloEnd(begin)
	if errors.Is(err, errNotHello) && h.hasBegun && !h.hasEarlyData {
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
	h.hasBegun, h.hasEarlyData = true, slices.Contains(hello.Extensions, earlyData)
	return p, true, nil
}

// mayBeTLS reports whether a connection begins like TLS, or with a change of ciphers, which may
// be empty. No client begins with a change of ciphers, but some servers accept it.
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

// recordSize returns the size of a record with its header. begin must have the whole header.
func recordSize(begin []byte) int { return recordHeader + int(binary.BigEndian.Uint16(begin[3:])) }

// helloEnd returns the end of the records with a ClientHello, or 0 if more bytes are needed.
// Servers, also those of crypto/tls, skip warnings before a hello. An encrypted handshake message
// of TLS 1.2 may look like the beginning of a hello. A data record after it shows that it is none,
// because data records never come within a hello.
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

// messageSize returns the size of a ClientHello with its header, or 0 if more bytes are needed.
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

// canonical returns a host name as rules have it: in lower case, without a final dot.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
