package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// smallRequest bounds the requests that leave the reader's large buffer at once, so that
// a request that waits for long does not keep it; smallAnswer is enough for the answers
// whose size the request does not name. The longest is the target of a link.
const (
	smallRequest = 4096
	smallAnswer  = 8192
)

// alignment is where the data of a large WRITE begins, as direct writing demands.
const alignment = 4096

// reader is a goroutine that reads requests from /dev/fuse and answers them.
type reader struct {
	inFlight
	conn       *Conn
	small, out []byte

	isNear   bool        // the thread runs on the processor cpu only, see moveNear
	cpu      int         // of a caller
	anywhere unix.CPUSet // the processors for the thread otherwise
	poll     [1]unix.PollFd
}

// readINIT reads INIT and answers it. With rings set, the kernel is told that requests go
// over io_uring if it offers that; then it holds all requests back until each of its
// processors has an entry.
func (c *Conn) readINIT(rings bool) (offered bool, err error) {
	buf, out := make([]byte, 16<<10), make([]byte, 4096)
	n, err := c.readRequest(buf)
	if err != nil {
		return false, fmt.Errorf("read INIT: %w", err)
	}
	if n < inHeaderSize+int(unsafe.Sizeof(uint32(0)))*2 {
		return false, fmt.Errorf("INIT has %d bytes", n)
	}
	in := (*fuse.InitIn)(unsafe.Pointer(&buf[0])) // what is missing at the end reads as 0
	offered = in.Flags64()&fuse.CAP_OVER_IO_URING != 0
	length, status := c.protocol.HandleRequest([][]byte{buf[:n]}, [][]byte{out})
	if length < outHeaderSize {
		return false, fmt.Errorf("INIT: %v", status)
	}
	if e := (*fuse.OutHeader)(unsafe.Pointer(&out[0])).Status; e != 0 {
		_, _ = unix.Write(c.fd, out[:length])
		return false, fmt.Errorf("INIT: %w", unix.Errno(-e))
	}
	if !rings {
		o := (*fuse.InitOut)(unsafe.Pointer(&out[outHeaderSize]))
		o.Flags2 &^= uint32(uint64(fuse.CAP_OVER_IO_URING) >> 32)
	}
	if _, err := unix.Write(c.fd, out[:length]); err != nil {
		return false, fmt.Errorf("answer INIT: %w", err)
	}
	return offered, nil
}

// readRequest reads one request. ENOENT means that the request has ended meanwhile.
func (c *Conn) readRequest(buf []byte) (int, error) {
	for {
		n, err := unix.Read(c.fd, buf)
		if err == unix.EINTR || err == unix.ENOENT || err == unix.EAGAIN {
			continue
		}
		if err == nil && n == 0 {
			err = unix.ENODEV // the other end of a socket
		}
		return n, err
	}
}

// startReader starts a reader.
func (c *Conn) startReader() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOver {
		return
	}
	r := &reader{conn: c, small: make([]byte, smallRequest), out: make([]byte, smallAnswer)}
	c.readers[r] = struct{}{}
	c.running.Add(1)
	go r.run()
}

// run reads requests until the connection ends, or until enough others wait for them.
// Beside rings it gets FORGET and INTERRUPT, else everything. Before it answers it
// starts another reader if nobody else waits for the next request, but for bursts.
func (r *reader) run() {
	c := r.conn
	defer c.running.Done()
	defer c.removeReader(r)
	defer r.leave()
	inBurst := false
	for {
		if !c.beginWaiting(inBurst) {
			return
		}
		buf := c.takeBuffer()
		in := (*buf)[alignment-int(unsafe.Sizeof(fuse.WriteIn{})):]
		n, err := c.readRequest(in)
		last := c.waiting.Add(-1) == 0
		if c.taken.Add(1); c.awake.fd >= 0 {
			c.wakeWatch()
		}
		if err != nil {
			c.end(err)
			return
		}
		if n < inHeaderSize {
			c.logf("the kernel sent a request of %d bytes", n)
			c.buffers.Put(buf)
			continue
		}
		if n <= len(r.small) {
			copy(r.small, in[:n])
			in = r.small
			c.buffers.Put(buf)
			buf = nil
		}
		op := binary.NativeEndian.Uint32(in[4:])
		if op != opForget && op != opBatchForget {
			inBurst = r.prepare(in[:n], op, last)
		}
		r.answer(in[:n], op)
		c.burst.answer()
		if buf != nil {
			c.buffers.Put(buf)
		}
	}
}

// prepare chooses the processor for a request, and has somebody else get the next one if nobody
// waits for it. It reports whether there is a burst.
func (r *reader) prepare(in []byte, op uint32, nobodyWaits bool) (inBurst bool) {
	c := r.conn
	isAwaited := op != opRelease
	if c.kind == Plain && isAwaited {
		c.burst.take((*fuse.InHeader)(unsafe.Pointer(&in[0])).Pid, max(len(in), answerSize(in, op)))
	}
	r.moveNear()
	inBurst = c.burst.isOn()
	switch {
	case !nobodyWaits:
	case inBurst && !(isAwaited && r.requestWaits()):
		c.wakeWatch()
	default:
		c.startReader()
	}
	return inBurst
}

