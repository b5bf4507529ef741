package broker

import (
	"bytes"
	"encoding/base64"
	"errors"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func (s *Session) write(r *request) (any, error) {
	var p wire.WriteParams
	if err := decode(r, &p); err != nil {
		return nil, err
	}
	data, err := content(&p)
	if err != nil {
		return nil, err
	}
	if err := checkWrite(&p); err != nil {
		return nil, err
	}
	n := int64(len(data))
	if s.limits.MaxChunk > 0 && n > s.limits.MaxChunk {
		return nil, &hinted{
			err:   &guard.Error{Kind: names.Quota, Err: errors.New("content is more than one request may write")},
			limit: s.limits.MaxChunk, hint: "write it in chunks, as an upload",
		}
	}
	q, err := s.path("path", p.Path)
	if err != nil {
		return nil, err
	}
	if err := s.limits.transfer(n); err != nil {
		return nil, err
	}
	end := n
	if p.Offset != nil {
		end += *p.Offset
	}
	if err := s.limits.write(n, end); err != nil {
		return nil, err
	}
	res, err := s.put(r, &p, q, data)
	if err != nil {
		kept := int64(0)
		if res != nil {
			kept = res.BytesWritten
		}
		s.limits.unwritten(n - kept)
		s.stats.written.Add(kept)
		return nil, s.conflict(r, err)
	}
	s.stats.written.Add(n)
	return res, nil
}

// put chooses the way to write. A result beside an error tells how many bytes were
// written all the same and stay.
func (s *Session) put(r *request, p *wire.WriteParams, q guard.Path, data []byte) (*wire.WriteResult, error) {
	switch {
	case p.Upload || p.UploadID != "":
		return s.uploadChunk(r, p, q, data)
	case p.Offset != nil || p.Append:
		how := vfs.WriteOptions{
			Append: p.Append, Truncate: p.Truncate, Create: p.Create || p.CreateOnly, CreateOnly: p.CreateOnly,
			ETag: p.IfMatch, Mode: 0o644, RespectLocks: true, Room: s.limits.size,
		}
		if p.Offset != nil {
			how.Off = *p.Offset
		}
		n, info, err := s.b.cfg.Tree.WriteRange(r.ctx, s.caller, q, data, how)
		if err != nil {
			return &wire.WriteResult{BytesWritten: int64(n)}, err
		}
		return &wire.WriteResult{BytesWritten: int64(n), Size: info.Size, ETag: vfs.ETag(&info)}, nil
	}
	info, err := s.b.cfg.Tree.Replace(r.ctx, s.caller, at(q), bytes.NewReader(data), condition(p))
	if err != nil {
		return nil, err
	}
	return &wire.WriteResult{BytesWritten: int64(len(data)), Size: info.Size, ETag: vfs.ETag(&info)}, nil
}

func condition(p *wire.WriteParams) vfs.IfMatch {
	return vfs.IfMatch{
		ETag: p.IfMatch, MustExist: !p.Create && !p.CreateOnly, MustBeNew: p.CreateOnly, Mode: 0o644, RespectLocks: true, Follow: true,
	}
}

func content(p *wire.WriteParams) ([]byte, error) {
	switch p.Encoding {
	case "", wire.UTF8:
		return []byte(p.Content), nil
	case wire.Base64:
		data, err := base64.StdEncoding.Strict().DecodeString(p.Content)
		if err != nil {
			return nil, badParams{text: "params: content is not base64: " + err.Error()}
		}
		return data, nil
	}
	return nil, badParams{text: "params: encoding must be utf-8 or base64"}
}

// checkWrite refuses combinations that do not mean one thing.
func checkWrite(p *wire.WriteParams) error {
	upload := p.Upload || p.UploadID != ""
	switch {
	case p.Offset != nil && *p.Offset < 0:
		return badParams{text: "params: offset must not be negative"}
	case p.Offset != nil && p.Append:
		return badParams{text: "params: offset and append cannot be combined"}
	case p.Truncate && p.Append:
		return badParams{text: "params: truncate and append cannot be combined"}
	case p.CreateOnly && p.IfMatch != "":
		return badParams{text: "params: createOnly and ifMatch cannot be combined"}
	case p.Upload && p.UploadID != "":
		return badParams{text: "params: upload begins one, uploadId goes on with one: write either"}
	case upload && (p.Append || p.Truncate):
		return badParams{text: "params: an upload is a whole new file: append and truncate do not go with it"}
	case p.Last && !upload:
		return badParams{text: "params: last is for uploads"}
	case p.Abandon && (p.UploadID == "" || p.Last || p.Content != "" || p.Offset != nil):
		return badParams{text: "params: abandon goes with uploadId alone"}
	case p.Abandon:
		return nil
	case p.UploadID != "" && p.Offset == nil:
		return badParams{text: "params: a further chunk of an upload needs its offset"}
	}
	return nil
}

// uploading is one upload between its chunks.
type uploading struct {
	mu   sync.Mutex  // one chunk at a time
	up   *vfs.Upload // nil: it is about to begin
	path guard.Path
	idle *time.Timer // gives the upload up when no chunk comes for uploadIdle
	done bool
}

// uploadIdle is how long an upload may wait for its next chunk: what is under way
// in nobody's interest holds a descriptor, disk space and the file's one upload.
const uploadIdle = 5 * time.Minute

func (u *uploading) abort() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done {
		return
	}
	u.done = true
	if u.up != nil {
		u.idle.Stop()
		u.up.Abort()
	}
}

