package mount

import (
	"context"
	"slices"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// dirHandle is an open directory. For one request of the kernel the bridge asks it
// several times, for entries, and what each refers to: prepare finds out all of it
// beforehand, so that the request passes the gate once.
type dirHandle struct {
	node    *node
	dir     *vfs.Dir // nil: a removed directory
	watched bool

	mu     sync.Mutex  // held while a request is answered; guards the fields below
	at     uint64      // what the latest request ended with
	batch  []vfs.Entry // read, and not yet given to the bridge
	next   uint64      // where reading goes on after batch
	end    bool        // nothing comes after batch
	given  []vfs.Entry // to the bridge, for the latest request; it may keep the last for the next
	sought *sought     // read ahead of the bridge's seeking
	looked map[string]vfs.Looked
}

// sought is what lies after an offset.
type sought struct {
	off uint64
	vfs.Read
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

// prepare passes the gate for a request, and finds out what the bridge will ask for.
// The bridge goes on where it was, gives entries again that the kernel has not taken,
// or seeks.
func (d *dirHandle) prepare(ctx context.Context, c guard.Caller, in *fuse.ReadIn, plus bool) error {
	at, ok := d.node.place()
	if !ok {
		at, d.end = vfs.At{Path: d.dir.Path()}, true
	}
	again := slices.IndexFunc(d.given, func(e vfs.Entry) bool { return e.Off == in.Offset })
	goesOn := in.Offset == d.at
	r := vfs.Reading{At: at, Off: d.next, Size: d.entrySize}
	if goesOn || again >= 0 {
		r.Known = slices.Clone(d.given[again+1:])
		r.Names = goesOn && len(d.batch) == 0 && !d.end
	} else {
		r.Names, r.Off = ok, in.Offset
	}
	d.given, d.sought = r.Known, nil
	if goesOn {
		r.Known = append(slices.Clone(r.Known), d.batch...)
	}
	if plus {
		r.Looks = int(in.Size)
	}
	got, err := d.dir.Read(ctx, c, r)
	if err != nil {
		return err
	}
	switch d.looked = got.Looked; {
	case !r.Names:
	case goesOn:
		d.batch, d.next, d.end = got.Entries, got.Next, len(got.Entries) == 0
	default:
		d.sought = &sought{in.Offset, got}
	}
	return nil
}

// entrySize is how much of an answer to READDIRPLUS an entry takes (struct
// fuse_direntplus of linux/fuse.h), 0 for those that are not looked up.
func (d *dirHandle) entrySize(e *vfs.Entry) int {
	if e.Name == "." || e.Name == ".." || d.node.innerRoot(e.Name) != "" {
		return 0
	}
	return 128 + (24+len(e.Name)+7)&^7
}

// Readdirent implements fs.FileReaddirenter.
func (d *dirHandle) Readdirent(context.Context) (*fuse.DirEntry, syscall.Errno) {
	if len(d.batch) == 0 {
		return nil, 0 // the end, or as much as one request is given
	}
	e := d.batch[0]
	d.batch = d.batch[1:]
	d.given = append(d.given, e)
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
	have, ok := d.looked[name]
	info, err := have.Info, have.Err
	if !ok { // more than was foreseen
		info, err = d.dir.Lookup(ctx, c, at, name)
	}
	if err != nil {
		out.SetEntryTimeout(notKept)
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
	if d.dir == nil {
		return 0
	}
	s := d.sought
	if s == nil || s.off != off { // not foreseen
		ctx, _, c := d.node.enter(ctx)
		at, ok := d.node.place()
		got, err := d.dir.Read(ctx, c, vfs.Reading{At: at, Names: ok, Off: off})
		if err != nil {
			return names.Errno(err)
		}
		s = &sought{off, got}
	}
	d.batch, d.next, d.end = s.Entries, s.Next, len(s.Entries) == 0
	d.given, d.sought = nil, nil
	return 0
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
