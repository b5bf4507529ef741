package broker

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// method is one method of the protocol.
type method struct {
	run func(*Session, *request) (any, error)
	// asksPerson is set if the method waits for a person, so that Limits.Timeout does not hold
	// for it.
	asksPerson bool
	// hasData is set if the result contains data from a root.
	hasData bool
}

// methods are all methods of the protocol. Any other method gets -32601.
var methods map[string]method

func init() { // not in the declaration: the methods use the map, so its initialization would refer to itself
	methods = map[string]method{
		wire.Consent:   {run: handle((*Session).consent), asksPerson: true},
		wire.Read:      {run: handle((*Session).read), hasData: true},
		wire.Write:     {run: handle((*Session).write)},
		wire.List:      {run: handle((*Session).list), hasData: true},
		wire.Create:    {run: handle((*Session).create)},
		wire.Delete:    {run: handle((*Session).remove)},
		wire.Rename:    {run: handle((*Session).rename)},
		wire.Watch:     {run: handle((*Session).watch)},
		wire.Unwatch:   {run: handle((*Session).unwatch)},
		wire.Stat:      {run: handle((*Session).stat), hasData: true},
		wire.Copy:      {run: handle((*Session).copy)},
		wire.RootsList: {run: handle((*Session).listRoots)},
	}
}

// handle returns a method that decodes its parameters, strictly, and calls f.
func handle[P any](f func(*Session, *request, *P) (any, error)) func(*Session, *request) (any, error) {
	return func(s *Session, r *request) (any, error) {
		var p P
		if err := wire.Decode(r.params, &p); err != nil {
			return nil, badParams{text: err.Error()}
		}
		return f(s, r, &p)
	}
}

// path parses a path parameter: "root/a/b", an absolute path inside a root, or a
// file URI. field is the parameter's name, for the error. path adds the root to r.stamps.
func (s *Session) path(r *request, field, p string) (guard.Path, error) {
	if p == "" {
		return guard.Path{}, badParams{text: "params: " + field + " is missing"}
	}
	q, err := s.b.parse(s.subject, p) // the gate answers the same for another subject's root as for a missing root
	if err == nil {
		r.stamps.Add(q.Root)
	}
	return q, err
}

// sees reports whether the root exists and the session may know of it.
func (s *Session) sees(root guard.RootName) bool {
	whose, ok := s.b.cfg.Registry.SubjectOf(root)
	return ok && whose.Covers(s.subject)
}

// barred returns a refusal while the server is suspended or the registry is paused, else nil. It
// is for requests that do not pass the gate.
func (s *Session) barred(op names.Op) error {
	var e *guard.Error
	if errors.As(s.b.cfg.Registry.Barred(s.subject), &e) {
		e.Op = op
		return e
	}
	return nil
}

// oneMoreLocked refuses one more watch or upload if the session has ended, or has n of them and
// n reaches the limit. A limit that is not positive is no limit.
func (s *Session) oneMoreLocked(p guard.Path, n, limit int, what, hint string) error {
	switch {
	case s.closed:
		return &guard.Error{Path: p, Kind: names.Revoked}
	case limit > 0 && n >= limit:
		return &hinted{err: &guard.Error{Path: p, Kind: names.Quota, Err: errors.New(what)}, limit: int64(limit), hint: hint}
	}
	return nil
}

// conflict adds the present etag of the file, and a hint, to an error with the code
// CONCURRENCY_CONFLICT, so that the peer can decide what to do. It returns any other error as it is.
func (s *Session) conflict(r *request, err error) error {
	ge := guardError(err)
	if ge.Kind.Code() != names.ConcurrencyConflict {
		return err
	}
	h := &hinted{err: err}
	if had, ok := errors.AsType[*hinted](err); ok {
		*h = *had // keep the hint, etag and limit of the earlier error
	}
	if info, _, serr := s.b.cfg.Tree.Stat(r.ctx, s.caller, ge.Path); serr == nil && info.Type() == unix.S_IFREG && h.etag == "" {
		h.etag = vfs.ETag(&info)
	}
	switch {
	case h.hint != "":
	case ge.Kind == names.Exist:
		h.hint = "it exists already: set overwrite, or take another name"
	case errors.Is(ge, vfs.ErrUploading):
		h.hint = "try again when it has ended"
	case ge.Kind == names.Conflict:
		h.hint = "it changed meanwhile: read it again and repeat with its etag"
	case ge.Kind == names.Locked:
		h.hint = "try again when it is no longer in use"
	}
	return h
}

func typeOf(info *vfs.Info) string {
	switch info.Type() {
	case unix.S_IFREG:
		return wire.TypeFile
	case unix.S_IFDIR:
		return wire.TypeDirectory
	case unix.S_IFLNK:
		return wire.TypeSymlink
	}
	return wire.TypeOther
}

// sizeOf returns the size of a regular file's contents. For anything else it returns 0, because
// the size of a directory means nothing to a peer.
func sizeOf(info *vfs.Info) int64 {
	if info.Type() == unix.S_IFREG {
		return info.Size
	}
	return 0
}

// formatTime formats a time as SEP-1708 does: RFC 3339 in UTC (R046).
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