// uploadChunk takes one chunk. The file appears with the last; until then
// nothing has a name, so an upload that is given up leaves nothing.
func (s *Session) uploadChunk(r *request, p *wire.WriteParams, q guard.Path, data []byte) (*wire.WriteResult, error) {
	id := p.UploadID
	var u *uploading
	if p.Upload {
		var err error
		if id, u, err = s.beginUpload(r, p, q); err != nil {
			return nil, err
		}
	} else {
		s.mu.Lock()
		u = s.uploads[id]
		s.mu.Unlock()
		if u == nil || u.path != q {
			return nil, s.noUpload(id, q)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done {
		return nil, s.noUpload(id, q)
	}
	u.idle.Reset(uploadIdle)
	if p.Abandon {
		s.forget(id, u)
		return &wire.WriteResult{}, nil
	}
	var off int64
	if p.Offset != nil {
		off = *p.Offset
	}
	res := &wire.WriteResult{UploadID: id}
	n, err := u.up.WriteAt(r.ctx, s.caller, data, off)
	res.BytesWritten = int64(n)
	if err != nil && p.Upload { // the peer does not know its id
		s.forget(id, u)
		return nil, err
	} else if err != nil {
		return res, err
	}
	res.Size = u.up.Size()
	if !p.Last {
		return res, nil
	}
	info, err := u.up.Commit(r.ctx, s.caller)
	if err == nil || p.Upload || u.up.Over() {
		s.forget(id, u)
	}
	switch {
	case err != nil && u.done:
		return nil, &hinted{err: err, hint: beginAgain, final: true}
	case err != nil: // what is wrong may pass, or can be sent
		return res, &hinted{err: err, hint: "the upload is still open: send what is missing, or this last chunk again"}
	}
	res.Size, res.ETag = info.Size, vfs.ETag(&info)
	return res, nil
}

const beginAgain = "begin again with upload"

// noUpload answers for an upload that is over, or never was.
func (s *Session) noUpload(id string, q guard.Path) error {
	s.mu.Lock()
	revoked := s.revoked[id] == q && q.Root != ""
	s.mu.Unlock()
	if revoked {
		return &hinted{err: &guard.Error{Op: names.OpReplace, Path: q, Kind: names.Revoked}, hint: beginAgain}
	}
	return &hinted{
		err:   &guard.Error{Op: names.OpReplace, Path: q, Kind: names.Conflict, Err: errors.New("there is no such upload of this file")},
		hint:  "it was completed or given up: " + beginAgain,
		final: true,
	}
}

// forget ends an upload whose lock is held; Abort after Commit does nothing.
func (s *Session) forget(id string, u *uploading) {
	u.done = true
	u.idle.Stop()
	u.up.Abort()
	s.mu.Lock()
	delete(s.uploads, id)
	s.mu.Unlock()
}

// beginUpload begins one in the place that it has taken among the session's, so
// that what ends those while it begins ends it, too.
func (s *Session) beginUpload(r *request, p *wire.WriteParams, q guard.Path) (string, *uploading, error) {
	id, u := NewID(), &uploading{path: q}
	if err := s.addUpload(id, u); err != nil {
		return "", nil, err
	}
	up, err := s.b.cfg.Tree.BeginUpload(r.ctx, s.caller, q, condition(p))
	u.mu.Lock()
	ended := u.done
	if err == nil && !ended {
		u.up, u.idle = up, time.AfterFunc(uploadIdle, func() { s.giveUp(id) })
		u.mu.Unlock()
		return id, u, nil
	}
	u.mu.Unlock()
	if err == nil {
		up.Abort()
		err = &guard.Error{Kind: names.Conflict, Path: q, Err: errors.New("the session or the root's rights ended while the upload began")}
	}
	s.mu.Lock()
	delete(s.uploads, id)
	s.mu.Unlock()
	return "", nil, err
}

func (s *Session) addUpload(id string, u *uploading) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return &guard.Error{Kind: names.Revoked, Path: u.path}
	case s.limits.Uploads > 0 && len(s.uploads) >= s.limits.Uploads:
		return &hinted{
			err:   &guard.Error{Kind: names.Quota, Path: u.path, Err: errors.New("too many uploads at a time")},
			limit: int64(s.limits.Uploads), hint: "complete one, or give it up with abandon",
		}
	}
	s.uploads[id] = u
	return nil
}

// giveUp ends an upload whose next chunk did not come.
func (s *Session) giveUp(id string) {
	s.mu.Lock()
	u := s.uploads[id]
	delete(s.uploads, id)
	s.mu.Unlock()
	if u != nil {
		u.abort()
	}
}

// maxRevoked bounds the uploads of which it is remembered that the end of their
// root ended them; of others a server learns that there is none.
const maxRevoked = 256

// dropUploads gives up the uploads into a root that ended or was narrowed.
func (s *Session) dropUploads(c guard.Change) {
	s.mu.Lock()
	var drop []*uploading
	for id, u := range s.uploads {
		if u.path.Root == c.Root {
			drop = append(drop, u)
			delete(s.uploads, id)
			if len(s.revoked) >= maxRevoked {
				clear(s.revoked)
			}
			s.revoked[id] = u.path
		}
	}
	s.mu.Unlock()
	for _, u := range drop {
		u.abort()
	}
}
