package mount

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// Unlink removes a file's name.
func (fs *fileSystem) Unlink(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return fs.remove(cancel, header, names.OpUnlink, name, fs.m.tree.Unlink)
}

// Rmdir removes an empty directory.
func (fs *fileSystem) Rmdir(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return fs.remove(cancel, header, names.OpRmdir, name, fs.m.tree.Rmdir)
}

// remove removes a name: on the source by calling its parameter remove, then in the tree of nodes.
func (fs *fileSystem) remove(cancel <-chan struct{}, header *fuse.InHeader, op guard.Op, name string,
	remove func(context.Context, guard.Caller, vfs.At, string) error,
) fuse.Status {
	return fs.changeDir(cancel, header, op, name, func(r *request, dir *node, at vfs.At) error {
		done := dir.prepareRemoval(&at, name)
		if child := dir.child(name); child != nil && op == names.OpRmdir {
			defer dir.view.closer.beginRmdir(child)()
		}
		dir.expectEvent(name, false)
		err := remove(r, r.caller, at, name)
		done(err == nil)
		if err != nil {
			dir.cancelEvent(name, false)
			return err
		}
		dir.unlink(name)
		return nil
	})
}

// Rename moves a name within the root.
func (fs *fileSystem) Rename(cancel <-chan struct{}, in *fuse.RenameIn, name, newName string) fuse.Status {
	return fs.answer(cancel, &in.InHeader, func(r *request) error { return r.rename(in, name, newName) })
}

func (r *request) rename(in *fuse.RenameIn, name, newName string) error {
	dir, err := r.resolveForChange(names.OpRename, in.NodeId, name)
	if err != nil {
		return err
	}
	to, err := r.resolve(in.Newdir)
	if err != nil || to.view != dir.view {
		return syscall.EXDEV
	}
	from, ok1 := r.pathOf(dir)
	dest, ok2 := r.pathOf(to)
	if !ok1 || !ok2 {
		return dir.errnoWithoutPath()
	}
	exchange := in.Flags&vfs.RenameExchange != 0
	done := func(bool) {}
	if in.Flags == 0 {
		done = to.prepareRemoval(&dest, newName)
	}
	eachEvent := func(do func(n *node, name string, created bool)) {
		do(dir, name, false)
		do(to, newName, true)
		if exchange {
			do(dir, name, true)
			do(to, newName, false)
		}
	}
	eachEvent((*node).expectEvent)
	err = r.m.tree.Rename(r, r.caller, from, name, dest, newName, in.Flags)
	done(err == nil)
	if err != nil {
		eachEvent((*node).cancelEvent)
		return err
	}
	dir.move(name, to, newName, exchange)
	if n := to.child(newName); n != nil {
		n.rewatchIn(to)
	}
	if n := dir.child(name); n != nil {
		n.rewatchIn(dir) // after an exchange
	}
	return nil
}
