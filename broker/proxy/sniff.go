package proxy

import "sync/atomic"

// Mode says whether the two peers speak MCP.
type Mode int

// The modes.
const (
	// Auto decides by what the peers begin with. Until then, bytes pass as they
	// come, except that a line which may become a JSON-RPC message is held back
	// until it is told whether it is one. The first such message of either side
	// makes it MCP; anything else that the host begins with makes it Off. What a
	// server prints before it speaks decides nothing.
	Auto Mode = iota
	// On: the peers speak MCP.
	On
	// Off: every byte passes as it comes.
	Off
)

// detector holds what has been decided; once decided, it stays.
type detector struct {
	v     atomic.Int32
	onRaw func() // called when it is decided, by what the host began with, that this is no MCP
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

// decide reports whether it was this call that decided.
func (d *detector) decide(s state) bool { return d.v.CompareAndSwap(int32(undecided), int32(s)) }

// sniff looks at the beginning of a line while nothing is decided. It reports
// whether more has to be read first.
func (u *pump) sniff(last bool) (more bool, err error) {
	line, whole := u.line(last)
	o := &u.first
	o.look(line)
	switch over := whole || len(line) > u.limit; {
	case o.rpc() && over:
		u.auto.decide(isMCP)
	case whole && !o.begun:
		err = u.pass(len(line))
	case over, o.foreign():
		err = u.foreign(line, whole)
	default:
		return true, nil // its end is on the way
	}
	*o = opening{}
	return false, err
}

// opening is what is known of a line that comes in parts: whether it is, or may yet
// become, a message. Each byte is looked at once, and once more when the first object
// or array ends, however many parts there are.
type opening struct {
	read  int  // of the line, what was looked at
	begun bool // with something else than white space
	kind  byte // the first that is none

	depth           int
	quoted, escaped bool
	end             int  // where the object or array ends, as nested has it; 0: not yet
	speaks          bool // what ends there is a message, or a batch
	behind          bool // something follows it

	work int // bytes that were looked at, for the test that counts them
}

// look looks at what is new in the line.
func (o *opening) look(line []byte) {
	for ; o.read < len(line); o.read++ {
		c := line[o.read]
		o.work++
		white := blank(line[:o.read+1], o.read) > o.read
		if !o.begun && !white {
			o.begun, o.kind = true, c
		}
		switch {
		case o.kind != '{' && o.kind != '[':
		case o.end > 0:
			o.behind = o.behind || !white
		case o.escaped:
			o.escaped = false
		case o.quoted:
			o.escaped, o.quoted = c == '\\', c != '"'
		case c == '"':
			o.quoted = true
		case c == '{' || c == '[':
			o.depth++
		case c == '}' || c == ']':
			if o.depth--; o.depth == 0 {
				o.end = o.read + 1
				o.speaks = speaksRPC(line[:o.end])
				o.work += o.end
			}
		}
	}
}

// rpc reports whether the line, as far as it has come, is a message of JSON-RPC 2.0, or
// begins with a batch of them.
func (o *opening) rpc() bool { return o.speaks && (o.kind == '[' || !o.behind) }

// foreign reports whether the line will never be one.
func (o *opening) foreign() bool {
	return o.begun && o.kind != '{' && o.kind != '[' || o.end > 0 && !o.rpc()
}

// foreign deals with a line that is no message of MCP.
func (u *pump) foreign(line []byte, whole bool) error {
	if u.asks {
		if u.auto.decide(isRaw) {
			u.auto.onRaw()
		}
		return nil
	}
	u.mid = !whole
	return u.pass(len(line))
}

// speaksRPC reports whether a line is a message of JSON-RPC 2.0, or a batch of
// them.
func speaksRPC(line []byte) bool {
	if l, ok := open(line, blank(line, 0)); ok && l.array {
		if !l.next() {
			return false
		}
		f, ok := readFrame(l.val.of(line))
		for ok && l.next() {
		}
		return ok && f.rpc && l.closed
	}
	f, ok := readFrame(line)
	return ok && f.rpc
}
