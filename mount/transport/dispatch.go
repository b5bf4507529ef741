package transport

import (
	"bytes"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// The operations that this package names (include/uapi/linux/fuse.h).
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opUnlink      = 10
	opRmdir       = 11
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opRelease     = 18
	opGetxattr    = 22
	opListxattr   = 23
	opFlush       = 25
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opCreate      = 35
	opInterrupt   = 36
	opIoctl       = 39
	opNotifyReply = 41
	opBatchForget = 42
	opReaddirplus = 44
)

// pollNode and pollName are the file that AnswerPoll opens, so that the kernel stops sending
// POLL. go-fuse answers the requests about this file (go-fuse, fuse/poll.go).
const (
	pollNode = ^uint64(0)
	pollName = ".go-fuse-epoll-hack"
)

// message is a request and the room for its answer.
type message struct {
	fixed   []byte   // header and fixed argument
	payload []byte   // names or data after the fixed argument
	in      [][]byte // the whole request
	header  []byte   // of the answer
	body    []byte   // of the answer; may share the memory of payload
	out     [][]byte // header and body
}

// inFlight is the request that a worker or a reader is answering, if any.
type inFlight struct {
	mu          sync.Mutex    // guards the fields below
	unique      uint64        // the number of the request; 0: no request
	cancel      chan struct{} // closed by an INTERRUPT; nil: HandleRequest has its own
	interrupted bool
	spare       chan struct{} // for the next request
}

// begin notes a request. If isHot is set, hot answers the request, and begin returns the channel
// that an INTERRUPT closes. Otherwise HandleRequest answers the request with a channel of its
// own.
func (f *inFlight) begin(unique uint64, isHot bool) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unique, f.interrupted = unique, false
	if isHot {
		if f.spare == nil {
			f.spare = make(chan struct{})
		}
		f.cancel = f.spare
	}
	return f.cancel
}

func (f *inFlight) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancel != nil && f.interrupted {
		f.spare = nil
	}
	f.unique, f.cancel = 0, nil
}

// interrupt cancels the request if it has this number and hot answers it.
func (f *inFlight) interrupt(unique uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unique != unique || f.cancel == nil {
		return false
	}
	if !f.interrupted {
		f.interrupted = true
		close(f.cancel)
	}
	return true
}

// pending returns the number of the request, or 0 if there is none or it is interrupted. isHot
// reports whether hot answers it.
func (f *inFlight) pending() (unique uint64, isHot bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.interrupted {
		return 0, false
	}
	return f.unique, f.cancel != nil
}

func (f *inFlight) setInterrupted() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupted = true
}

// answer answers a request and returns the length of the answer with its header, or 0 if
// the kernel wants none.
func (c *Conn) answer(f *inFlight, m *message) int {
	h := (*fuse.InHeader)(unsafe.Pointer(&m.fixed[0]))
	unique := h.Unique
	switch {
	case h.Opcode == opNotifyReply: // the answer to retrieve, see kick
		return 0
	case h.Opcode == opInterrupt && len(m.fixed)+len(m.payload) >= int(unsafe.Sizeof(fuse.InterruptIn{})):
		in := fuse.InterruptIn{}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&in)), unsafe.Sizeof(in)), bytes.Join(m.in, nil))
		if c.interrupt(in.Unique) {
			return 0
		}
	case !c.throughGoFUSE && c.isHot(h, m):
		cancel := f.begin(unique, true)
		n, status := c.hot(cancel, h, m)
		f.end()
		return m.reply(unique, status, n)
	}
	f.begin(unique, false)
	defer f.end()
	n, status := c.protocol.HandleRequest(m.in, m.out)
	if n == 0 && status != fuse.OK { // nothing was written, and the caller must not wait for ever
		return m.reply(unique, status, 0)
	}
	return n
}

// reply writes the answer's header and returns the length of the answer, whose body has
// n bytes.
func (m *message) reply(unique uint64, status fuse.Status, n int) int {
	if status != fuse.OK {
		n = 0
	}
	*(*fuse.OutHeader)(unsafe.Pointer(&m.header[0])) = fuse.OutHeader{Unique: unique, Status: -int32(status), Length: uint32(outHeaderSize + n)}
	return outHeaderSize + n
}

// hotSize is the size of the fixed part of the requests that hot answers.
var hotSize = map[uint32]int{
	opLookup:     inHeaderSize,
	opGetattr:    int(unsafe.Sizeof(fuse.GetAttrIn{})),
	opUnlink:     inHeaderSize,
	opRmdir:      inHeaderSize,
	opOpen:       int(unsafe.Sizeof(fuse.OpenIn{})),
	opRelease:    int(unsafe.Sizeof(fuse.ReleaseIn{})),
	opFlush:      int(unsafe.Sizeof(fuse.FlushIn{})),
	opOpendir:    int(unsafe.Sizeof(fuse.OpenIn{})),
	opReleasedir: int(unsafe.Sizeof(fuse.ReleaseIn{})),
	opCreate:     int(unsafe.Sizeof(fuse.CreateIn{})),
	opRead:       int(unsafe.Sizeof(fuse.ReadIn{})),
	opWrite:      int(unsafe.Sizeof(fuse.WriteIn{})),
}

// isHot reports whether hot answers a request. go-fuse answers requests that are malformed,
// extended or about pollName.
func (c *Conn) isHot(h *fuse.InHeader, m *message) bool {
	size, ok := hotSize[h.Opcode]
	if !ok || len(m.fixed) != size || h.TotalExtlen != 0 || h.NodeId == pollNode {
		return false
	}
	switch h.Opcode {
	case opLookup, opCreate, opUnlink, opRmdir:
		end := bytes.IndexByte(m.payload, 0)
		return end >= 0 && !(h.NodeId == fuse.FUSE_ROOT_ID && string(m.payload[:end]) == pollName)
	case opRead:
		return int((*fuse.ReadIn)(unsafe.Pointer(h)).Size) <= len(m.body)
	case opWrite:
		return int((*fuse.WriteIn)(unsafe.Pointer(h)).Size) <= len(m.payload)
	}
	return true
}

