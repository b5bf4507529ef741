package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// The methods of requests. MethodPrefix begins the methods of SEP-1708 and their extensions.
// RootsList is a method of MCP.
const (
	MethodPrefix = "files/"

	Consent = "files/consent"
	Read    = "files/read"
	Write   = "files/write"
	List    = "files/list"
	Create  = "files/create"
	Delete  = "files/delete"
	Rename  = "files/rename"
	Watch   = "files/watch"
	Unwatch = "files/unwatch" // extension
	Stat    = "files/stat"    // extension
	Copy    = "files/copy"    // extension

	RootsList = "roots/list"
)

// The notifications.
const (
	Changed      = "notifications/files/changed"
	RootsChanged = "notifications/roots/list_changed"
	Cancelled    = "notifications/cancelled"
	Progress     = "notifications/progress"
)

// Extension is the key under capabilities.extensions by which a client says that it executes
// files/*. The key is for servers whose SDK drops roots.filesystemBrokering.
const Extension = "io.github.rootsfs/files"

// DefaultChunk is how much one read or write carries by default: SEP-1708's
// "Chunk Size: Default 1MB". Bytes of the file, not of the JSON.
const DefaultChunk = 1 << 20

// Encodings of content.
const (
	UTF8   = "utf-8" // the default
	Base64 = "base64"
)

// Types of files in a root.
const (
	TypeFile      = "file"
	TypeDirectory = "directory"
	TypeSymlink   = "symlink"
	TypeOther     = "other" // a special file that is not hidden, such as a socket made in the root
)

// Kinds of change.
const (
	EventModified = "modified"
	EventCreated  = "created"
	EventDeleted  = "deleted"
)

// ConsentParams asks for paths that are not approved yet.
type ConsentParams struct {
	Message        string   `json:"message"`
	RequestedPaths []string `json:"requestedPaths"`
	Mode           string   `json:"mode,omitempty"` // extension: ro (default), rw, or a list of rights
	Meta           *Meta    `json:"_meta,omitempty"`
}

// ConsentResult has the person's decision. ApprovedPaths repeats each approved path as it
// was requested, or names the narrower path if the person narrowed it.
type ConsentResult struct {
	Granted       bool       `json:"granted"`
	ApprovedPaths []string   `json:"approvedPaths"`      // never null
	Reason        string     `json:"reason,omitempty"`   // extension: denied, timeout
	Approved      []Approved `json:"approved,omitempty"` // extension
}

// Approved is one approved path, with the root through which the server reaches the path from now
// on.
type Approved struct {
	Path    string `json:"path"`
	Root    string `json:"root"`
	Mode    string `json:"mode"`
	Expires string `json:"expires,omitempty"` // RFC 3339; absent: the root ends with the session
}

// ReadParams asks for a part of a file.
type ReadParams struct {
	Path     string `json:"path"`
	Encoding string `json:"encoding,omitempty"`
	Offset   int64  `json:"offset,omitempty"`  // bytes
	Length   *int64 `json:"length,omitempty"`  // bytes; default DefaultChunk
	IfMatch  string `json:"ifMatch,omitempty"` // extension: refuse if the file has another ETag
	Meta     *Meta  `json:"_meta,omitempty"`
}

// ReadResult is the part that was asked for. A character belongs to the chunk in which its first
// byte lies, so utf-8 content may begin a few bytes after Offset and end a few
// after Offset+Length.
type ReadResult struct {
	Content  string `json:"content"`
	Size     int64  `json:"size"` // of the whole file, bytes
	MimeType string `json:"mimeType"`
	Encoding string `json:"encoding,omitempty"` // extension
	EOF      bool   `json:"eof"`                // extension: nothing follows this chunk
	Next     int64  `json:"nextOffset"`         // extension: the byte after this chunk
	ETag     string `json:"etag,omitempty"`     // extension
	MTime    string `json:"mtime,omitempty"`    // extension: RFC 3339, UTC
}