// beginWaiting counts a reader that waits for a request, unless enough others do. One that
// is not going to wait is never counted: else the last that waits would not start another.
func (c *Conn) beginWaiting(inBurst bool) bool {
	most := maxWaiting()
	if inBurst {
		most = 1
	}
	for {
		n := c.waiting.Load()
		if n >= most {
			return false
		}
		if c.waiting.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// maxWaiting is how many readers wait for requests at most.
func maxWaiting() int32 { return int32(min(max(runtime.GOMAXPROCS(0), 2), 16)) }

func (c *Conn) removeReader(r *reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.readers, r)
}

// takeBuffer returns a buffer for one request.
func (c *Conn) takeBuffer() *[]byte {
	if b, ok := c.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, alignment+c.payload+smallAnswer)
	return &b
}

// answer answers one request and writes the answer.
func (r *reader) answer(in []byte, op uint32) {
	c := r.conn
	out := r.out
	if size := answerSize(in, op); size > len(out) && size <= c.payload+smallAnswer {
		buf := c.takeBuffer()
		defer c.buffers.Put(buf)
		out = *buf
	}
	fixed := len(in)
	if size, ok := hotSize[op]; ok {
		fixed = min(fixed, size)
	}
	m := message{
		fixed: in[:fixed], payload: in[fixed:], in: [][]byte{in},
		header: out[:outHeaderSize], body: out[outHeaderSize:], out: [][]byte{out},
	}
	n := c.answer(&r.inFlight, &m)
	if n == 0 {
		return
	}
	// ENOENT: the caller was killed, or the connection has ended, meanwhile.
	if _, err := unix.Write(c.fd, out[:n]); err != nil && err != unix.ENOENT {
		c.debugf("write an answer to request %d: %v", op, err)
	}
}

// answerSize returns the room that the answer to a request needs.
func answerSize(in []byte, op uint32) int {
	const more = 512 // the header and the largest struct of an answer
	switch op {
	case opRead, opReaddir, opReaddirplus:
		if len(in) >= int(unsafe.Sizeof(fuse.ReadIn{})) {
			return int((*fuse.ReadIn)(unsafe.Pointer(&in[0])).Size) + more
		}
	case opGetxattr, opListxattr:
		if len(in) >= int(unsafe.Sizeof(fuse.GetXAttrIn{})) {
			return int((*fuse.GetXAttrIn)(unsafe.Pointer(&in[0])).Size) + more
		}
	case opIoctl:
		if len(in) >= int(unsafe.Sizeof(fuse.IoctlIn{})) {
			return int((*fuse.IoctlIn)(unsafe.Pointer(&in[0])).OutSize) + more
		}
	}
	return more
}

// InodeNotify has the kernel drop the attributes of a node and pages of its file. A handler
// must not call it: the kernel may wait for the handler's answer.
func (c *Conn) InodeNotify(node uint64, off, length int64) fuse.Status {
	var m struct {
		fuse.OutHeader
		fuse.NotifyInvalInodeOut
	}
	m.NotifyInvalInodeOut = fuse.NotifyInvalInodeOut{Ino: node, Off: off, Length: length}
	return status(c.notify(fuse.NOTIFY_INVAL_INODE, bytesOf(&m)))
}

// EntryNotify has the kernel drop a name of a directory. What holds for InodeNotify holds
// here; beyond that the kernel waits for whoever holds the directory's lock.
func (c *Conn) EntryNotify(parent uint64, name string) fuse.Status {
	var m struct {
		fuse.OutHeader
		fuse.NotifyInvalEntryOut
	}
	m.NotifyInvalEntryOut = fuse.NotifyInvalEntryOut{Parent: parent, NameLen: uint32(len(name))}
	return status(c.notify(fuse.NOTIFY_INVAL_ENTRY, append(append(bytesOf(&m), name...), 0)))
}

// retrieve asks the kernel for no bytes of a file: it answers with a NOTIFY_REPLY, a
// request. The kernel demands a regular file, and an even number that is not 0; those of
// its own requests are small.
func (c *Conn) retrieve(node uint64) error {
	var m struct {
		fuse.OutHeader
		fuse.NotifyRetrieveOut
	}
	m.NotifyRetrieveOut = fuse.NotifyRetrieveOut{NotifyUnique: 1<<62 | c.kicks.Add(2), Nodeid: node}
	return c.notify(fuse.NOTIFY_RETRIEVE_CACHE, bytesOf(&m))
}

// notify writes a message that begins with its header. code is negative, as go-fuse has it.
func (c *Conn) notify(code int32, msg []byte) error {
	h := (*fuse.OutHeader)(unsafe.Pointer(&msg[0]))
	h.Length, h.Status = uint32(len(msg)), -code
	raw, err := c.device.SyscallConn()
	if err != nil {
		return unix.ENODEV
	}
	// Control keeps the descriptor from being closed, and its number from another file.
	cerr := raw.Control(func(fd uintptr) {
		for {
			if _, err = unix.Write(int(fd), msg); err != unix.EINTR {
				return
			}
		}
	})
	if cerr != nil {
		return unix.ENODEV
	}
	return err
}

func bytesOf[T any](v *T) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))...)
}

func status(err error) fuse.Status {
	var e unix.Errno
	switch {
	case err == nil:
		return fuse.OK
	case !errors.As(err, &e):
		return fuse.EIO
	case e == unix.EINVAL: // a kernel that does not know the message
		return fuse.ENOSYS
	}
	return fuse.Status(e)
}
