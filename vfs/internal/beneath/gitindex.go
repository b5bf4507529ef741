package beneath

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"strings"

	"golang.org/x/sys/unix"
)

// `git status` writes the index anew, with the times and inode numbers of files. Git finds these
// again if they are lost. So only the entries of an index are hashed, and an index that git has only
// refreshed counts as unchanged.

// isGitIndex reports whether a path is the index of a git repository.
func isGitIndex(rel string) bool {
	return strings.HasSuffix(rel, "/index") && strings.Contains("/"+rel, "/.git/") || rel == ".git/index"
}

// EntriesHash returns the hash of the entries of the git index at a path, without cached data.
// ok is false if the path is not that of an index, or the file is no regular one, is larger than
// maxHashed, cannot be read or has an unknown format. fd may be a reference.
func EntriesHash(rel string, fd int) (sum [sha256.Size]byte, ok bool) {
	if !isGitIndex(rel) {
		return sum, false
	}
	info, err := stat(fd)
	if err != nil || !info.IsRegular() || info.Size > maxHashed {
		return sum, false
	}
	in, err := reopenQuietly(fd)
	if err != nil {
		return sum, false
	}
	defer unix.Close(in)
	text := make([]byte, info.Size)
	n, err := Pread(in, text, 0)
	if err != nil || n != len(text) {
		return sum, false
	}
	h := sha256.New()
	if !hashIndex(h, text) {
		return sum, false
	}
	return [sha256.Size]byte(h.Sum(nil)), true
}

const (
	indexHeader   = 12 // signature, version, number of entries
	entryStat     = 40 // times, device, inode, mode, owner and size
	entryMode     = 24 // the offset of the mode in the first entryStat bytes
	entryObject   = sha1.Size
	entryExtended = 0x4000 // in the flags: two more bytes follow
)

// hashIndex writes the entries of an index of version 2 or 3 to h. It reports false for
// anything else: another version, other hashes than SHA-1, a split or a damaged index.
func hashIndex(h hash.Hash, text []byte) bool {
	end := len(text) - sha1.Size
	if end < indexHeader || string(text[:4]) != "DIRC" || sha1.Sum(text[:end]) != [sha1.Size]byte(text[end:]) {
		return false
	}
	version, count := binary.BigEndian.Uint32(text[4:]), binary.BigEndian.Uint32(text[8:])
	if version != 2 && version != 3 {
		return false
	}
	rest := text[indexHeader:end]
	for range count {
		const fixed = entryStat + entryObject + 2
		if len(rest) < fixed {
			return false
		}
		at := fixed
		if binary.BigEndian.Uint16(rest[fixed-2:])&entryExtended != 0 {
			at += 2
		}
		name := bytes.IndexByte(rest[min(at, len(rest)):], 0)
		if name < 0 {
			return false
		}
		h.Write(rest[entryMode : entryMode+4])
		h.Write(rest[entryStat : at+name+1])
		// An entry ends in 1 to 8 zeros, and takes a multiple of 8 bytes.
		next := (at + name + 8) &^ 7
		if next > len(rest) {
			return false
		}
		rest = rest[next:]
	}
	return onlyCaches(rest)
}

// onlyCaches reports whether all extensions of an index are optional. Git gives these a
// signature that begins with a capital letter.
func onlyCaches(rest []byte) bool {
	for len(rest) > 0 {
		if len(rest) < 8 || rest[0] < 'A' || rest[0] > 'Z' {
			return false
		}
		size := uint64(binary.BigEndian.Uint32(rest[4:]))
		if size > uint64(len(rest)-8) {
			return false
		}
		rest = rest[8+size:]
	}
	return true
}
