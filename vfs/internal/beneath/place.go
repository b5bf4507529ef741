package beneath

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A place is a file system and a path in it, see package guard (index.go): what
// /proc/self/mountinfo tells of the mount that a descriptor lies on, and the
// descriptor's path below the mount point.

// Place implements the guard's question; "" on file systems that can hang, whose
// mounts need not tell which part of a server's tree they show.
func (s *source) Location() string {
	if s.remote {
		return ""
	}
	dir := s.resolved
	if s.file != "" {
		dir = filepath.Dir(dir)
	}
	p := place(s.fd, dir)
	if p != "" && s.file != "" {
		p += "/" + s.file
	}
	return p
}

// PlaceOf is the place of a name, by that of the nearest directory above it that
// exists. The name itself is not touched: it may be our own mountpoint.
func (Opener) LocationOf(path string) string {
	rest := ""
	for dir := filepath.Clean(path); dir != "/" && dir != "."; {
		rest = "/" + filepath.Base(dir) + rest
		dir = filepath.Dir(dir)
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return ""
		}
		resolved, err := fdPath(fd)
		p := ""
		if err == nil {
			p = place(fd, resolved)
		}
		_ = unix.Close(fd)
		if p == "" {
			return ""
		}
		return p + rest
	}
	return ""
}

// place is that of a directory, which fd refers to and path leads to.
func place(fd int, path string) string {
	m, ok := mountOf(fd)
	if !ok {
		return ""
	}
	below := strings.TrimPrefix(path, strings.TrimSuffix(m.point, "/"))
	if below == path && m.point != "/" || below != "" && below[0] != '/' {
		return "" // moved in between, or covered by another mount
	}
	return strings.TrimSuffix("/"+m.dev+strings.TrimSuffix(m.root, "/")+below, "/")
}

// mountOf is the mount that a descriptor lies on; ok is false before Linux 5.8, and
// for one that is not in the table any more. Nothing is asked but the kernel.
func mountOf(fd int) (m mountLine, ok bool) {
	var st unix.Statx_t
	err := retry(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	})
	if err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return mountLine{}, false
	}
	return mounts.find(st.Mnt_id)
}

// coveredBy reports whether a path that led to what fd refers to leads to another file
// system now, because something was mounted over it, or over a directory on the way.
// The path is not walked: what is mounted there may hang.
func coveredBy(path string, fd int) bool {
	was, ok := mountOf(fd)
	if !ok {
		return false
	}
	now, ok := mounts.at(path)
	return ok && now.dev != was.dev
}

// LeadsToLocal reports whether an absolute path without links leads to a file system
// that is known to be local, so that walking the path cannot hang. It is not walked.
func LeadsToLocal(path string) bool {
	m, ok := mounts.at(path)
	return ok && (slices.Contains([]string{"ext2", "ext3"}, m.fsType) || slices.Contains(slices.Collect(maps.Values(localTypes)), m.fsType))
}

// mounts is the table of mounts, read again when the kernel says that it has
// changed: thousands of grants look at it.
var mounts mountTable

type mountTable struct {
	mu    sync.Mutex // guards the fields below
	file  *os.File
	table map[uint64]mountLine
	on    map[mountedOn]mountLine
	top   mountLine // at "/"
}

type mountLine struct {
	id, parent       uint64
	dev, root, point string
	fsType           string
}

// mountedOn is a place where something can be mounted: a directory of a mount, by
// its path. A path alone does not do: what lies below one that was mounted over stays
// in the table.
type mountedOn struct {
	parent uint64
	point  string
}

func (t *mountTable) find(id uint64) (mountLine, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.freshLocked()
	m, ok := t.table[id]
	return m, ok
}

// at is the mount that an absolute path without links leads to.
func (t *mountTable) at(path string) (m mountLine, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.freshLocked()
	m, ok = t.top, t.top.id != 0
	for end := 0; ok && end < len(path); {
		next := strings.IndexByte(path[end+1:], '/')
		if end += next + 1; next < 0 {
			end = len(path)
		}
		for over, found := t.on[mountedOn{m.id, path[:end]}]; found; over, found = t.on[mountedOn{m.id, path[:end]}] {
			m = over
		}
	}
	return m, ok
}

func (t *mountTable) freshLocked() {
	if t.table == nil || t.changedLocked() {
		t.readLocked()
	}
}

// changedLocked asks the kernel whether the table has changed since the last
// time it was asked (proc_pid_mounts(5)).
func (t *mountTable) changedLocked() bool {
	if t.file == nil {
		return true
	}
	fds := []unix.PollFd{{Fd: int32(t.file.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(fds, 0)
	return err != nil || n != 0
}

func (t *mountTable) readLocked() {
	t.table = nil
	if t.file == nil {
		fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		t.file = os.NewFile(uintptr(fd), "/proc/self/mountinfo")
	}
	if _, err := t.file.Seek(0, 0); err != nil {
		return
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(t.file); err != nil {
		return
	}
	t.table = parseMounts(b.String())
	t.top, t.on = mountLine{}, make(map[mountedOn]mountLine, len(t.table))
	for _, m := range t.table {
		t.on[mountedOn{m.parent, m.point}] = m
		if _, child := t.table[m.parent]; m.point == "/" && (!child || m.parent == m.id) {
			t.top = m
		}
	}
	for over, ok := t.on[mountedOn{t.top.id, "/"}]; ok && over.id != t.top.id; over, ok = t.on[mountedOn{t.top.id, "/"}] {
		t.top = over
	}
}

// parseMounts reads mountinfo lines: ID, parent, device, root, mount point, options,
// and behind " - " the type of the file system.
func parseMounts(text string) map[uint64]mountLine {
	table := map[uint64]mountLine{}
	for line := range strings.SplitSeq(text, "\n") {
		f := strings.SplitN(line, " ", 6)
		if len(f) < 6 || !strings.HasPrefix(f[3], "/") {
			continue // what is mounted is no directory or file (nsfs)
		}
		if id, err := strconv.ParseUint(f[0], 10, 64); err == nil {
			parent, _ := strconv.ParseUint(f[1], 10, 64)
			_, source, _ := strings.Cut(f[5], " - ")
			fsType, _, _ := strings.Cut(source, " ")
			table[id] = mountLine{id: id, parent: parent, dev: f[2], root: unescape(f[3]), point: unescape(f[4]), fsType: fsType}
		}
	}
	return table
}

// unescape undoes the octal escapes of space, tab, newline, backslash and #.
func unescape(s string) string {
	if !strings.Contains(s, "\\") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
