package mount

import (
	"context"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// topNode is a directory of ours that nobody can change: the mountpoint, which
// holds the roots, or, in a layout by path, one on the way to them.
type topNode struct {
	fs.Inode
	m    *Mount
	path string // relative to the mountpoint
	ino  uint64
}

// Lookup finds a root by its name, or, in a layout by path, what leads to one.
func (t *topNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	// No answer here is kept: which roots there are may change at any time.
	out.SetEntryTimeout(notKept)
	if !t.m.opt.Layout.ByPath {
		return t.m.lookupRoot(ctx, &t.Inode, name, guard.RootName(name), out)
	}
	switch n, errno := t.shown(ctx); {
	case errno != 0:
		return nil, errno
	case n != nil:
		return n.Lookup(ctx, name, out)
	}
	if child, ok := t.spareEntry(ctx, name, out); ok {
		return child, 0
	}
	return t.lookupPlace(ctx, name, out)
}

// lookupRoot answers a look-up whose answer is a root.
func (m *Mount) lookupRoot(ctx context.Context, parent *fs.Inode, name string, root guard.RootName, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	v := m.view(root)
	if v == nil {
		return nil, syscall.ENOENT
	}
	p, err := guard.NewPath(v.name, "")
	if err != nil {
		return nil, syscall.ENOENT
	}
	f := m.raw.flights.of(ctx)
	in := f.enter(ctx, v)
	c := m.caller(ctx) // after it counts as one about the view: see Shut
	ctx = in
	info, err := m.tree.Lstat(ctx, c, vfs.At{Path: p, Epoch: v.epoch})
	if err != nil {
		if names.Reason(err) == names.NoConsent {
			return nil, syscall.ENOENT // another subject's: not this one's to know of
		}
		return nil, names.Errno(err)
	}
	child := v.node(f, parent, &info, false)
	n := child.Operations().(*node)
	v.mu.Lock()
	v.root, v.parent, v.entry = n, parent, name
	v.mu.Unlock()
	n.hasOwnName()
	n.awaitLetGo()
	n.fillEntry(out, &info)
	switch {
	case v.fileRoot:
		// The name stays while the file under it is exchanged.
		out.SetEntryTimeout(0)
		out.SetAttrTimeout(0)
	case m.opt.Level != Strict:
		out.SetEntryTimeout(keepTimeout)
	}
	return child, 0
}

// OpendirHandle lists the roots as they are at this moment, or the root that is here.
func (t *topNode) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	switch n, errno := t.shown(ctx); {
	case errno != 0:
		return nil, 0, errno
	case n != nil:
		return n.OpendirHandle(ctx, flags)
	}
	return &topDir{list: t.entries()}, 0, 0
}

// topDir is a reading of the mountpoint; offsets count entries.
type topDir struct {
	list []fuse.DirEntry
	pos  int
}

// Readdirent implements fs.FileReaddirenter.
func (d *topDir) Readdirent(context.Context) (*fuse.DirEntry, syscall.Errno) {
	if d.pos >= len(d.list) {
		return nil, 0
	}
	e := d.list[d.pos]
	d.pos++
	e.Off = uint64(d.pos)
	return &e, 0
}

// Seekdir implements fs.FileSeekdirer.
func (d *topDir) Seekdir(_ context.Context, off uint64) syscall.Errno {
	d.pos = min(int(off), len(d.list))
	return 0
}

// Getattr describes the directory, or the root that is here: by the directory's own
// number, for it is the same all the time.
func (t *topNode) Getattr(ctx context.Context, fh fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	switch n, errno := t.shown(ctx); {
	case errno != 0:
		return errno
	case n != nil:
		errno := n.Getattr(ctx, fh, out)
		out.Ino = t.ino
		return errno
	}
	t.fill(&out.Attr)
	if t.m.opt.Level != Strict {
		out.SetTimeout(keepTimeout)
	}
	return 0
}

func (t *topNode) fill(out *fuse.Attr) {
	t.m.fillOwn(out, unix.S_IFDIR|0o555, t.ino)
	out.Nlink = 2
}

// caller is who the kernel says asks.
func (m *Mount) caller(ctx context.Context) guard.Caller {
	c := guard.Caller{Subject: m.opt.Subject, Via: guard.ViaFUSE}
	if m.shut.Load() {
		c.Via = guard.ViaGone
	}
	if fc, ok := ctx.(*fuse.Context); ok {
		c.UID, c.GID, c.PID = fc.Uid, fc.Gid, int32(fc.Pid)
		if m.opt.Owner != nil {
			c.Makes = &m.user
		}
		if f := m.raw.flights.of(ctx); f != nil {
			c.Umask = f.umask
		}
		c.Groups = func() []uint32 { return groupsOf(fc.Pid) }
	}
	return c
}

// groupsOf reads a process's supplementary groups, which a FUSE request does not
// carry. A process of another pid namespace has the number 0 and none.
func groupsOf(pid uint32) []uint32 {
	if pid == 0 {
		return nil
	}
	status, err := statusOf(pid)
	if err != nil {
		return nil
	}
	var out []uint32
	for f := range strings.FieldsSeq(status.field("Groups")) {
		if gid, err := strconv.ParseUint(f, 10, 32); err == nil {
			out = append(out, uint32(gid))
		}
	}
	return out
}

func stack() string { return string(debug.Stack()) }
