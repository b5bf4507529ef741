package vfs

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// Entry is one name in a directory.
type Entry = beneath.Entry

// Dir is an open directory. It is used by one reader at a time.
type Dir struct {
	f    *File  // with the descriptor, the hold and the gate of the directory
	next uint64 // the position of the descriptor, unless lost
	lost bool   // the position of the descriptor is not known
	// readMu is held while the descriptor, which has one position, is read on a source that can
	// hang: a read may still run there after it was answered.
	readMu sync.Mutex
}

// direntBuf holds a few hundred entries; the kernel asks for less at a time.
const direntBuf = 32 << 10

// Opendir opens a directory for reading its names.
func (t *Tree) Opendir(ctx context.Context, c guard.Caller, at At) (*Dir, error) {
	req := at.request(c, names.OpOpendir, at.Path)
	f, _, err := t.gateOpenOne(ctx, req, func(l *guard.Lease, room *slot) (opened, error) {
		dir, info, err := namesAt(l, at)
		if err != nil {
			return opened{}, err
		}
		dir.ByKernel()
		h, err := dir.Handle()
		if err == nil {
			err = h.KeepOrClose()
		}
		if err != nil {
			dir.Close()
			return opened{}, err
		}
		// The identity is needed when the path has to be judged anew.
		f := newFile(t, l, h, At{Path: at.Path, ID: info.ID(), Epoch: at.Epoch}, c, unix.O_RDONLY, room)
		f.quiet, f.dir = true, &dir
		return opened{f, info}, nil
	})
	if err != nil {
		return nil, err
	}
	return &Dir{f: f}, nil
}

// namesAt is dirAt for a directory that is opened for reading its names.
func namesAt(l *guard.Lease, at At) (beneath.Names, Info, error) {
	dir, info, err := namesAtOnce(l, at)
	for try := 0; err == unix.ESTALE && try < maxExchanges && at.follow(l); try++ { //nolint:errorlint // bare errno
		if dir, info, err = namesAtOnce(l, at); err == nil {
			dir.Spell(at.Path.Rel())
		}
	}
	return dir, info, err
}

func namesAtOnce(l *guard.Lease, at At) (beneath.Names, Info, error) {
	dir, err := beneath.OpenDirNames(l, at.Path.Rel())
	if err != nil {
		return beneath.Names{}, Info{}, at.stale(err)
	}
	info, err := dir.Stat(l)
	if err == nil && at.ID != anyFile && info.ID() != at.ID {
		err = unix.ESTALE
	}
	if err != nil {
		dir.Close()
		return beneath.Names{}, Info{}, err
	}
	return dir, info, nil
}

// Path returns the path at which the directory was opened.
func (d *Dir) Path() guard.Path { return d.f.Path() }

// File returns the open directory as a file, for its attributes and its path.
func (d *Dir) File() *File { return d.f }

// Close closes the directory.
func (d *Dir) Close() { d.f.Close() }

// ReadDirOptions describe one reading of a directory by a front end.
type ReadDirOptions struct {
	// At is the present path of the directory, as far as the front end knows: the directory may
	// have been renamed since it was opened. Before entries are read, the directory is looked up at
	// this path and at the path of the descriptor, because a descriptor keeps serving a directory
	// that was moved out of the root.
	At At
	// Names asks for entries: those after the entry with the offset Off, 0 for the beginning.
	// Without Names, Read passes the gate and looks up Buffered.
	Names bool
	Off   uint64
	// Buffered are entries that were read before. LookupBytes is how many bytes the answer has for
	// entries with attributes, and Size is how many bytes an entry takes. Read goes through
	// Buffered, and then through the entries that it reads, until an entry does not fit. It looks
	// up each entry for which NeedsLookup returns true.
	Buffered    []Entry
	LookupBytes int
	Size        func(e *Entry) int
	NeedsLookup func(e *Entry) bool // called once for an entry that fits
}

// Read is the result of Dir.Read.
type Read struct {
	Entries []Entry // none at the end
	Next    uint64  // the offset at which the next reading continues
	Lookups map[string]LookupResult
}

