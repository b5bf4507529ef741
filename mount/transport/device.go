package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// smallRequest is the size up to which a request is copied out of the reader's large buffer,
// so that a request whose handler waits for long does not occupy that buffer. smallAnswer is enough
// for answers whose size the request does not name. The longest of them is a link's target.
const (
	smallRequest = 4096
	smallAnswer  = 8192
)

// alignment is the offset in a buffer (see takeBuffer) at which the data of a large WRITE begins.
// Direct writing demands that the data be aligned to this size.
const alignment = 4096

// reader is a goroutine that reads requests from /dev/fuse and answers them.
type reader struct {
	inFlight
	conn       *Conn
	small, out []byte

	isNear   bool        // the thread runs on the processor cpu only, see moveNear
	cpu      int         // the processor that the thread was moved to
	anywhere unix.CPUSet // the processors of the thread before it was moved
	poll     [1]unix.PollFd
}

// readINIT reads INIT and answers it. If rings is set and the kernel offers io_uring, the
// answer selects io_uring for requests. The kernel then holds all requests back until each of
// its processors has an entry. offered reports whether the kernel offers io_uring.
func (c *Conn) readINIT(rings bool) (offered bool, err error) {
	buf, out := make([]byte, 16<<10), make([]byte, 4096)
	n, err := c.readRequest(buf)
	if err != nil {
		return false, fmt.Errorf("read INIT: %w", err)
	}
	if n < inHeaderSize+int(unsafe.Sizeof(uint32(0)))*2 {
		return false, fmt.Errorf("INIT has %d bytes", n)
	}
	in := (*fuse.InitIn)(unsafe.Pointer(&buf[0])) // fields that an old kernel does not send read as 0
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

// readRequest reads one request. It reads again on ENOENT: that request was aborted meanwhile.
func (c *Conn) readRequest(buf []byte) (int, error) {
	for {
		n, err := unix.Read(c.fd, buf)
		if err == unix.EINTR || err == unix.ENOENT || err == unix.EAGAIN {
			continue
		}
		if err == nil && n == 0 {
			err = unix.ENODEV // a socket (in tests) whose other end is closed
		}
		return n, err
	}
}

// startReader starts a reader, unless the connection has ended.
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

// run reads and answers requests until the connection ends, or until enough other readers
// wait for requests. With io_uring a reader only gets FORGET and INTERRUPT. Before run answers
// a request other than FORGET, it calls prepare, which starts another reader if none waits. In
// a burst, prepare does so only if a further request already waits.
func (r *reader) run() {
	c := r.conn
	defer c.running.Done()
	defer c.removeReader(r)
	defer r.unpin()
	inBurst := false
	for {
		if !c.beginWaiting(inBurst) {
			return
		}
		buf := c.takeBuffer()
		in := (*buf)[alignment-int(unsafe.Sizeof(fuse.WriteIn{})):]
		n, err := c.readRequest(in)
		isLast := c.waiting.Add(-1) == 0 // no other reader waits
		if c.taken.Add(1); c.awake.fd >= 0 {
			c.wakeScaler()
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
		forgets := op == opForget || op == opBatchForget
		if !forgets {
			inBurst = r.prepare(in[:n], op, isLast)
		}
		r.answer(in[:n], op)
		c.burst.answer()
		if buf != nil {
			c.buffers.Put(buf)
		}
		if forgets && c.kind == IOUring {
			time.Sleep(forgetPause)
		}
	}
}

// forgetPause is a pause after a FORGET over io_uring, where a reader gets nothing that a
// program waits for except INTERRUPT. The kernel gathers further FORGETs in one request
// meanwhile. Without the pause each removed file woke the reader on another processor: that was
// a sixth of the processor time of a removal.
const forgetPause = time.Millisecond

// prepare chooses the processor for a request, and reports whether there is a burst. isLast tells
// whether no other reader waits. If isLast is set, prepare starts a reader. In a burst it does so
// only if a further request already waits and this request is no RELEASE; if not, prepare wakes
// scale, which starts a reader if handlers block.
func (r *reader) prepare(in []byte, op uint32, isLast bool) (inBurst bool) {
	c := r.conn
	isAwaited := op != opRelease
	if c.kind == Plain && isAwaited {
		c.burst.countRequest((*fuse.InHeader)(unsafe.Pointer(&in[0])).Pid, max(len(in), answerSize(in, op)))
	}
	r.moveNear()
	inBurst = c.burst.isOn()
	switch {
	case !isLast:
	case inBurst && !(isAwaited && r.requestWaits()):
		c.wakeScaler()
	default:
		c.startReader()
	}
	return inBurst
}

// beginWaiting counts the caller as a reader that waits for a request. It reports false, and
// does not count the caller, if enough other readers wait. A reader that ends must not be
// counted even for a moment: otherwise the last waiting reader would not start another.
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

// maxWaiting returns how many readers may wait for requests.
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

// answerSize returns the room for the answer to a request that names the size of its answer. For
// other requests it returns less than smallAnswer, which is enough for their answers.
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

// InodeNotify makes the kernel drop the attributes of a node and pages of its file. A
// handler must not call it: the kernel may wait for the handler's answer.
func (c *Conn) InodeNotify(node uint64, off, length int64) fuse.Status {
	var m struct {
		fuse.OutHeader
		fuse.NotifyInvalInodeOut
	}
	m.NotifyInvalInodeOut = fuse.NotifyInvalInodeOut{Ino: node, Off: off, Length: length}
	return status(c.notify(fuse.NOTIFY_INVAL_INODE, bytesOf(&m)))
}

// EntryNotify makes the kernel drop a name of a directory. A handler must not call it.
// The kernel waits until it can take the directory's lock, which a program may hold.
func (c *Conn) EntryNotify(parent uint64, name string) fuse.Status {
	var m struct {
		fuse.OutHeader
		fuse.NotifyInvalEntryOut
	}
	m.NotifyInvalEntryOut = fuse.NotifyInvalEntryOut{Parent: parent, NameLen: uint32(len(name))}
	return status(c.notify(fuse.NOTIFY_INVAL_ENTRY, append(append(bytesOf(&m), name...), 0)))
}

// retrieve asks the kernel for zero bytes of a file. The kernel answers with a NOTIFY_REPLY,
// which is a request. The file must be regular, and the unique number even and not 0. Bit 62
// keeps this number apart from the kernel's own, which are small.
func (c *Conn) retrieve(node uint64) error {
	var m struct {
		fuse.OutHeader
		fuse.NotifyRetrieveOut
	}
	m.NotifyRetrieveOut = fuse.NotifyRetrieveOut{NotifyUnique: 1<<62 | c.kicks.Add(2), Nodeid: node}
	return c.notify(fuse.NOTIFY_RETRIEVE_CACHE, bytesOf(&m))
}

// notify writes a notification, which begins with its header. code is negative, as in go-fuse.
func (c *Conn) notify(code int32, msg []byte) error {
	h := (*fuse.OutHeader)(unsafe.Pointer(&msg[0]))
	h.Length, h.Status = uint32(len(msg)), -code
	raw, err := c.device.SyscallConn()
	if err != nil {
		return unix.ENODEV
	}
	// Control keeps the descriptor open, so that its number cannot become another file's.
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
	case e == unix.EINVAL: // this kernel does not know the message
		return fuse.ENOSYS
	}
	return fuse.Status(e)
}
