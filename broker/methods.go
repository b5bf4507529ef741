package broker

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"

	"golang.org/x/sys/unix"
)

// method answers one request.
type method func(*Session, *request) (any, error)

// methods is the whole protocol. Anything else is -32601.
var methods map[string]method

func init() { // not a literal: the methods count themselves by it
	methods = map[string]method{
		wire.Consent:   (*Session).consent,
		wire.Read:      (*Session).read,
		wire.Write:     (*Session).write,
		wire.List:      (*Session).list,
		wire.Create:    (*Session).create,
		wire.Delete:    (*Session).remove,
		wire.Rename:    (*Session).rename,
		wire.Watch:     (*Session).watch,
		wire.Unwatch:   (*Session).unwatch,
		wire.Stat:      (*Session).stat,
		wire.Copy:      (*Session).copy,
		wire.RootsList: (*Session).listRoots,
	}
}

// path reads a path parameter: "root/a/b", an absolute path inside a root, or a
// file URI. field is its name, for the error.
func (s *Session) path(field, p string) (guard.Path, error) {
	if p == "" {
		return guard.Path{}, badParams{text: "params: " + field + " is missing"}
	}
	return s.b.parse(s.subject, p) // the gate tells another's root and one that never was alike
}

// sees reports whether there is such a root that is the session's to know of.
func (s *Session) sees(root guard.RootName) bool {
	whose, ok := s.b.cfg.Registry.SubjectOf(root)
	return ok && whose.Covers(s.subject)
}

// suspended refuses a suspended server what does not pass the gate.
func (s *Session) suspended(op names.Op) error {
	if s.b.cfg.Registry.IsSuspended(s.subject) {
		return &guard.Error{Op: op, Kind: names.Suspended}
	}
	return nil
}

func at(p guard.Path) vfs.At { return vfs.At{Path: p} }

func (s *Session) stat(r *request) (any, error) {
	var p wire.StatParams
	if err := decode(r, &p); err != nil {
		return nil, err
	}
	q, err := s.path("path", p.Path)
	if err != nil {
		return nil, err
	}
	info, real, err := s.b.cfg.Tree.Stat(r.ctx, s.caller, q)
	if err != nil {
		return nil, err
	}
	res := &wire.StatResult{
		Path: q.String(), Type: typeOf(&info), Size: sizeOf(&info), MTime: stamp(info.ModTime()),
		Writable: s.writable(q.Root),
	}
	if res.Type == wire.TypeFile {
		res.ETag, res.MimeType = vfs.ETag(&info), mimeType(real.Rel(), nil)
	}
	return res, nil
}

func (s *Session) writable(root guard.RootName) bool {
	st, ok := s.b.cfg.Registry.Lookup(root)
	return ok && st.Grant.Policy.Rights&guard.Write != 0
}

func (s *Session) create(r *request) (any, error) {
	var p wire.CreateParams
	if err := decode(r, &p); err != nil {
		return nil, err
	}
	q, err := s.path("path", p.Path)
	if err != nil {
		return nil, err
	}
	t := s.b.cfg.Tree
	switch p.Type {
	case "", wire.TypeFile:
		info, err := t.CreateFile(r.ctx, s.caller, q, 0o644, p.Parents)
		if err != nil {
			return nil, err
		}
		return &wire.CreateResult{Path: q.String(), Type: wire.TypeFile, ETag: vfs.ETag(&info)}, nil
	case wire.TypeDirectory:
		if p.Parents {
			_, _, err = t.MkdirAll(r.ctx, s.caller, q, 0o755)
		} else {
			_, err = t.MkdirPath(r.ctx, s.caller, q, 0o755)
		}
		if err != nil {
			return nil, err
		}
		return &wire.CreateResult{Path: q.String(), Type: wire.TypeDirectory}, nil
	}
	return nil, badParams{text: "params: type must be file or directory"}
}

