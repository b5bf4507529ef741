package beneath

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/rules"
)

// maxPathLinks is the number of links on a path at which the kernel gives up (MAXSYMLINKS).
const maxPathLinks = 40

// openPath opens an absolute path as a reference (O_PATH), and returns the links that it has
// passed. Without links, one system call does it.
func openPath(path string) (fd int, links []rules.Link, err error) {
	fd, err = unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != unix.ELOOP { //nolint:errorlint // bare errno
		return fd, nil, err
	}
	w := linkWalk{fd: -1, todo: strings.Split(path, "/")}
	if err = w.run(); err != nil {
		w.close()
		return -1, nil, err
	}
	return w.fd, w.links, nil
}

// linkWalk resolves a path one name at a time, each from the descriptor of the
// directory before it. So the link that is judged is the link that is followed.
type linkWalk struct {
	fd    int // the file or directory that the walk has reached
	todo  []string
	links []rules.Link
}

func (w *linkWalk) close() {
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
		w.fd = -1
	}
}

// enter makes fd the file that the walk has reached, and closes the previous descriptor.
func (w *linkWalk) enter(fd int) {
	w.close()
	w.fd = fd
}

// run walks until todo is empty. After an error, todo begins with the name at which the walk
// failed, below fd.
func (w *linkWalk) run() error {
	if err := w.toTop(); err != nil {
		return err
	}
	for len(w.todo) > 0 {
		name := w.todo[0]
		if name == "" || name == "." {
			w.todo = w.todo[1:]
			continue
		}
		// As a directory first: only that makes autofs mount its file system.
		fd, err := unix.Openat(w.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.ENOTDIR { //nolint:errorlint // bare errno
			fd, err = unix.Openat(w.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		}
		if err != nil {
			return err
		}
		info, err := stat(fd)
		if err != nil {
			_ = unix.Close(fd)
			return err
		}
		if info.Type() != unix.S_IFLNK {
			w.todo = w.todo[1:]
			w.enter(fd)
			continue
		}
		err = w.follow(name, fd, &info)
		_ = unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *linkWalk) toTop() error {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		w.enter(fd)
	}
	return err
}

// follow notes a link in the directory that the walk has reached, and walks its target next.
func (w *linkWalk) follow(name string, fd int, info *Info) error {
	if len(w.links) >= maxPathLinks {
		return unix.ELOOP
	}
	dir, err := stat(w.fd)
	if err != nil {
		return err
	}
	at, err := PathOf(w.fd)
	if err != nil {
		return err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return err
	}
	link := rules.Link{Path: filepath.Join(at, name), Others: others(&dir, info)}
	if p := locationOf(w.fd, at); p != "" {
		link.Location = p + "/" + name
	}
	w.links = append(w.links, link)
	target := string(buf[:n])
	w.todo = append(strings.Split(target, "/"), w.todo[1:]...)
	if filepath.IsAbs(target) {
		return w.toTop()
	}
	return nil
}

// others names a user other than root and this process's user, or a group, or "every user", that owns
// the link or can replace it. If there are several, others names only one. It returns "" if there is
// none.
func others(dir, link *Info) string {
	mine := func(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }
	switch {
	case !mine(dir.UID):
		return fmt.Sprintf("user %d", dir.UID)
	case !mine(link.UID):
		return fmt.Sprintf("user %d", link.UID)
	case dir.Mode&unix.S_ISVTX != 0:
		return ""
	case dir.Mode&0o002 != 0:
		return "every user"
	case dir.Mode&0o020 == 0 || dir.GID == 0 || ownGroup(dir.GID):
		return ""
	}
	return fmt.Sprintf("group %d", dir.GID)
}

// ownGroup reports whether a group is the one that distributions make for this process's user alone:
// the group has the number of the user (pam_umask(8), usergroups).
func ownGroup(gid uint32) bool {
	return int(gid) == os.Getegid() && os.Getegid() == os.Geteuid()
}

// Trace implements guard.Opener.
func (Opener) Trace(path string) (resolved string, links []rules.Link, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", nil, err
	}
	w := linkWalk{fd: -1, todo: strings.Split(abs, "/")}
	defer w.close()
	err = w.run()
	if err != nil && err != unix.ENOENT { //nolint:errorlint // bare errno
		return "", nil, rootError(abs, err)
	}
	at, err := PathOf(w.fd)
	if err != nil {
		return "", nil, rootError(abs, err)
	}
	return filepath.Join(append([]string{at}, w.todo...)...), w.links, nil
}
