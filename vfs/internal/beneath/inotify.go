package beneath

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Inotify watches directories that were resolved beneath a root. A watch is set
// through the descriptor's /proc/self/fd name: setting it by path would race
// with links and stop at PATH_MAX.
//
// The descriptor blocks, so Go's poller does not have it. With the poller each change of a
// watched directory, also through the tree itself, would wake a thread of this process at
// once, even while nobody calls Read.
type Inotify struct {
	f *os.File
	// closeW and closeR are the ends of a pipe. Close closes closeW, which ends a Read.
	closeW, closeR *os.File
}

// NotifyEvent is one event: of a name in a watched directory, or, with an empty
// Name, of the directory itself.
type NotifyEvent struct {
	WD     int32
	Mask   uint32
	Cookie uint32 // the same for both halves of a rename, else 0
	Name   string
}

// NotifyMask selects changes of contents, attributes and names. Only a directory can be watched with
// it. A file that was unlinked causes no further events in the directory.
const NotifyMask = unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_DELETE |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF |
	unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// NewInotify returns an instance without watches.
func NewInotify() (*Inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	file := func(fd int) *os.File { return os.NewFile(uintptr(fd), "inotify") }
	return &Inotify{f: file(fd), closeR: file(pipe[0]), closeW: file(pipe[1])}, nil
}

// Add watches the file of fd and returns the watch's number, which is the same for every watch
// of one inode. The mask is added to that of the inode's other watches.
func (n *Inotify) Add(fd int, mask uint32) (int32, error) {
	wd := 0
	err := n.control(func(inotify int) error {
		return retry(func() (err error) {
			wd, err = unix.InotifyAddWatch(inotify, procPath(fd), mask|unix.IN_MASK_ADD)
			return err
		})
	})
	return int32(wd), err
}

// Remove ends a watch. The watch of a removed directory has ended already.
func (n *Inotify) Remove(wd int32) {
	_ = n.control(func(fd int) error {
		_, err := unix.InotifyRmWatch(fd, uint32(wd))
		return err
	})
}

// Mark puts an event at the end of the queue: IN_IGNORED, with the returned number.
func (n *Inotify) Mark() (int32, error) {
	fd, err := unix.MemfdCreate("mark", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	wd, err := n.Add(fd, unix.IN_MODIFY)
	if err == nil {
		n.Remove(wd)
	}
	return wd, err
}

func (n *Inotify) control(f func(fd int) error) error {
	rc, err := n.f.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := rc.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

// wait waits for events. The error is os.ErrClosed after Close.
func (n *Inotify) wait() error {
	// Fd keeps the descriptors as they are: they block.
	fds := []unix.PollFd{{Fd: int32(n.f.Fd()), Events: unix.POLLIN}, {Fd: int32(n.closeR.Fd())}}
	err := retry(func() error {
		_, err := unix.Poll(fds, -1)
		return err
	})
	if err == nil && fds[1].Revents != 0 {
		err = os.ErrClosed
	}
	return err
}

// Read waits for events and returns the waiting events, at most as many as fit into buf. Read fails
// after Close. Only one goroutine may call Read, and must call it until it fails after Close: that
// last call closes the descriptors.
func (n *Inotify) Read(buf []byte) ([]NotifyEvent, error) {
	if err := n.wait(); err != nil {
		_, _ = n.closeR.Close(), n.f.Close()
		return nil, err
	}
	sz, err := n.f.Read(buf)
	if err != nil {
		return nil, err
	}
	runtime.KeepAlive(n)
	var out []NotifyEvent
	for b := buf[:sz]; len(b) >= unix.SizeofInotifyEvent; {
		length := int(binary.NativeEndian.Uint32(b[12:]))
		if unix.SizeofInotifyEvent+length > len(b) {
			break
		}
		name := b[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+length]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		out = append(out, NotifyEvent{
			WD:     int32(binary.NativeEndian.Uint32(b)),
			Mask:   binary.NativeEndian.Uint32(b[4:]),
			Cookie: binary.NativeEndian.Uint32(b[8:]),
			Name:   string(name),
		})
		b = b[unix.SizeofInotifyEvent+length:]
	}
	return out, nil
}

// Close makes Read fail, which ends all watches.
func (n *Inotify) Close() error { return n.closeW.Close() }
