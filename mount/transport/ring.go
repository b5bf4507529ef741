package transport

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The constants of io_uring that this package uses (include/uapi/linux/io_uring.h).
const (
	opUringCmd     = 46
	enterGetevents = 1 << 0

	setupSQE128       = 1 << 10 // FUSE's command needs 80 bytes from offset 48 on
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13
	setupNoMmap       = 1 << 14

	// ringSize is the number of submissions of a ring, which fit into a page. A worker has
	// one at a time.
	ringSize = 4
)

// ringParams is struct io_uring_params.
type ringParams struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFd uint32
	_                                                                      [3]uint32
	sq                                                                     struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		userAddr                                            uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		userAddr                                            uint64
	}
}

// submission is a submission queue entry of 128 bytes. From cmd on it is struct
// fuse_uring_cmd_req.
type submission struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off           uint64 // cmd_op in the lower half
	addr          uint64
	len           uint32
	opFlags       uint32
	userData      uint64
	_             uint64
	cmd           struct {
		flags, commitID uint64
		qid             uint16
	}
	_ [56]byte
}

// completion is a completion queue entry.
type completion struct {
	userData uint64
	res      int32
	flags    uint32
}

// ring is one io_uring. Only the thread that created a ring uses it. The kernel demands this
// for IORING_SETUP_SINGLE_ISSUER, and it copies a request in the context of the thread that
// submits.
type ring struct {
	fd             int
	mem            []byte // a page of indices and completions, and one of submissions
	sqTail, cqHead *uint32
	cqTail         *uint32
	sqMask, cqMask uint32
	sqes, cqes     unsafe.Pointer
	tail           uint32 // of the submissions, before it is published
	pending        uint32 // submissions that the kernel has not taken
}

// newRing creates a ring in memory of this process. A ring in mapped memory of the kernel
// would stay, and with it the connection, until the last process that shares this process's
// memory has ended. The callers of a dead daemon would wait until then.
func newRing() (*ring, error) {
	page := os.Getpagesize()
	mem, err := mapOwn(2 * page)
	if err != nil {
		return nil, fmt.Errorf("map a ring: %w", err)
	}
	p := ringParams{flags: setupSQE128 | setupSingleIssuer | setupDeferTaskrun | setupNoMmap}
	p.cq.userAddr, p.sq.userAddr = addressOf(mem), addressOf(mem[page:])
	// The descriptor is close-on-exec.
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, ringSize, uintptr(unsafe.Pointer(&p)), 0)
	if e != 0 {
		_ = unix.Munmap(mem)
		return nil, fmt.Errorf("io_uring_setup: %w", e)
	}
	r := &ring{fd: int(fd), mem: mem, sqes: unsafe.Pointer(&mem[page]), cqes: unsafe.Pointer(&mem[p.cq.cqes])}
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off])) }
	r.sqTail, r.cqHead, r.cqTail = at(p.sq.tail), at(p.cq.head), at(p.cq.tail)
	r.sqMask, r.cqMask = *at(p.sq.mask), *at(p.cq.mask)
	for i := range p.sqEntries { // submission i is always in slot i
		*at(p.sq.array + 4*i) = i
	}
	return r, nil
}

// mapOwn maps memory that forked children of this process do not get. It takes room only as
// far as it is written to.
func mapOwn(size int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	return mem, nil
}

func addressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&mem[0]))) }

// close closes the ring. The kernel cancels its outstanding submissions.
func (r *ring) close() {
	_ = unix.Close(r.fd)
	_ = unix.Munmap(r.mem)
}

// next returns the next submission, cleared. The caller must not have more submissions under
// way than the ring has slots.
func (r *ring) next() *submission {
	s := (*submission)(unsafe.Add(r.sqes, uintptr(r.tail&r.sqMask)*128))
	*s = submission{}
	r.tail++
	r.pending++
	return s
}

// enter submits the submissions that next returned, and waits for wait completions.
func (r *ring) enter(wait uint32) error {
	atomic.StoreUint32(r.sqTail, r.tail)
	for {
		// With IORING_SETUP_DEFER_TASKRUN only GETEVENTS runs the kernel's work, so it is
		// set also when wait is 0. RawSyscall6 would keep one of the runtime's processors:
		// a garbage collection would wait for the next request.
		n, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.pending), uintptr(wait), enterGetevents, 0, 0)
		switch e {
		case 0:
			r.pending -= uint32(n)
			return nil
		case unix.EINTR: // a signal of Go's runtime; nothing was submitted
			if r.ready() {
				return nil
			}
		default:
			return fmt.Errorf("io_uring_enter: %w", e)
		}
	}
}

// ready reports whether there is a completion.
func (r *ring) ready() bool { return *r.cqHead != atomic.LoadUint32(r.cqTail) }

// nextCompletion removes one completion and returns it.
func (r *ring) nextCompletion() (c completion, ok bool) {
	if !r.ready() {
		return c, false
	}
	c = r.peek()
	atomic.StoreUint32(r.cqHead, *r.cqHead+1)
	return c, true
}

// peek returns the next completion. ready must have reported true.
func (r *ring) peek() completion {
	return *(*completion)(unsafe.Add(r.cqes, uintptr(*r.cqHead&r.cqMask)*16))
}