// WriteParams carries content. With neither Offset nor Append, Content replaces the whole file
// atomically. With Offset, Content is written at this offset and the rest of the file stays; with
// Truncate as well, the file ends after Content. With Append, Content is written at the end of the
// file. In an upload, the chunks are collected, and the file appears as a whole with the last
// chunk.
type WriteParams struct {
	Path       string `json:"path"`
	Content    string `json:"content"`
	Encoding   string `json:"encoding,omitempty"`
	Create     bool   `json:"create,omitempty"`
	Offset     *int64 `json:"offset,omitempty"`
	Append     bool   `json:"append,omitempty"`     // extension
	Truncate   bool   `json:"truncate,omitempty"`   // extension
	IfMatch    string `json:"ifMatch,omitempty"`    // extension
	CreateOnly bool   `json:"createOnly,omitempty"` // extension: refuse if the file exists
	Upload     bool   `json:"upload,omitempty"`     // extension: this is the first chunk of an upload
	UploadID   string `json:"uploadId,omitempty"`   // extension: this is a further chunk, at Offset
	Last       bool   `json:"last,omitempty"`       // extension: this chunk completes the upload
	Abandon    bool   `json:"abandon,omitempty"`    // extension: give the upload up; nothing of it remains
	Meta       *Meta  `json:"_meta,omitempty"`
}

// WriteResult describes the file after a write.
type WriteResult struct {
	BytesWritten int64  `json:"bytesWritten"`
	Size         int64  `json:"size"`
	ETag         string `json:"etag,omitempty"`
	UploadID     string `json:"uploadId,omitempty"`
}

// ListParams asks for a directory. "" and "." list the roots.
type ListParams struct {
	Path          string `json:"path"`
	Recursive     bool   `json:"recursive,omitempty"`
	IncludeHidden bool   `json:"includeHidden,omitempty"`
	Glob          string `json:"glob,omitempty"`   // extension: doublestar, on the path below Path
	Depth         int    `json:"depth,omitempty"`  // extension: levels below Path, with Recursive
	Limit         int    `json:"limit,omitempty"`  // extension: entries per page
	Cursor        string `json:"cursor,omitempty"` // extension
	// Metadata false leaves size and mtime out of the entries. An extension; the default is
	// true.
	Metadata *bool `json:"metadata,omitempty"`
	Meta     *Meta `json:"_meta,omitempty"`
}

// ListResult is one page.
type ListResult struct {
	Entries    []Entry `json:"entries"` // never null
	NextCursor string  `json:"nextCursor,omitempty"`
}

// Entry is one name of a listing.
type Entry struct {
	Name    string `json:"name"`
	Path    string `json:"path"` // as files/* takes it: root name first
	Type    string `json:"type"`
	Size    int64  `json:"size"`
	MTime   string `json:"mtime,omitempty"`
	RawName string `json:"rawName,omitempty"` // base64, when the name is not UTF-8
	RawPath string `json:"rawPath,omitempty"` // base64, when the path is not
	Mode    string `json:"mode,omitempty"`    // of a root: ro, rw, ...
}

// CreateParams makes a file or a directory.
type CreateParams struct {
	Path    string `json:"path"`
	Type    string `json:"type,omitempty"`    // default file
	Parents bool   `json:"parents,omitempty"` // extension: make missing parent directories
	Meta    *Meta  `json:"_meta,omitempty"`
}

// CreateResult describes the new file or directory.
type CreateResult struct {
	Path string `json:"path"`
	Type string `json:"type"`
	ETag string `json:"etag,omitempty"`
}

// DeleteParams removes a file, a link or a directory.
type DeleteParams struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive,omitempty"` // extension
	IfMatch   string `json:"ifMatch,omitempty"`   // extension
	Meta      *Meta  `json:"_meta,omitempty"`
}

// Empty is a result without content.
type Empty struct{}

// RenameParams moves a file or a directory within one root. Copy takes the same parameters.
type RenameParams struct {
	OldPath   string `json:"oldPath"`
	NewPath   string `json:"newPath"`
	Overwrite bool   `json:"overwrite,omitempty"` // extension
	IfMatch   string `json:"ifMatch,omitempty"`   // extension: of OldPath
	Meta      *Meta  `json:"_meta,omitempty"`
}

