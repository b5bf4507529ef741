package mount

import (
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/vfs"
)

// dirHandle is an open directory. It keeps the entries that were read ahead, and those of the
// latest answer: the kernel may use only some entries of an answer, and ask for the others
// again.
type dirHandle struct {
	node    *node
	dir     *vfs.Dir    // nil: a directory of the mount's own, or a removed one
	list    []vfs.Entry // of a directory of the mount's own
	watched bool

	mu       sync.Mutex  // held while a request is answered; guards the fields below
	entries  []vfs.Entry // of the latest answer, followed by those that were read ahead
	answered int         // how many of entries were in the latest answer
	at       uint64      // the offset after the latest answer
	next     uint64      // the offset at which reading continues after entries
	end      bool        // nothing comes after entries
}

// OpenDir opens a directory for reading. The entries of a directory of the mount's own are
// those at the time of OpenDir.
func (fs *fileSystem) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return fs.onNode(cancel, &in.InHeader, func(r *request, n *node) error {
		h, err := r.openDir(n)
		if err != nil {
			return err
		}
		out.Fh = fs.dirs.add(h)
		if h.watched {
			out.OpenFlags = fuse.FOPEN_CACHE_DIR | fuse.FOPEN_KEEP_CACHE
		}
		return nil
	})
}

func (r *request) openDir(n *node) (*dirHandle, error) {
	if n.ownFile() != nil {
		return &dirHandle{node: n, list: r.m.ownEntries(n)}, nil
	}
	at, ok := r.pathOf(n)
	if !ok {
		if errno := n.errnoWithoutPath(); errno != syscall.ENOENT {
			return nil, errno
		}
		return &dirHandle{node: n}, nil // a removed directory is empty
	}
	watched := n.ensureWatched()
	d, err := r.m.tree.Opendir(r, r.caller, at)
	if err != nil {
		return nil, err
	}
	h := &dirHandle{node: n, dir: d, watched: watched}
	e := n.extra()
	e.mu.Lock()
	e.openDirs = append(e.openDirs, h)
	e.mu.Unlock()
	return h, nil
}

// ReadDir lists names.
func (fs *fileSystem) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return fs.readDir(cancel, in, out, false)
}

// ReadDirPlus lists names, and looks them up.
func (fs *fileSystem) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return fs.readDir(cancel, in, out, true)
}

func (fs *fileSystem) readDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList, plus bool) fuse.Status {
	return fs.answer(cancel, &in.InHeader, func(r *request) error {
		h := fs.dirs.get(in.Fh)
		if h == nil {
			return syscall.EBADF
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		lookups, err := r.readEntries(h, in, plus)
		if err == nil {
			r.fillEntries(h, lookups, out, plus)
		}
		return err
	})
}

// fillEntries puts as many entries into an answer as there is room for.
func (r *request) fillEntries(h *dirHandle, lookups map[string]vfs.LookupResult, out *fuse.DirEntryList, plus bool) {
	h.answered = 0
	for i := range h.entries {
		e := &h.entries[i]
		entry := fuse.DirEntry{Name: e.Name, Mode: e.Type, Ino: e.Ino, Off: e.Off}
		if plus {
			child := out.AddDirLookupEntry(entry)
			if child == nil {
				break
			}
			r.lookupEntry(h, e, lookups, child)
			if child.NodeId != 0 {
				out.FixMode(child.Mode) // the kind may have changed since the entry was read
			}
		} else if !out.AddDirEntry(entry) {
			break
		}
		e.Off = out.Offset
		h.answered = i + 1
	}
	h.at = out.Offset
}

// readEntries passes the gate for a request, and stores the entries for its answer in
// h.entries. The kernel may continue after the latest answer, ask again for entries of it, or
// seek. lookups has the results of looking up the entries, by name, for READDIRPLUS.
func (r *request) readEntries(h *dirHandle, in *fuse.ReadIn, plus bool) (lookups map[string]vfs.LookupResult, err error) {
	if h.dir == nil {
		h.entries = h.list[min(in.Offset, uint64(len(h.list))):]
		return nil, nil
	}
	r.join(h.node.view)
	last := slices.IndexFunc(h.entries[:h.answered], func(e vfs.Entry) bool { return e.Off == in.Offset })
	at, ok := h.node.path()
	if !ok {
		at, h.end = vfs.At{Path: h.dir.Path()}, true
	}
	reading := vfs.ReadDirOptions{At: at, Size: entrySize, NeedsLookup: h.needsLookup}
	switch {
	case last >= 0: // the kernel has used the entries up to last, and asks for the others again
		reading.Buffered = h.entries[last+1:]
	case h.answered == 0 && in.Offset == h.at:
		reading.Buffered = h.entries
	default:
		h.next, h.end = in.Offset, !ok
	}
	reading.Names, reading.Off = len(reading.Buffered) == 0 && !h.end, h.next
	if plus {
		reading.LookupBytes = int(in.Size)
	}
	got, err := h.dir.Read(r, r.caller, reading)
	if err != nil {
		return nil, err
	}
	h.entries, h.answered, h.at = append(slices.Clone(reading.Buffered), got.Entries...), 0, in.Offset
	if reading.Names {
		h.next, h.end = got.Next, len(got.Entries) == 0
	}
	return got.Lookups, nil
}

// entrySize returns how much of an answer to READDIRPLUS an entry takes (struct
// fuse_direntplus of linux/fuse.h).
func entrySize(e *vfs.Entry) int { return 128 + (24+len(e.Name)+7)&^7 }

// needsLookup reports whether the attributes of an entry must be read for the answer. It clears
// the mark that a LOOKUP left on the entry's node (takeAttrsCached).
func (h *dirHandle) needsLookup(e *vfs.Entry) bool {
	return e.Name != "." && e.Name != ".." && h.node.nestedRootAt(e.Name) == "" && !(h.watched && h.node.takeAttrsCached(e.Name))
}

// lookupEntry publishes the file of an entry and fills the answer. If it fills in nothing,
// the kernel looks the name up when a program needs the file.
func (r *request) lookupEntry(h *dirHandle, e *vfs.Entry, lookups map[string]vfs.LookupResult, out *fuse.EntryOut) {
	if e.Name == "." || e.Name == ".." {
		return
	}
	found, ok := lookups[e.Name]
	switch {
	case ok && found.Err == nil:
		r.publishFound(h.node, strings.Clone(e.Name), &found.Info, h.watched, out) // e.Name alone would keep the whole read buffer in memory
	case !ok && (h.node.ownFile() != nil || h.node.nestedRootAt(e.Name) != ""):
		dir, err := r.resolve(h.node.id)
		if err == nil {
			err = r.lookup(dir, e.Name, out)
		}
		if err != nil {
			*out = fuse.EntryOut{}
		}
	}
}

// ReleaseDir closes a directory.
func (fs *fileSystem) ReleaseDir(in *fuse.ReleaseIn) {
	if h := fs.dirs.remove(in.Fh); h != nil && h.dir != nil {
		e := h.node.extra()
		e.mu.Lock()
		e.openDirs = slices.DeleteFunc(e.openDirs, func(o *dirHandle) bool { return o == h })
		e.mu.Unlock()
		h.dir.Close()
	}
}

// FsyncDir writes a directory to the disk.
func (fs *fileSystem) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return fs.answer(cancel, &in.InHeader, func(r *request) error {
		h := fs.dirs.get(in.Fh)
		switch {
		case h == nil:
			return syscall.EBADF
		case h.dir == nil:
			return nil
		}
		r.join(h.node.view)
		return h.dir.Fsync(r, r.caller, in.FsyncFlags&1 != 0)
	})
}
