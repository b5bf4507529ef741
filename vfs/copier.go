package vfs

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// copyPiece is how much is copied between two looks at whether to go on; the
// kernel copies by reference where the file system can.
const copyPiece = 4 << 20

// copier writes the contents of a new file, and leaves holes where the source has them.
type copier struct {
	ctx context.Context
	l   *guard.Lease
	fd  int // of the new file, open for reading and writing
	// charge, unless nil, is asked before n bytes are written, which make the file size
	// bytes long; n below 0 were asked for and not written.
	charge func(n, size int64) error
	size   int64 // of the contents so far
	wrote  int64 // how much of it was written: the rest are holes
}

func (w *copier) take(n, size int64) error {
	if w.charge == nil {
		return nil
	}
	return w.charge(n, size)
}

// fill writes what r gives, behind what has been written.
func (w *copier) fill(r io.Reader) error {
	buf := make([]byte, 256<<10)
	sparse, _ := r.(*sparseReader)
	for {
		if sparse != nil {
			if err := w.skip(sparse); err != nil {
				return err
			}
		}
		n, err := r.Read(buf)
		if n > 0 {
			if err := w.take(int64(n), w.size+int64(n)); err != nil {
				return err
			}
			done, werr := beneath.Pwritev(w.l, w.fd, [][]byte{buf[:n]}, w.size, false)
			w.size, w.wrote = w.size+int64(done), w.wrote+int64(done)
			if werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if end := walk.Ended(w.ctx, w.l); end != nil {
			return end
		}
		if err != nil {
			return err
		}
	}
	if sparse != nil {
		return beneath.Truncate(w.l, w.fd, w.size) // which may end in a hole
	}
	return nil
}

// skip leaves a hole where the source has one.
func (w *copier) skip(r *sparseReader) error {
	off, err := r.skip()
	if err == nil && off > w.size {
		err = w.take(0, off)
		w.size = off
	}
	if end := walk.Ended(w.ctx, w.l); err != nil && end != nil {
		return end
	}
	return err
}

// copyFrom copies an open file by copy_file_range, or by reading and writing where the
// kernel will not. most, unless 0, is where the copy ends although the file may be longer
// by then.
func (w *copier) copyFrom(in *source, most int64, tell func(int64)) error {
	if err := w.take(0, in.info.Size); err != nil {
		return err // before any of it has been copied in vain
	}
	r := in.reader(most, tell)
	for {
		if err := walk.Ended(w.ctx, w.l); err != nil {
			return err
		}
		from, to := in.data(r.off)
		want := min(copyPiece, to-from)
		if want <= 0 {
			break // what has come since is read below
		}
		// Charged before, because the quota must not be found exceeded
		// after the fact.
		if err := w.take(want, from+want); err != nil {
			return err
		}
		n, err := beneath.CopyFileRange(w.l, in.fd, from, w.fd, from, int(want))
		if err := w.take(int64(n)-want, from+int64(n)); err != nil {
			return err
		}
		if n == 0 || err != nil {
			break
		}
		r.off = from + int64(n)
		w.size, w.wrote = r.off, w.wrote+int64(n)
		tell(r.off)
	}
	if err := w.fill(r); err != nil {
		return err
	}
	return in.unchanged()
}

// source is an open file that is copied.
type source struct {
	fd     int
	path   guard.Path // as it was asked for: errors name it
	info   Info       // as it was opened
	etag   string     // it has to stay so; "": it need not
	domain uint64
}

// unchanged reports whether the file is as its etag says, if one was asked for.
func (in *source) unchanged() error {
	if in.etag == "" {
		return nil
	}
	now, err := beneath.Stat(in.fd)
	if err == nil && ETag(&now) != in.etag {
		err = &guard.Error{Kind: names.Conflict}
	}
	return about(in.path, err)
}

// data is the next piece of the file from off on that is no hole, as long as the file
// was when it was opened; an empty one means there is no more.
func (in *source) data(off int64) (from, to int64) {
	size := in.info.Size
	from, err := beneath.Lseek(in.fd, off, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO: //nolint:errorlint // bare errno
		return size, size
	case err != nil:
		return off, size // a file system without holes
	}
	if to, err = beneath.Lseek(in.fd, from, unix.SEEK_HOLE); err != nil {
		to = size
	}
	return from, min(to, size)
}

// reader reads the file from its beginning; see copyFrom.
func (in *source) reader(most int64, tell func(int64)) *sparseReader {
	return &sparseReader{
		most: most, tell: tell,
		read: func(buf []byte, off int64) (int, error) { return beneath.Pread(in.fd, buf, off) },
		data: func(off int64) (int64, error) {
			from, err := beneath.Lseek(in.fd, off, unix.SEEK_DATA)
			if err != nil && err != unix.ENXIO { //nolint:errorlint // bare errno
				return off, nil // a file system without holes
			}
			return from, err
		},
		size: func() (int64, error) {
			now, err := beneath.Stat(in.fd)
			return now.Size, err
		},
	}
}

// sparseReader reads a file that may have holes.
type sparseReader struct {
	read func(buf []byte, off int64) (int, error)
	data func(off int64) (int64, error) // where the next data begins; ENXIO: nowhere
	size func() (int64, error)
	off  int64
	most int64       // where to end; 0: at the end of the file
	tell func(int64) // how much has been read
}

// skip moves to the next data, or to the end of the file, and returns where that is.
func (r *sparseReader) skip() (int64, error) {
	from, err := r.data(r.off)
	if errors.Is(err, unix.ENXIO) {
		from, err = r.size()
	}
	if r.most > 0 {
		from = min(from, r.most)
	}
	if err == nil {
		r.off = max(r.off, from)
	}
	return r.off, err
}

func (r *sparseReader) Read(buf []byte) (int, error) {
	if r.most > 0 {
		buf = buf[:min(int64(len(buf)), max(0, r.most-r.off))]
	}
	n, err := r.read(buf, r.off)
	r.off += int64(n)
	if n > 0 {
		r.tell(r.off)
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}
