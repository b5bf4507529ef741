package revoke

import (
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// callArg has the arguments of a command of holder.call. The holder keeps its descriptors, and
// the test knows them by their numbers.
type callArg struct {
	Path, Path2 string
	FD, FD2     int
	Flags       int
	Off         int64
	Len         int
	Text        string
}

// call runs one command, for tests whose holder opens or maps only a few files.
func (h *holder) call(cmd string, arg json.RawMessage) (any, error) {
	var a callArg
	if err := json.Unmarshal(arg, &a); err != nil {
		return nil, err
	}
	switch cmd {
	case "open":
		return unix.Openat(dirOf(a.FD), a.Path, a.Flags|unix.O_CLOEXEC, 0o666)
	case "close":
		return nil, unix.Close(a.FD)
	case "read":
		buf := make([]byte, max(a.Len, 1))
		n, err := unix.Pread(a.FD, buf, a.Off)
		return string(buf[:max(n, 0)]), err
	case "write":
		n, err := unix.Pwrite(a.FD, []byte(a.Text), a.Off)
		return n, err
	case "fsync":
		return nil, unix.Fsync(a.FD)
	case "stat":
		var st unix.Stat_t
		err := unix.Fstatat(dirOf(a.FD), a.Path, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH)
		return st.Size, err
	case "more": // continues where an earlier list stopped
		n, err := unix.Getdents(a.FD, make([]byte, 256))
		return nil, some(n, err)
	case "list":
		return nil, rewindAndList(a.FD)
	case "list for ever":
		return nil, listForEver(a.FD)
	case "copy":
		off, off2 := a.Off, a.Off
		return unix.CopyFileRange(a.FD, &off, a.FD2, &off2, a.Len, 0)
	case "linkfd":
		return nil, unix.Linkat(unix.AT_FDCWD, procFD(a.FD), dirOf(a.FD2), a.Path, unix.AT_SYMLINK_FOLLOW)
	case "mkdir":
		return nil, unix.Mkdirat(dirOf(a.FD), a.Path, 0o777)
	case "mknod":
		return nil, unix.Mknodat(dirOf(a.FD), a.Path, unix.S_IFREG|0o666, 0)
	case "symlink":
		return nil, unix.Symlinkat(a.Text, dirOf(a.FD), a.Path)
	case "lock":
		return nil, unix.FcntlFlock(uintptr(a.FD), a.Flags, &unix.Flock_t{Type: unix.F_WRLCK})
	case "unlock":
		return nil, unix.FcntlFlock(uintptr(a.FD), unix.F_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
	case "unlink at":
		return nil, unix.Unlinkat(dirOf(a.FD), a.Path, a.Flags)
	case "rename":
		return nil, unix.Rename(a.Path, a.Path2)
	case "map":
		m, err := unix.Mmap(a.FD, 0, a.Len, unix.PROT_READ|a.Flags, unix.MAP_SHARED)
		if err != nil {
			return nil, err
		}
		h.wmap = m
		return nil, load(m, 0)
	case "load":
		var b byte
		err := touch(func() { b = h.wmap[a.Off] })
		return b, err
	case "store":
		return nil, touch(func() { copy(h.wmap[a.Off:], a.Text) })
	case "allocate":
		return nil, unix.Fallocate(a.FD, 0, a.Off, int64(a.Len))
	case "load by write":
		return writeLoad(a.Path)
	case "load by mapping":
		return mapLoad(a.Path)
	case "crowd":
		return nil, h.mapCrowd(a)
	case "crowd left":
		left := 0
		for _, m := range h.crowd {
			if load(m, 0) == nil {
				left++
			}
		}
		return left, nil
	case "msync":
		return nil, unix.Msync(h.wmap, unix.MS_SYNC)
	case "sleep":
		time.Sleep(time.Duration(a.Len) * time.Millisecond)
		return nil, nil
	}
	return nil, fmt.Errorf("no command %q", cmd)
}

// dirOf returns fd, or AT_FDCWD if fd is 0: no directory has the descriptor 0 in a holder.
func dirOf(fd int) int {
	if fd == 0 {
		return unix.AT_FDCWD
	}
	return fd
}

func crowdName(i int) string { return fmt.Sprintf("crowd%03d", i) }

// mapCrowd maps and reads the files of a crowd (see crowdSize).
func (h *holder) mapCrowd(a callArg) error {
	h.root, h.crowd = a.Path, nil
	for i := range a.Len {
		m, err := h.mapFile(crowdName(i), unix.O_RDONLY, unix.PROT_READ)
		if err != nil {
			return err
		}
		if err := load(m, 0); err != nil {
			return err
		}
		h.crowd = append(h.crowd, m)
	}
	return nil
}
