//go:build linux

package posix

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// entry is one record of getdents64.
type entry struct {
	ino  uint64
	next int64 // where the entry after this one is (telldir)
	typ  byte
	name string
}

// getdents reads one buffer of entries. At the end of the directory it returns no entries.
func getdents(fd, size int) ([]entry, error) {
	buf := make([]byte, size)
	n, err := unix.Getdents(fd, buf)
	if err != nil {
		return nil, err
	}
	var out []entry
	for b := buf[:n]; len(b) > 0; {
		reclen := binary.NativeEndian.Uint16(b[16:])
		name := b[19:reclen]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		out = append(out, entry{
			ino:  binary.NativeEndian.Uint64(b),
			next: int64(binary.NativeEndian.Uint64(b[8:])),
			typ:  b[18],
			name: string(name),
		})
		b = b[reclen:]
	}
	return out, nil
}

// list reads fd to its end in buffers of size bytes.
func (s *scene) list(fd, size int) []entry {
	s.Helper()
	var all []entry
	for {
		es, err := getdents(fd, size)
		if err != nil {
			s.must(err, "getdents")
		}
		if len(es) == 0 {
			return all
		}
		all = append(all, es...)
	}
}

func (s *scene) openDir(p string) int {
	s.Helper()
	fd, err := unix.Open(s.path(p), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	s.must(err, "open %q", p)
	s.Cleanup(func() { unix.Close(fd) })
	return fd
}

// count returns how often each name occurs.
func count(es []entry) map[string]int {
	m := map[string]int{}
	for _, e := range es {
		m[e.name]++
	}
	return m
}

func testReaddir(s *scene) {
	s.sub("kinds", func(s *scene) {
		s.mkdir("d", 0o755)
		dt := map[uint32]byte{unix.S_IFREG: unix.DT_REG, unix.S_IFDIR: unix.DT_DIR, unix.S_IFIFO: unix.DT_FIFO, unix.S_IFBLK: unix.DT_BLK, unix.S_IFCHR: unix.DT_CHR, unix.S_IFSOCK: unix.DT_SOCK, unix.S_IFLNK: unix.DT_LNK}
		for _, k := range s.kinds() {
			s.create(k, "d/"+k.name, 0)
		}
		es := s.list(s.openDir("d"), 4096)
		eq(s, len(es), len(s.kinds())+2, "entries")
		for _, e := range es {
			st := s.lstat("d/" + e.name)
			s.yes(e.typ == dt[st.Mode&unix.S_IFMT] || e.typ == unix.DT_UNKNOWN, "type of %q: %d", e.name, e.typ)
			if e.name != ".." {
				eq(s, e.ino, st.Ino, "inode of %q", e.name)
			}
		}
		eq(s, count(es)["."], 1, "entries called .")
		eq(s, count(es)[".."], 1, "entries called ..")
	})
	s.sub("seek", readdirSeek)
	s.sub("rewind", readdirRewind)
	s.sub("remove_while_reading", readdirRemove)
	s.sub("errors", func(s *scene) {
		s.file("f", 0o644)
		_, err := getdents(s.openLocal("f"), 100)
		s.errno(unix.ENOTDIR, err, "getdents of a file")
		_, err = getdents(s.openDir("."), 4)
		s.errno(unix.EINVAL, err, "getdents into too small a buffer")
		_, err = getdents(987, 100)
		s.errno(unix.EBADF, err, "getdents of a descriptor that is not open")
	})
	s.sub("two_readers", func(s *scene) {
		for i := range 500 {
			s.file(fmt.Sprint("f", i), 0o644)
		}
		a, b := s.openDir("."), s.openDir(".")
		var la, lb []entry
		for i := 0; ; i++ {
			ea, err := getdents(a, 400)
			s.must(err, "getdents")
			eb, err := getdents(b, 900)
			s.must(err, "getdents")
			la, lb = append(la, ea...), append(lb, eb...)
			if len(ea) == 0 && len(eb) == 0 {
				break
			}
		}
		eq(s, len(la), 502, "entries of the first")
		eq(s, len(lb), 502, "entries of the second")
		eq(s, len(count(la)), 502, "different entries of the first")
	})
}

// readdirSeek: seeking to the position in an entry leads to the entry after it.
func readdirSeek(s *scene) {
	for i := range 300 {
		s.file(fmt.Sprintf("file-with-a-longer-name-%03d", i), 0o644)
	}
	fd := s.openDir(".")
	all := s.list(fd, 1000)
	eq(s, len(all), 302, "entries")
	eq(s, len(count(all)), 302, "different entries")
	for _, i := range []int{0, 1, 7, 150, 299, 100, 300, 2} {
		_, err := unix.Seek(fd, all[i].next, unix.SEEK_SET)
		s.ok(err, "seek to entry %d", i)
		es, err := getdents(fd, 1000)
		s.ok(err, "getdents at entry %d", i)
		if s.yes(len(es) > 0, "nothing after entry %d", i) {
			eq(s, es[0].name, all[i+1].name, "the entry after %d", i)
		}
	}
	_, err := unix.Seek(fd, all[301].next, unix.SEEK_SET)
	s.ok(err, "seek to the end")
	es, err := getdents(fd, 1000)
	s.ok(err, "getdents at the end")
	eq(s, len(es), 0, "entries at the end")
}

// readdirRewind: after going back to the start, new names are there and removed ones are
// not.
func readdirRewind(s *scene) {
	for i := range 100 {
		s.file(fmt.Sprint("old", i), 0o644)
	}
	fd := s.openDir(".")
	eq(s, len(s.list(fd, 4096)), 102, "entries")
	for i := range 50 {
		s.file(fmt.Sprint("new", i), 0o644)
		s.must(s.root.Unlink(fmt.Sprint("old", i)), "unlink")
	}
	s.must(s.root.Rename("old99", "renamed"), "rename")
	_, err := unix.Seek(fd, 0, unix.SEEK_SET)
	s.ok(err, "rewind")
	got := count(s.list(fd, 4096))
	eq(s, len(got), 102, "entries after the changes")
	for i := range 50 {
		eq(s, got[fmt.Sprint("new", i)], 1, "new%d", i)
		eq(s, got[fmt.Sprint("old", i)], 0, "old%d, which was removed", i)
	}
	eq(s, got["renamed"], 1, "renamed")
	eq(s, got["old99"], 0, "the old name")
}

// readdirRemove reads a large directory and removes every second entry of each buffer after
// reading the buffer. Every name must be seen exactly once. After a rewind the list must have
// exactly the names that were not removed.
func readdirRemove(s *scene) {
	n := 10000
	if s.run.opt.Light {
		n = 1500
	}
	s.mkdir("d", 0o755)
	dir := s.openDir("d")
	for i := range n {
		fd, err := unix.Openat(dir, fmt.Sprintf("entry%05d", i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			s.must(err, "create entry %d", i)
		}
		unix.Close(fd)
	}
	seen, removed := map[string]int{}, map[string]bool{}
	for {
		es, err := getdents(dir, 8192)
		s.must(err, "getdents")
		if len(es) == 0 {
			break
		}
		for i, e := range es {
			seen[e.name]++
			if i%2 == 0 && e.name[0] != '.' {
				if err := unix.Unlinkat(dir, e.name, 0); err != nil {
					s.must(err, "unlink %q", e.name)
				}
				removed[e.name] = true
			}
		}
	}
	twice, missed := 0, 0
	for i := range n {
		switch c := seen[fmt.Sprintf("entry%05d", i)]; {
		case c > 1:
			twice++
		case c == 0:
			missed++
		}
	}
	eq(s, twice, 0, "entries seen twice")
	eq(s, missed, 0, "entries missed")
	_, err := unix.Seek(dir, 0, unix.SEEK_SET)
	s.ok(err, "rewind")
	left := count(s.list(dir, 1<<16))
	eq(s, len(left), n+2-len(removed), "entries left")
	ghosts := 0
	for name := range left {
		if removed[name] {
			ghosts++
		}
	}
	eq(s, ghosts, 0, "entries listed after they were removed")
}
