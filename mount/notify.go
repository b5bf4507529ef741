package mount

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// workers is how many notifications are sent in parallel. Each is a write(2) to /dev/fuse,
// which returns when the kernel has dropped the named entry or pages.
const workers = 4

// delivery sends the reports of the source's watch to the kernel. A notification can wait for
// as long as a program likes: a program that reads a directory into memory which is never
// filled (userfaultfd, a FUSE file of its own) holds the directory's lock in the kernel. So a
// few workers send the notifications. Those of one directory are sent by one worker at a time
// and in order. A worker that waits too long is replaced, and its directory is stuck. The
// kernel may cache answers about a stuck directory for a second only, until the worker goes on and
// has sent all of the directory's notifications.
type delivery struct {
	tell    func(ev watch.SourceEvent) // one event
	tellAll func(n *node)              // anything in n may have changed
	slow    time.Duration              // stuckDirAfter, or another value in tests
	warn    func(n *node)              // n is stuck

	mu     sync.Mutex // guards the fields below, and those of the queues
	queues map[*node]*dirQueue
	ready  []*dirQueue // with events, and without a worker
	active map[*dirQueue]struct{}
	// running counts the workers of directories that are not stuck; stuck counts the others.
	running, stuck int
	armed          bool // check is scheduled
}

// dirQueue is the work on one directory.
type dirQueue struct {
	n      *node
	events []watch.SourceEvent
	all    bool      // instead of events: anything in n may have changed
	since  time.Time // when the present call began
	stuck  bool
	done   chan struct{} // closed when all events were sent; nil: no goroutine waits
}

const (
	// stuckDirAfter is well above what a look-up in progress takes on a disk.
	stuckDirAfter = 300 * time.Millisecond
	// maxStuckDirs bounds the threads that wait in the kernel. Beyond it
	// workers are not replaced any more.
	maxStuckDirs = 64
	// maxQueuedEvents bounds the events of one directory; beyond it dirQueue.all is cheaper.
	maxQueuedEvents = 1024
	// maxTurn is how many events of one directory a worker sends before it goes on to the
	// next directory.
	maxTurn = 64
)

func newDelivery(tell func(watch.SourceEvent), tellAll, warn func(*node)) *delivery {
	return &delivery{tell: tell, tellAll: tellAll, warn: warn, slow: stuckDirAfter,
		queues: map[*node]*dirQueue{}, active: map[*dirQueue]struct{}{}}
}

// enqueue adds an event of directory n. It never waits for the kernel.
func (d *delivery) enqueue(n *node, ev watch.SourceEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.enqueueLocked(n, ev)
}

// enqueueNotify adds an event as enqueue does. It returns a channel that is closed when all
// events of n were sent.
func (d *delivery) enqueueNotify(n *node, ev watch.SourceEvent) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.enqueueLocked(n, ev)
	if q.done == nil {
		q.done = make(chan struct{})
	}
	return q.done
}

func (d *delivery) enqueueLocked(n *node, ev watch.SourceEvent) *dirQueue {
	q := d.queueLocked(n)
	switch {
	case q.all:
	case len(q.events) >= maxQueuedEvents:
		q.all, q.events = true, nil
	default:
		q.events = append(q.events, ev)
	}
	d.startLocked()
	return q
}

// enqueueAll replaces the events of n by a single event: anything in n may have changed.
func (d *delivery) enqueueAll(n *node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.queueLocked(n)
	q.all, q.events = true, nil
	d.startLocked()
}

func (d *delivery) queueLocked(n *node) *dirQueue {
	q := d.queues[n]
	if q == nil {
		q = &dirQueue{n: n}
		d.queues[n] = q
		d.ready = append(d.ready, q)
	}
	return q
}

func (d *delivery) startLocked() {
	if len(d.ready) > 0 && d.running < workers {
		d.running++
		go d.work()
	}
	if d.running > 0 && !d.armed {
		d.armed = true
		time.AfterFunc(d.slow, d.check)
	}
}

