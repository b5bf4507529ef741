//go:build linux

package posix

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// testTmpfile: O_TMPFILE and giving the file a name.
func testTmpfile(s *scene) {
	s.sub("linkat", func(s *scene) {
		s.mkdir("d", 0o755)
		fd, err := unix.Open(s.path("d"), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o640)
		s.must(err, "O_TMPFILE")
		defer unix.Close(fd)
		s.must(unix.Fchmod(fd, 0o640), "fchmod")
		var st unix.Stat_t
		s.must(unix.Fstat(fd, &st), "fstat")
		eq(s, st.Nlink, 0, "links of a temporary file")
		eq(s, st.Size, 0, "size of a temporary file")
		_, err = unix.Write(fd, []byte("hidden"))
		s.ok(err, "write")
		s.ok(s.root.Rmdir("d"), "rmdir of the directory in which the file was made: the file has no name there")
		s.must(s.root.Mkdir("d", 0o755), "mkdir")
		s.ok(unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, s.path("named"), unix.AT_SYMLINK_FOLLOW), "linkat through /proc")
		eq(s, s.read("named"), "hidden", "content")
		s.nlink("named", 1)
		s.mode("named", 0o640)
		eq(s, s.lstat("named").Ino, st.Ino, "inode")
		s.errno(unix.EEXIST, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, s.path("named"), unix.AT_SYMLINK_FOLLOW), "linkat again")
	})
	s.sub("O_EXCL", func(s *scene) { // a temporary file that was opened with O_EXCL never gets a name
		fd, err := unix.Open(s.dir, unix.O_TMPFILE|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		s.must(err, "O_TMPFILE|O_EXCL")
		defer unix.Close(fd)
		s.errno(unix.ENOENT, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, s.path("named"), unix.AT_SYMLINK_FOLLOW), "linkat")
	})
	s.sub("errors", func(s *scene) {
		s.errno(unix.EINVAL, s.root.TryOpen(".", unix.O_TMPFILE|unix.O_RDONLY, 0o600), "O_TMPFILE for reading")
		s.file("f", 0o644)
		s.errno(unix.ENOTDIR, s.root.TryOpen("f", unix.O_TMPFILE|unix.O_RDWR, 0o600), "O_TMPFILE in a file")
		s.needRoot()
		s.errno(unix.EACCES, s.as(alice).TryOpen(".", unix.O_TMPFILE|unix.O_RDWR, 0o600), "O_TMPFILE where alice may not write")
	})
	s.sub("owner", func(s *scene) {
		s.needRoot()
		s.mkdir("d", 0o777)
		a := s.as(alice)
		s.must(a.Umask(0o027), "umask")
		defer a.Umask(0)
		fd, err := a.Open("d", unix.O_TMPFILE|unix.O_RDWR, 0o666)
		s.must(err, "O_TMPFILE")
		st, err := a.Fstat(fd)
		s.ok(err, "fstat")
		eq(s, st.Uid, uint32(alice.uid), "uid")
		eq(s, st.Gid, uint32(alice.gid), "gid")
		eq(s, st.Mode, unix.S_IFREG|0o640, "mode")
	})
}

// testETXTBSY: a running program cannot be opened for writing, and a program that
// is open for writing cannot be run.
func testETXTBSY(s *scene) {
	cat, err := exec.LookPath("cat")
	if err != nil {
		s.Skip("no cat")
	}
	var sfs unix.Statfs_t
	if unix.Statfs(s.dir, &sfs) == nil && sfs.Flags&unix.ST_NOEXEC != 0 {
		s.Skip("mounted noexec")
	}
	s.must(copyFile(cat, s.path("prog")), "copy a program")
	s.must(s.root.Chmod("prog", 0o755), "chmod")
	cmd := exec.Command(s.path("prog"))
	in, err := cmd.StdinPipe()
	s.must(err, "pipe")
	s.must(cmd.Start(), "run the program")
	for _, f := range []int{unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_APPEND, unix.O_WRONLY | unix.O_TRUNC, unix.O_RDONLY | unix.O_TRUNC} {
		s.errno(unix.ETXTBSY, s.root.TryOpen("prog", f, 0), "open of a running program with %#o", f)
	}
	s.errno(unix.ETXTBSY, s.root.Truncate("prog", 0), "truncate of a running program")
	s.ok(s.root.TryOpen("prog", unix.O_RDONLY, 0), "open of a running program for reading")
	s.ok(s.root.Rename("prog", "moved"), "rename of a running program")
	s.ok(s.root.Chmod("moved", 0o755), "chmod of a running program")
	s.must(in.Close(), "close")
	s.must(cmd.Wait(), "the program ends")
	fd, err := s.root.Open("moved", unix.O_WRONLY, 0)
	s.must(err, "open of a program that has ended")
	s.errno(unix.ETXTBSY, runErr(s.path("moved")), "run of a program open for writing")
	s.must(s.root.Close(fd), "close")
	s.ok(runErr(s.path("moved")), "run of a program that was open for writing")
	s.must(s.root.Chmod("moved", 0o644), "chmod")
	s.errno(unix.EACCES, runErr(s.path("moved")), "run of a program without x")
}

// runErr runs the program p, a copy of cat, with /dev/null as its input and output.
func runErr(p string) error { return exec.Command(p).Run() }

// copyFile copies a file into the directory under test.
func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
