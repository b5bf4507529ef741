package revoke

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// probe is one way of using what a holder has open or mapped. run returns nil if the use worked.
type probe struct {
	name string
	kind kind
	run  func(h *holder) error
}

type kind int

const (
	reads      kind = iota // works as long as the root may be read
	writes                 // needs a writable root
	path                   // by absolute path: works again when the root is granted again
	pathW                  // like path, and needs a writable root
	kernelOnly             // the kernel answers without the server, so a success is not counted
)

// result is one probe's outcome.
type result struct {
	Name  string
	Kind  kind
	Err   string `json:",omitempty"` // "" if it worked
	Errno syscall.Errno
}

func (h *holder) probe() []result {
	var out []result
	for _, p := range probes {
		if !h.rw && (p.kind == writes || p.kind == pathW) {
			continue
		}
		r := result{Name: p.name, Kind: p.kind}
		if err := p.run(h); err != nil {
			r.Err = err.Error()
			_ = errors.As(err, &r.Errno)
		}
		out = append(out, r)
	}
	return out
}

var probes = []probe{
	{"read", reads, func(h *holder) error {
		if _, err := unix.Seek(h.rfd, 0, unix.SEEK_SET); err != nil {
			return err
		}
		n, err := unix.Read(h.rfd, make([]byte, 100))
		return some(n, err)
	}},
	{"pread", reads, func(h *holder) error { return pread(h.rfd, 4096) }},
	{"pread of a page never read", reads, func(h *holder) error { return pread(h.rfd, fileSize-1) }},
	{"preadv2 RWF_NOWAIT", reads, func(h *holder) error {
		if err := pread(h.rfd, 0); err != nil {
			return readv0(h.rfd, 0, unix.RWF_NOWAIT)
		}
		return nil // RWF_NOWAIT is not tried: it may fail because the page is not in the kernel's cache
	}},
	{"splice out", reads, func(h *holder) error {
		return pipeOf(func(_, w int) error {
			off := int64(0)
			n, err := unix.Splice(h.rfd, &off, w, nil, 4096, unix.SPLICE_F_NONBLOCK)
			return some(int(n), err)
		})
	}},
	{"sendfile", reads, func(h *holder) error {
		return pipeOf(func(_, w int) error {
			off := int64(0)
			n, err := unix.Sendfile(w, h.rfd, &off, 4096)
			return some(n, err)
		})
	}},
	{"load from a mapping", reads, func(h *holder) error { return load(h.rmap, 0) }},
	{"load from an untouched page of a mapping", reads, func(h *holder) error { return load(h.cold, fileSize-1) }},
	{"write(2) from a mapping", reads, func(h *holder) error {
		return pipeOf(func(_, w int) error { _, err := unix.Write(w, h.rmap[:16]); return err })
	}},
	{"/proc/self/mem of a mapping", reads, func(h *holder) error { return readMem(h.rmap, 0) }},
	{"new mapping", reads, func(h *holder) error { return mapNew(h.rfd, unix.PROT_READ, false) }},
	{"new private mapping", reads, func(h *holder) error {
		m, err := unix.Mmap(h.rfd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Munmap(m) }()
		return load(m, 0)
	}},
	{"fstat", reads, func(h *holder) error { return fstat(h.rfd) }},
	{"fstat of O_PATH", reads, func(h *holder) error { return fstat(h.pfd) }},
	{"fstat of an O_PATH directory", reads, func(h *holder) error { return fstat(h.pdir) }},
	{"fstat of a directory", reads, func(h *holder) error { return fstat(h.dfd) }},
	{"fstat of an unlinked file", reads, func(h *holder) error { return fstat(h.doomed) }},
	{"fstatfs", reads, func(h *holder) error { var st unix.Statfs_t; return unix.Fstatfs(h.rfd, &st) }},
	{"statx forced", reads, func(h *holder) error {
		var st unix.Statx_t
		return unix.Statx(h.rfd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_ALL, &st)
	}},
	{"statx stale", kernelOnly, func(h *holder) error {
		var st unix.Statx_t
		return unix.Statx(h.rfd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_SIZE, &st)
	}},
	{"flock", kernelOnly, func(h *holder) error { return unix.Flock(h.rfd, unix.LOCK_SH|unix.LOCK_NB) }},
	{"read of an unlinked file", reads, func(h *holder) error { return pread(h.doomed, 0) }},
	{"new mapping of an unlinked file", reads, func(h *holder) error { return mapNew(h.doomed, unix.PROT_READ, false) }},
	{"reopen of an unlinked file", reads, func(h *holder) error { return reopen(h.doomed, unix.O_RDONLY) }},
	{"seek to data", reads, func(h *holder) error { _, err := unix.Seek(h.rfd, 0, unix.SEEK_DATA); return err }},
	{"seek to the end", reads, func(h *holder) error { _, err := unix.Seek(h.rfd, 0, unix.SEEK_END); return err }},
	{"fsync", reads, func(h *holder) error { return unix.Fsync(h.rfd) }},
	{"getdents", reads, func(h *holder) error { return rewindAndList(h.dfd) }},
	{"getdents continued", reads, func(h *holder) error {
		n, err := unix.Getdents(h.bigfd, make([]byte, 128))
		return some(n, err)
	}},
	{"getdents after a seek by one", reads, func(h *holder) error {
		if _, err := unix.Seek(h.bigfd, 1, unix.SEEK_CUR); err != nil && err != unix.EINVAL { //nolint:errorlint // bare errno
			return err
		}
		n, err := unix.Getdents(h.bigfd, make([]byte, 128))
		return some(n, err)
	}},
	{"openat from a directory", reads, func(h *holder) error { return openat(h.dfd, "a", unix.O_RDONLY) }},
	{"openat from an O_PATH directory", reads, func(h *holder) error { return openat(h.pdir, "a", unix.O_RDONLY) }},
	{"openat O_PATH", reads, func(h *holder) error { return openat(h.dfd, "b", unix.O_PATH) }},
	{"openat .", reads, func(h *holder) error { return openat(h.dfd, ".", unix.O_RDONLY|unix.O_DIRECTORY) }},
	{"openat . of the working directory", reads, func(h *holder) error { return openat(unix.AT_FDCWD, ".", unix.O_PATH) }},
	{"openat2 RESOLVE_CACHED", reads, func(h *holder) error {
		if err := openat(h.dfd, "c", unix.O_RDONLY); err == nil {
			return nil
		}
		fd, err := unix.Openat2(h.dfd, "c", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC, Resolve: resolveCached})
		return closeIfOpen(fd, err)
	}},
	{"open from the working directory", reads, func(h *holder) error { return openat(unix.AT_FDCWD, "a", unix.O_RDONLY) }},
	{"stat from the working directory", reads, func(h *holder) error { var st unix.Stat_t; return unix.Stat("b", &st) }},
	{"stat of the working directory", reads, func(h *holder) error { var st unix.Stat_t; return unix.Stat(".", &st) }},
	{"stat of a missing name", reads, func(h *holder) error {
		var st unix.Stat_t
		err := unix.Fstatat(h.dfd, "not there", &st, 0)
		if err == unix.ENOENT { //nolint:errorlint // bare errno
			return nil // ENOENT shows that the directory is still searched
		}
		return err
	}},
	{"up and down from the working directory", reads, func(h *holder) error { return openat(unix.AT_FDCWD, "../read", unix.O_RDONLY) }},
	{"fchdir", reads, func(h *holder) error { return unix.Fchdir(h.dfd) }},
	{"faccessat", reads, func(h *holder) error { return unix.Faccessat(h.dfd, "a", unix.R_OK, 0) }},
	{"reopen through /proc/self/fd", reads, func(h *holder) error { return reopen(h.rfd, unix.O_RDONLY) }},
	{"open of an O_PATH descriptor", reads, func(h *holder) error { return reopen(h.pfd, unix.O_RDONLY) }},
	{"readlink of O_PATH", reads, func(h *holder) error {
		n, err := unix.Readlinkat(h.plink, "", make([]byte, 64))
		return some(n, err)
	}},
	{"readlink from the working directory", reads, func(h *holder) error {
		n, err := unix.Readlink("../link", make([]byte, 64))
		return some(n, err)
	}},
	{"fgetxattr", reads, func(h *holder) error {
		n, err := unix.Fgetxattr(h.rfd, "user.note", make([]byte, 64))
		return some(n, err)
	}},
	{"flistxattr", reads, func(h *holder) error { n, err := unix.Flistxattr(h.rfd, make([]byte, 512)); return some(n, err) }},
	{"fgetxattr of the ACL", reads, func(h *holder) error {
		n, err := unix.Fgetxattr(h.acl, "system.posix_acl_access", make([]byte, 256))
		return some(n, err)
	}},
	{"copy_file_range out", reads, func(h *holder) error {
		fd, err := unix.MemfdCreate("copy", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		off := int64(0)
		n, err := unix.CopyFileRange(h.rfd, &off, fd, nil, 4096, 0)
		if err == unix.EXDEV { //nolint:errorlint // bare errno
			return pread(h.rfd, 0) // on different file systems the kernel fails without a request to the mount
		}
		return some(n, err)
	}},
	{"execute a held file", reads, func(h *holder) error {
		f := os.NewFile(uintptr(h.exec), "exec")
		defer func() { h.exec = dupAndForget(f) }()
		cmd := exec.Command("/proc/self/fd/3")
		cmd.ExtraFiles = []*os.File{f}
		cmd.Dir = "/"
		return cmd.Run()
	}},
	{"open by handle", reads, func(h *holder) error {
		if h.handle.Size() == 0 {
			return openat(h.dfd, "a", unix.O_RDONLY)
		}
		fd, err := unix.OpenByHandleAt(h.dfd, h.handle, unix.O_RDONLY|unix.O_CLOEXEC)
		return closeIfOpen(fd, err)
	}},

	{"write", writes, func(h *holder) error {
		if _, err := unix.Seek(h.wfd, 0, unix.SEEK_SET); err != nil {
			return err
		}
		n, err := unix.Write(h.wfd, []byte("x"))
		return some(n, err)
	}},
	{"pwrite", writes, func(h *holder) error { return pwrite(h.wfd) }},
	{"pwrite of O_WRONLY", writes, func(h *holder) error { return pwrite(h.ofd) }},
	{"append", writes, func(h *holder) error { n, err := unix.Write(h.afd, []byte("x")); return some(n, err) }},
	{"splice in", writes, func(h *holder) error {
		return pipeOf(func(r, w int) error {
			if _, err := unix.Write(w, []byte("spliced")); err != nil {
				return err
			}
			off := int64(0)
			n, err := unix.Splice(r, nil, h.wfd, &off, 7, 0)
			return some(int(n), err)
		})
	}},
	{"write to an unlinked file", writes, func(h *holder) error { return pwrite(h.doomed) }},
	{"ftruncate", writes, func(h *holder) error { return unix.Ftruncate(h.wfd, fileSize) }},
	{"ftruncate of an unlinked file", writes, func(h *holder) error { return unix.Ftruncate(h.doomed, fileSize) }},
	{"fallocate", writes, func(h *holder) error { return unix.Fallocate(h.wfd, 0, 0, 4096) }},
	{"punch a hole", writes, func(h *holder) error {
		return unix.Fallocate(h.wfd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 8192, 4096)
	}},
	{"copy_file_range in", writes, func(h *holder) error {
		src, dst := int64(0), int64(0)
		n, err := unix.CopyFileRange(h.rfd, &src, h.wfd, &dst, 4096, 0)
		return some(n, err)
	}},
	{"fchmod", writes, func(h *holder) error { return unix.Fchmod(h.wfd, 0o666) }},
	{"fchmod through O_PATH", writes, func(h *holder) error { return unix.Chmod(procFD(h.pfd), 0o666) }},
	{"fchown", writes, func(h *holder) error { return unix.Fchown(h.wfd, os.Getuid(), os.Getgid()) }},
	{"futimens", writes, func(h *holder) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, procFD(h.wfd), []unix.Timespec{{Sec: 1}, {Sec: 2}}, 0)
	}},
	{"fsetxattr", writes, func(h *holder) error { return unix.Fsetxattr(h.wfd, "user.w", []byte("1"), 0) }},
	{"fsetxattr of the ACL", writes, func(h *holder) error { return unix.Fsetxattr(h.acl, "system.posix_acl_access", someACL(), 0) }},
	{"reopen for writing", writes, func(h *holder) error { return reopen(h.wfd, unix.O_WRONLY) }},
	{"open of O_PATH for writing", writes, func(h *holder) error { return reopen(h.pfd, unix.O_RDWR) }},
	{"truncate through O_PATH", writes, func(h *holder) error { return unix.Truncate(procFD(h.pfd), fileSize) }},
	{"mkdirat and unlinkat", writes, func(h *holder) error {
		if err := unix.Mkdirat(h.dfd, h.ownName("d"), 0o777); err != nil {
			return err
		}
		return unix.Unlinkat(h.dfd, h.ownName("d"), unix.AT_REMOVEDIR)
	}},
	{"create, rename and unlink", writes, func(h *holder) error {
		if err := openat(h.dfd, h.ownName("f"), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR); err != nil {
			return err
		}
		if err := unix.Renameat(h.dfd, h.ownName("f"), unix.AT_FDCWD, h.ownName("g")); err != nil {
			return err
		}
		return unix.Unlinkat(h.dfd, h.ownName("g"), 0)
	}},
	{"link a held file", writes, func(h *holder) error {
		if err := unix.Linkat(unix.AT_FDCWD, procFD(h.rfd), h.dfd, h.ownName("l"), unix.AT_SYMLINK_FOLLOW); err != nil {
			return err
		}
		return unix.Unlinkat(h.dfd, h.ownName("l"), 0)
	}},
	{"symlink", writes, func(h *holder) error {
		if err := unix.Symlinkat("a", h.dfd, h.ownName("s")); err != nil {
			return err
		}
		return unix.Unlinkat(h.dfd, h.ownName("s"), 0)
	}},
	{"O_TMPFILE", writes, func(h *holder) error {
		fd, err := unix.Openat(h.dfd, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		return closeIfOpen(fd, err)
	}},
	{"new writable mapping", writes, func(h *holder) error { return mapNew(h.wfd, unix.PROT_READ|unix.PROT_WRITE, true) }},
	{"load from a writable mapping", writes, func(h *holder) error { return load(h.wmap, 0) }},
	{"store to a mapping", writes, func(h *holder) error { return store(h.wmap, 10, 'm') }},
	{"msync", writes, func(h *holder) error {
		if err := store(h.wmap, 20, 'm'); err != nil {
			return err
		}
		return unix.Msync(h.wmap, unix.MS_SYNC)
	}},

	{"stat by path", path, func(h *holder) error { var st unix.Stat_t; return unix.Stat(filepath.Join(h.root, "read"), &st) }},
	{"open by path", path, func(h *holder) error { return openat(unix.AT_FDCWD, filepath.Join(h.root, "read"), unix.O_RDONLY) }},
	{"list by path", path, func(h *holder) error {
		fd, err := unix.Open(h.root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return rewindAndList(fd)
	}},
	{"create by path", pathW, func(h *holder) error {
		p := filepath.Join(h.root, h.ownName("p"))
		if err := openat(unix.AT_FDCWD, p, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR); err != nil {
			return err
		}
		return unix.Unlink(p)
	}},
}

// ownName returns a name that no other holder uses.
func (h *holder) ownName(kind string) string {
	return fmt.Sprintf("%s-%d", kind, os.Getpid())
}

// some returns err, or errNothing for a call that succeeded and returned no data.
func some(n int, err error) error {
	if err == nil && n <= 0 {
		return errNothing
	}
	return err
}

func pread(fd int, off int64) error {
	n, err := unix.Pread(fd, make([]byte, 100), off)
	return some(n, err)
}

func pwrite(fd int) error {
	n, err := unix.Pwrite(fd, []byte("y"), 1)
	return some(n, err)
}

func fstat(fd int) error { var st unix.Stat_t; return unix.Fstat(fd, &st) }

// closeIfOpen closes the descriptor that an open has returned, and returns the open's error.
func closeIfOpen(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func openat(dir int, name string, flags int) error {
	return closeIfOpen(unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0o666))
}

func reopen(fd, flags int) error { return openat(unix.AT_FDCWD, procFD(fd), flags) }

func rewindAndList(fd int) error {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	n, err := unix.Getdents(fd, make([]byte, 4096))
	return some(n, err)
}

func mapNew(fd, prot int, write bool) error {
	m, err := unix.Mmap(fd, 0, 4096, prot, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(m) }()
	if write {
		return store(m, 30, 'n')
	}
	return load(m, 0)
}

// dupAndForget closes an os.File, and returns a copy of its descriptor.
func dupAndForget(f *os.File) int {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		fd = -1
	}
	_ = f.Close()
	return fd
}

// resolveCached is RESOLVE_CACHED of linux/openat2.h. The package x/sys does not declare it.
const resolveCached = 0x20
