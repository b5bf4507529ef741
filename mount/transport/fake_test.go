package transport

import (
	"encoding/binary"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/oldkernel"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// fakeFS answers everything at once.
type fakeFS struct{ *testFS }

func (fakeFS) SetLk(<-chan struct{}, *fuse.LkIn) fuse.Status  { return fuse.OK }
func (fakeFS) SetLkw(<-chan struct{}, *fuse.LkIn) fuse.Status { return fuse.OK }

// newFake serves a socket instead of the device. The test acts as a kernel that offers the given
// capabilities, at the socket's other end, which newFake returns.
func newFake(t testing.TB, kind Kind, caps uint64) (*Conn, int) {
	t.Helper()
	in := fuse.InitIn{Major: 7, Minor: 40, Flags: uint32(caps) | 1<<30, Flags2: uint32(caps >> 32)}
	return fakeOf(t, kind, in, unsafe.Sizeof(in))
}

// fakeOf is newFake for a kernel whose INIT has the first size bytes of in.
func fakeOf(t testing.TB, kind Kind, in fuse.InitIn, size uintptr) (*Conn, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	testkit.Must(t, err)
	in.Length, in.Opcode, in.InHeader.Unique = uint32(size), 26, 2
	_, err = unix.Write(fds[1], bytesOf(&in)[:size])
	testkit.Must(t, err)
	fs := newTestFS()
	close(fs.release)
	quiet := log.New(io.Discard, "", 0)
	c, err := New(fakeFS{fs}, Options{Device: os.NewFile(uintptr(fds[0]), "socket"), Kind: kind, Fuse: fuse.MountOptions{
		MaxWrite: 128 << 10, Logger: quiet, Name: "t", PanicHandler: func(p any) fuse.Status { panic(p) },
	}})
	testkit.Must(t, err)
	served := make(chan struct{})
	go func() {
		c.Serve()
		close(served)
	}()
	t.Cleanup(func() {
		_ = unix.Close(fds[1])
		<-served
	})
	out := make([]byte, 4096)
	n, err := unix.Read(fds[1], out)
	if err != nil || n < outHeaderSize || binary.NativeEndian.Uint64(out[8:]) != 2 || binary.NativeEndian.Uint32(out[4:]) != 0 {
		t.Fatalf("INIT is answered with % x, %v", out[:max(n, 0)], err)
	}
	return c, fds[1]
}

// A kernel that does not offer io_uring is served by readers, and the reason is reported.
func TestNotOffered(t *testing.T) {
	c, _ := newFake(t, IOUring, fuse.CAP_ASYNC_READ)
	if err := c.Fallback(); c.Kind() != Plain || err == nil {
		t.Errorf("served by %s, because %v", c.Kind(), err)
	}
}

// Kernels whose INIT has an older version and is shorter than today's are served by readers. The
// first two send no flags.
func TestOldKernels(t *testing.T) { expectReadersOnOldKernels(t) }

// If a kernel does not offer FUSE over io_uring, and its io_uring is also too old for the rings,
// the reported reason is that the kernel does not offer FUSE over io_uring.
func TestOldRings(t *testing.T) {
	if oldkernel.Enter(t, oldkernel.Call{Nr: unix.SYS_IO_URING_SETUP, Errno: unix.EINVAL}) {
		expectReadersOnOldKernels(t)
	}
}

func expectReadersOnOldKernels(t *testing.T) {
	for _, in := range []fuse.InitIn{{Minor: 12}, {Minor: 23}, {Minor: 31, Flags: fuse.CAP_ASYNC_READ}} {
		t.Run(strconv.Itoa(int(in.Minor)), func(t *testing.T) {
			in.Major = 7
			c, kernel := fakeOf(t, IOUring, in, unsafe.Offsetof(in.Flags2))
			if err := c.Fallback(); c.Kind() != Plain || err == nil || !strings.Contains(err.Error(), "does not offer") {
				t.Errorf("served by %s, because %v", c.Kind(), err)
			}
			lookup := fuse.InHeader{Length: uint32(inHeaderSize) + 3, Opcode: opLookup, Unique: 4, NodeId: fuse.FUSE_ROOT_ID}
			_, err := unix.Write(kernel, append(bytesOf(&lookup), "fa\x00"...))
			testkit.Must(t, err)
			out := make([]byte, 4096)
			n, err := unix.Read(kernel, out)
			testkit.Must(t, err)
			o := (*fuse.OutHeader)(unsafe.Pointer(&out[0]))
			if o.Unique != 4 || o.Status != 0 || int(o.Length) != n {
				t.Errorf("LOOKUP is answered with % x", out[:n])
			}
		})
	}
}

// makeRings fails if MaxWrite is too small for io_uring.
func TestSmallRequests(t *testing.T) {
	c := &Conn{}
	c.options.MaxWrite = 64 << 10
	if _, err := c.makeRings(nil, nil); err == nil || !strings.Contains(err.Error(), "too small") {
		t.Errorf("%v", err)
	}
}

// wantsNoAnswer reports whether the kernel expects no answer to a request, or only an error.
func wantsNoAnswer(op uint32) bool {
	return op == opForget || op == opBatchForget || op == opInterrupt || op == opNotifyReply
}

// seeds adds requests of all opcodes, each with several bodies: empty, zero, names and others.
func seeds(f *testing.F) {
	for op := range uint32(56) {
		for _, rest := range []string{"", strings.Repeat("\x00", 64), "fa\x00", "fa\x00fb\x00", strings.Repeat("\xff", 100), strings.Repeat("\x01\x00\x00\x00", 2000)} {
			b := make([]byte, inHeaderSize, inHeaderSize+len(rest))
			h := (*fuse.InHeader)(unsafe.Pointer(&b[0]))
			*h = fuse.InHeader{Length: uint32(len(b) + len(rest)), Opcode: op, Unique: 8, NodeId: fuse.FUSE_ROOT_ID}
			f.Add(append(b, rest...))
		}
	}
}

// No request from the device causes a panic. If the kernel expects an answer, the request is
// answered with its own number.
func FuzzDevice(f *testing.F) {
	log.SetOutput(io.Discard) // go-fuse logs short requests
	seeds(f)
	_, peer := newFake(f, Plain, 0)
	out := make([]byte, 1<<20)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < inHeaderSize || len(in) > 64<<10 {
			t.Skip()
		}
		h := (*fuse.InHeader)(unsafe.Pointer(&in[0]))
		h.Unique = 4
		_, err := unix.Write(peer, in)
		testkit.Must(t, err)
		if wantsNoAnswer(h.Opcode) {
			// An INTERRUPT without a request is answered. Unread answers would fill the socket,
			// and for each writer that waits for room another reader would be started.
			for err == nil {
				_, _, err = unix.Recvfrom(peer, out, unix.MSG_DONTWAIT)
			}
			return
		}
		for {
			n, err := unix.Read(peer, out)
			testkit.Must(t, err)
			o := (*fuse.OutHeader)(unsafe.Pointer(&out[0]))
			if o.Unique == 4 && o.Status == -int32(unix.EAGAIN) {
				continue // the answer to an INTERRUPT
			}
			if o.Unique != 4 || int(o.Length) != n || n < outHeaderSize {
				t.Errorf("opcode %d is answered with % x", h.Opcode, out[:min(n, 64)])
			}
			return
		}
	})
}