// LookupResult is the result of looking up a name of a directory.
type LookupResult struct {
	Info Info
	Err  error
}

// Read passes the gate once for all that a front end needs of the directory to answer
// one request. A directory that was removed is empty. Hidden names are left out.
func (d *Dir) Read(ctx context.Context, c guard.Caller, r ReadDirOptions) (Read, error) {
	req := r.At.request(c, names.OpReaddir, r.At.Path)
	seek := r.Off != d.next || d.lost
	d.lost = r.Names // until it is known where the descriptor stands
	out, err := onFile(ctx, d.f, req, func(l *guard.Lease, _ int) (out Read, n int64, err error) {
		out.Next = r.Off
		if r.Names {
			if l.Source().Remote() {
				d.readMu.Lock()
				defer d.readMu.Unlock()
			}
			r.At.ID, r.At.Held = d.f.at.ID, d.f
			if out, err = readEntries(ctx, l, d.f, &r, seek || l.Source().Remote()); err != nil {
				return Read{}, 0, err
			}
		}
		if r.LookupBytes > 0 {
			out.Lookups = lookUpEntries(l, d.f.dir.Dir, &r, out.Entries)
		}
		return out, 0, nil
	})
	if err == nil && r.Names {
		d.next, d.lost = out.Next, false
	}
	return out, err
}

// readEntries reads until there are visible entries, or the directory ends.
func readEntries(ctx context.Context, l *guard.Lease, f *File, r *ReadDirOptions, seek bool) (Read, error) {
	out, dir := Read{Next: r.Off}, f.dir
	err := walk.StillThere(l, r.At.Path.Rel(), f.h.Stat)
	for try := 0; err == unix.ESTALE && try < maxExchanges && r.At.follow(l); try++ { //nolint:errorlint // bare errno
		err = walk.StillThere(l, r.At.Path.Rel(), f.h.Stat)
	}
	if err != nil {
		if errors.Is(err, walk.ErrRemoved) {
			err = nil
		}
		return out, err
	}
	dir.Refresh(r.At.Path.Rel())
	if seek {
		if err := dir.SeekTo(int64(r.Off)); err != nil {
			return Read{}, err
		}
	}
	rel, buf := r.At.Path.Rel(), make([]byte, direntBuf)
	for {
		if err := l.Life().Ended(ctx); err != nil {
			return Read{}, err
		}
		list, more, err := dir.Read(buf, false, func(e *Entry) bool {
			out.Next = e.Off
			return walk.Shown(l, rel, dir.Dir, e)
		})
		if err != nil || !more {
			return out, err
		}
		if len(list) > 0 {
			out.Entries = list
			return out, nil
		}
	}
}

// lookUpEntries looks up as many entries of r.Buffered and fresh as there is room for.
func lookUpEntries(l *guard.Lease, d beneath.Dir, r *ReadDirOptions, fresh []Entry) map[string]LookupResult {
	rel, left, results := r.At.Path.Rel(), r.LookupBytes, map[string]LookupResult{}
	for _, list := range [...][]Entry{r.Buffered, fresh} {
		for i := range list {
			if left -= r.Size(&list[i]); left < 0 {
				return results
			}
			if r.NeedsLookup(&list[i]) {
				info, err := lookUpName(l, d, rel, list[i].Name)
				results[list[i].Name] = LookupResult{info, err}
			}
		}
	}
	return results
}

func lookUpName(l *guard.Lease, d beneath.Dir, rel, name string) (Info, error) {
	if err := l.Judge().Dir(rel); err != nil {
		return Info{}, err
	}
	if err := l.Judge().As(rules.ToLook, rel, name, pattern.Unknown); err != nil {
		return Info{}, err
	}
	return walk.LookUp(l, d, name)
}

// Fsync writes the directory's names to the disk.
func (d *Dir) Fsync(ctx context.Context, c guard.Caller, dataOnly bool) error {
	return d.f.Fsync(ctx, c, dataOnly)
}
