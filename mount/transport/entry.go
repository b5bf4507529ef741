package transport

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// The commands and the layout of an entry's headers (include/uapi/linux/fuse.h, struct
// fuse_uring_req_header).
const (
	cmdRegister       = 1
	cmdCommitAndFetch = 2

	offArgument = 128 // the operation's fixed argument, of 128 bytes at most
	offState    = 256 // struct fuse_uring_ent_in_out
	headersSize = 288
	offIovecs   = 1024 // where newEntry puts the vectors that REGISTER names

	inHeaderSize  = int(unsafe.Sizeof(fuse.InHeader{}))
	outHeaderSize = int(unsafe.Sizeof(fuse.OutHeader{}))
)

// entryState is struct fuse_uring_ent_in_out.
type entryState struct {
	flags, commitID uint64
	payload         uint32 // size of the data in entry.payload: the request's, then the answer's
}

// entry is one slot of a queue of the kernel. It holds one request at a time, until the answer
// is committed. Its memory is mapped outside the Go heap, because the kernel keeps the
// addresses.
type entry struct {
	mem     []byte // one page of headers, then the payload
	headers []byte
	payload []byte

	in  [3][]byte // kept here, since slices passed to HandleRequest would escape to the heap
	out [2][]byte
}

// newEntry creates an entry for payloads of the given size. Its memory takes room only as far
// as requests fill it.
func newEntry(payload int) (*entry, error) {
	page := os.Getpagesize()
	mem, err := mapOwn(page + payload)
	if err != nil {
		return nil, fmt.Errorf("map an entry: %w", err)
	}
	e := &entry{mem: mem, headers: mem[:headersSize], payload: mem[page:]}
	iov := (*[2]unix.Iovec)(unsafe.Pointer(&mem[offIovecs]))
	iov[0].Base, iov[1].Base = &e.headers[0], &e.payload[0]
	iov[0].SetLen(headersSize)
	iov[1].SetLen(payload)
	return e, nil
}

func (e *entry) close() { _ = unix.Munmap(e.mem) }

func (e *entry) state() *entryState { return (*entryState)(unsafe.Pointer(&e.headers[offState])) }

func (e *entry) header() *fuse.InHeader { return (*fuse.InHeader)(unsafe.Pointer(&e.headers[0])) }

// submit writes a command about the entry: REGISTER, which gives the entry to the kernel, or
// COMMIT_AND_FETCH, which passes on an answer.
func (e *entry) submit(s *submission, cmd uint64, device, queue int) {
	s.opcode, s.fd, s.off = opUringCmd, int32(device), cmd
	s.cmd.qid = uint16(queue)
	if cmd == cmdRegister {
		s.addr, s.len = addressOf(e.mem[offIovecs:]), 2
	} else {
		s.cmd.commitID = e.state().commitID
	}
}

// request returns the request that the entry carries. Its header is copied to lie before
// the argument, because go-fuse's structs describe the two together. It reports false if
// the lengths contradict each other.
func (e *entry) request() (m message, ok bool) {
	h, rest := e.header(), int(e.state().payload)
	fixed := int(h.Length) - inHeaderSize - rest
	if rest > len(e.payload) || fixed < 0 || fixed > offState-offArgument {
		return m, false
	}
	const start = offArgument - inHeaderSize
	copy(e.headers[start:offArgument], e.headers[:inHeaderSize])
	e.in = [3][]byte{e.headers[:inHeaderSize], e.headers[offArgument : offArgument+fixed], e.payload[:rest]}
	e.out = [2][]byte{e.headers[:outHeaderSize], e.payload}
	return message{
		fixed: e.headers[start : offArgument+fixed], payload: e.payload[:rest], in: e.in[:],
		header: e.headers[:outHeaderSize], body: e.payload, out: e.out[:],
	}, true
}