func (d *delivery) work() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.ready) > 0 {
		q := d.ready[0]
		d.ready[0] = nil
		d.ready = d.ready[1:]
		d.active[q] = struct{}{}
		d.startLocked() // another worker for the next directory
		d.sendTurnLocked(q)
		delete(d.active, q)
		wasStuck := q.stuck
		if wasStuck {
			q.stuck = false
			q.n.setStuck(false)
			d.stuck--
		}
		if q.all || len(q.events) > 0 {
			d.ready = append(d.ready, q)
		} else {
			delete(d.queues, q.n)
			if q.done != nil {
				close(q.done)
			}
		}
		if wasStuck {
			if d.running >= workers {
				return // this worker was replaced
			}
			d.running++
		}
	}
	d.running--
}

// sendTurnLocked sends events of one directory until none is left, or until it has sent maxTurn
// events. It releases the lock while it sends.
func (d *delivery) sendTurnLocked(q *dirQueue) {
	for i := 0; q.all || len(q.events) > 0; i++ {
		if i >= maxTurn && !q.stuck {
			return // a stuck directory stays with its worker until all is sent
		}
		q.since = time.Now()
		call := func() { d.tellAll(q.n) }
		if q.all {
			q.all, q.events = false, nil
		} else {
			ev := q.events[0]
			q.events = q.events[1:]
			call = func() { d.tell(ev) }
		}
		d.mu.Unlock()
		call()
		d.mu.Lock()
	}
}

// check replaces workers that wait too long.
func (d *delivery) check() {
	d.mu.Lock()
	d.armed = false
	var found []*node
	for q := range d.active {
		if q.stuck || time.Since(q.since) < d.slow || d.stuck >= maxStuckDirs {
			continue
		}
		q.stuck = true
		q.n.setStuck(true)
		d.stuck++
		d.running--
		found = append(found, q.n)
	}
	for range found {
		d.startLocked()
	}
	d.startLocked()
	d.mu.Unlock()
	for _, n := range found {
		d.warn(n)
	}
}

