package vfs

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// A cursor is the state of a listing: the path of the innermost directory below the start, and
// the position in it and in each directory above it. The server keeps no state. The cursor is
// authenticated together with its context: the caller's subject, the lifetime of the root, the path
// and the options of the listing. So no caller can forge or alter a cursor, or use that of another
// subject.
//
//	MAC of 16 bytes · number of levels below the start · length of the path · path · positions
//
// A position is one byte 0 if it equals the one before, else a byte 1 and eight bytes. In a
// deep and narrow tree most positions are equal: the end of the directory.

// seal is the context of a cursor. It makes a cursor (encode) and checks one (decode).
type seal struct {
	caller guard.Caller
	path   guard.Path
	base   string
	epoch  uint64
	o      ListOptions
}

const (
	cursorMAC = 16
	maxCursor = (cursorMAC + 2*binary.MaxVarintLen64 + walk.MaxPath + 9*(walk.MaxDepth+1)) * 4 / 3
)

var errCursor = errors.New("the cursor is not one of this listing; start again without a cursor")

// encode makes a cursor from the position of a walk (walk.Walker.Position).
func (s *seal) encode(path []byte, offs []int64) string {
	b := make([]byte, cursorMAC, cursorMAC+2*binary.MaxVarintLen64+len(path)+9*len(offs))
	b = binary.AppendUvarint(b, uint64(len(offs)-1))
	b = binary.AppendUvarint(b, uint64(len(path)))
	b = append(b, path...)
	last := int64(0)
	for _, off := range offs {
		if off == last {
			b = append(b, 0)
			continue
		}
		b = binary.LittleEndian.AppendUint64(append(b, 1), uint64(off))
		last = off
	}
	copy(b, s.mac(b[cursorMAC:]))
	return base64.RawURLEncoding.EncodeToString(b)
}

// decode checks a cursor, and returns the names below the start and a position for the start and
// for each of the names.
func (s *seal) decode(cursor string) (elems []string, offs []int64, err error) {
	bad := &guard.Error{Kind: names.Invalid, Err: errCursor}
	if len(cursor) > maxCursor {
		return nil, nil, bad
	}
	// Strict refuses a text that differs from a cursor only in its unused bits.
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) < cursorMAC || !hmac.Equal(b[:cursorMAC], s.mac(b[cursorMAC:])) {
		return nil, nil, bad
	}
	r := bytes.NewReader(b[cursorMAC:])
	n, err1 := binary.ReadUvarint(r)
	length, err2 := binary.ReadUvarint(r)
	if err1 != nil || err2 != nil || n > walk.MaxDepth || length > uint64(r.Len()) {
		return nil, nil, bad
	}
	path := make([]byte, length)
	_, _ = r.Read(path)
	if length > 0 {
		elems = strings.Split(string(path), "/")
	}
	if uint64(len(elems)) != n {
		return nil, nil, bad
	}
	last := int64(0)
	for range n + 1 {
		kind, err := r.ReadByte()
		if err == nil && kind == 1 {
			err = binary.Read(r, binary.LittleEndian, &last)
		}
		if err != nil {
			return nil, nil, bad
		}
		offs = append(offs, last)
	}
	return elems, offs, nil
}

// mac authenticates a cursor's text together with its context.
func (s *seal) mac(text []byte) []byte {
	h := hmac.New(sha256.New, processKey())
	var b [8]byte
	number := func(n uint64) {
		binary.LittleEndian.PutUint64(b[:], n)
		h.Write(b[:])
	}
	for _, part := range []string{"list cursor", string(s.caller.Subject), string(s.path.Root), s.path.Rel(), s.base, s.o.Glob} {
		number(uint64(len(part)))
		h.Write([]byte(part))
	}
	flags := uint64(0)
	for i, set := range []bool{s.o.Recursive, s.o.Hidden, s.o.Follow, s.o.NoInfo} {
		if set {
			flags |= 1 << i
		}
	}
	number(flags)
	number(uint64(s.o.Depth))
	number(s.epoch)
	h.Write(text)
	return h.Sum(nil)[:cursorMAC]
}
