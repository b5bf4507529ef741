package transport

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// maxWorkers bounds the workers of one queue.
const maxWorkers = 128

// worker is a thread with a ring of its own and one entry. It serves the queue of one
// processor: the kernel puts a request into the queue of the processor that the caller
// runs on, and a thread pinned there is woken without waking another processor.
//
// It has one entry only, and commits an answer before it takes the next request: the kernel
// would give a second entry another request, which would then have to wait for the handler of
// the first request.
type worker struct {
	inFlight
	conn  *Conn
	queue int
	tid   int
	ring  *ring
	entry *entry

	taken atomic.Uint64 // number of requests that it has taken
	node  atomic.Uint64 // of the request whose handler runs; 0: none runs
}

// setUp locks the goroutine to its thread, pins the thread, and creates the ring and the entry.
// The caller must call close and then end the goroutine; the thread ends with it.
func (w *worker) setUp() (err error) {
	runtime.LockOSThread()
	w.tid = unix.Gettid()
	var set unix.CPUSet
	set.Set(w.queue)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		// The processor is off, or not in this process's cpuset.
		w.conn.debugf("the queue of processor %d is served by a thread that is not pinned: %v", w.queue, err)
	}
	if w.entry, err = newEntry(w.conn.payload); err != nil {
		return err
	}
	w.conn.mu.Lock() // unshareDescriptors must not miss a ring
	defer w.conn.mu.Unlock()
	w.ring, err = newRing()
	return err
}

func (w *worker) close() {
	if w.ring != nil {
		w.ring.close()
	}
	if w.entry != nil {
		w.entry.close()
	}
}

// register gives the entry to the kernel. The kernel completes an accepted REGISTER with the
// first request, and a refused REGISTER at once.
func (w *worker) register() error {
	for {
		queue := w.queue
		if w.conn.failRegister {
			queue = noQueue
		}
		w.entry.submit(w.ring.next(), cmdRegister, w.conn.fd, queue)
		if err := w.ring.enter(0); err != nil || !w.ring.ready() {
			return err
		}
		head := w.ring.peek()
		switch e := unix.Errno(-head.res); {
		case head.res >= 0:
			return nil // the completion has a request, which loop serves
		case e == unix.EAGAIN: // the kernel has not taken INIT's answer yet
			w.ring.nextCompletion()
			time.Sleep(time.Millisecond)
		default:
			return fmt.Errorf("register a queue: %w", e)
		}
	}
}

// loop serves requests until the connection ends.
func (w *worker) loop() error {
	for {
		if err := w.ring.enter(1); err != nil {
			return err
		}
		done, ok := w.ring.nextCompletion()
		if !ok {
			continue
		}
		switch e := unix.Errno(-done.res); {
		case done.res >= 0:
			w.serve()
		case e == unix.EAGAIN, e == unix.EINTR:
			w.entry.submit(w.ring.next(), cmdRegister, w.conn.fd, w.queue)
		default:
			return e // ENOTCONN, ECONNABORTED, ENODEV: the connection has ended
		}
	}
}

// serve answers the request in the entry.
func (w *worker) serve() {
	e := w.entry
	h := e.header()
	w.taken.Add(1)
	w.node.Store(max(h.NodeId, 1))
	w.conn.wakeScaler()
	n, unique := 0, h.Unique
	m, ok := e.request()
	if ok {
		n = w.conn.answer(&w.inFlight, &m)
	} else {
		m.header = e.headers[:outHeaderSize]
		n = m.reply(unique, fuse.EIO, 0)
	}
	if n == 0 { // the kernel needs its entry back even if it wants no answer
		n = m.reply(unique, fuse.OK, 0)
	}
	e.state().payload = uint32(n - outHeaderSize)
	w.node.Store(0)
	e.submit(w.ring.next(), cmdCommitAndFetch, w.conn.fd, w.queue)
}

// serveFirst serves a queue from the beginning of the connection. It sends the result of setUp to
// setUpErr. Then it waits for start: true tells it to register, a closed channel to end. It sends
// the result of register to registerErr.
func (w *worker) serveFirst(setUpErr chan<- error, start <-chan bool, registerErr chan<- error) {
	defer w.conn.running.Done()
	defer w.close()
	err := w.setUp()
	setUpErr <- err
	if err != nil || !<-start {
		return
	}
	err = w.register()
	registerErr <- err
	if err == nil {
		w.finish(w.loop())
	}
}

// join serves a queue whose other workers are blocked. node is the node of a request that
// blocks one of them.
func (w *worker) join(node uint64) {
	c := w.conn
	defer c.running.Done()
	defer w.close()
	err := w.setUp()
	if err == nil {
		err = w.register()
	}
	if err != nil {
		c.removeWorker(w)
		c.warnOnce.Do(func() {
			c.logf("no further thread can answer requests while others are blocked: %v", err)
		})
		return
	}
	c.kick(node)
	w.finish(w.loop())
}

// finish removes the worker from the connection after its loop has ended.
func (w *worker) finish(err error) {
	w.conn.removeWorker(w)
	w.conn.debugf("queue %d ends: %v", w.queue, err)
}

func (c *Conn) allWorkers() []*worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*worker(nil), c.workers...)
}

// addWorker starts another worker for a queue, unless the connection has ended.
func (c *Conn) addWorker(queue int, node uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOver {
		return
	}
	w := &worker{conn: c, queue: queue}
	c.workers = append(c.workers, w)
	c.running.Add(1)
	go w.join(node)
}

func (c *Conn) removeWorker(w *worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.workers {
		if c.workers[i] == w {
			c.workers = append(c.workers[:i], c.workers[i+1:]...)
			return
		}
	}
}

// kick makes the kernel queue a request on this processor. REGISTER does not fetch requests
// that already wait in the queue; only the commit of an answer does. So a worker that joins
// needs a first request to commit. The kernel creates one for a retrieval of zero bytes of a
// regular file that it knows.
func (c *Conn) kick(node uint64) {
	for _, n := range []uint64{node, c.lastOpened.Load(), pollNode} {
		if n != 0 && c.retrieve(n) == nil {
			return
		}
	}
	c.debugf("a queue cannot be woken, since no file was opened: requests that already wait in it stay there until another comes")
}
