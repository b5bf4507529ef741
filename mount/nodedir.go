package mount

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// dirHandle is an open directory. The bridge serves one request on it at a time.
type dirHandle struct {
	node    *node
	dir     *vfs.Dir
	watched bool
	batch   []vfs.Entry
	end     bool
}

// OpendirHandle opens the directory for reading.
func (n *node) OpendirHandle(ctx context.Context, _ uint32) (fs.FileHandle, uint32, syscall.Errno) {
	ctx, f, c := n.enter(ctx)
	at, ok := n.place()
	if !ok {
		if errno := n.gone(); errno != syscall.ENOENT {
			return nil, 0, errno
		}
		return &dirHandle{node: n, end: true}, 0, 0 // a removed directory is empty
	}
	watched := n.watched()
	d, err := n.tree().Opendir(ctx, c, at)
	if err != nil {
		return nil, 0, names.Errno(err)
	}
	var flags uint32
	if watched {
		flags = fuse.FOPEN_CACHE_DIR | fuse.FOPEN_KEEP_CACHE
	}
	h := &dirHandle{node: n, dir: d, watched: watched}
	if f != nil {
		f.dir = h
	}
	return h, flags, 0
}

// Readdirent implements fs.FileReaddirenter.
func (d *dirHandle) Readdirent(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	ctx, _, c := d.node.enter(ctx)
	if len(d.batch) == 0 && !d.end {
		at, ok := d.node.place()
		if !ok {
			d.end = true
			return nil, 0
		}
		batch, err := d.dir.ReadDir(ctx, c, at)
		if err != nil {
			return nil, names.Errno(err)
		}
		d.batch, d.end = batch, len(batch) == 0
	}
	if len(d.batch) == 0 {
		return nil, 0
	}
	e := &d.batch[0]
	d.batch = d.batch[1:]
	return &fuse.DirEntry{Name: e.Name, Mode: e.Type, Ino: e.Ino, Off: e.Off}, 0
}

// Lookup implements fs.FileLookuper for READDIRPLUS.
func (d *dirHandle) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if inner := d.node.innerRoot(name); inner != "" {
		return d.node.view.m.lookupRoot(ctx, &d.node.Inode, name, inner, out)
	}
	ctx, f, c := d.node.enter(ctx)
	at, ok := d.node.place()
	if !ok || d.dir == nil {
		return nil, orphan
	}
	info, err := d.dir.Lookup(ctx, c, at, name)
	if err != nil {
		out.SetEntryTimeout(1)
		return nil, names.Errno(err)
	}
	child := d.node.child(f, &info, false)
	found := child.Operations().(*node)
	found.met(d.node, name)
	found.hasOwnName()
	found.fillEntryIn(out, &info, d.watched)
	return child, 0
}

// Seekdir implements fs.FileSeekdirer.
func (d *dirHandle) Seekdir(ctx context.Context, off uint64) syscall.Errno {
	ctx, _, c := d.node.enter(ctx)
	if d.dir == nil {
		return 0
	}
	d.batch, d.end = nil, false
	return names.Errno(d.dir.Seek(ctx, c, off))
}

// Releasedir implements fs.FileReleasedirer.
func (d *dirHandle) Releasedir(context.Context, uint32) {
	if d.dir != nil {
		d.dir.Close()
	}
}

// Fsyncdir implements fs.FileFsyncdirer.
func (d *dirHandle) Fsyncdir(ctx context.Context, flags uint32) syscall.Errno {
	ctx, _, c := d.node.enter(ctx)
	if d.dir == nil {
		return 0
	}
	return names.Errno(d.dir.Fsync(ctx, c, flags&1 != 0))
}