// For any request in a ring's entry the answer fits and has the request's number, and there is
// no panic.
func FuzzEntry(f *testing.F) {
	log.SetOutput(io.Discard)
	for op := range uint32(56) {
		for _, fixed := range []int{0, 16, 40, 128} {
			f.Add(op, uint64(1), make([]byte, fixed), []byte("fa\x00fb\x00"), uint32(inHeaderSize+fixed+6), uint32(6))
		}
	}
	c, _ := newFake(f, Plain, 0)
	e, err := newEntry(c.payload)
	testkit.Must(f, err)
	f.Fuzz(func(t *testing.T, op uint32, node uint64, fixed, payload []byte, length, payloadSize uint32) {
		clear(e.headers)
		*e.header() = fuse.InHeader{Length: length, Opcode: op, Unique: 6, NodeId: node}
		copy(e.headers[offArgument:offState], fixed)
		copy(e.payload, payload)
		e.state().payload = payloadSize
		m, ok := e.request()
		if !ok {
			return
		}
		n := c.answer(&inFlight{}, &m)
		if n == 0 {
			if !wantsNoAnswer(op) {
				t.Errorf("opcode %d is not answered", op)
			}
			return
		}
		o := (*fuse.OutHeader)(unsafe.Pointer(&e.headers[0]))
		if o.Unique != 6 || int(o.Length) != n || n < outHeaderSize || n-outHeaderSize > len(e.payload) {
			t.Errorf("opcode %d is answered with %+v, %d bytes", op, o, n)
		}
	})
}
