package beneath

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Entry is one name in a directory.
type Entry struct {
	Name string
	Ino  uint64
	Type uint32 // S_IFREG and so on; 0 when the file system does not tell
	Off  uint64 // where reading continues after this entry, for SeekDir
}

// ParseDirents reads struct linux_dirent64 of getdents64(2), and leaves out the entries for
// which keep returns false. text, unless "", is buf as a string: the names are then parts of
// it. That costs less than a string for each name, and keeps all of text in memory as long
// as one of the names is kept.
func ParseDirents(buf []byte, text string, keep func(e *Entry) bool) []Entry {
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

// EachName calls f with every name in a directory but "." and "..", until f returns
// false.
func EachName(d Dir, f func(e *Entry) bool) error {
	fd, err := OpenDirFD(d)
	if err != nil {
		return err
	}
	defer Close(fd)
	buf := make([]byte, 32<<10)
	for more := true; more; {
		n, err := Getdents(fd, buf)
		if err != nil || n == 0 {
			return err
		}
		ParseDirents(buf[:n], "", func(e *Entry) bool {
			if more && e.Name != "." && e.Name != ".." {
				more = f(e)
			}
			return false
		})
	}
	return nil
}

// OpenDirFD opens a directory for reading its entries.
func OpenDirFD(d Dir) (int, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(d.FD, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err == unix.EACCES { //nolint:errorlint // bare errno
		// "." takes the permission to search the directory, too, which reading it does not.
		return Reopen(d.FD, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	return fd, err
}

// Getdents reads directory entries in the kernel's form.
func Getdents(fd int, buf []byte) (n int, err error) {
	err = retry(func() (err error) { n, err = unix.Getdents(fd, buf); return err })
	return n, err
}

// SeekDir sets the position in a directory to an offset that an entry carried.
func SeekDir(fd int, off int64) error {
	_, err := unix.Seek(fd, off, unix.SEEK_SET)
	return err
}
