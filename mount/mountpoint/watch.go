package mountpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// WatchGone returns a channel that is closed once the mount with the
// mountinfo ID id has left this process's table of mounts: unmounted, or
// detached lazily by whomever. Whoever holds something in a detached mount can
// go on using it, so this is the moment to revoke, not the proof that nothing
// is left. Moving the mount elsewhere does not count as gone.
//
// When ctx ends first, the watch ends with it and the channel stays open
// forever. The error wraps ErrNotMounted if there is no such mount to begin
// with. A watch costs one goroutine, one thread and two descriptors; it sleeps
// in poll(2) and touches no mounted file system.
func WatchGone(ctx context.Context, id int) (<-chan struct{}, error) {
	// The descriptor before the first look: poll reports changes since the
	// open, so none falls between the look and the first poll.
	w, err := openWatch(id)
	if err != nil {
		return nil, fmt.Errorf("watch the table of mounts: %w", err)
	}
	all, err := w.read()
	if err != nil {
		w.close()
		return nil, err
	}
	for _, in := range all {
		if in.ID == id {
			w.dev = in.Dev
		}
	}
	if w.dev == "" {
		w.close()
		return nil, errorf(ErrNotMounted, "there is no mount with the ID %d", id)
	}
	gone := make(chan struct{})
	go w.run(ctx, gone)
	return gone, nil
}

// goneWatch belongs to its goroutine once that runs.
type goneWatch struct {
	// table is mountinfo, one descriptor throughout, so that the namespace
	// stays the one of the start. Not an *os.File: os.Open adds whatever can
	// be polled to the runtime's epoll, and the kernel reports a change of the
	// table once per descriptor, to whoever polls first. The runtime swallowed
	// about half of the changes (measured, Go 1.26).
	table int
	wake  int // eventfd that ends poll when the context ends

	// The kernel gives out the lowest free ID, so the next mount often gets
	// the one just freed. With the device it tells: as long as anybody holds
	// the detached file system its device number is not given out again.
	id  int
	dev string
}

func openWatch(id int) (*goneWatch, error) {
	table, err := unix.Open(mountinfoFile, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: mountinfoFile, Err: err}
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(table)
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &goneWatch{table: table, wake: wake, id: id}, nil
}

func (w *goneWatch) close() {
	unix.Close(w.wake)
	unix.Close(w.table)
}

func (w *goneWatch) run(ctx context.Context, gone chan<- struct{}) {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		one := binary.NativeEndian.AppendUint64(nil, 1)
		// It cannot block (the counter is 0) and has nobody to report to.
		_, _ = unix.Write(w.wake, one)
	})
	defer func() {
		// A write must not hit a descriptor number that is somebody else's
		// by then.
		if !stop() {
			<-woken
		}
		w.close()
	}()

	timeout := -1
	for ctx.Err() == nil {
		fds := []unix.PollFd{
			{Fd: int32(w.table), Events: unix.POLLPRI | unix.POLLERR},
			{Fd: int32(w.wake), Events: unix.POLLIN},
		}
		_, err := unix.Poll(fds, timeout)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			// Only ENOMEM is left. Wait for the context or a while, then look:
			// a watch that gave up silently would be worse than a late one.
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryAfter):
			}
		}
		present, err := w.present()
		switch {
		case err != nil:
			timeout = int(retryAfter.Milliseconds()) // unknown is not gone: look again soon
		case present:
			timeout = -1
		case ctx.Err() == nil:
			close(gone)
			return
		}
	}
}

// retryAfter spaces the attempts while the kernel is out of memory.
const retryAfter = time.Second

// present looks twice before it says no: kernels older than 5.8 can skip a
// line of the table while other lines are being removed, and a false "gone"
// would revoke everything.
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

// tableChunk is what the kernel hands out of the table at a time.
const tableChunk = 4096

func (w *goneWatch) read() ([]Info, error) {
	var data []byte
	for {
		data = slices.Grow(data, tableChunk)
		n, err := unix.Pread(w.table, data[len(data):cap(data)], int64(len(data)))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, fmt.Errorf("read the table of mounts: %w", err)
		case n == 0:
			return parseTable(bytes.NewReader(data))
		default:
			data = data[:len(data)+n]
		}
	}
}
