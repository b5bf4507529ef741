package beneath

import (
	"hash/fnv"
	"slices"

	"golang.org/x/sys/unix"
)

// The names of a directory of a staged root are read into memory. The names of both sides are
// sorted together, by a hash of the name. The hash is the offset, so reading can go on at an offset even
// if names were added or removed meanwhile.

const (
	// firstOffset is the smallest offset of a name other than "." and "..".
	firstOffset = 3
	// maxNamesRead is the most names that one Read returns.
	maxNamesRead = 512
)

// offsetOf returns the offset at which reading continues after a name.
func offsetOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()>>1 | firstOffset
}

// names returns the visible names in the directory, without "." and "..". If quiet is set, no
// program has asked, and the access times stay unchanged.
func (u *union) names(quiet bool) ([]Entry, error) {
	var list []Entry
	have := map[string]bool{}
	if up := u.upDir(); up >= 0 {
		err := namesIn(up, quiet, func(e *Entry) {
			have[e.Name] = true
			e.Ino = u.st.ids.inode(e.Ino, true)
			list = append(list, *e)
		})
		if err != nil {
			return nil, err
		}
	}
	if low := u.lowDir(); low >= 0 {
		err := namesIn(low, quiet, func(e *Entry) {
			if !have[e.Name] && !u.hides(e.Name) {
				e.Ino = u.st.ids.inode(e.Ino, false)
				list = append(list, *e)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// hides reports whether a whiteout hides the source's file at a name.
func (u *union) hides(name string) bool {
	return u.st.store.HasWhiteouts() && u.st.isHidden(join(u.rel, name))
}

// namesIn reads the names of one side.
func namesIn(dirfd int, quiet bool, f func(e *Entry)) error {
	openNames := openToRead
	if quiet {
		openNames = openToReadQuietly
	}
	fd, err := openNames(dirfd)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n := Names{Dir: Dir{fd: fd}}
	buf := make([]byte, 32<<10)
	for more := true; more; {
		_, more, err = n.Read(buf, false, func(e *Entry) bool {
			if e.Name != "." && e.Name != ".." {
				f(e)
			}
			return false
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mergedNames is the position in the names of a directory of a staged root.
type mergedNames struct {
	list []Entry // sorted by offset; nil: not read yet
	pos  uint64  // the offset of the last name that was read
	// byKernel allows the kernel's offsets if only one side has the directory. The first reading
	// then sets isOneSided, and onlySide is the directory of that side.
	byKernel, isOneSided bool
	onlySide             Names
	dirIno               uint64 // the inode number that the directory itself shows, if isOneSided
	quiet                bool   // see names
}

// close closes the descriptors of the reading.
func (m *mergedNames) close() {
	if m != nil {
		m.onlySide.Close()
		m.onlySide, m.isOneSided = Names{}, false
	}
}

// openOnlySide opens the directory if byKernel is set and only one side has the directory.
func (m *mergedNames) openOnlySide(u *union) (err error) {
	up, low := u.upDir(), u.lowDir()
	if up >= 0 && low >= 0 || !m.byKernel {
		return nil
	}
	m.onlySide = Names{Dir: Dir{fd: max(up, low)}}
	if m.onlySide.fd < 0 || slices.Contains(u.extra, m.onlySide.fd) { // fd is not the one that openNames has opened
		openNames := openToRead
		if m.quiet {
			openNames = openToReadQuietly
		}
		if m.onlySide.fd, err = openNames(m.onlySide.fd); err != nil {
			return err
		}
		m.onlySide.owned = true
	}
	m.isOneSided = true
	if info, err := u.dirInfo(); err == nil {
		m.dirIno = info.Ino
	}
	return m.onlySide.SeekTo(int64(m.pos))
}

// readOnlySide is read for a directory that only one side has.
func (m *mergedNames) readOnlySide(u *union, buf []byte, keep func(e *Entry) bool) (list []Entry, more bool, err error) {
	isUpper := u.upDir() >= 0
	return m.onlySide.Read(buf, false, func(e *Entry) bool {
		switch {
		case e.Name == "." || e.Name == "..":
			if m.dirIno != 0 {
				e.Ino = m.dirIno
			}
		case !isUpper && u.hides(e.Name):
			return false
		default:
			e.Ino = u.st.ids.inode(e.Ino, isUpper)
		}
		return keep(e)
	})
}

// fill reads the names.
func (m *mergedNames) fill(u *union) error {
	list, err := u.names(m.quiet)
	if err != nil {
		return err
	}
	for i := range list {
		list[i].Off = offsetOf(list[i].Name)
	}
	slices.SortFunc(list, func(a, b Entry) int {
		if a.Off != b.Off {
			if a.Off < b.Off {
				return -1
			}
			return 1
		}
		return slices.Compare([]byte(a.Name), []byte(b.Name))
	})
	for i := 1; i < len(list); i++ {
		if list[i].Off <= list[i-1].Off {
			list[i].Off = list[i-1].Off + 1 // two names with one hash
		}
	}
	dirIno := uint64(0)
	if info, err := u.dirInfo(); err == nil {
		dirIno = info.Ino
	}
	dots := []Entry{{Name: ".", Ino: dirIno, Type: unix.S_IFDIR, Off: 1}, {Name: "..", Ino: dirIno, Type: unix.S_IFDIR, Off: 2}}
	m.list = append(dots, list...)
	return nil
}

// dirInfo returns the attributes of the directory itself, as programs see them.
func (u *union) dirInfo() (Info, error) {
	fd := u.upDir()
	if fd < 0 {
		fd = u.low
	}
	info, err := stat(fd)
	if err == nil {
		u.st.show(&info)
	}
	return info, err
}

// read implements Names.Read.
func (m *mergedNames) read(u *union, buf []byte, keep func(e *Entry) bool) (list []Entry, more bool, err error) {
	if m.list == nil && !m.isOneSided {
		if err := m.openOnlySide(u); err != nil {
			return nil, false, err
		}
	}
	if m.isOneSided {
		return m.readOnlySide(u, buf, keep)
	}
	if m.list == nil {
		if err := m.fill(u); err != nil {
			return nil, false, err
		}
	}
	at, _ := slices.BinarySearchFunc(m.list, m.pos+1, func(e Entry, off uint64) int {
		if e.Off < off {
			return -1
		}
		return 1
	})
	some := m.list[at:]
	some = some[:min(len(some), maxNamesRead)]
	for i := range some {
		e := some[i]
		m.pos = e.Off
		if keep(&e) {
			list = append(list, e)
		}
	}
	return list, len(some) > 0, nil
}

func (m *mergedNames) seek(off int64) error {
	m.pos = uint64(off)
	if off == 0 {
		m.list = nil
		m.close() // read again, from both sides
	} else if m.isOneSided {
		return m.onlySide.SeekTo(off)
	}
	return nil
}
