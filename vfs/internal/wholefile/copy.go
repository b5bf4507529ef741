// Package wholefile writes the contents of a file before the file has its name: Preparer makes
// a file without a name, or with a temporary one, and later gives it its name; Copier
// fills it from a reader or another file.
//
// # Promises
//
// Until Publish, the new contents are not visible under the file's name; afterwards, all of
// them are. Publish replaces the file in one step. A copy has the holes of its source.
//
// # Not promised
//
// The caller that prepares a file must judge its name, keep other operations from the name, flush
// the contents to the disk, and charge the contents. A killed process may leave a temporary name,
// which is in the Journal.
package wholefile

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// copyPiece is how many bytes are copied between two checks whether to go on. The kernel copies
// by reference if the file system can.
const copyPiece = 4 << 20

// Copier writes the contents of a new file. It leaves holes where the source has them.
type Copier struct {
	Ctx   context.Context
	Lease *guard.Lease
	To    beneath.Changeable // the new file, open for reading and writing
	// Charge, unless nil, is called before n bytes are written. size is the length that the file
	// is to have then. For bytes that copy_file_range has not copied, Charge is called again with
	// a negative n.
	Charge func(n, size int64) error

	size  int64 // of the contents so far
	wrote int64 // the written part of size; the rest are holes
}

// Wrote is how many bytes were written; holes do not count.
func (w *Copier) Wrote() int64 { return w.wrote }

func (w *Copier) charge(n, size int64) error {
	if w.Charge == nil {
		return nil
	}
	return w.Charge(n, size)
}

// Fill appends the data of r to the contents. It keeps the holes of a SparseReader.
func (w *Copier) Fill(r io.Reader) error {
	buf := make([]byte, 256<<10)
	sparse, _ := r.(*SparseReader)
	for {
		if sparse != nil {
			if err := w.skip(sparse); err != nil {
				return err
			}
		}
		n, err := r.Read(buf)
		if n > 0 {
			if err := w.charge(int64(n), w.size+int64(n)); err != nil {
				return err
			}
			done, werr := beneath.Pwritev(w.Lease, w.To, [][]byte{buf[:n]}, w.size, false)
			w.size, w.wrote = w.size+int64(done), w.wrote+int64(done)
			if werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if end := w.Lease.Life().Ended(w.Ctx); end != nil {
			return end
		}
		if err != nil {
			return err
		}
	}
	if sparse != nil {
		return beneath.Truncate(w.Lease, w.To, w.size) // the contents may end in a hole
	}
	return nil
}

// skip leaves a hole where the source has one.
func (w *Copier) skip(r *SparseReader) error {
	off, err := r.skip()
	if err == nil && off > w.size {
		err = w.charge(0, off)
		w.size = off
	}
	if end := w.Lease.Life().Ended(w.Ctx); err != nil && end != nil {
		return end
	}
	return err
}

// Copy copies an open file by copy_file_range, or by reading and writing if the kernel refuses
// that. Unless most is 0, the copy ends at the offset most, even if the file is longer by then;
// most must not be less than in.Info.Size. Copy calls tell with the offset that it has reached;
// holes count.
func (w *Copier) Copy(in *Source, most int64, tell func(int64)) error {
	if err := w.charge(0, in.Info.Size); err != nil {
		return err // before any byte is copied in vain
	}
	r := in.reader(w.Lease, most, tell)
	for {
		if err := w.Lease.Life().Ended(w.Ctx); err != nil {
			return err
		}
		from, to := in.data(r.off)
		want := min(copyPiece, to-from)
		if want <= 0 {
			break // data that was appended since is read below
		}
		// Charge first: the bytes must not be written if they exceed the quota.
		if err := w.charge(want, from+want); err != nil {
			return err
		}
		n, err := beneath.CopyFileRange(w.Lease, in.FD, from, w.To, from, int(want))
		if err := w.charge(int64(n)-want, from+int64(n)); err != nil {
			return err
		}
		if n == 0 || err != nil {
			break
		}
		r.off = from + int64(n)
		w.size, w.wrote = r.off, w.wrote+int64(n)
		tell(r.off)
	}
	return w.Fill(r)
}

// Source is an open file that is copied.
type Source struct {
	FD   int
	Info beneath.Info // when it was opened
}

// data returns the next piece of the file, from off on, that is no hole. It ends at the size
// that the file had when it was opened. An empty piece means that there is no more data.
func (in *Source) data(off int64) (from, to int64) {
	size := in.Info.Size
	from, err := in.nextData(off)
	if err != nil {
		return size, size
	}
	if to, err = beneath.Lseek(in.FD, from, unix.SEEK_HOLE); err != nil {
		to = size
	}
	return from, min(to, size)
}

// nextData returns the offset at which the next data begins, from off on. The error is ENXIO if
// there is no more data.
func (in *Source) nextData(off int64) (int64, error) {
	from, err := beneath.Lseek(in.FD, off, unix.SEEK_DATA)
	if err != nil && err != unix.ENXIO { //nolint:errorlint // bare errno
		return off, nil // a file system without holes
	}
	return from, err
}

// reader returns a reader of the file from its beginning. Copy describes most and tell.
func (in *Source) reader(l *guard.Lease, most int64, tell func(int64)) *SparseReader {
	return &SparseReader{
		most: most, Tell: tell,
		ReadAt:   func(buf []byte, off int64) (int, error) { return beneath.Pread(in.FD, buf, off) },
		NextData: in.nextData,
		Size: func() (int64, error) {
			now, err := beneath.Stat(l, in.FD)
			return now.Size, err
		},
	}
}

// SparseReader reads a file that may have holes.
type SparseReader struct {
	ReadAt   func(buf []byte, off int64) (int, error)
	NextData func(off int64) (int64, error) // where the next data begins; ENXIO: no more data
	Size     func() (int64, error)
	Tell     func(int64) // called with the offset that was reached; holes count

	off  int64
	most int64 // where to end; 0: at the end of the file
}

// skip moves to the next data, or to the end of the file, and returns where that is.
func (r *SparseReader) skip() (int64, error) {
	from, err := r.NextData(r.off)
	if errors.Is(err, unix.ENXIO) {
		from, err = r.Size()
	}
	if r.most > 0 {
		from = min(from, r.most)
	}
	if err == nil {
		r.off = max(r.off, from)
	}
	return r.off, err
}

func (r *SparseReader) Read(buf []byte) (int, error) {
	if r.most > 0 {
		buf = buf[:min(int64(len(buf)), max(0, r.most-r.off))]
	}
	n, err := r.ReadAt(buf, r.off)
	r.off += int64(n)
	if n > 0 {
		r.Tell(r.off)
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}