// RenameResult has the new path. Size is the number of bytes that Copy copied.
type RenameResult struct {
	Path string `json:"path"`
	Size int64  `json:"size,omitempty"`
	ETag string `json:"etag,omitempty"`
}

// StatParams asks about one path.
type StatParams struct {
	Path string `json:"path"`
	Meta *Meta  `json:"_meta,omitempty"`
}

// StatResult describes a file. A link in the path is followed if it stays inside its root.
type StatResult struct {
	Path     string `json:"path"`
	Type     string `json:"type"`
	Size     int64  `json:"size"`
	MTime    string `json:"mtime"`
	MimeType string `json:"mimeType,omitempty"`
	ETag     string `json:"etag,omitempty"`
	Writable bool   `json:"writable"` // by this root's rights
}

// WatchParams asks for notifications of changes.
type WatchParams struct {
	Path      string   `json:"path"`
	Recursive bool     `json:"recursive,omitempty"`
	Events    []string `json:"events,omitempty"` // default all
	Meta      *Meta    `json:"_meta,omitempty"`
}

// WatchResult names the watch, for UnwatchParams.
type WatchResult struct {
	WatchID string `json:"watchId"`
}

// UnwatchParams ends a watch.
type UnwatchParams struct {
	WatchID string `json:"watchId"`
	Meta    *Meta  `json:"_meta,omitempty"`
}

// ChangedParams is one change. Overflow on the watched directory itself means
// that changes were lost: list it again. This change is sent repeatedly while the watch has
// more directories than the server may watch. The two halves of a rename share MoveID.
type ChangedParams struct {
	Path      string `json:"path"`
	Event     string `json:"event"`
	Timestamp string `json:"timestamp"`          // RFC 3339, UTC
	WatchID   string `json:"watchId,omitempty"`  // extension
	MoveID    string `json:"moveId,omitempty"`   // extension
	Overflow  bool   `json:"overflow,omitempty"` // extension
	RawPath   string `json:"rawPath,omitempty"`  // extension: base64, when the path is not UTF-8
	Ended     bool   `json:"ended,omitempty"`    // extension: the watch is over (the root was revoked, or the directory is gone)
}

// Root is one element of roots/list.
type Root struct {
	URI  string `json:"uri"`
	Name string `json:"name,omitempty"`
	Meta any    `json:"_meta,omitempty"`
}

// RootsParams and RootsResult are roots/list with a cursor (R180).
type RootsParams struct {
	Cursor string `json:"cursor,omitempty"`
	Meta   *Meta  `json:"_meta,omitempty"`
}

// RootsResult is one page of roots.
type RootsResult struct {
	Roots      []Root `json:"roots"` // never null
	NextCursor string `json:"nextCursor,omitempty"`
}

// Meta has the one member of _meta that rootsfs reads. Others are ignored.
type Meta struct {
	ProgressToken json.RawMessage `json:"progressToken,omitempty"` // a string or an integer
}

// maxToken bounds a progress token, in bytes of JSON, because each notification of progress repeats
// the token.
const maxToken = 1024

// metaError describes a flaw in a _meta.
type metaError string

func (e metaError) Error() string { return "_meta: " + string(e) }

// UnmarshalJSON accepts an object with any members, except that a progressToken must be a string, a
// number or null, of at most maxToken bytes.
func (m *Meta) UnmarshalJSON(b []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	token := bytes.TrimSpace(fields["progressToken"])
	switch {
	case len(token) > maxToken:
		return metaError(fmt.Sprintf("progressToken is longer than %d bytes", maxToken))
	case len(token) > 0 && token[0] != '"' && token[0] != '-' && (token[0] < '0' || token[0] > '9') && string(token) != "null":
		return metaError("progressToken must be a string or an integer")
	}
	m.ProgressToken = token
	return nil
}
