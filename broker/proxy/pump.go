package proxy

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
)

// pump carries one direction. It reads all available bytes, examines each line once, and
// writes passing lines together, from the buffer they were read into.
type pump struct {
	src io.Reader
	dst *outlet
	// look gets a line without its line end. If pass is true, the line passes as it came.
	// Otherwise out replaces the line; a nil out drops the line.
	look func(line []byte) (out []byte, pass bool)
	// long handles a line that is over the limit. h has its id, method and size.
	long     func(h *jsonline.Head)
	auto     *detector
	fromHost bool // the source is the host, whose first text decides whether this is MCP
	limit    int  // bytes of a line
	bytes    *atomic.Int64

	mu         sync.Mutex // guards the fields below; not held while reading
	buf        []byte     // the bytes beyond end belong to read, also without mu
	start, end int        // the bytes of buf that were read and not handled yet
	seen       int        // line looks for the end of the line from this offset on
	first      opening    // the line at start, while nothing is decided
	idle       bool       // no byte of the last read has been written
	// midLine is set if a part of the current line has passed before the mode was decided.
	// midVisible is set if that part has visible characters after its last CR: then the bytes up
	// to the next CR or LF are no message.
	midLine, midVisible bool
}

const (
	readSize = 64 << 10 // the usual capacity of a pipe
	keepSize = 4 << 20  // a buffer that a long line has made larger than this is dropped afterwards
)

// run carries lines until the source ends or the destination takes no more. The error
// is nil at the source's end.
func (u *pump) run() error {
	for {
		rerr, err := u.step()
		if err != nil {
			return err
		}
		if errors.Is(rerr, io.EOF) {
			return nil
		} else if rerr != nil {
			return rerr
		}
	}
}

// step reads once and handles the buffered bytes.
func (u *pump) step() (rerr, err error) {
	rerr = u.read()
	u.mu.Lock()
	defer u.mu.Unlock()
	return rerr, u.handle(rerr != nil)
}

// read reads once. A write fails if the destination has hung up. If nothing was written since
// the last read (one endless line), read itself checks whether the destination has hung up,
// because the source could go on for ever.
func (u *pump) read() error {
	u.mu.Lock()
	u.makeRoomLocked()
	free, idle := u.buf[u.end:], u.idle
	u.idle = true
	u.mu.Unlock()
	if idle && u.dst.hungUp() {
		return unix.EPIPE
	}
	n, err := u.src.Read(free)
	u.mu.Lock()
	u.end += n
	u.mu.Unlock()
	u.bytes.Add(int64(n))
	return err
}

// release passes on the bytes that were held back to be examined.
func (u *pump) release() {
	u.mu.Lock()
	defer u.mu.Unlock()
	_ = u.handle(false) // a destination that is gone is noticed by the next write, too
}

// makeRoomLocked makes room in the buffer for a read.
func (u *pump) makeRoomLocked() {
	switch rest := u.end - u.start; {
	case rest == 0:
		u.start, u.end, u.seen = 0, 0, 0
		if len(u.buf) == 0 || len(u.buf) > keepSize {
			u.buf = make([]byte, readSize)
		}
	case u.end < len(u.buf):
	case u.start > 0 && rest <= len(u.buf)/2:
		copy(u.buf, u.buf[u.start:u.end])
		u.start, u.end, u.seen = 0, rest, u.seen-u.start
	default:
		larger := make([]byte, min(2*len(u.buf), max(u.limit, len(u.buf))+readSize))
		copy(larger, u.buf[u.start:u.end])
		u.buf, u.start, u.end, u.seen = larger, 0, rest, u.seen-u.start
	}
}

