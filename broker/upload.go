package broker

import (
	"errors"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// sessionUpload is one upload of a session, from its first chunk until it ends.
type sessionUpload struct {
	path guard.Path

	mu    sync.Mutex  // held while a chunk is written; guards the fields below
	up    *vfs.Upload // nil until Tree.BeginUpload has returned
	idle  *time.Timer // ends the upload if no chunk comes for uploadIdle
	ended bool
}

// uploadIdle is how long an upload may wait for its next chunk. An upload that waits holds a
// descriptor and disk space, and keeps other uploads away from its file.
const uploadIdle = 5 * time.Minute

func (u *sessionUpload) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.endLocked()
}

// endLocked ends the upload. An upload that was not committed leaves nothing.
func (u *sessionUpload) endLocked() {
	u.ended = true
	if u.up != nil {
		u.idle.Stop()
		u.up.Abort() // does nothing after Commit
	}
}

// uploadChunk writes one chunk of an upload. The first chunk begins the upload, and the last chunk
// commits it. Only then does the file appear, so an upload that is given up leaves nothing. With
// p.Abandon uploadChunk writes nothing and gives up the upload.
func (s *Session) uploadChunk(r *request, p *wire.WriteParams, q guard.Path, data []byte, res *wire.WriteResult) error {
	id := p.UploadID
	var u *sessionUpload
	if p.Upload {
		var err error
		if id, u, err = s.beginUpload(r, p, q); err != nil {
			return err
		}
	} else {
		s.mu.Lock()
		u = s.uploads[id]
		s.mu.Unlock()
		if u == nil || u.path != q {
			return s.noUpload(id, q)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return s.noUpload(id, q)
	}
	u.idle.Reset(uploadIdle)
	end := func() {
		u.endLocked()
		s.removeUpload(id)
	}
	if p.Abandon {
		end()
		return nil
	}
	var off int64
	if p.Offset != nil {
		off = *p.Offset
	}
	n, err := u.up.WriteAt(r.ctx, s.caller, data, off)
	if err != nil && p.Upload { // the peer does not know the upload's id
		end()
		return err
	}
	res.UploadID, res.BytesWritten = id, int64(n)
	if err != nil {
		return err
	}
	res.Size = u.up.Size()
	if !p.Last {
		return nil
	}
	info, err := u.up.Commit(r.ctx, s.caller)
	if err == nil || p.Upload || u.up.HasEnded() {
		end()
	}
	switch {
	case err != nil && u.ended:
		res.BytesWritten = 0
		return &hinted{err: err, hint: beginAgain, final: true}
	case err != nil: // the cause may pass, or the peer can send what is missing
		return &hinted{err: err, hint: "the upload is still open: send what is missing, or this last chunk again"}
	}
	res.Size, res.ETag = info.Size, vfs.ETag(&info)
	return nil
}

const beginAgain = "begin again with upload"

// noUpload returns the error for an id that is not the id of an open upload of q. The kind of the
// error is Revoked if the upload ended because q's root ended or was narrowed.
func (s *Session) noUpload(id string, q guard.Path) error {
	s.mu.Lock()
	path, revoked := s.revoked[id]
	s.mu.Unlock()
	if revoked && path == q {
		return &hinted{err: &guard.Error{Op: names.OpReplace, Path: q, Kind: names.Revoked}, hint: beginAgain}
	}
	return &hinted{
		err:   &guard.Error{Op: names.OpReplace, Path: q, Kind: names.Conflict, Err: errors.New("there is no such upload of this file")},
		hint:  "it was completed or given up: " + beginAgain,
		final: true,
	}
}

// beginUpload begins an upload and returns its id. It registers the upload with the session before
// Tree.BeginUpload, so that a Close or a revocation during that call ends the upload, too.
func (s *Session) beginUpload(r *request, p *wire.WriteParams, q guard.Path) (string, *sessionUpload, error) {
	id, u := NewID(), &sessionUpload{path: q}
	if err := s.addUpload(id, u); err != nil {
		return "", nil, err
	}
	up, err := s.b.cfg.Tree.BeginUpload(r.ctx, s.caller, q, condition(p))
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		u.up, u.idle = up, time.AfterFunc(uploadIdle, func() {
			if u := s.removeUpload(id); u != nil {
				u.end()
			}
		})
		if u.ended {
			u.endLocked()
			err = &guard.Error{Kind: names.Conflict, Path: q, Err: errors.New("the session or the root's rights ended while the upload began")}
		}
	}
	if err != nil {
		s.removeUpload(id)
		return "", nil, err
	}
	return id, u, nil
}

func (s *Session) addUpload(id string, u *sessionUpload) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.oneMoreLocked(u.path, len(s.uploads), s.limits.Uploads, "too many uploads at a time", "complete one, or give it up with abandon")
	if err == nil {
		s.uploads[id] = u
	}
	return err
}

// removeUpload removes an upload from the session and returns it, nil if there is none.
func (s *Session) removeUpload(id string) *sessionUpload {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uploads[id]
	delete(s.uploads, id)
	return u
}

// maxRevoked bounds the number of entries of Session.revoked: dropUploads clears the map when it is
// full. Later chunks of a cleared upload get the error that there is no such upload, instead of the
// error that the root was revoked.
const maxRevoked = 256

// dropUploads ends the session's uploads into a root that ends or was narrowed.
func (s *Session) dropUploads(root guard.RootName) {
	s.mu.Lock()
	var drop []*sessionUpload
	for id, u := range s.uploads {
		if u.path.Root == root {
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
		u.end()
	}
}
