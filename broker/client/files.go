package client

import (
	"context"
	"encoding/base64"
	"errors"
	"iter"
	"time"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Files makes the files/* calls of one session. Paths are "root/a/b": the root's
// name, then elements. Or they are absolute, as paths of the client's machine or file URIs. The
// client accepts absolute paths in roots that it announced or that Consent approved. It
// compares names: the path must begin with the root's path from roots/list, or with the path
// given to Consent. A link from elsewhere into a root is not accepted. Answers and events name
// paths by their root. Every method except Consent and ConsentMode refuses a malformed path before
// it sends anything: a path that climbs (".."), has a NUL byte or is not UTF-8, or an invalid file
// URI or Windows path (a device name, for example).
//
// Call each method with the context of the handler that needs the answer. The context sets the
// deadline, cancels the request when the context ends, and over HTTP selects the stream.
type Files struct {
	c    *conn
	opts Options
}

// Consent asks the person at the client to approve paths. Each path is absolute or begins with
// a root's name. message gives the purpose. Later operations inside an approved path need no new
// question. Without approval the error's kind is names.NoConsent. The result's Reason
// distinguishes a denial from no answer.
func (f *Files) Consent(ctx context.Context, message string, paths ...string) (wire.ConsentResult, error) {
	return f.ConsentMode(ctx, "", message, paths...)
}

// ConsentMode is Consent for a mode: "ro", "rw" or a comma list of rights. "" leaves the mode
// out of the request, and rootsfs then takes "ro".
func (f *Files) ConsentMode(ctx context.Context, mode, message string, paths ...string) (wire.ConsentResult, error) {
	p := wire.ConsentParams{Message: message, RequestedPaths: paths, Mode: mode}
	if p.RequestedPaths == nil {
		p.RequestedPaths = []string{}
	}
	r, err := do[wire.ConsentResult](ctx, f, request{method: wire.Consent, params: p})
	if err == nil && (!r.Granted || len(r.ApprovedPaths) == 0) {
		r.Granted = false
		e := &names.Error{Op: names.OpGrant, Kind: names.NoConsent}
		if r.Reason != "" {
			e.Err = &Reply{Message: "not approved: " + names.Escape(r.Reason), kind: names.NoConsent}
		}
		err = e
	}
	return r, err
}

// ReadOptions chooses what Read reads.
type ReadOptions struct {
	Offset  int64  // bytes from the beginning
	Length  int64  // bytes; 0: Options.Chunk
	IfMatch string // refuse (names.Conflict) unless the file is in the state of this etag
}

// Chunk is a part of a file.
type Chunk struct {
	Data     []byte
	Size     int64 // of the whole file
	Next     int64 // the offset after Data
	EOF      bool  // nothing follows
	MimeType string
	ETag     string // "" from a client that has none
	ModTime  time.Time
}

// Read reads one part of a file with one request; the client may return fewer
// bytes than asked. Open and ReadFile read whole files.
func (f *Files) Read(ctx context.Context, name string, o ReadOptions) (Chunk, error) {
	if o.Length <= 0 {
		o.Length = int64(f.opts.Chunk)
	}
	p := wire.ReadParams{Path: name, Encoding: wire.Base64, Offset: o.Offset, Length: &o.Length, IfMatch: o.IfMatch}
	var data []byte
	var r wire.ReadResult
	err := f.request(ctx, request{wire.Read, name, p, o.Length}, func(result []byte) (err error) {
		data, r, err = decodeRead(result)
		return err
	})
	if err != nil {
		return Chunk{}, err
	}
	c := Chunk{Data: data, Size: r.Size, Next: o.Offset + int64(len(data)), MimeType: r.MimeType, ETag: r.ETag, ModTime: parseTime(r.MTime)}
	// Next is computed here: with a wrong nextOffset of the client the chunks would not fit together.
	c.EOF = r.EOF || c.Next >= c.Size
	return c, nil
}

// WriteOptions says what WriteFile and NewWriter may do.
type WriteOptions struct {
	Create     bool   // make the file if it does not exist
	CreateOnly bool   // refuse (names.Exist) if it exists; implies Create
	IfMatch    string // refuse (names.Conflict) unless the file is in the state of this etag
}

// Written is the state of a file after a write.
type Written struct {
	Size int64  // of the file now
	ETag string // of the file now; "" from a client that has none
}

// WriteFile replaces the content of a file by data, atomically: with one request, or as an
// upload when data is larger than a chunk. A client that knows only SEP-1708 has no uploads:
// there, a write of more than a chunk is not atomic (see Writer).
func (f *Files) WriteFile(ctx context.Context, name string, data []byte, o WriteOptions) (Written, error) {
	w, err := f.NewWriter(ctx, name, o)
	if err != nil {
		return Written{}, err
	}
	if _, err = w.Write(data); err == nil {
		err = w.Close()
	}
	return w.Written(), err
}

// Append adds data, at most Options.Chunk bytes, at the end of the file. Appending is an
// extension of SEP-1708. With a client that knows only SEP-1708 Append returns ErrNotSupported:
// such a client could replace the file by data.
func (f *Files) Append(ctx context.Context, name string, data []byte, create bool) (Written, error) {
	if f.c.capability().Extension == nil {
		return Written{}, &NotSupportedError{What: "the client did not declare the extension " + wire.Extension + "; it may not know how to append to a file"}
	}
	return f.write(ctx, wire.WriteParams{Path: name, Append: true, Create: create}, data)
}

// WriteAt writes data, at most Options.Chunk bytes, at offset; the rest of the
// file stays. The write is not atomic: a reader may see a part of it.
func (f *Files) WriteAt(ctx context.Context, name string, data []byte, offset int64) (Written, error) {
	return f.write(ctx, wire.WriteParams{Path: name, Offset: &offset}, data)
}

func (f *Files) write(ctx context.Context, p wire.WriteParams, data []byte) (Written, error) {
	if len(data) > f.opts.Chunk {
		return Written{}, fault(wire.Write, p.Path, names.Quota, "more than one chunk; use NewWriter")
	}
	r, err := f.writeChunk(ctx, p, data)
	return Written{r.Size, r.ETag}, err
}

// writeChunk sends one chunk: as text if asText allows it, and otherwise in base64.
func (f *Files) writeChunk(ctx context.Context, p wire.WriteParams, data []byte) (wire.WriteResult, error) {
	if asText(data) {
		p.Content, p.Encoding = string(data), wire.UTF8
	} else {
		p.Content, p.Encoding = base64.StdEncoding.EncodeToString(data), wire.Base64
	}
	r, err := do[wire.WriteResult](ctx, f, request{wire.Write, p.Path, p, int64(len(p.Content))})
	if err == nil && r.BytesWritten != int64(len(data)) {
		err = fault(wire.Write, p.Path, names.IO, "the client wrote another number of bytes than it was sent")
	}
	return r, err
}

// asText reports whether data is UTF-8 and its JSON escapes add at most a third to its length,
// as base64 does. A quote, backslash, line end or tab counts as two bytes, and each other control
// character as six.
func asText(data []byte) bool {
	extra := 0
	for _, b := range data {
		switch {
		case b < ' ' && b != '\n' && b != '\t' && b != '\r':
			extra += 5
		case b == '"' || b == '\\' || b < ' ':
			extra++
		}
	}
	return extra <= len(data)/3 && utf8.Valid(data)
}

// ListOptions chooses what List yields; the zero value lists one directory
// without hidden names.
type ListOptions struct {
	Recursive bool
	Hidden    bool   // also names that begin with a dot
	Glob      string // only paths below the directory that match (doublestar)
	Depth     int    // levels below the directory, with Recursive; 0: all
	PageSize  int    // entries per request; 0: the client's choice
	// NoMetadata leaves sizes and times out, which is much less work for the
	// client. A client that knows only SEP-1708 may refuse it.
	NoMetadata bool
}

// List yields the entries of a directory; "" and "." list the roots. It requests a page only
// when the caller has taken all entries of the page before. After an error nothing follows.
func (f *Files) List(ctx context.Context, dir string, o ListOptions) iter.Seq2[wire.Entry, error] {
	return func(yield func(wire.Entry, error) bool) {
		p := wire.ListParams{Path: dir, Recursive: o.Recursive, IncludeHidden: o.Hidden, Glob: o.Glob, Depth: o.Depth, Limit: o.PageSize}
		if o.NoMetadata {
			p.Metadata = new(bool)
		}
		// A client's cursors may form a circle. seen is the nextCursor of the last page whose number
		// is a power of two. A circle reaches such a cursor again, so one kept cursor is enough.
		seen := ""
		for page := 1; ; page++ {
			r, err := do[wire.ListResult](ctx, f, request{method: wire.List, path: dir, params: p})
			if err != nil {
				yield(wire.Entry{}, err)
				return
			}
			for _, e := range r.Entries {
				if !yield(e, nil) {
					return
				}
			}
			if r.NextCursor == "" {
				return
			}
			if r.NextCursor == seen {
				yield(wire.Entry{}, fault(wire.List, dir, names.IO, "the same cursor came twice"))
				return
			}
			if page&(page-1) == 0 {
				seen = r.NextCursor
			}
			p.Cursor = r.NextCursor
		}
	}
}

// Create makes an empty file. With parents, it also makes the missing directories above the file.
func (f *Files) Create(ctx context.Context, name string, parents bool) (wire.CreateResult, error) {
	return f.create(ctx, name, wire.TypeFile, parents)
}

// Mkdir makes a directory. With parents, it also makes the missing directories above.
func (f *Files) Mkdir(ctx context.Context, name string, parents bool) (wire.CreateResult, error) {
	return f.create(ctx, name, wire.TypeDirectory, parents)
}

func (f *Files) create(ctx context.Context, name, typ string, parents bool) (wire.CreateResult, error) {
	p := wire.CreateParams{Path: name, Type: typ, Parents: parents}
	return do[wire.CreateResult](ctx, f, request{method: wire.Create, path: name, params: p})
}

// DeleteOptions says what Delete may remove.
type DeleteOptions struct {
	Recursive bool   // a directory with what is in it
	IfMatch   string // refuse (names.Conflict) unless the file is in the state of this etag
}

// Delete removes a file, a link or a directory.
func (f *Files) Delete(ctx context.Context, name string, o DeleteOptions) error {
	p := wire.DeleteParams{Path: name, Recursive: o.Recursive, IfMatch: o.IfMatch}
	_, err := do[wire.Empty](ctx, f, request{method: wire.Delete, path: name, params: p})
	return err
}

// MoveOptions are the options of Rename and Copy.
type MoveOptions struct {
	Overwrite bool   // replace an existing file at the new path; false: refuse (names.Exist)
	IfMatch   string // refuse (names.Conflict) unless the file at the old path is in the state of this etag
}

// Rename renames or moves a file or a directory within one root.
func (f *Files) Rename(ctx context.Context, oldName, newName string, o MoveOptions) (wire.RenameResult, error) {
	return f.move(ctx, wire.Rename, oldName, newName, o)
}

// Copy copies a file. With a client that knows only SEP-1708 it returns ErrNotSupported.
func (f *Files) Copy(ctx context.Context, oldName, newName string, o MoveOptions) (wire.RenameResult, error) {
	return f.move(ctx, wire.Copy, oldName, newName, o)
}

func (f *Files) move(ctx context.Context, method, oldName, newName string, o MoveOptions) (wire.RenameResult, error) {
	if err := f.check(method, newName); err != nil {
		return wire.RenameResult{}, err
	}
	p := wire.RenameParams{OldPath: oldName, NewPath: newName, Overwrite: o.Overwrite, IfMatch: o.IfMatch}
	return do[wire.RenameResult](ctx, f, request{method: method, path: oldName, params: p})
}

// Stat describes one path. For a client that knows only SEP-1708, and so has no
// files/stat, it lists the parent directory.
func (f *Files) Stat(ctx context.Context, name string) (wire.StatResult, error) {
	if isTop(name) {
		return wire.StatResult{Path: "", Type: wire.TypeDirectory}, nil // the directory of all roots
	}
	r, err := do[wire.StatResult](ctx, f, request{method: wire.Stat, path: name, params: wire.StatParams{Path: name}})
	if errors.Is(err, ErrNotSupported) {
		return f.statByList(ctx, name)
	}
	return r, err
}

func (f *Files) statByList(ctx context.Context, name string) (wire.StatResult, error) {
	dir, base := splitLast(name)
	for e, err := range f.List(ctx, dir, ListOptions{Hidden: true}) {
		switch {
		case err != nil && isAbsolute(name) && f.canList(ctx, name):
			return wire.StatResult{Path: name, Type: wire.TypeDirectory}, nil // a root, whose parent cannot be listed
		case err != nil:
			return wire.StatResult{}, err
		}
		if e.Name == base {
			return wire.StatResult{Path: name, Type: e.Type, Size: e.Size, MTime: e.MTime}, nil
		}
	}
	return wire.StatResult{}, fault(wire.Stat, name, names.NotExist, "")
}

// canList reports whether a directory can be listed.
func (f *Files) canList(ctx context.Context, dir string) bool {
	for _, err := range f.List(ctx, dir, ListOptions{}) {
		return err == nil
	}
	return true
}

// parseTime returns the time that a text gives, or the zero time if the text is malformed.
func parseTime(s string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, s)
	return t
}
