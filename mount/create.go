package mount

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// createEntry calls create, which creates a name in a directory. Then createEntry publishes the
// file. umask is the caller's: the kernel sends the umask and the mode separately.
func (fs *fileSystem) createEntry(cancel <-chan struct{}, header *fuse.InHeader, umask uint32, op guard.Op, name string, out *fuse.EntryOut,
	create func(r *request, c guard.Caller, at vfs.At) (vfs.Info, error),
) fuse.Status {
	return fs.changeDir(cancel, header, op, name, func(r *request, dir *node, at vfs.At) error {
		r.caller.Umask = umask
		watched := dir.ensureWatched()
		dir.expectEvent(name, true)
		info, err := create(r, r.caller, at)
		if err != nil {
			dir.cancelEvent(name, true)
			return err
		}
		n, _ := dir.view.publish(dir, name, &info, op != names.OpLink, out)
		n.fillEntry(out, &info, watched)
		return nil
	})
}

// Mkdir makes a directory.
func (fs *fileSystem) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return fs.createEntry(cancel, &in.InHeader, in.Umask, names.OpMkdir, name, out, func(r *request, c guard.Caller, at vfs.At) (vfs.Info, error) {
		return r.m.tree.Mkdir(r, c, at, name, in.Mode)
	})
}

// Mknod makes a file that is not opened.
func (fs *fileSystem) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return fs.createEntry(cancel, &in.InHeader, in.Umask, names.OpMknod, name, out, func(r *request, c guard.Caller, at vfs.At) (vfs.Info, error) {
		return r.m.tree.Mknod(r, c, at, name, in.Mode, in.Rdev)
	})
}

// Symlink makes a symbolic link.
func (fs *fileSystem) Symlink(cancel <-chan struct{}, header *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return fs.createEntry(cancel, header, 0, names.OpSymlink, name, out, func(r *request, c guard.Caller, at vfs.At) (vfs.Info, error) {
		return r.m.tree.Symlink(r, c, target, at, name)
	})
}

// Link gives a file another name.
func (fs *fileSystem) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	return fs.createEntry(cancel, &in.InHeader, 0, names.OpLink, name, out, func(r *request, c guard.Caller, at vfs.At) (info vfs.Info, err error) {
		old := r.m.nodes.find(in.Oldnodeid)
		if old == nil || old.view != r.view {
			return vfs.Info{}, syscall.EXDEV
		}
		err = r.byPathOrHandle(old, func(oldAt vfs.At, file *vfs.File) error {
			info, err = r.m.tree.Link(r, c, oldAt, file, at, name)
			return err
		})
		return info, err
	})
}

// Create makes a file and opens it. Without O_EXCL in the flags it opens an existing file instead, and
// created is false.
func (fs *fileSystem) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return fs.changeDir(cancel, &in.InHeader, names.OpCreate, name, func(r *request, dir *node, at vfs.At) error {
		r.caller.Umask = in.Umask
		watched := dir.ensureWatched()
		dir.expectEvent(name, true)
		f, info, created, err := r.m.tree.Create(r, r.caller, at, name, int(in.Flags), in.Mode)
		if err != nil || !created {
			dir.cancelEvent(name, true)
		}
		if err != nil {
			return err
		}
		n, _ := dir.view.publish(dir, name, &info, created, &out.EntryOut)
		fs.fillOpened(n, f, &info, watched, out)
		return nil
	})
}

// Tmpfile makes a file without a name and opens it.
func (fs *fileSystem) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	return fs.changeDir(cancel, &in.InHeader, names.OpTmpfile, "", func(r *request, dir *node, at vfs.At) error {
		r.caller.Umask = in.Umask
		f, info, err := r.m.tree.Tmpfile(r, r.caller, at, int(in.Flags), in.Mode)
		if err != nil {
			return err
		}
		n, _ := dir.view.publish(dir, "", &info, true, &out.EntryOut)
		fs.fillOpened(n, f, &info, false, out)
		return nil
	})
}

// fillOpened fills the answer of Create or Tmpfile, which have opened the file f.
func (fs *fileSystem) fillOpened(n *node, f *vfs.File, info *vfs.Info, watched bool, out *fuse.CreateOut) {
	n.fillEntry(&out.EntryOut, info, watched)
	out.Fh = fs.newHandle(n, f)
	out.OpenFlags = noPages(f) | fs.m.openFlags(watched)
}