// handle handles the bytes in the buffer. last is set if no more bytes come.
func (u *pump) handle(last bool) error {
	for u.start < u.end {
		var more bool
		var err error
		switch state := u.auto.state(); {
		case state == isRaw:
			err = u.pass(u.end - u.start)
		case u.midVisible:
			err = u.passRest()
		case state == undecided:
			more, err = u.sniff(last)
		case u.midLine: // the following bytes are judged as a line, so they must begin one
			u.midLine = false
			err = u.write([]byte{'\n'})
		default:
			more, err = u.lines(last)
		}
		if more || err != nil {
			return err
		}
	}
	return nil
}

func (u *pump) write(b []byte) error {
	if len(b) == 0 {
		return nil // do not wait: another frame may be on its way to a peer that does not read
	}
	u.idle = false
	return u.dst.Pass(b)
}

// pass passes n bytes on as they are.
func (u *pump) pass(n int) error {
	err := u.write(u.buf[u.start : u.start+n])
	u.start += n
	u.seen = max(u.seen, u.start)
	return err
}

// passRest passes on the rest of a line whose beginning has passed, up to a CR or to the line's
// end.
func (u *pump) passRest() error {
	n := u.end - u.start
	if i := bytes.IndexAny(u.buf[u.start:u.end], "\r\n"); i >= 0 {
		n, u.midVisible = i, false
		if u.buf[u.start+i] == '\n' {
			n, u.midLine = i+1, false
		}
	}
	return u.pass(n)
}

// lines handles the lines in the buffer. It reports whether more has to be read first.
func (u *pump) lines(last bool) (more bool, err error) {
	if u.first.read > 0 { // sniff has examined this line, while nothing was decided
		u.first, u.seen = opening{}, u.start
	}
	run := u.start // the bytes from run to u.start pass as they came
	flush := func() error {
		err := u.write(u.buf[run:u.start])
		run = u.start
		return err
	}
	for u.start < u.end {
		line, ok := u.line(last)
		if !ok {
			if err := flush(); err != nil {
				return false, err
			}
			if u.end-u.start > u.limit+len("\r\n") {
				return false, u.skip()
			}
			return true, nil
		}
		body := line[:len(line)-endOf(line)]
		out, pass := body, true
		switch {
		case len(body) > u.limit:
			u.long(jsonline.HeadOf(body))
			out, pass = nil, false
		default:
			out, pass = u.look(body)
		}
		if !pass {
			if err := flush(); err != nil {
				return false, err
			}
		}
		u.start += len(line)
		if !pass {
			run = u.start
			if out != nil {
				out = append(out[:len(out):len(out)], line[len(body):]...)
				if err := u.write(out); err != nil {
					return false, err
				}
			}
		}
	}
	return false, flush()
}

// line returns the next line with its end, and true. If no line end is in the buffer, line returns
// the remaining bytes and last: at the end of the stream these bytes are a line, too.
func (u *pump) line(last bool) ([]byte, bool) {
	from := max(u.start, u.seen)
	if i := bytes.IndexByte(u.buf[from:u.end], '\n'); i >= 0 {
		return u.buf[u.start : from+i+1], true
	}
	u.seen = u.end
	return u.buf[u.start:u.end], last
}

// endOf returns the length of a line's end.
func endOf(line []byte) int {
	switch {
	case bytes.HasSuffix(line, []byte("\r\n")):
		return 2
	case bytes.HasSuffix(line, []byte("\n")):
		return 1
	}
	return 0
}

// skip reads past a line that is over the limit. It keeps only the line's id, method and size.
// skip gives up u.mu while it reads.
func (u *pump) skip() error {
	h := &jsonline.Head{}
	for {
		part := u.buf[u.start:u.end]
		i := bytes.IndexByte(part, '\n')
		if i >= 0 {
			part = part[:i]
		}
		h.Feed(part)
		u.start += len(part)
		if i >= 0 {
			u.start++
			u.long(h)
			return nil
		}
		u.mu.Unlock()
		err := u.read()
		u.mu.Lock()
		if err != nil && u.start == u.end {
			u.long(h)
			return nil // the next read returns the error again
		}
	}
}
