package mountpoint

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// WatchGone returns a channel that is closed once the mount with the mountinfo ID id has
// left this process's table of mounts: unmounted, or detached lazily. A program that holds a
// file in a detached mount can go on using it. So the caller must still revoke the roots.
// A mount that was moved elsewhere is not gone.
//
// When ctx ends first, the watch ends with it and the channel stays open forever. The
// error wraps ErrNotMounted if there is no such mount to begin with. A watch costs one
// goroutine, one thread and two descriptors; it sleeps in poll(2) and touches no mounted
// file system.
func WatchGone(ctx context.Context, id int) (<-chan struct{}, error) {
	table, err := openTable()
	if err != nil {
		return nil, err
	}
	w := &goneWatch{table: table, id: id}
	all, err := w.read()
	if i := slices.IndexFunc(all, func(in Info) bool { return in.ID == id }); i >= 0 {
		w.dev = all[i].Dev
	} else {
		_ = table.Close()
		return nil, cmp.Or(err, errorf(ErrNotMounted, "there is no mount with the ID %d", id))
	}
	gone := make(chan struct{})
	err = pollTable(ctx, table, func() (known, more bool) {
		present, err := w.present()
		if err == nil && !present && ctx.Err() == nil {
			close(gone)
			return true, false
		}
		return err == nil, true
	})
	return gone, err
}

// WatchTable calls changed after each change of this process's table of mounts, until ctx
// ends. One call may report several changes. WatchTable may call changed without a change, too,
// for example when ctx ends. It costs as much as WatchGone.
func WatchTable(ctx context.Context, changed func()) error {
	table, err := openTable()
	if err != nil {
		return err
	}
	return pollTable(ctx, table, func() (known, more bool) {
		changed()
		return true, true
	})
}

// goneWatch watches one mount. Once the goroutine of pollTable runs, only this goroutine uses the
// goneWatch.
type goneWatch struct {
	// table is one descriptor of mountinfo for the whole watch, so that the mount namespace
	// stays the same. It is not from os.Open, which would add the descriptor to the
	// runtime's epoll set. The kernel reports a change of the table once per descriptor, to
	// the first poll, and the runtime took about half of the changes (measured, Go 1.26).
	table *os.File

	// The kernel gives out the lowest free ID, so the next mount often gets the one just
	// freed. The device distinguishes the two mounts: while a process holds the detached file
	// system, its device number is not given out again.
	id  int
	dev string
}

// openTable opens the table. poll reports the changes since the opening, so no change is missed
// between a reading of the table and the first poll.
func openTable() (*os.File, error) {
	fd, err := unix.Open(mountinfoFile, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: mountinfoFile, Err: err}
	}
	return os.NewFile(uintptr(fd), mountinfoFile), nil
}

// pollTable starts a goroutine that calls look after each change of the table, until ctx ends or
// look returns false for more. The end of ctx may cause one more call. If look returns false for
// known, the goroutine calls look again after retryAfter at the latest. At its end the goroutine
// closes the table. If pollTable returns an error, it has closed the table itself.
func pollTable(ctx context.Context, table *os.File, look func() (known, more bool)) error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		_ = table.Close()
		return os.NewSyscallError("eventfd", err)
	}
	go func() {
		wake := os.NewFile(uintptr(fd), "eventfd") // ends poll when the context ends
		defer table.Close()
		defer wake.Close()
		defer context.AfterFunc(ctx, func() { _, _ = wake.Write(binary.NativeEndian.AppendUint64(nil, 1)) })()
		fds := []unix.PollFd{
			{Fd: int32(table.Fd()), Events: unix.POLLPRI | unix.POLLERR},
			{Fd: int32(fd), Events: unix.POLLIN},
		}
		timeout := -1
		for ctx.Err() == nil {
			if _, err := unix.Poll(fds, timeout); errors.Is(err, unix.EINTR) {
				continue
			} else if err != nil {
				time.Sleep(retryAfter) // the error can only be ENOMEM
			}
			known, more := look()
			if !more {
				return
			}
			if timeout = -1; !known {
				timeout = int(retryAfter.Milliseconds())
			}
		}
	}()
	return nil
}

// retryAfter is the pause between attempts while the kernel is out of memory. A watch that gave up
// would be worse than a late one.
const retryAfter = time.Second

// present reports whether the mount is in the table. It reads the table twice before it
// reports false: kernels older than 5.8 can skip a line while other lines are being removed,
// and a wrong answer would revoke every root.
func (w *goneWatch) present() (bool, error) {
	for range 2 {
		all, err := w.read()
		if err != nil {
			return false, err
		}
		for _, in := range all {
			if in.ID == w.id && in.Dev == w.dev {
				return true, nil
			}
		}
	}
	return false, nil
}

func (w *goneWatch) read() ([]Info, error) {
	if _, err := w.table.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	return parseTable(w.table)
}
