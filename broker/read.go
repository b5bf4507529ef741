package broker

import (
	"errors"
	"mime"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// maxEncoded bounds the JSON of one text chunk, in bytes: a megabyte of control characters
// becomes six megabytes of JSON.
const maxEncoded = 16 << 20

func (s *Session) read(r *request, p *wire.ReadParams) (any, error) {
	length := int64(wire.DefaultChunk)
	if p.Length != nil {
		length = *p.Length
	}
	switch {
	case p.Encoding != "" && p.Encoding != wire.UTF8 && p.Encoding != wire.Base64:
		return nil, badParams{text: "params: encoding must be utf-8 or base64"}
	case p.Offset < 0:
		return nil, badParams{text: "params: offset must not be negative"}
	case length < 0:
		return nil, badParams{text: "params: length must not be negative"}
	case s.limits.MaxChunk > 0 && length > s.limits.MaxChunk:
		return nil, &hinted{
			err:   &guard.Error{Kind: names.Quota, Err: errors.New("length is more than one request may read")},
			limit: s.limits.MaxChunk, hint: "read in chunks with offset and length",
		}
	}
	q, err := s.path(r, "path", p.Path)
	if err != nil {
		return nil, err
	}
	if p.Encoding != wire.Base64 {
		return s.readText(r, p, q, length)
	}
	data, info, err := s.readAt(r, p, q, p.Offset, length)
	if err != nil {
		return nil, err
	}
	return newReadResult(p, q, data, p.Offset, p.Offset+int64(len(data)), info), nil
}

// readAt reads up to length bytes. It reserves room for the bytes and their encoding until r is
// answered.
func (s *Session) readAt(r *request, p *wire.ReadParams, q guard.Path, off, length int64) ([]byte, *vfs.Info, error) {
	data, info, err := s.b.cfg.Tree.ReadChunk(r.ctx, s.caller, q, off, length, p.IfMatch, func(n int64) ([]byte, error) {
		if err := s.limits.spendBytes(n); err != nil {
			return nil, err
		}
		if err := s.hold(r, 2*n); err != nil { // the bytes and their encoding
			return nil, err
		}
		return make([]byte, n), nil
	})
	if err != nil {
		return nil, nil, s.conflict(r, err)
	}
	s.stats.read.Add(int64(len(data)))
	return data, &info, nil
}

// readText reads characters. A character belongs to the chunk in which its first byte
// lies: up to three bytes at the front belong to the chunk before, and up to
// three behind the end belong to this one. So the chunks joined are the file,
// whether the peer goes on at offset+length or after the bytes it got.
func (s *Session) readText(r *request, p *wire.ReadParams, q guard.Path, length int64) (any, error) {
	const longest = utf8.UTFMax - 1
	before := min(p.Offset, longest)
	data, info, err := s.readAt(r, p, q, p.Offset-before, before+length+longest)
	if err != nil {
		return nil, err
	}
	lo := int(min(before, int64(len(data))))
	for lo > 0 && lo < len(data) && !utf8.RuneStart(data[lo]) && completes(data, lo) {
		lo++
	}
	hi := int(min(before+length, int64(len(data))))
	for hi > lo && hi < len(data) && !utf8.RuneStart(data[hi]) {
		hi++
	}
	chunk := data[lo:max(lo, hi)]
	if !utf8.Valid(chunk) {
		return nil, &hinted{
			err:  &guard.Error{Op: names.OpRead, Path: q, Kind: names.IO, Err: errors.New("the contents are not UTF-8")},
			hint: `read it with "encoding": "base64"`,
		}
	}
	if n := jsonline.EncodedLen(chunk); n > maxEncoded {
		return nil, &hinted{
			err:   &guard.Error{Op: names.OpRead, Path: q, Kind: names.Quota, Err: errors.New("the chunk is too large as JSON")},
			limit: maxEncoded, hint: "read it as base64, or with a smaller length",
		}
	}
	first := p.Offset - before + int64(lo)
	return newReadResult(p, q, chunk, first, first+int64(len(chunk)), info), nil
}

// completes reports whether the continuation byte at i belongs to a character
// that begins before it in data.
func completes(data []byte, i int) bool {
	for j := i - 1; j >= 0 && i-j < utf8.UTFMax; j-- {
		if utf8.RuneStart(data[j]) {
			_, n := utf8.DecodeRune(data[j:])
			return n > i-j
		}
	}
	return false
}

func newReadResult(p *wire.ReadParams, q guard.Path, data []byte, first, next int64, info *vfs.Info) *readResult {
	res := &readResult{data: data}
	var head []byte
	if first == 0 {
		head = data[:min(len(data), 512)]
	}
	res.ReadResult = wire.ReadResult{
		Size: info.Size, MimeType: mimeType(q.Rel(), head), Encoding: p.Encoding,
		EOF: next >= info.Size, Next: next,
		ETag: vfs.ETag(info), MTime: formatTime(info.ModTime()),
	}
	if res.Encoding == "" {
		res.Encoding = wire.UTF8
	}
	return res
}

// codeTypes are the MIME types of source and text files, by extension. For many of these
// extensions the answer of package mime depends on configuration files of the machine.
var codeTypes = map[string]string{
	".c": "text/x-c", ".cpp": "text/x-c++", ".cs": "text/x-csharp", ".go": "text/x-go", ".h": "text/x-c",
	".java": "text/x-java", ".js": "text/javascript", ".json": "application/json", ".kt": "text/x-kotlin",
	".md": "text/markdown", ".mjs": "text/javascript", ".py": "text/x-python", ".rb": "text/x-ruby",
	".rs": "text/x-rust", ".sh": "text/x-shellscript", ".sql": "application/sql", ".swift": "text/x-swift",
	".toml": "application/toml", ".ts": "text/x-typescript", ".tsx": "text/x-typescript", ".txt": "text/plain",
	".yaml": "application/yaml", ".yml": "application/yaml",
}

// mimeType returns the MIME type by the extension of name or, if it is unknown, by head, the
// first bytes of the file.
func mimeType(name string, head []byte) string {
	ext := strings.ToLower(path.Ext(name))
	if t := codeTypes[ext]; t != "" {
		return t
	}
	if t := mime.TypeByExtension(ext); t != "" {
		t, _, _ = strings.Cut(t, ";")
		return t
	}
	if len(head) > 0 {
		t, _, _ := strings.Cut(http.DetectContentType(head), ";")
		return t
	}
	return "application/octet-stream"
}
