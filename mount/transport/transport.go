// Package transport serves a file system on a FUSE connection: it gets requests from the
// kernel, calls a handler for each, and passes the answers on.
//
// # Promises
//
// There are two kinds of transport: FUSE over io_uring with a thread for each processor, and
// readers of /dev/fuse. If io_uring is forbidden, not offered, or fails while it is being set
// up, readers serve the connection, and Fallback returns the reason. A handler that waits
// delays other requests by no more than a few milliseconds: another worker or reader takes
// over. A caller that is killed interrupts its request, and the end of the connection
// interrupts all requests. No child of this process gets the connection, a ring or the memory
// of a ring.
//
// # Not promised
//
// One processor has at most 128 workers. If as many of its handlers wait, the requests of
// that processor wait too. An added worker stays, so a mount whose handlers have ever blocked
// wakes more threads under load. If the handlers of a processor block before any file was
// opened, requests that are already in its queue stay there until another request comes.
//
// A process that is killed while EntryNotify waits for a directory's lock leaves the
// holder of the lock waiting; aborting the connection ends that.
package transport

import (
	"cmp"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Kind is a way to exchange requests and answers with the kernel.
type Kind string

// The kinds.
const (
	IOUring Kind = "io_uring" // FUSE over io_uring (Linux 6.14)
	Plain   Kind = "plain"    // read(2) and write(2) on /dev/fuse
)

// minMaxWrite is the least MaxWrite for io_uring: with less the kernel runs into a BUG
// when it copies a large directory (6.18).
const minMaxWrite = 128 << 10

// noQueue is the number of a queue that does not exist.
const noQueue = 9999

// Options describe one connection.
type Options struct {
	Device *os.File // /dev/fuse, of a mount that exists; New takes it over
	Kind   Kind
	Fuse   fuse.MountOptions // for the answer to INIT; also Logger and PanicHandler

	// Tests set the fields below.

	failRegister bool          // the kernel refuses the queues
	burstGap     time.Duration // the longest pause within a burst; 0: the constant burstGap
}

// Conn is one connection.
type Conn struct {
	fs       fuse.RawFileSystem
	options  fuse.MountOptions
	protocol *fuse.ProtocolServer
	device   *os.File
	fd       int
	payload  int // size of the largest request or answer without its header
	kind     Kind
	fallback error
	// throughGoFUSE makes go-fuse decode all requests, which logs them.
	throughGoFUSE, failRegister bool

	running    sync.WaitGroup // readers and workers
	waiting    atomic.Int32   // readers that wait for a request
	taken      atomic.Uint64  // requests that readers have taken
	burst      burst
	awake      *awake        // scale ticks and closes it
	buffers    sync.Pool     // of *[]byte
	lastOpened atomic.Uint64 // node of the file that was opened last
	kicks      atomic.Uint64
	isScaling  atomic.Bool   // scale is ticking
	wake       chan struct{} // makes scale tick
	ended      chan struct{} // closed when the connection has ended
	warnOnce   sync.Once

	mu      sync.Mutex // guards the fields below
	workers []*worker
	readers map[*reader]struct{}
	isOver  bool // ended is closed
}

// New answers the kernel's INIT and starts the readers and workers of the connection. The
// caller must call Serve, which waits for them.
//
// The order matters. The rings are created before INIT is answered, since io_uring may be
// forbidden. After an answer that accepts io_uring, the kernel holds back all requests until
// each processor has an entry.
func New(fs fuse.RawFileSystem, o Options) (*Conn, error) {
	c := &Conn{
		fs: fs, options: o.Fuse, device: o.Device, fd: int(o.Device.Fd()), kind: Plain, //nolint:gosec // a descriptor
		throughGoFUSE: o.Fuse.Debug, failRegister: o.failRegister,
		wake: make(chan struct{}, 1), ended: make(chan struct{}), readers: map[*reader]struct{}{},
	}
	if c.options.Logger == nil {
		c.options.Logger = log.Default()
	}
	page := os.Getpagesize()
	// The kernel demands this size of an entry (fs/fuse/dev_uring.c, fuse_uring_create).
	c.payload = max(8192, (o.Fuse.MaxWrite+page-1)/page*page)
	start, registerErr := make(chan bool), make(chan error)
	first := 0
	if o.Kind == IOUring {
		c.options.ExtraCapabilities |= fuse.CAP_OVER_IO_URING
		first, c.fallback = c.makeRings(start, registerErr)
	}
	c.protocol = fuse.NewProtocolServer(fs, &c.options)
	rings := o.Kind == IOUring && c.fallback == nil
	offered, err := c.readINIT(rings)
	if o.Kind == IOUring && err == nil && !offered {
		// This is the reason even if the rings failed: a kernel that does not offer FUSE over
		// io_uring may be too old for them.
		c.fallback = notOffered()
	}
	switch {
	case err != nil || !rings || !offered:
		close(start)
	default:
		c.fallback = registerAll(first, start, registerErr)
		if c.fallback == nil {
			c.kind = IOUring
		}
	}
	if err != nil {
		c.running.Wait()
		_ = c.device.Close()
		return nil, err
	}
	c.awake = newAwake()
	c.burst.start, c.burst.gap = time.Now(), cmp.Or(o.burstGap, burstGap)
	go c.scale()
	// If a REGISTER failed, the kernel has given up io_uring for this connection, and wakes
	// all waiting callers. The readers then serve the connection.
	c.startReader()
	return c, nil
}

// makeRings starts a worker with a ring for each possible processor, and returns the number
// of these workers.
func (c *Conn) makeRings(start <-chan bool, registerErr chan<- error) (int, error) {
	if c.options.MaxWrite < minMaxWrite {
		return 0, fmt.Errorf("requests of %d bytes are too small for io_uring", c.options.MaxWrite)
	}
	queues, err := possibleCPUs()
	if err != nil {
		return 0, err
	}
	setUpErr := make(chan error)
	for queue := range queues {
		w := &worker{conn: c, queue: queue}
		c.workers = append(c.workers, w)
		c.running.Add(1)
		go w.serveFirst(setUpErr, start, registerErr)
	}
	for range queues {
		if e := <-setUpErr; e != nil {
			err = e
		}
	}
	return queues, err
}

// registerAll makes n workers register.
func registerAll(n int, start chan<- bool, registerErr <-chan error) (err error) {
	for range n {
		start <- true
	}
	for range n {
		if e := <-registerErr; e != nil {
			err = e
		}
	}
	return err
}

// Serve waits until the connection and all its requests have ended. Then it closes the device and
// calls the file system's OnUnmount.
func (c *Conn) Serve() {
	<-c.ended
	done := make(chan struct{})
	go func() {
		c.running.Wait()
		close(done)
	}()
	for {
		// Repeat this, because a request that was read before the end may begin after it.
		c.interruptAll()
		select {
		case <-done:
			_ = c.device.Close()
			c.fs.OnUnmount()
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// end notes that the connection has ended.
func (c *Conn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOver {
		return
	}
	c.isOver = true
	close(c.ended)
	if !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ECONNABORTED) {
		c.logf("requests cannot be read any more, so the mount ends: %v", err)
	}
}

func (c *Conn) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// Kind returns how the connection is served.
func (c *Conn) Kind() Kind { return c.kind }

// Fallback returns why the connection is not served as Options said, or nil.
func (c *Conn) Fallback() error { return c.fallback }

// requests returns the requests in flight of all workers and readers.
func (c *Conn) requests() []*inFlight {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*inFlight, 0, len(c.workers)+len(c.readers))
	for _, w := range c.workers {
		all = append(all, &w.inFlight)
	}
	for r := range c.readers {
		all = append(all, &r.inFlight)
	}
	return all
}

func (c *Conn) logf(format string, args ...any) { c.options.Logger.Printf(format, args...) }

func (c *Conn) debugf(format string, args ...any) {
	if c.options.Debug {
		c.logf(format, args...)
	}
}
