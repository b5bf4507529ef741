package mount

import (
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// errNoPath is the answer for a node that lies in no directory any more and has
// no open file to use instead: on ESTALE the kernel looks the path up again.
const errNoPath = syscall.ESTALE

// resolve returns the node that a request is about, and counts the request as one about
// the node's root. A fixed directory that shows a root is the root's directory.
func (r *request) resolve(id uint64) (*node, error) {
	n := r.m.nodes.find(id)
	if n == nil {
		return nil, syscall.ESTALE
	}
	if n.ownFile() == nil {
		r.join(n.view)
		return n, nil
	}
	root, err := r.rootShownIn(n)
	if root == nil || err != nil {
		return n, err
	}
	r.alias = n
	return root, nil
}

// resolveFile is resolve for an operation that only files of a root support.
func (r *request) resolveFile(id uint64) (*node, error) {
	n, err := r.resolve(id)
	if err == nil && n.ownFile() != nil {
		return nil, syscall.ENOTSUP
	}
	return n, err
}

// Lookup finds a name in a directory.
func (fs *fileSystem) Lookup(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return fs.onNode(cancel, header, func(r *request, dir *node) error { return r.lookup(dir, name, out) })
}

func (r *request) lookup(dir *node, name string, out *fuse.EntryOut) error {
	switch {
	case name == "." || name == "..": // the kernel resolves a file handle (name_to_handle_at) of a forgotten node
		return syscall.ESTALE
	case dir.ownFile() != nil:
		return r.lookupOwn(dir, name, out)
	}
	if nested := dir.nestedRootAt(name); nested != "" {
		return r.lookupRoot(dir, name, nested, out)
	}
	takeRef := r.m.retries.beginLookup(r.from.Pid, dir)
	at, ok := r.pathOf(dir)
	if !ok {
		return dir.errnoWithoutPath()
	}
	watched := dir.ensureWatched()
	ref, info, err := r.lookupInTree(at, name, takeRef)
	if err != nil {
		// The kernel may not cache absences in a fixed directory: the directory outlives its
		// root, and the kernel could not be made to drop a cached absence there.
		if watched && !dir.isNameless() && r.alias == nil && names.Reason(err) == names.NotExist {
			// An answer with node 0 tells the kernel to cache the name as absent.
			out.SetEntryTimeout(keepTimeout)
			return nil
		}
		return err
	}
	n := r.publishFound(dir, name, &info, watched, out)
	if ref != nil {
		r.m.retries.add(r.from.Pid, n, ref)
	}
	n.awaitWithdrawal()
	n.attrsCached.Store(out.AttrTimeout() == keepTimeout)
	return nil
}

// lookupInTree looks a name up in a directory. If takeRef is set (see retries), it also returns
// a reference to the file, unless no more files can be open.
func (r *request) lookupInTree(at vfs.At, name string, takeRef bool) (ref *vfs.File, info vfs.Info, err error) {
	if takeRef {
		ref, info, err = r.m.tree.LookupRef(r, r.caller, at, name)
		if errno := names.Errno(err); errno != syscall.ENFILE && errno != syscall.EMFILE {
			return ref, info, err
		}
	}
	info, err = r.m.tree.Lookup(r, r.caller, at, name)
	return nil, info, err
}

// publishFound publishes a file that was found under a name in directory dir, and fills
// the answer.
func (r *request) publishFound(dir *node, name string, info *vfs.Info, watched bool, out *fuse.EntryOut) *node {
	n, before := dir.view.publish(dir, name, info, false, out)
	n.noteLocation(before, location{dir, name})
	n.rewatchIn(dir)
	n.noteNameRestored()
	n.fillEntry(out, info, watched)
	return n
}

// lookupRoot answers a look-up of a name under which a root appears.
func (r *request) lookupRoot(dir *node, name string, root guard.RootName, out *fuse.EntryOut) error {
	v := r.m.view(root)
	if v == nil {
		return syscall.ENOENT
	}
	info, err := r.statRoot(v)
	if err != nil {
		return err
	}
	n := v.publishRoot(dir, name, &info, out)
	n.noteNameRestored()
	n.awaitWithdrawal()
	n.fillEntry(out, &info, false)
	switch {
	case v.fileRoot:
		// The host may replace the file under the name.
		out.SetEntryTimeout(0)
		out.SetAttrTimeout(0)
	case r.m.opt.Level != Strict:
		out.SetEntryTimeout(keepTimeout)
	}
	return nil
}

// statRoot returns the attributes of a root. The request then counts as one about that root.
// statRoot returns ENOENT for a root of another subject, so that its existence is not
// revealed.
func (r *request) statRoot(v *view) (vfs.Info, error) {
	p, err := guard.NewPath(v.name, "")
	if err != nil {
		return vfs.Info{}, syscall.ENOENT
	}
	r.join(v)
	info, err := r.m.tree.Lstat(r, r.caller, vfs.At{Path: p, Epoch: v.epoch})
	if err != nil && names.Reason(err) == names.NoConsent {
		return info, syscall.ENOENT
	}
	return info, err
}

// Forget reduces the number of answers by which the kernel knows a node.
func (fs *fileSystem) Forget(node, times uint64) { fs.m.nodes.forget(node, times) }

// fillEntry fills the answer to a request that returns an entry. watched reports whether the
// entry's directory is watched.
func (n *node) fillEntry(out *fuse.EntryOut, info *vfs.Info, watched bool) {
	n.fillAttr(&out.Attr, info)
	entry, attr := n.view.timeouts(info, watched)
	out.SetEntryTimeout(entry)
	out.SetAttrTimeout(attr)
}

// timeouts returns how long the kernel may cache a name and the attributes of its file. The kernel
// may not cache the mode of a file with set-id bits: a write may clear the bits at the source, and
// the kernel then asks only for size and times anew. The kernel may not cache the attributes of a
// file that may not be read, so that it sends the GETATTR that refuseRead checks.
func (v *view) timeouts(info *vfs.Info, watched bool) (entry, attr time.Duration) {
	switch {
	case v.m.opt.Level == Strict:
		return 0, 0
	case info.IsRegular() && (info.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 || v.unreadable.Load()):
		return looseTimeout, 0
	case !watched:
		return looseTimeout, looseTimeout
	case info.Nlink > 1 && !info.IsDir():
		// Another name of the file may lie where we do not watch.
		return keepTimeout, looseTimeout
	}
	return keepTimeout, keepTimeout
}
