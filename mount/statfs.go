package mount

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// StatFs describes the source's file system. For a file of the mount's own, such as the mountpoint,
// StatFs adds up the sizes of the file systems that the roots lie on: df(1) leaves out a mount
// without sizes.
func (fs *fileSystem) StatFs(cancel <-chan struct{}, header *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	return fs.onNode(cancel, header, func(r *request, n *node) error {
		if n.ownFile() != nil {
			r.statRoots(out)
			return nil
		}
		return r.byPathOrHandle(n, func(at vfs.At, f *vfs.File) error {
			st, err := r.m.tree.Statfs(r, r.caller, at, f)
			out.Blocks, out.Bfree, out.Bavail = st.Blocks, st.Bfree, st.Bavail
			out.Files, out.Ffree = st.Files, st.Ffree
			out.Bsize, out.Frsize, out.NameLen = uint32(st.Bsize), uint32(st.Frsize), uint32(st.Namelen)
			return err
		})
	})
}

// statRoots adds up the sizes of the file systems of the live roots, each file system once.
// It leaves out roots whose source may hang, and roots with a speed limit or an idle time: the
// operation would wait for the limit, or keep an unused root from ending.
func (r *request) statRoots(out *fuse.StatfsOut) {
	const block = 4096
	out.Bsize, out.Frsize, out.NameLen = block, block, names.NameMax
	seen := map[uint64]bool{}
	for _, st := range r.m.reg.RootsOf(r.m.opt.Subject) {
		limits := &st.Grant.Policy.Limits
		if st.State != guard.Live || st.Remote || limits.OpsPerSecond > 0 || limits.Idle > 0 || seen[st.ID.Dev] {
			continue
		}
		v := r.m.view(st.Grant.Root)
		p, err := guard.NewPath(st.Grant.Root, "")
		if v == nil || err != nil {
			continue
		}
		r.join(v)
		fs, err := r.m.tree.Statfs(r, r.caller, vfs.At{Path: p, Epoch: v.epoch}, nil)
		if err != nil {
			continue
		}
		seen[st.ID.Dev] = true
		size := func(blocks uint64) uint64 { return blocks * uint64(fs.Frsize) / block }
		out.Blocks += size(fs.Blocks)
		out.Bfree += size(fs.Bfree)
		out.Bavail += size(fs.Bavail)
		out.Files += fs.Files
		out.Ffree += fs.Ffree
	}
}
