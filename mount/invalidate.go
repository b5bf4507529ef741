package mount

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rootsfs/rootsfs/guard"
)

// workers send notifications side by side: each is a write(2) to /dev/fuse that
// the kernel works off before it returns.
const workers = 4

// flush sends dirty pages of writable mappings to the source. Only files that
// are open for writing can have any: there is no writeback cache.
func (v *view) flush(ctx context.Context) error {
	var dirty []*node
	for _, n := range v.all() {
		if n.openForWriting() {
			dirty = append(dirty, n)
		}
	}
	return notifyAll(ctx, dirty, func(n *node) syscall.Errno { return n.NotifyContent(0, 0) })
}

// invalidate takes back what the kernel holds of the root: after the flights
// that passed the old gate have ended, the pages, attributes and names of every
// node. From there the kernel's own locks order replies before notifications:
// the parent's inode lock for names, the folio lock for pages, attr_version for
// attributes.
func (v *view) invalidate(ctx context.Context, kind guard.ChangeKind) error {
	err := v.m.raw.flights.drain(ctx, v)
	if err != nil {
		err = fmt.Errorf("requests on root %s are still running: %w", v.name, err)
	}
	if kind == guard.ChangeEnded {
		v.mu.Lock()
		v.ended = true
		v.mu.Unlock()
		v.closeKept()
	}
	all := v.all()
	if kind == guard.ChangeNarrowed {
		v.orphanWritable(all)
	}
	// The entry of the root itself first: new walks end here at once.
	v.m.root.NotifyEntry(string(v.name))
	err = errors.Join(err, notifyAll(ctx, all, func(n *node) syscall.Errno {
		errno := n.NotifyContent(0, 0)
		if name, parent := n.Parent(); parent != nil {
			parent.NotifyEntry(name)
		}
		return errno
	}))
	return err
}

// orphanWritable gives inodes that may have a writable mapping a new identity:
// the old mapping then scribbles on pages that nobody else sees.
func (v *view) orphanWritable(all []*node) {
	for _, n := range all {
		if !n.openForWriting() {
			continue
		}
		v.mu.Lock()
		v.displaceLocked(n)
		v.mu.Unlock()
	}
}

// notifyAll calls f for every node from a few goroutines. A node whose
// notification does not return (a READ of its page is stuck) holds up one
// worker; the others go on, and at the deadline the stuck ones are reported.
func notifyAll(ctx context.Context, nodes []*node, f func(*node) syscall.Errno) error {
	var next atomic.Int64
	var left atomic.Int64
	left.Store(int64(len(nodes)))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range min(workers, len(nodes)) {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(len(nodes)) {
					return
				}
				f(nodes[i])
				left.Add(-1)
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d cached files could not be taken back in time: %w", left.Load(), ctx.Err())
	}
}