func (s *Session) remove(r *request) (any, error) {
	var p wire.DeleteParams
	if err := decode(r, &p); err != nil {
		return nil, err
	}
	q, err := s.path("path", p.Path)
	if err != nil {
		return nil, err
	}
	if err := s.b.cfg.Tree.RemovePath(r.ctx, s.caller, q, vfs.RemoveOptions{Recursive: p.Recursive, ETag: p.IfMatch}); err != nil {
		if guardError(err).Kind == names.NotEmpty {
			return nil, &hinted{err: err, hint: "set recursive to delete what is in it"}
		}
		return nil, s.conflict(r, err)
	}
	return wire.Empty{}, nil
}

func (s *Session) rename(r *request) (any, error) {
	p, from, to, err := s.twoPaths(r)
	if err != nil {
		return nil, err
	}
	if from.Root != to.Root {
		return nil, s.acrossRoots(from, to)
	}
	if err := s.b.cfg.Tree.RenamePath(r.ctx, s.caller, from, to, p.Overwrite, p.IfMatch); err != nil {
		return nil, s.conflict(r, err)
	}
	return &wire.RenameResult{Path: to.String()}, nil
}

// acrossRoots refuses a rename from one root to another, or to what is none.
func (s *Session) acrossRoots(from, to guard.Path) error {
	for _, q := range []guard.Path{from, to} {
		if !s.sees(q.Root) {
			return &guard.Error{Op: names.OpRename, Path: q, Kind: names.NoConsent}
		}
	}
	return &hinted{
		err:  &guard.Error{Op: names.OpRename, Path: from, Kind: names.KindOf(unix.EXDEV), Err: unix.EXDEV},
		hint: "a rename stays within one root: use files/copy and files/delete",
	}
}

func (s *Session) twoPaths(r *request) (p wire.RenameParams, from, to guard.Path, err error) {
	if err = decode(r, &p); err != nil {
		return
	}
	if p.Meta != nil {
		r.progress = p.Meta.ProgressToken
	}
	if from, err = s.path("oldPath", p.OldPath); err != nil {
		return
	}
	to, err = s.path("newPath", p.NewPath)
	return
}

// conflict adds to an error of conflict the state its file is in now, so that
// the peer can look at it and decide.
func (s *Session) conflict(r *request, err error) error {
	ge := guardError(err)
	if ge.Kind.Code() != names.ConcurrencyConflict {
		return err
	}
	h := &hinted{err: err}
	if had, ok := errors.AsType[*hinted](err); ok {
		*h = *had // what is known already is better
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

// sizeOf is the size of a file's contents; a directory has none that means
// anything to a peer.
func sizeOf(info *vfs.Info) int64 {
	if info.Type() == unix.S_IFREG {
		return info.Size
	}
	return 0
}

// stamp is a time as seed 000 writes it: RFC 3339 in UTC.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// reporter sends notifications/progress, at most ten a second and one at a time,
// when the peer gave a token. It does not wait: it is called by operations that a
// revocation waits for.
func (s *Session) reporter(r *request) func(done, total int64) {
	token := strings.TrimSpace(string(r.progress))
	if token == "" || token == "null" {
		return func(int64, int64) {}
	}
	var last time.Time
	return func(done, total int64) {
		if now := time.Now(); now.Sub(last) >= 100*time.Millisecond {
			last = now
			p := map[string]any{"progressToken": r.progress, "progress": done}
			if total > 0 {
				p["total"] = total
			}
			r.report(func() { s.notify(wire.Progress, p) })
		}
	}
}

// report calls send on the side, unless the peer has not taken the last progress
// yet, or the request is through.
func (r *request) report(send func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reporting != nil {
		select {
		case <-r.reporting:
		default:
			return
		}
	}
	if r.through {
		return
	}
	taken := make(chan struct{})
	r.reporting = taken
	go func() {
		defer close(taken)
		send()
	}()
}

// reported ends the reports and waits until the peer has taken the last, which
// comes before the answer, or ctx ends.
func (r *request) reported(ctx context.Context) {
	r.mu.Lock()
	r.through = true
	last := r.reporting
	r.mu.Unlock()
	if last == nil {
		return
	}
	select {
	case <-last:
	case <-ctx.Done():
	}
}
