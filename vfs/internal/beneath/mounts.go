package beneath

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// A location is a file system and a path in it, see guard/nesting.go. It is made from the line
// of /proc/self/mountinfo for the mount that a descriptor lies on, and from the descriptor's
// path below the mount point.

// Location implements guard.Source. It returns "" on file systems that can hang, because their
// mounts need not tell which part of a server's tree they show.
func (s *source) Location() string {
	if s.remote {
		return ""
	}
	dir := s.resolved
	if s.file != "" {
		dir = filepath.Dir(dir)
	}
	p := locationOf(s.fd, dir)
	if p != "" && s.file != "" {
		p += "/" + s.file
	}
	return p
}

// LocationOf implements guard.Opener, by the location of the nearest directory above the
// path that exists. The path's last element is not looked up: it may be the session's own
// mountpoint.
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
		resolved, err := PathOf(fd)
		p := ""
		if err == nil {
			p = locationOf(fd, resolved)
		}
		_ = unix.Close(fd)
		if p == "" {
			return ""
		}
		return p + rest
	}
	return ""
}

// locationOf returns the location of a directory. fd refers to it, and path leads to it.
func locationOf(fd int, path string) string {
	m, ok := mountOf(fd)
	if !ok {
		return ""
	}
	below := strings.TrimPrefix(path, strings.TrimSuffix(m.Mountpoint, "/"))
	if below == path && m.Mountpoint != "/" || below != "" && below[0] != '/' {
		return "" // moved in between, or covered by another mount
	}
	return strings.TrimSuffix(fmt.Sprintf("/%d:%d", m.Major, m.Minor)+strings.TrimSuffix(m.Root, "/")+below, "/")
}

// mountOf returns the mount that a descriptor lies on. ok is false before Linux 5.8, and for a
// mount that is not in the table any more. It asks only the kernel, not the file system.
func mountOf(fd int) (m *mountinfo.Info, ok bool) {
	var st unix.Statx_t
	err := retry(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	})
	if err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return nil, false
	}
	return mounts.find(int(st.Mnt_id))
}

// coveredBy reports whether path now leads to another file system than the one of fd, which was
// opened by path. For example, a file system was mounted over the path or over a directory above
// it. coveredBy does not walk the path, because the other file system may hang.
func coveredBy(path string, fd int) bool {
	was, ok := mountOf(fd)
	if !ok {
		return false
	}
	now, ok := mounts.at(path)
	return ok && (now.Major != was.Major || now.Minor != was.Minor)
}

// LeadsToLocal reports whether an absolute path without links leads to a file system
// that is known to be local, so that walking the path cannot hang. The function itself does not
// walk it.
func LeadsToLocal(path string) bool {
	m, ok := mounts.at(path)
	return ok && (slices.Contains([]string{"ext2", "ext3"}, m.FSType) || slices.Contains(slices.Collect(maps.Values(localTypes)), m.FSType))
}

// mounts caches the table of mounts, which thousands of grants need. It is read again when the
// kernel reports a change.
var mounts mountTable

type mountTable struct {
	mu   sync.Mutex // guards the fields below
	file *os.File
	byID map[int]*mountinfo.Info // nil: the table was not read yet, or could not be read
	on   map[mountedOn]*mountinfo.Info
	top  *mountinfo.Info // at "/"
}

// mountedOn identifies a mount point by the mount around it and its path. The path alone is not
// enough: mounts below a directory that was mounted over stay in the table.
type mountedOn struct {
	parent int
	point  string
}

func (t *mountTable) find(id int) (m *mountinfo.Info, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refreshLocked()
	m, ok = t.byID[id]
	return m, ok
}

// at returns the mount that an absolute path without links leads to.
func (t *mountTable) at(path string) (m *mountinfo.Info, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refreshLocked()
	if t.top == nil {
		return nil, false
	}
	m = t.top
	for end := 0; end < len(path); {
		next := strings.IndexByte(path[end+1:], '/')
		if end += next + 1; next < 0 {
			end = len(path)
		}
		m = t.coverLocked(m, path[:end])
	}
	return m, true
}

// coverLocked returns the topmost mount at a path within the mount m, or m if nothing is
// mounted there.
func (t *mountTable) coverLocked(m *mountinfo.Info, path string) *mountinfo.Info {
	for over := t.on[mountedOn{m.ID, path}]; over != nil && over != m; over = t.on[mountedOn{m.ID, path}] {
		m = over
	}
	return m
}

// refreshLocked reads the table again if the kernel reports a change since the last reading
// (proc_pid_mounts(5)).
func (t *mountTable) refreshLocked() {
	if t.byID != nil {
		fds := []unix.PollFd{{Fd: int32(t.file.Fd()), Events: unix.POLLPRI}}
		if n, err := unix.Poll(fds, 0); err == nil && n == 0 {
			return
		}
	}
	t.byID, t.on, t.top = nil, nil, nil
	if t.file == nil {
		fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		t.file = os.NewFile(uintptr(fd), "/proc/self/mountinfo")
	}
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return
	}
	all, err := mountinfo.GetMountsFromReader(t.file, isNoFile)
	if err != nil {
		return
	}
	t.byID, t.on = make(map[int]*mountinfo.Info, len(all)), make(map[mountedOn]*mountinfo.Info, len(all))
	for _, m := range all {
		t.byID[m.ID] = m
		t.on[mountedOn{m.Parent, m.Mountpoint}] = m
	}
	for _, m := range all {
		if m.Mountpoint == "/" && (t.byID[m.Parent] == nil || m.Parent == m.ID) {
			t.top = t.coverLocked(m, "/")
		}
	}
}

// isNoFile skips mounts that show no directory or file (nsfs).
func isNoFile(m *mountinfo.Info) (skip, stop bool) { return !strings.HasPrefix(m.Root, "/"), false }
