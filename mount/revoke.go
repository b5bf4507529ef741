package mount

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/vfs"
)

// flush makes the kernel write the dirty pages of writable mappings to the source. Only files that
// are open for writing can have dirty pages: there is no writeback cache.
func (v *view) flush(ctx context.Context) error {
	var dirty []*node
	for _, n := range v.all() {
		if n.isOpenForWriting() {
			dirty = append(dirty, n)
		}
	}
	return notifyAll(ctx, dirty, func(n *node) { n.notifyContent() })
}

// invalidate makes the kernel drop all that it caches of the root. First it waits for the requests
// that passed the gate before the root's change. If ctx ends before these requests, invalidate
// still does the rest, and returns an error.
//
// The root's own name comes first. With it the kernel drops every name below that no
// program uses, and their inodes (fs/dcache.c d_invalidate), for which it sends FORGET. The
// remaining nodes are in use. The kernel is notified of each: first to drop the node's pages and
// attributes, then to drop the names in the node if it is a directory. Then the kernel drops pages
// and attributes once more: of the nodes that the kernel did not know at the first notification,
// and of directories, whose pages hold their listings. This second round is needed because the
// kernel may still be processing an answer to a look-up or a readdir. The kernel holds the
// directory's lock meanwhile, and dropping a name waits for that lock. For pages of files the folio
// lock has this effect, for attributes attr_version.
//
// A program can hold a directory's lock for as long as it likes, by reading the directory
// into memory that is never filled (userfaultfd, a FUSE file of its own). So there is a limit
// to the wait for names. A name that stays gives no access: it leads to an inode whose
// attributes the kernel has to ask for, and the gate refuses. The listing of a directory
// whose lock is held may stay.
func (v *view) invalidate(ctx context.Context, kind guard.ChangeKind) error {
	err := v.drain(ctx)
	if err != nil {
		err = fmt.Errorf("requests on root %s are still running: %w", v.name, err)
	}
	if kind == guard.ChangeEnded {
		v.ended.Store(true)
	}
	if kind == guard.ChangeNarrowed {
		v.orphanWritable(v.all())
	}
	dropped := inBackground(v.dropNames)
	waitFor(dropped, dropAfter)
	ctx = context.WithoutCancel(ctx)
	all := v.all()
	var again secondRound
	contentErr := notifyAll(ctx, all, again.dropContent)
	if contentErr != nil {
		contentErr = errors.Join(contentErr, v.m.abort())
	} else {
		if notifyAll(ctx, all, (*node).dropNames) != nil || !waitFor(dropped, stuckAfter) {
			v.m.log.Warn("the kernel keeps names of a revoked root, because a program's readdir does not end; the names give no access",
				"root", v.name)
		}
		contentErr = notifyAll(ctx, again.nodes, (*node).dropContent)
	}
	if kind == guard.ChangeEnded {
		v.closeHeldFiles()
		if root := v.rootNode(); root != nil {
			v.m.nodes.removeUnused(root) // the fixed directories that show the root have kept the node
		}
	}
	return errors.Join(err, contentErr)
}

// secondRound has the nodes whose pages and attributes must be dropped once more: those that
// the kernel did not know at the first notification, and directories.
type secondRound struct {
	mu    sync.Mutex // guards nodes
	nodes []*node
}

func (r *secondRound) dropContent(n *node) {
	if !n.isForgotten() && (n.notifyContent() == syscall.ENOENT || n.isDir()) {
		r.mu.Lock()
		r.nodes = append(r.nodes, n)
		r.mu.Unlock()
	}
}

// dropContent makes the kernel drop one node's pages and attributes. A node that
// the kernel has forgotten is in use by no program.
func (n *node) dropContent() {
	if !n.isForgotten() {
		n.notifyContent()
	}
}

// dropNames makes the kernel drop the names in a directory. Every name of a file is in some
// directory that the kernel knows. In a directory without known names, dropNames notifies the
// kernel of a name that no program ever sees, to wait for the directory's lock: the kernel may be
// processing the answer to a readdir.
func (n *node) dropNames() {
	if n.isForgotten() || !n.isDir() {
		return
	}
	children := n.childNodes()
	for name := range children {
		n.notifyEntry(name)
	}
	if len(children) == 0 {
		n.notifyEntry(vfs.TempPrefix)
	}
}

// dropNames makes the kernel drop the root's own name. If a fixed directory shows the root, that
// directory's name must stay, so dropNames drops each name in the root, too. With each name the
// kernel drops all names below that no program holds.
func (v *view) dropNames() {
	v.m.nodes.mu.Lock()
	at, root, isShown := v.foundAt, v.root, len(v.aliases) > 0
	v.m.nodes.mu.Unlock()
	if at.dir == nil && !v.m.opt.Layout.ByPath {
		at = location{v.m.top, string(v.name)} // the kernel may have cached the name as absent
	}
	if at.dir != nil {
		at.dir.notifyEntry(at.name)
	}
	if isShown {
		for name := range root.childNodes() {
			root.notifyEntry(name)
		}
	}
}

// inBackground runs f, which may wait in the kernel for as long as some program likes. It
// returns a channel that is closed when f has returned.
func inBackground(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// waitFor waits until done is closed, at the longest for limit. It reports whether done was
// closed.
func waitFor(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// abort ends the connection to the kernel, and with it the mount's other roots. It is the
// last resort when a page cannot be dropped because the source does not answer. abort always
// returns an error, which tells what abort did.
func (m *Mount) abort() error {
	if err := mountpoint.Abort(m.Info().Dev); err != nil {
		return fmt.Errorf("and the connection could not be aborted: %w", err)
	}
	return errors.New("the connection was aborted, which ends the mount's other roots too; what was mapped of those files stays mapped")
}

// orphanWritable orphans the nodes that may have a writable mapping. Stores through such a
// mapping then change pages that only processes with the old file open can see, and never
// the file. The kernel does not ask before a store, and could write the page back once the
// root is writable again, so Writev refuses pages of orphans.
func (v *view) orphanWritable(all []*node) {
	for _, n := range all {
		if n.isOpenForWriting() {
			v.orphan(n)
		}
	}
}
