package beneath

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Info has the attributes of a file from statx(2).
type Info struct {
	Mode    uint32 // type and permission bits
	Nlink   uint32
	UID     uint32
	GID     uint32
	Blksize uint32
	Rdev    uint32 // in the form of the kernel's new_encode_dev, as FUSE carries it
	Dev     uint64
	Ino     uint64
	Size    int64
	Blocks  uint64 // of 512 bytes
	Atime   unix.StatxTimestamp
	Mtime   unix.StatxTimestamp
	Ctime   unix.StatxTimestamp
	Btime   unix.StatxTimestamp // zero where the file system has none
	// Writing is set by the tree where it matters: somebody has the file open
	// for writing, so that its times may already be those of a write(2) whose
	// bytes are still to come (mm/filemap.c updates the times first).
	Writing bool
}

// ID is the file's identity.
func (i *Info) ID() rules.Identity {
	return rules.Identity{Dev: i.Dev, Ino: i.Ino, Birth: nanos(i.Btime)}
}

// Type is the file type, S_IFREG and so on.
func (i *Info) Type() uint32 { return i.Mode & unix.S_IFMT }

// IsDir and IsRegular report the two types that are asked for most.
func (i *Info) IsDir() bool     { return i.Type() == unix.S_IFDIR }
func (i *Info) IsRegular() bool { return i.Type() == unix.S_IFREG }

// Special reports whether the file is a FIFO, socket or device.
func (i *Info) Special() bool {
	switch i.Type() {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK:
		return false
	}
	return true
}

// ModTime is the time of the last change of the contents.
func (i *Info) ModTime() time.Time { return time.Unix(i.Mtime.Sec, int64(i.Mtime.Nsec)) }

// ChangeNanos is the time of the last change of contents or attributes.
func (i *Info) ChangeNanos() int64 { return nanos(i.Ctime) }

func nanos(t unix.StatxTimestamp) int64 { return t.Sec*1e9 + int64(t.Nsec) }

const statxMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME

// Stat reads the attributes of the file that a descriptor in the lease's root refers to.
func Stat(l *guard.Lease, fd int) (Info, error) {
	info, err := stat(fd)
	if err == nil {
		showIn(l, &info)
	}
	return info, err
}

// showIn changes attributes to those that the stage shows, if the lease's root is staged.
func showIn(l *guard.Lease, info *Info) {
	if st := stageOf(l); st != nil {
		st.show(info)
	}
}

// Stat reads the attributes of the file that d refers to.
func (d Dir) Stat(l *guard.Lease) (Info, error) {
	if d.union != nil {
		// The directory may have been raised since it was resolved.
		if up := d.union.upDir(); up >= 0 {
			return Stat(l, up)
		}
	}
	return Stat(l, d.fd)
}

// stat reads the attributes that a descriptor has on its file system.
func stat(fd int) (Info, error) {
	var st unix.Statx_t
	if err := statx(fd, "", unix.AT_EMPTY_PATH, &st); err != nil {
		return Info{}, err
	}
	return infoOf(&st), nil
}

// StatIn reads the attributes of one name in a directory, not following a link.
// A name on which something is mounted is outside (Escaped), unless the grant
// allows other file systems.
func StatIn(d Dir, name string) (Info, error) {
	if d.union != nil {
		return d.union.statIn(d, name)
	}
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if d.local && !d.across {
		// Without this flag the kernel would ask a file system that is mounted on the
		// name. That file system may hang, and the name is refused in any case.
		flags |= unix.AT_STATX_DONT_SYNC
	}
	err := statx(d.fd, name, flags, &st)
	switch {
	case err != nil:
		return Info{}, err
	case d.across:
	case st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0:
		return statOpened(d, name) // before Linux 5.8
	case st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return Info{}, &guard.Error{Kind: names.Escaped}
	}
	return infoOf(&st), nil
}

// StatAt is StatIn in a directory from which no other file system is entered,
// whatever the grant allows.
func StatAt(d Dir, name string) (Info, error) {
	d.across = false
	return StatIn(d, name)
}

// statOpened is StatIn where statx(2) does not report mount points.
func statOpened(d Dir, name string) (Info, error) {
	fd, err := openChild(d, name)
	if err != nil {
		return Info{}, err
	}
	defer unix.Close(fd)
	return stat(fd)
}

func statx(fd int, name string, flags int, st *unix.Statx_t) error {
	return retry(func() error { return unix.Statx(fd, name, flags, statxMask, st) })
}

func infoOf(st *unix.Statx_t) Info {
	info := Info{
		Mode: uint32(st.Mode), Nlink: st.Nlink, UID: st.Uid, GID: st.Gid, Blksize: st.Blksize,
		Rdev: encodeDev(st.Rdev_major, st.Rdev_minor),
		Dev:  unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino,
		Size: int64(st.Size), Blocks: st.Blocks,
		Atime: st.Atime, Mtime: st.Mtime, Ctime: st.Ctime,
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		info.Btime = st.Btime
	}
	return info
}

// encodeDev is new_encode_dev of linux/kdev_t.h.
func encodeDev(major, minor uint32) uint32 {
	return minor&0xff | major<<8 | (minor&^0xff)<<12
}

// decodeDev is the inverse of encodeDev, in the form that mknod(2) takes.
func decodeDev(dev uint32) uint64 {
	return unix.Mkdev((dev&0xfff00)>>8, dev&0xff|(dev>>12)&0xfff00)
}

// change makes a system call that changes the source, and repeats it if a signal interrupted
// it. Every such call of this package is made here: see guard.Lease.Change. In a staged root
// the call changes the store. The lease is nil for a store whose root is not granted yet.
func change(l *guard.Lease, call func() error) error {
	if l == nil {
		return retry(call)
	}
	if st := stageOf(l); st != nil {
		if err := st.store.WillWrite(0); err != nil {
			return err
		}
	}
	return retry(func() error { return l.Change(call) })
}

// retry repeats a call that a signal interrupted before it did anything. The Go runtime
// preempts with signals, so EINTR can happen at any time.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
