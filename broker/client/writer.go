package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
)

// Writer collects a file's new content, which appears as a whole when Close returns nil. Without
// Close the file stays as it was: the client drops an upload that is abandoned. A client that
// knows only SEP-1708 has no uploads: there, a file that is larger than a chunk grows chunk by
// chunk, and keeps the chunks written before an error or an Abort.
//
// A Writer may not be used concurrently.
type Writer struct {
	f    *Files
	ctx  context.Context
	p    wire.WriteParams // of the first request
	buf  []byte
	sent int64

	started  bool
	uploadID string
	result   Written
	err      error // the first failure, or fs.ErrClosed after Close or Abort; later calls return it
}

// NewWriter prepares to replace or make a file. Nothing is sent before a chunk
// is full or Close is called. ctx is the context of all requests.
func (f *Files) NewWriter(ctx context.Context, name string, o WriteOptions) (*Writer, error) {
	if err := f.check(wire.Write, name); err != nil {
		return nil, err
	}
	return &Writer{f: f, ctx: ctx, p: wire.WriteParams{
		Path: name, Create: o.Create || o.CreateOnly, CreateOnly: o.CreateOnly, IfMatch: o.IfMatch,
	}}, nil
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	n := 0
	for len(p) > 0 {
		if w.err != nil {
			return n, w.err
		}
		// A full buffer is sent only when more follows: the last chunk must be
		// known as the last one.
		if len(w.buf) == w.f.opts.Chunk {
			if w.err = w.flush(false); w.err != nil {
				return n, w.err
			}
		}
		m := min(len(p), w.f.opts.Chunk-len(w.buf))
		w.buf = append(w.buf, p[:m]...)
		p, n = p[m:], n+m
	}
	return n, w.err
}

// Close makes the file appear. After an error of Write, Close returns that error, and the file is
// as it was, unless the client has no uploads (see Writer). After a successful Close or an Abort,
// Close returns fs.ErrClosed.
func (w *Writer) Close() error {
	if w.err == nil {
		if w.err = w.flush(true); w.err == nil {
			w.err = fs.ErrClosed
			return nil
		}
	}
	return w.err
}

// Abort drops the new content. The file stays as it was, unless the client has no uploads (see
// Writer), and another upload of the file may begin at once. After a successful Close, Abort does
// nothing.
func (w *Writer) Abort() {
	if errors.Is(w.err, fs.ErrClosed) {
		return
	}
	w.err, w.buf = fs.ErrClosed, nil
	if w.uploadID == "" {
		return
	}
	// Best effort: a client drops by itself an upload that gets no further chunk.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), abortTimeout)
	defer cancel()
	_, _ = w.f.writeChunk(ctx, wire.WriteParams{Path: w.p.Path, UploadID: w.uploadID, Abandon: true}, nil)
}

// abortTimeout bounds the one request of Abort.
const abortTimeout = 5 * time.Second

// Written returns the state of the file after a successful Close, and the zero value before.
func (w *Writer) Written() Written { return w.result }

func (w *Writer) flush(last bool) error {
	p, at := w.p, w.sent
	switch {
	case w.uploadID != "":
		p = wire.WriteParams{Path: w.p.Path, UploadID: w.uploadID, Offset: &at, Last: last}
	case w.started: // the client has no uploads
		p = wire.WriteParams{Path: w.p.Path, Offset: &at}
	case !last:
		p.Upload = true
	}
	r, err := w.f.writeChunk(w.ctx, p, w.buf)
	if err != nil {
		return err
	}
	w.sent += int64(len(w.buf))
	w.buf, w.started = w.buf[:0], true
	if r.UploadID != "" {
		w.uploadID = r.UploadID
	}
	if last {
		w.result = Written{r.Size, r.ETag}
	}
	return nil
}

var _ io.WriteCloser = (*Writer)(nil)
