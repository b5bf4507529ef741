package beneath

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// The umask of the process is nobody's wish: that of the program that asks has been
// taken into account, or the peer has none. It cannot be set for one call, and setting
// it for the process would set it for all else that the process does, and for the
// programs that it starts. So what it took from a file just made is given back. Until
// then the file has fewer permissions than it will have, never more.

// unmask gives a file just made in d, of which fd is any descriptor, the permissions
// of mode that the umask of the process has taken.
func unmask(l *guard.Lease, fd int, d Dir, info *Info, mode uint32) error {
	lost := mode & 0o777 &^ info.Mode
	if lost == 0 || info.Type() == unix.S_IFLNK {
		return nil
	}
	lost &= processUmask()
	if lost == 0 || HasDefaultACL(d) { // which takes the umask's place
		return nil
	}
	if err := Chmod(l, fd, info.Mode&0o7777|lost); err != nil {
		return err
	}
	info.Mode |= lost
	return nil
}

// unmaskName is unmask for a file of which there is no descriptor.
func unmaskName(l *guard.Lease, d Dir, base string, info *Info, mode uint32) error {
	if mode&0o777&^info.Mode == 0 {
		return nil
	}
	fd, err := open(d.FD, base, unix.O_PATH|unix.O_NOFOLLOW, d.resolve())
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	now, err := Stat(fd)
	if err != nil || now.ID() != info.ID() {
		return err // somebody has put another file under the name
	}
	return unmask(l, fd, d, info, mode)
}

// processUmask reads the umask of the process: there is no system call that reads it
// without setting it. Where /proc does not tell, it is taken to be 0.
func processUmask() uint32 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nUmask:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	mask, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 8, 32)
	if err != nil {
		return 0
	}
	return uint32(mask)
}
