//go:build linux

package posix

import (
	"golang.org/x/sys/unix"
)

// pathCall is a call on one path. If the call takes two paths, the other one is fixed.
type pathCall struct {
	name    string
	on      kind // the object that the call needs at the path or, if creates is set, makes there
	creates bool // the last element is made, so it must not be there before
	removes bool // the last element is taken away
	run     func(a *Actor, p string) error
}

// spare is the other path of link_to, rename_to, renameat2_to and renameat2_exchange.
// pathCall.prepare makes the file spare. All other calls on two paths use "made" as the other path.
const spare = "spare"

var pathCalls = []pathCall{
	{name: "stat", on: regular, run: func(a *Actor, p string) error { _, err := a.Stat(p); return err }},
	{name: "lstat", on: regular, run: func(a *Actor, p string) error { _, err := a.Lstat(p); return err }},
	{name: "access", on: regular, run: func(a *Actor, p string) error { return a.Access(p, unix.F_OK, 0) }},
	{name: "faccessat2", on: regular, run: func(a *Actor, p string) error { return a.Access(p, unix.R_OK, unix.AT_EACCESS) }},
	{name: "statfs", on: regular, run: func(a *Actor, p string) error { _, err := a.Statfs(p); return err }},
	{name: "chmod", on: regular, run: func(a *Actor, p string) error { return a.Chmod(p, 0o640) }},
	{name: "chown", on: regular, run: func(a *Actor, p string) error { return a.Chown(p, a.uid, a.gid) }},
	{name: "lchown", on: regular, run: func(a *Actor, p string) error { return a.Lchown(p, a.uid, a.gid) }},
	{name: "truncate", on: regular, run: func(a *Actor, p string) error { return a.Truncate(p, 123) }},
	{name: "utimensat", on: regular, run: func(a *Actor, p string) error { return a.Utimens(p, 0) }},
	{name: "utimensat_nofollow", on: regular, run: func(a *Actor, p string) error { return a.Utimens(p, unix.AT_SYMLINK_NOFOLLOW) }},
	{name: "open_rdonly", on: regular, run: func(a *Actor, p string) error { return a.TryOpen(p, unix.O_RDONLY, 0) }},
	{name: "open_wronly", on: regular, run: func(a *Actor, p string) error { return a.TryOpen(p, unix.O_WRONLY, 0) }},
	{name: "open_rdwr", on: regular, run: func(a *Actor, p string) error { return a.TryOpen(p, unix.O_RDWR, 0) }},
	{name: "open_trunc", on: regular, run: func(a *Actor, p string) error { return a.TryOpen(p, unix.O_WRONLY|unix.O_TRUNC, 0) }},
	{name: "open_path", on: regular, run: func(a *Actor, p string) error { return a.TryOpen(p, unix.O_PATH, 0) }},
	{name: "open_directory", on: directory, run: func(a *Actor, p string) error { return a.TryOpen(p, unix.O_RDONLY|unix.O_DIRECTORY, 0) }},
	{name: "open_creat", on: regular, creates: true, run: func(a *Actor, p string) error { return a.TryOpen(p, unix.O_CREAT|unix.O_WRONLY, 0o644) }},
	{name: "open_excl", on: regular, creates: true, run: func(a *Actor, p string) error {
		return a.TryOpen(p, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o644)
	}},
	{name: "open_tmpfile", on: directory, run: func(a *Actor, p string) error { return a.TryOpen(p, unix.O_TMPFILE|unix.O_RDWR, 0o600) }},
	{name: "readlink", on: symlink, run: func(a *Actor, p string) error { _, err := a.Readlink(p); return err }},
	{name: "chdir", on: directory, run: func(a *Actor, p string) error { return inAndOut(a, p) }},
	{name: "mkdir", on: directory, creates: true, run: func(a *Actor, p string) error { return a.Mkdir(p, 0o755) }},
	{name: "mkfifo", on: fifo, creates: true, run: func(a *Actor, p string) error { return a.Mkfifo(p, 0o644) }},
	{name: "mknod_file", on: regular, creates: true, run: func(a *Actor, p string) error { return a.Mknod(p, unix.S_IFREG|0o644, 0) }},
	{name: "mknod_socket", on: socket, creates: true, run: func(a *Actor, p string) error { return a.Mknod(p, unix.S_IFSOCK|0o644, 0) }},
	{name: "symlink", on: symlink, creates: true, run: func(a *Actor, p string) error { return a.Symlink("anything", p) }},
	{name: "link_to", on: regular, creates: true, run: func(a *Actor, p string) error { return a.Link(spare, p) }},
	{name: "link_from", on: regular, run: func(a *Actor, p string) error { return a.Link(p, "made") }},
	{name: "rename_to", on: regular, creates: true, run: func(a *Actor, p string) error { return a.Rename(spare, p) }},
	{name: "rename_from", on: regular, removes: true, run: func(a *Actor, p string) error { return a.Rename(p, "made") }},
	{name: "renameat2_to", on: regular, creates: true, run: func(a *Actor, p string) error { return a.Rename2(spare, p, unix.RENAME_NOREPLACE) }},
	{name: "renameat2_from", on: regular, removes: true, run: func(a *Actor, p string) error { return a.Rename2(p, "made", unix.RENAME_NOREPLACE) }},
	{name: "renameat2_exchange", on: regular, run: func(a *Actor, p string) error { return a.Rename2(spare, p, unix.RENAME_EXCHANGE) }},
	{name: "unlink", on: regular, removes: true, run: (*Actor).Unlink},
	{name: "rmdir", on: directory, removes: true, run: (*Actor).Rmdir},
	{name: "getxattr", on: regular, run: func(a *Actor, p string) error { _, _, err := a.Getxattr(p, "user.there", 64, 0); return err }},
	{name: "setxattr", on: regular, run: func(a *Actor, p string) error { return a.Setxattr(p, "user.new", "v", 0) }},
	{name: "listxattr", on: regular, run: func(a *Actor, p string) error { _, _, err := a.Listxattr(p, 256); return err }},
	{name: "removexattr", on: regular, run: func(a *Actor, p string) error { return a.Removexattr(p, "user.there") }},
}

// inAndOut changes the working directory and comes back.
func inAndOut(a *Actor, p string) error {
	fd, err := a.Open(".", unix.O_PATH, 0)
	if err != nil {
		return err
	}
	if err := a.Chdir(p); err != nil {
		a.Close(fd)
		return err
	}
	if err := a.Fchdir(fd); err != nil {
		return err
	}
	return a.Close(fd)
}

// follows reports whether the call resolves a symlink in the last element.
func (c pathCall) follows() bool {
	switch c.name {
	case "lstat", "lchown", "utimensat_nofollow", "readlink", "open_path", "open_excl", "link_from":
		return false
	}
	return !c.removes && (!c.creates || c.name == "open_creat") && c.name != "renameat2_exchange"
}
