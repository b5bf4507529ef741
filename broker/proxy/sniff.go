package proxy

import (
	"bytes"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
)

// Mode says whether the two peers speak MCP.
type Mode int

// The modes.
const (
	// Auto decides by the first bytes of the peers. The first message of either peer turns the
	// mode On. Other visible text of the host turns the mode Off. Other output of the server
	// decides nothing. Before the decision, bytes pass as they come. But a line that may become
	// a JSON-RPC message is held back until the line can be judged. An object of the server that
	// goes over several lines is held back, too.
	Auto Mode = iota
	// On: the peers speak MCP.
	On
	// Off: every byte passes as it comes.
	Off
)

// detector holds the decision whether the peers speak MCP. The decision is made once.
type detector struct {
	v     atomic.Int32
	onRaw func() // called when the first bytes of the host show that the peers do not speak MCP
}

type state int32

const (
	undecided state = iota
	isMCP
	isRaw
)

func newDetector(m Mode) *detector {
	d := &detector{}
	switch m {
	case On:
		d.decide(isMCP)
	case Off:
		d.decide(isRaw)
	}
	return d
}

func (d *detector) state() state { return state(d.v.Load()) }

// decide makes the decision s, unless there is one. It reports whether this call made the decision.
func (d *detector) decide(s state) bool { return d.v.CompareAndSwap(int32(undecided), int32(s)) }

// sniff examines the beginning of a line while nothing is decided. It reports whether
// more has to be read first.
//
// A host may read a server's output as a stream of JSON, or split it at a lone CR, or
// skip invisible characters. So an object of the server is examined as a whole, over
// several lines. Text that any of these hosts would take for a message turns the mode On,
// and then every line is judged.
func (u *pump) sniff(last bool) (more bool, err error) {
	line, whole := u.line(last)
	o := &u.first
	o.look(line)
	for !u.fromHost && o.isOpen(line) && whole && len(line) <= u.limit {
		u.seen = u.start + len(line)
		if whole = u.seen < u.end; whole {
			line, whole = u.line(last)
			o.look(line)
		}
	}
	complete := whole || last || len(line) > u.limit
	switch ends := complete || o.isForeign(); {
	case o.rpc() && complete, !u.fromHost && ends && (o.isRPC || hasMessage(line)):
		u.auto.decide(isMCP)
		return false, nil
	case whole && !o.begun:
		u.midLine, err = false, u.pass(len(line))
	case !u.fromHost && !complete && o.mayEndInMessage(line):
		return true, nil
	case ends:
		err = u.passForeign(line, whole)
	default:
		return true, nil // the end of the line is still to be read
	}
	*o = opening{}
	return false, err
}

// opening judges whether a line that comes in parts is a message, or may become one. Each byte
// is examined once, however many parts there are. The bytes up to the end of the first object or
// array are examined once more when that end is found.
type opening struct {
	read  int  // how many bytes of the line were examined
	begun bool // there is a byte other than white space
	kind  byte // the first byte other than white space

	brackets jsonline.Brackets
	end      int  // the end of the object or array; 0: not found yet
	isRPC    bool // the object or array is a message or a batch
	hasMore  bool // there is text after the object or array

	work int // how many bytes were examined in all, for a test
}

// look examines the new bytes of the line.
func (o *opening) look(line []byte) {
	for ; o.read < len(line); o.read++ {
		c := line[o.read]
		o.work++
		white := jsonline.SkipSpace(line[:o.read+1], o.read) > o.read
		if !o.begun && !white {
			o.begun, o.kind = true, c
		}
		switch {
		case o.kind != '{' && o.kind != '[':
		case o.end > 0:
			o.hasMore = o.hasMore || !white
		default:
			if o.brackets.Step(c); o.brackets.Depth == 0 {
				o.end = o.read + 1
				o.isRPC = isRPC(line[:o.end])
				o.work += o.end
			}
		}
	}
}

// rpc reports whether the line so far is a message of JSON-RPC 2.0, or begins with a batch of
// messages.
func (o *opening) rpc() bool { return o.isRPC && (o.kind == '[' || !o.hasMore) }

// isForeign reports whether the line can no longer become a message.
func (o *opening) isForeign() bool {
	return o.begun && o.kind != '{' && o.kind != '[' || o.end > 0 && !o.rpc()
}

// isOpen reports whether the line begins with an object, or with an array of objects, that has
// not ended.
func (o *opening) isOpen(line []byte) bool {
	return o.end == 0 && beginsObject(line[jsonline.SkipSpace(line, 0):])
}

// mayEndInMessage reports whether the text after the last CR of a line, or after the invisible
// characters at the beginning of the line, may become a message.
func (o *opening) mayEndInMessage(line []byte) bool {
	cr := bytes.LastIndexByte(line, '\r')
	return (cr >= 0 || o.kind != '{' && o.kind != '[') && beginsObject(trimInvisible(line[cr+1:]))
}

// beginsObject reports whether a text begins like an object or an array of objects.
func beginsObject(text []byte) bool {
	i := 0
	if len(text) > 0 && text[0] == '[' {
		i = jsonline.SkipSpace(text, 1)
	}
	return len(text) > 0 && (i == len(text) || text[i] == '{')
}

// hasMessage splits lines at every CR and LF, and reports whether one of the parts begins with a
// message.
func hasMessage(lines []byte) bool {
	for part := range bytes.FieldsFuncSeq(lines, func(r rune) bool { return r == '\r' || r == '\n' }) {
		part = trimInvisible(part)
		if end := jsonline.EndOfValue(part, 0); end > 0 && isRPC(part[:end]) {
			return true
		}
	}
	return false
}

// trimInvisible returns a line without the characters at its beginning that some readers skip.
// These are blanks of any kind, characters that have no graphic form, such as NUL and a byte order
// mark, and bytes that are not UTF-8.
func trimInvisible(line []byte) []byte {
	return bytes.TrimLeftFunc(line, func(r rune) bool { return r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsGraphic(r) })
}

// passForeign handles a line that is no message. A line of the host turns the mode Off, and handle
// then passes the line. A line of the server passes here.
func (u *pump) passForeign(line []byte, whole bool) error {
	if u.fromHost {
		if u.auto.decide(isRaw) {
			u.auto.onRaw()
		}
		return nil
	}
	u.midLine = !whole
	u.midVisible = u.midLine && len(trimInvisible(line[bytes.LastIndexByte(line, '\r')+1:])) > 0
	return u.pass(len(line))
}

// isRPC reports whether a line is a message of JSON-RPC 2.0, or a batch with at least one
// message.
func isRPC(line []byte) bool {
	l, isBatch := jsonline.Array(line, jsonline.SkipSpace(line, 0))
	if !isBatch {
		f, ok := jsonline.Parse(line)
		return ok && isRPCFrame(line, &f)
	}
	hasMessage := false
	for l.Next() {
		if b := l.Val.Of(line); !hasMessage && b[0] == '{' {
			f, ok := jsonline.Parse(b)
			hasMessage = ok && isRPCFrame(b, &f)
		}
	}
	return hasMessage && l.Ended()
}

// isRPCFrame reports whether the frame f of b is a message of JSON-RPC 2.0. Some hosts do not check
// the version, so a frame without the version counts if its method is one that the session answers,
// or if it has a method and hosts may read its keys differently (Frame.Clash).
func isRPCFrame(b []byte, f *jsonline.Frame) bool {
	return f.RPC || broker.IsFilesMethod(string(jsonline.Unquote(f.Method.Of(b)))) || !f.Method.Absent() && !f.Clash.Absent()
}
