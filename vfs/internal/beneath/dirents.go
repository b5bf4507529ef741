package beneath

import (
	"bytes"
	"encoding/binary"
)

// Entry is one name in a directory.
type Entry struct {
	Name string
	Ino  uint64
	Type uint32 // S_IFREG and so on; 0 when the file system does not tell
	Off  uint64 // where reading continues after this entry, for Names.SeekTo
}

// parseDirents reads struct linux_dirent64 of getdents64(2), and leaves out the entries for
// which keep returns false. text, unless "", is buf as a string: the names are then parts of
// it. That costs less than a string for each name, and keeps all of text in memory as long
// as one of the names is kept.
func parseDirents(buf []byte, text string, keep func(e *Entry) bool) []Entry {
	out := make([]Entry, 0, countDirents(buf))
	var e Entry // one for all entries: keep gets its address, so each would be allocated
	for at := 0; ; {
		reclen := direntLen(buf[at:])
		if reclen == 0 {
			return out
		}
		d := buf[at : at+reclen]
		from := at + direntHead
		at += reclen
		name := d[direntHead:]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		e = Entry{
			Ino:  binary.NativeEndian.Uint64(d),
			Off:  binary.NativeEndian.Uint64(d[8:]),
			Type: uint32(d[18]) << 12,
		}
		if text != "" {
			e.Name = text[from : from+len(name)]
		} else {
			e.Name = string(name)
		}
		if e.Ino != 0 && keep(&e) {
			out = append(out, e)
		}
	}
}

// direntHead is how many bytes come before the name in struct linux_dirent64.
const direntHead = 19

// direntLen is the length of the entry that buf begins with, 0 if there is none.
func direntLen(buf []byte) int {
	if len(buf) < direntHead {
		return 0
	}
	n := int(binary.NativeEndian.Uint16(buf[16:]))
	if n < direntHead || n > len(buf) {
		return 0
	}
	return n
}

func countDirents(buf []byte) (count int) {
	for n := direntLen(buf); n > 0; n = direntLen(buf) {
		buf = buf[n:]
		count++
	}
	return count
}
