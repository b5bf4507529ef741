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

// uploading is one upload between its chunks.
type uploading struct {
	path guard.Path

	mu    sync.Mutex  // held for each chunk; guards the fields below
	up    *vfs.Upload // nil until it has begun
	idle  *time.Timer // ends the upload if no chunk comes for uploadIdle
	ended bool
}

// uploadIdle is how long an upload may wait for its next chunk. While it waits it
// holds a descriptor, disk space and the file's one upload.
const uploadIdle = 5 * time.Minute

func (u *uploading) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.endLocked()
}

// endLocked ends the upload. An upload that was not committed leaves nothing.
func (u *uploading) endLocked() {
	u.ended = true
	if u.up != nil {
		u.idle.Stop()
		u.up.Abort() // does nothing after Commit
	}
}

// uploadChunk writes one chunk. The file appears with the last one; until then
// nothing has a name, so an upload that is given up leaves nothing.
func (s *Session) uploadChunk(r *request, p *wire.WriteParams, q guard.Path, data []byte, res *wire.WriteResult) error {
	id := p.UploadID
	var u *uploading
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

// noUpload is the error for an upload that has ended, or never began.
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

// beginUpload begins an upload. It registers it with the session first, so that a Close
// or a revocation meanwhile ends it, too.
func (s *Session) beginUpload(r *request, p *wire.WriteParams, q guard.Path) (string, *uploading, error) {
	id, u := NewID(), &uploading{path: q}
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

func (s *Session) addUpload(id string, u *uploading) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.oneMoreLocked(u.path, len(s.uploads), s.limits.Uploads, "too many uploads at a time", "complete one, or give it up with abandon")
	if err == nil {
		s.uploads[id] = u
	}
	return err
}

// removeUpload removes an upload from the session and returns it, nil if there is none.
func (s *Session) removeUpload(id string) *uploading {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uploads[id]
	delete(s.uploads, id)
	return u
}

// maxRevoked bounds Session.revoked. For an upload that is not in it, the error is that there is
// no such upload.
const maxRevoked = 256

// dropUploads ends the uploads into a root that ended or was narrowed.
func (s *Session) dropUploads(root guard.RootName) {
	s.mu.Lock()
	var drop []*uploading
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
