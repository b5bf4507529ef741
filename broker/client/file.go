package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// File reads a file in chunks. Where the client has etags, all chunks are of
// the state the file was in when it was opened: a change in between is an error
// (names.Conflict), never a mixture.
//
// ReadAt may be called concurrently; Read and Seek may not.
type File struct {
	f    *Files
	ctx  context.Context
	name string

	size    int64
	etag    string
	mime    string
	modTime time.Time
	pos     int64

	mu     sync.Mutex // guards the fields below
	at     int64      // the offset of data
	data   []byte     // the last chunk
	closed bool
}

// Open opens a file for reading; ctx is the context of all its requests. The
// first chunk is read at once, so an error of the file is an error of Open.
func (f *Files) Open(ctx context.Context, name string) (*File, error) {
	c, err := f.Read(ctx, name, ReadOptions{})
	if err != nil {
		return nil, err
	}
	return &File{f: f, ctx: ctx, name: name, size: c.Size, etag: c.ETag, mime: c.MimeType, modTime: c.ModTime, data: c.Data}, nil
}

// ReadFile reads a whole file. It allocates memory as bytes arrive, whatever size the client
// states.
func (f *Files) ReadFile(ctx context.Context, name string) ([]byte, error) {
	file, err := f.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// ReadFileIf reads a file unless it is still in the state that etag names. now is the present
// etag. fresh reports whether the file was read: if the state is the same, fresh is false and
// data is nil. Use ReadFileIf to revalidate a cache. files/stat also has the etag, without the
// content.
func (f *Files) ReadFileIf(ctx context.Context, name, etag string) (data []byte, now string, fresh bool, err error) {
	if etag != "" {
		if s, err := f.Stat(ctx, name); err != nil {
			return nil, "", false, err
		} else if s.ETag == etag {
			return nil, etag, false, nil
		}
	}
	file, err := f.Open(ctx, name)
	if err != nil {
		return nil, "", false, err
	}
	data, err = io.ReadAll(file)
	return data, file.etag, true, err
}

// Size returns the file's size when it was opened, in bytes.
func (r *File) Size() int64 { return r.size }

// ETag names the state the file is read in; "" if the client has none.
func (r *File) ETag() string { return r.etag }

// MimeType returns the MIME type that the client guesses for the file.
func (r *File) MimeType() string { return r.mime }

// ModTime returns the file's modification time, or the zero time if the client does not tell it.
func (r *File) ModTime() time.Time { return r.modTime }

// Read implements io.Reader.
func (r *File) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.readAt(p, r.pos)
	r.pos += int64(n)
	return n, err
}

// ReadAt implements io.ReaderAt.
func (r *File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fault(wire.Read, r.name, names.Invalid, "negative offset")
	}
	n := 0
	for n < len(p) {
		m, err := r.readAt(p[n:], off+int64(n))
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// readAt copies at least one byte of the chunk that holds off, or fails.
func (r *File) readAt(p []byte, off int64) (int, error) {
	r.mu.Lock()
	closed, at, data := r.closed, r.at, r.data
	r.mu.Unlock()
	switch {
	case closed:
		return 0, fs.ErrClosed
	case off >= r.size:
		return 0, io.EOF
	case at <= off && off < at+int64(len(data)):
		return copy(p, data[off-at:]), nil
	}
	// Read a whole chunk even for a short p: the next reads use it, too.
	c, err := r.f.Read(r.ctx, r.name, ReadOptions{Offset: off, IfMatch: r.etag})
	if err != nil {
		return 0, err
	}
	if c.Size != r.size {
		return 0, fault(wire.Read, r.name, names.Conflict, "")
	}
	if len(c.Data) == 0 {
		return 0, io.ErrUnexpectedEOF // the size promised more
	}
	r.mu.Lock()
	r.at, r.data = off, c.Data
	r.mu.Unlock()
	return copy(p, c.Data), nil
}

// Seek implements io.Seeker; it sends nothing.
func (r *File) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.pos
	case io.SeekEnd:
		offset += r.size
	case io.SeekStart:
	default:
		return 0, &names.Error{Op: names.OpLseek, Kind: names.Invalid, Err: errors.New("unknown whence")}
	}
	if offset < 0 {
		return 0, &names.Error{Op: names.OpLseek, Kind: names.Invalid, Err: errors.New("negative position")}
	}
	r.pos = offset
	return offset, nil
}

// Close implements io.Closer. The client holds nothing open for a reader.
func (r *File) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fs.ErrClosed
	}
	r.closed, r.data = true, nil
	return nil
}

var (
	_ io.ReadSeekCloser = (*File)(nil)
	_ io.ReaderAt       = (*File)(nil)
)
