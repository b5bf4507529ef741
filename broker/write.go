package broker

import (
	"bytes"
	"encoding/base64"
	"errors"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func (s *Session) write(r *request, p *wire.WriteParams) (any, error) {
	data, err := decodeContent(p)
	if err != nil {
		return nil, err
	}
	if err := checkWrite(p); err != nil {
		return nil, err
	}
	n := int64(len(data))
	if s.limits.MaxChunk > 0 && n > s.limits.MaxChunk {
		return nil, &hinted{
			err:   &guard.Error{Kind: names.Quota, Err: errors.New("content is more than one request may write")},
			limit: s.limits.MaxChunk, hint: "write it in chunks, as an upload",
		}
	}
	q, err := s.path(r, "path", p.Path)
	if err != nil {
		return nil, err
	}
	if err := s.limits.spendBytes(n); err != nil {
		return nil, err
	}
	end := n
	if p.Offset != nil {
		end += *p.Offset
	}
	if err := s.limits.chargeWrite(n, end); err != nil {
		return nil, err
	}
	var res wire.WriteResult
	err = s.put(r, p, q, data, &res)
	s.limits.refundWrite(n - res.BytesWritten)
	s.stats.written.Add(res.BytesWritten)
	if err != nil {
		return nil, s.conflict(r, err)
	}
	return &res, nil
}

// put writes data as the parameters say. res.BytesWritten is how many bytes of data count as
// written, also after an error. If an error ends an upload, none of them count.
func (s *Session) put(r *request, p *wire.WriteParams, q guard.Path, data []byte, res *wire.WriteResult) error {
	switch {
	case p.Upload || p.UploadID != "":
		return s.uploadChunk(r, p, q, data, res)
	case p.Offset != nil || p.Append:
		opts := vfs.WriteOptions{
			Append: p.Append, Truncate: p.Truncate, Create: p.Create || p.CreateOnly, CreateOnly: p.CreateOnly,
			ETag: p.IfMatch, Mode: 0o644, RespectLocks: true, Room: s.limits.checkSize,
		}
		if p.Offset != nil {
			opts.Off = *p.Offset
		}
		n, info, err := s.b.cfg.Tree.WriteRange(r.ctx, s.caller, q, data, opts)
		res.BytesWritten = int64(n)
		if err == nil {
			res.Size, res.ETag = info.Size, vfs.ETag(&info)
		}
		return err
	}
	info, err := s.b.cfg.Tree.Replace(r.ctx, s.caller, vfs.At{Path: q}, bytes.NewReader(data), condition(p))
	if err == nil {
		res.BytesWritten, res.Size, res.ETag = int64(len(data)), info.Size, vfs.ETag(&info)
	}
	return err
}

// condition returns the conditions that the parameters set for the file.
func condition(p *wire.WriteParams) vfs.IfMatch {
	return vfs.IfMatch{
		ETag: p.IfMatch, MustExist: !p.Create && !p.CreateOnly, MustBeNew: p.CreateOnly, Mode: 0o644, RespectLocks: true, Follow: true,
	}
}

func decodeContent(p *wire.WriteParams) ([]byte, error) {
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

// checkWrite refuses parameters that are invalid or do not go together.
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
