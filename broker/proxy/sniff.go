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
	i := blank(line, 0)
	switch {
	case i == len(line):
		if whole {
			return false, u.pass(len(line))
		}
		return true, nil
	case speaksRPC(line):
		if whole {
			u.auto.decide(isMCP)
			return false, nil
		}
		return true, nil // its end is on the way
	case whole, line[i] != '{' && line[i] != '[', len(line) > u.limit, value(line, i) >= 0:
		return false, u.foreign(line, whole)
	}
	return true, nil
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