// settle waits until the events enqueued so far were sent, or until ctx ends. It does not wait for
// directories that are stuck when it is called.
func (d *delivery) settle(ctx context.Context) {
	var sent []<-chan struct{}
	d.mu.Lock()
	for _, q := range d.queues {
		if q.done == nil {
			q.done = make(chan struct{})
		}
		if !q.stuck {
			sent = append(sent, q.done)
		}
	}
	d.mu.Unlock()
	for _, done := range sent {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// stuckDirs returns how many directories are stuck.
func (d *delivery) stuckDirs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stuck
}

// setStuck sets whether the directory is stuck. The kernel may cache names and attributes of
// a stuck directory for a second only.
func (n *node) setStuck(stuck bool) {
	if w := n.dirWatch(); w != nil {
		w.stuck.Store(stuck)
	}
}

// tellChanged sends the notifications for one event. It may wait, see delivery.
func tellChanged(ev watch.SourceEvent) {
	n := ev.Dir.(*node)
	switch {
	case ev.Name == "":
		if !n.isOwnChange() {
			n.notifyContent()
		}
	case ev.Created, ev.Deleted:
		// Drop the name first: the notification takes the directory's lock in the kernel, and so
		// waits for look-ups in progress. Then drop the directory's listing and times.
		errno := n.notifyEntry(ev.Name)
		if child := n.child(ev.Name); errno == syscall.ENOENT && ev.Deleted && ev.IsDir && child != nil {
			dropBelow(child, map[*node]bool{})
		}
		n.notifyContent()
		if child := n.child(ev.Name); ev.Created && n.view.staged && child != nil && !child.isDir() {
			// A file that an undo puts in the place of another may show the other's identity.
			child.notifyContent()
		}
	case ev.Copied:
		n.childCopied(ev.Name)
	case ev.Changed:
		n.childChanged(ev.Name)
	}
}

// dropBelow makes the kernel drop the names in a directory whose own name has already been
// dropped. The kernel keeps the names below if a program was walking through the directory
// at that moment. seen has the visited directories: names that are out of date may make a
// circle.
func dropBelow(dir *node, seen map[*node]bool) {
	seen[dir] = true
	for name, child := range dir.childNodes() {
		if dir.notifyEntry(name) == syscall.ENOENT && child.isDir() && !seen[child] {
			dropBelow(child, seen)
		}
	}
}

// childChanged makes the kernel drop the pages and attributes of a file in the directory.
func (n *node) childChanged(name string) {
	child := n.child(name)
	if child == nil {
		// The kernel does not know the file, or is looking it up at this moment.
		n.notifyEntry(name)
		return
	}
	if !child.isOwnChange() {
		child.notifyContent()
	}
}

// childCopied makes the kernel drop what it cached of a file that was copied for a change. The
// owner may have changed the file between the kernel's reading and the copy. The file's other
// names still belong to the source's file, which after the copy is a different file.
func (n *node) childCopied(name string) {
	child := n.child(name)
	if child == nil {
		n.notifyEntry(name)
		return
	}
	child.notifyContent()
	if child.isDir() {
		return
	}
	for _, at := range child.names() {
		if at != (location{n, name}) {
			at.dir.notifyEntry(at.name)
		}
	}
}

// tellAll makes the kernel drop all that it caches of a directory and of the entries in it,
// or of a file without a name. It may wait, see delivery.
func tellAll(n *node) {
	if !n.isForgotten() && n.isDir() {
		// With the directory's own name the kernel drops the names below it that no
		// program holds, also names cached as absent, which have no node here.
		n.withdrawName(func() {
			n.awaitLookups()
			if at := n.parent(); at.dir != nil {
				for _, id := range at.dir.ids() {
					n.view.m.kernel.EntryNotify(id, at.name)
				}
			}
		})
		for name, child := range n.childNodes() {
			n.notifyEntry(name)
			if !child.isDir() {
				child.notifyContent()
			}
		}
	}
	n.notifyContent()
}

// warnStuck logs that a directory is stuck.
func (m *Mount) warnStuck(n *node) {
	m.log.Warn("the kernel cannot be told of changes in a directory, because a program's readdir there does not end; the directory falls back to one-second timeouts",
		"root", n.view.name)
}

// A notification that takes longer than slowAfter probably waits for a READ of the file's
// pages that does not return. When no notification ends for slowAfter, more workers are started,
// so that the other files do not wait too. When none ends for stuckAfter, the remaining
// notifications are given up.
const (
	slowAfter  = 100 * time.Millisecond
	stuckAfter = guard.EndDeadline / 2
	// dropAfter is how long invalidate waits until the root's own name is dropped, before
	// it notifies the kernel of each remaining node. Dropping 100,000 inodes takes well
	// below this time.
	dropAfter = guard.EndDeadline / 4
)

// notifyAll calls f for every node from a few goroutines. It returns an error if ctx ends, or
// if no call of f ends for stuckAfter. The total time has no limit, since it depends on how much
// the kernel caches. The goroutines are not those of a delivery: in a delivery an event waits
// behind the stuck events of its directory, and a revocation must not wait for these.
func notifyAll(ctx context.Context, nodes []*node, f func(*node)) error {
	if len(nodes) == 0 {
		return nil
	}
	r := &round{nodes: nodes, f: f, allDone: make(chan struct{})}
	for range min(workers, len(nodes)) {
		go r.work()
	}
	tick := time.NewTicker(slowAfter)
	defer tick.Stop()
	last, since := int64(-1), time.Now()
	for {
		select {
		case <-r.allDone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		done := r.done.Load()
		if done != last {
			last, since = done, time.Now()
			continue
		}
		if time.Since(since) > stuckAfter {
			return fmt.Errorf("%d cached files could not be taken back: a read of their pages does not return", int64(len(nodes))-done)
		}
		// No progress: every worker waits.
		for range workers {
			go r.work()
		}
	}
}

// round is one run of notifyAll.
type round struct {
	nodes      []*node
	f          func(*node)
	next, done atomic.Int64
	allDone    chan struct{} // closed when done has reached len(nodes)
}

func (r *round) work() {
	for {
		i := r.next.Add(1) - 1
		if i >= int64(len(r.nodes)) {
			return
		}
		r.f(r.nodes[i])
		if r.done.Add(1) == int64(len(r.nodes)) {
			close(r.allDone)
		}
	}
}
