package vfs

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// Operations on whole files and paths, for peers that have neither descriptors nor a
// kernel that follows links. Each passes the gate once. Paths are as the peer wrote them; links
// in them are followed (see Follow).

type pathInfo struct {
	info Info
	path guard.Path
}

// Stat describes the file that a path leads to, and returns the file's path without links.
func (t *Tree) Stat(ctx context.Context, c guard.Caller, p guard.Path) (Info, guard.Path, error) {
	req := guard.Request{Caller: c, Op: names.OpGetattr, Path: p}
	f, err := gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (pathInfo, int64, error) {
		f, err := withFollowed(ctx, l, p, true, func(q guard.Path) (pathInfo, error) {
			d, info, err := target(l, q)
			if err == nil {
				d.Close()
			}
			return pathInfo{info, q}, err
		})
		return f, 0, err
	})
	return f.info, f.path, err
}

// target resolves the file at a path. For a link the error is ELOOP.
func target(l *guard.Lease, q guard.Path) (beneath.Dir, Info, error) {
	d, info, err := nodeAt(l, At{Path: q}, l.Judge().Access())
	if err == nil && info.Type() == unix.S_IFLNK {
		d.Close()
		err = unix.ELOOP
	}
	return d, info, err
}

// openTarget opens the regular file that a path without links leads to, for reading. It
// opens no other type of file: it reads the type through a reference first.
func openTarget(l *guard.Lease, q guard.Path) (h beneath.Handle, info Info, domain uint64, err error) {
	d, info, err := target(l, q)
	if err != nil {
		return h, info, 0, err
	}
	defer d.Close()
	switch {
	case info.IsDir():
		return h, info, 0, unix.EISDIR
	case !info.IsRegular():
		return h, info, 0, &guard.Error{Kind: names.Invalid, Err: unix.ENXIO}
	}
	h, err = d.Open(unix.O_RDONLY)
	return h, info, d.Domain, err
}

// readTries bounds how often ReadChunk reads a file that keeps changing, and how often it asks for
// room for a file that keeps growing.
const readTries = 3

type chunk struct {
	n    int
	info Info
	data []byte
}

// ReadChunk reads at most length bytes from off, and describes the state of the file during the
// reading. Fewer bytes than length mean the end. A file that is changed in place during the
// reading is read again, so that no chunk is a mixture. The error is Conflict if the file keeps
// changing. It is also Conflict if the file is not in the state of the etag ifMatch, unless
// that is "". Only regular files are read; others are refused at once, unopened.
//
// A change that stat(2) does not show is not noticed: a single write(2) that lasts as long as the
// reading, or a change within the file system's resolution of times. If the file is open for
// writing through this Tree, or a WriteRange is under way, Info.Writing is set. The etag of
// that Info can be used to read further chunks, but no replacement accepts it.
//
// ReadChunk reads into memory that room returns. It asks room for length bytes, or, if that is
// less, for the rest of the file (but at least 4096 bytes). If the file has grown meanwhile, room
// is called again, and the memory of the first call is not used. An error of room ends the reading.
// After an error of ReadChunk the memory may still be written to.
func (t *Tree) ReadChunk(ctx context.Context, c guard.Caller, p guard.Path, off, length int64, ifMatch string, room func(n int64) ([]byte, error)) ([]byte, Info, error) {
	if off < 0 || length < 0 {
		return nil, Info{}, &guard.Error{Op: names.OpOpen, Path: p, Kind: names.Invalid}
	}
	// OpOpen, for the record: one open with the bytes read.
	req := guard.Request{Caller: c, Op: names.OpOpen, Path: p, Need: guard.Read, Bytes: length}
	got, err := gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (chunk, int64, error) {
		ck, err := withFollowed(ctx, l, p, true, func(q guard.Path) (chunk, error) {
			h, info, _, err := openTarget(l, q)
			if err != nil {
				return chunk{}, err
			}
			defer h.Close()
			for range readTries {
				// Some file systems report size 0 for files that they generate during the
				// reading.
				buf, err := room(min(length, max(info.Size-off, 4096)))
				if err != nil {
					return chunk{}, err
				}
				ck, err := t.readState(l, h.FD(), off, buf, ifMatch)
				if err != nil || ck.n < len(buf) || int64(ck.n) == length || ck.info.Size <= off+int64(ck.n) {
					return ck, err
				}
				info = ck.info // the file has grown: it is read again, with more room
			}
			return chunk{}, &guard.Error{Kind: names.Conflict}
		})
		return ck, int64(ck.n), err
	})
	return got.data[:got.n], got.info, err
}

// readState reads a piece of a file together with the state of the file during the reading.
func (t *Tree) readState(l *guard.Lease, fd int, off int64, buf []byte, ifMatch string) (chunk, error) {
	before, err := beneath.Stat(l, fd)
	for range readTries {
		// The order matters: times, then writers, then bytes. A writer that has closed the file
		// by now has completed all writes that these times cover.
		before.Writing = err == nil && t.claims.IsWritten(before.ID())
		if err == nil && ifMatch != "" && ifMatch != ETag(&before) {
			err = &guard.Error{Kind: names.Conflict}
		}
		if err != nil {
			return chunk{}, err
		}
		n, err := beneath.Pread(fd, buf, off)
		if err != nil {
			return chunk{}, err
		}
		after, err := beneath.Stat(l, fd)
		if err != nil {
			return chunk{}, err
		}
		if sameState(&before, &after) {
			after.Writing = before.Writing
			return chunk{n, after, buf}, nil
		}
		before = after
	}
	return chunk{}, &guard.Error{Kind: names.Conflict}
}