// hot answers the operations that programs wait for most. HandleRequest would allocate a
// kilobyte for each request. hot returns the size of the answer's body.
func (c *Conn) hot(cancel <-chan struct{}, h *fuse.InHeader, m *message) (n int, status fuse.Status) {
	defer func() {
		if p := recover(); p != nil {
			n, status = 0, c.handlePanic(p)
		}
	}()
	switch h.Opcode {
	case opLookup:
		name := m.name()
		out := result[fuse.EntryOut](m, &n)
		return n, c.fs.Lookup(cancel, h, name, out)
	case opCreate:
		name := m.name()
		out := result[fuse.CreateOut](m, &n)
		status = c.fs.Create(cancel, (*fuse.CreateIn)(unsafe.Pointer(h)), name, out)
		if status == fuse.OK {
			c.lastOpened.Store(out.NodeId)
		}
		return n, status
	case opGetattr:
		out := result[fuse.AttrOut](m, &n)
		return n, c.fs.GetAttr(cancel, (*fuse.GetAttrIn)(unsafe.Pointer(h)), out)
	case opOpen:
		out := result[fuse.OpenOut](m, &n)
		status = c.fs.Open(cancel, (*fuse.OpenIn)(unsafe.Pointer(h)), out)
		if status == fuse.OK {
			c.lastOpened.Store(h.NodeId)
		}
		return n, status
	case opUnlink:
		return 0, c.fs.Unlink(cancel, h, m.name())
	case opRmdir:
		return 0, c.fs.Rmdir(cancel, h, m.name())
	case opOpendir:
		out := result[fuse.OpenOut](m, &n)
		return n, c.fs.OpenDir(cancel, (*fuse.OpenIn)(unsafe.Pointer(h)), out)
	case opReleasedir:
		c.fs.ReleaseDir((*fuse.ReleaseIn)(unsafe.Pointer(h)))
		return 0, fuse.OK
	case opFlush:
		return 0, c.fs.Flush(cancel, (*fuse.FlushIn)(unsafe.Pointer(h)))
	case opRelease:
		c.fs.Release(cancel, (*fuse.ReleaseIn)(unsafe.Pointer(h)))
		return 0, fuse.OK
	case opRead:
		return c.read(cancel, (*fuse.ReadIn)(unsafe.Pointer(h)), m)
	}
	in := (*fuse.WriteIn)(unsafe.Pointer(h))
	size, status := c.fs.Write(cancel, in, m.payload[:in.Size])
	result[fuse.WriteOut](m, &n).Size = size // only now, since body may share the memory of the data
	return n, status
}

// name returns a copy of the first name of a request. The answer may overwrite the payload.
func (m *message) name() string { return string(m.payload[:bytes.IndexByte(m.payload, 0)]) }

func (c *Conn) read(cancel <-chan struct{}, in *fuse.ReadIn, m *message) (int, fuse.Status) {
	dest := m.body[:in.Size]
	res, status := c.fs.Read(cancel, in, dest)
	if res == nil || status != fuse.OK {
		return 0, status
	}
	defer res.Done()
	data, status := res.Bytes(dest)
	if len(data) > 0 && &data[0] != &dest[0] {
		data = dest[:copy(dest, data)]
	}
	return len(data), status
}

// result clears room for a struct in the body of an answer. It stores the size of the struct in n
// and returns the struct.
func result[T any](m *message, n *int) *T {
	out := (*T)(unsafe.Pointer(&m.body[0]))
	clear(m.body[:unsafe.Sizeof(*out)])
	*n = int(unsafe.Sizeof(*out))
	return out
}

func (c *Conn) handlePanic(p any) fuse.Status {
	if c.options.PanicHandler == nil {
		panic(p)
	}
	if status := c.options.PanicHandler(p); status != fuse.OK {
		return status
	}
	return fuse.EIO
}

// interrupt cancels the request with a number if hot answers it. It reports false if hot
// answers no such request.
func (c *Conn) interrupt(unique uint64) bool {
	for _, f := range c.requests() {
		if f.interrupt(unique) {
			return true
		}
	}
	return false
}

// interruptAll interrupts all requests in flight. It is called after the connection has ended,
// when the kernel sends no INTERRUPT any more.
func (c *Conn) interruptAll() {
	for _, f := range c.requests() {
		unique, isHot := f.pending()
		switch {
		case unique == 0:
		case isHot:
			f.interrupt(unique)
		case c.interruptInHandleRequest(unique):
			f.setInterrupted()
		}
	}
}

// lastInterrupt numbers the INTERRUPT requests of interruptInHandleRequest.
var lastInterrupt atomic.Uint64

// interruptInHandleRequest cancels a request that HandleRequest answers. It passes an INTERRUPT
// request to HandleRequest, since go-fuse exports no other way. It reports false if
// HandleRequest has not begun to answer the request, or has already answered it.
func (c *Conn) interruptInHandleRequest(unique uint64) bool {
	in := fuse.InterruptIn{Unique: unique}
	in.Length, in.Opcode, in.InHeader.Unique = uint32(unsafe.Sizeof(in)), opInterrupt, lastInterrupt.Add(2)|1
	var out [128]byte
	n, _ := c.protocol.HandleRequest([][]byte{unsafe.Slice((*byte)(unsafe.Pointer(&in)), unsafe.Sizeof(in))}, [][]byte{out[:]})
	return n == 0
}
