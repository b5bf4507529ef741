package vfs

import (
	"bytes"
	"context"
	"math"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// ReadAt reads into buf from off. Fewer bytes than len(buf) mean the end of the file.
func (f *File) ReadAt(ctx context.Context, c guard.Caller, buf []byte, off int64) (int, error) {
	req := guard.Request{Caller: c, Op: names.OpRead, Bytes: int64(len(buf))}
	own := buf
	n, err := onFile(ctx, f, req, func(l *guard.Lease, fd int) (int, int64, error) {
		dst := buf
		if l.Source().Remote() {
			dst = make([]byte, len(buf)) // a call answered early must not write into the front end's buffer
		}
		n, err := beneath.Pread(fd, dst, off)
		if l.Source().Remote() {
			own = dst
		}
		return n, int64(n), err
	})
	if err != nil {
		return 0, err
	}
	if n > 0 && &own[0] != &buf[0] {
		copy(buf, own[:n])
	}
	f.read.Add(int64(n))
	return n, nil
}

// Touch holds the file's change time before a write and after it, in nanoseconds. A front end
// that caches the file can tell from it whether another program has changed the file.
type Touch struct {
	Before, After int64
}

// Append says whether a write lands at the end of the file.
type Append uint8

// By default a write lands at the end if the file was opened with O_APPEND. A front end that
// knows the descriptor's present flags (fcntl(2), F_SETFL) sets Append instead.
const (
	AppendAsOpened Append = iota
	AppendAlways
	AppendNever
)

// WriteAtOptions has the options of a write.
type WriteAtOptions struct {
	Append Append
	// Cached: the write comes from the kernel's page cache and not from a
	// write(2), so O_APPEND does not concern it.
	Cached bool
	// KillPriv: the write clears set-id bits.
	KillPriv bool
	Touch    *Touch // unless nil, WriteAt fills it in, but not on a remote source
}

// appends reports whether a write lands at the end of the file. AppendNever has no effect on a
// file that was opened with O_APPEND and without the right to overwrite (see NoOverwriting).
func (f *File) appends(w WriteAtOptions) bool {
	switch {
	case w.Cached:
		return false
	case w.Append == AppendAlways:
		return true
	}
	return f.Appending() && (w.Append == AppendAsOpened || f.noOverwriting)
}

// WriteAt writes bufs at off, or at the end of the file (see Append). If the system call writes
// only a part, another call writes the rest. If fewer bytes are written in all, there is an error.
// If the file was created when it was opened, a caller without the right to write can write at or
// after the end of the file, but cannot overwrite contents.
func (f *File) WriteAt(ctx context.Context, c guard.Caller, bufs [][]byte, off int64, w WriteAtOptions) (int, error) {
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	appending := f.appends(w)
	// A page that is written back can land anywhere in the file, even if the file was opened for
	// appending.
	need := guard.Write
	switch {
	case f.created && !f.Appending() && !w.Cached:
		need = 0 // refuseOverwriting checks
	case appending:
		need = guard.Append
	}
	req := guard.Request{Caller: c, Op: names.OpWrite, Need: need, Bytes: int64(total), Size: off + int64(total)}
	copyBufs := func() func() {
		bufs = [][]byte{bytes.Join(bufs, nil)}
		return func() {}
	}
	n, err := onFileDrop(ctx, f, req, copyBufs, nil, func(l *guard.Lease, fd int) (int, int64, error) {
		if need == 0 {
			at := off
			if appending {
				at = math.MaxInt64
			}
			if err := refuseOverwriting(l, fd, at); err != nil {
				return 0, 0, err
			}
		}
		if appending {
			unlock, err := f.t.admitGrowth(ctx, l, fd, int64(total), nil)
			if err != nil {
				return 0, 0, err
			}
			defer unlock()
		}
		done, err := f.countWhileUsed(ctx, l)
		if err != nil {
			return 0, 0, err
		}
		defer done()
		to, err := f.changeable(l)
		if err != nil {
			return 0, 0, err
		}
		n, err := write(l, to, bufs, off, appending, w)
		return n, int64(n), err
	})
	f.wrote.Add(int64(n))
	return n, err
}

// refuseOverwriting refuses to write before the end of a file that its opening created, unless
// the caller has the right to write.
func refuseOverwriting(l *guard.Lease, fd int, off int64) error {
	if l.Narrowest()&guard.Write != 0 {
		return nil
	}
	now, err := beneath.Stat(l, fd)
	if err == nil && (l.Narrowest()&guard.Create == 0 || off < now.Size) {
		err = l.Denied(guard.Write)
	}
	return err
}

func write(l *guard.Lease, to beneath.Changeable, src [][]byte, off int64, appending bool, w WriteAtOptions) (int, error) {
	var before Info
	if w.Touch != nil || w.KillPriv {
		before, _ = beneath.Stat(l, to.FD())
	}
	if w.KillPriv {
		if err := killPriv(l, to, &before); err != nil {
			return 0, err
		}
	}
	n, err := beneath.Pwritev(l, to, src, off, appending)
	if w.Touch != nil && !l.Source().Remote() { // a call answered early must not write into the front end's Touch
		after, _ := beneath.Stat(l, to.FD())
		w.Touch.Before, w.Touch.After = before.ChangeNanos(), after.ChangeNanos()
	}
	return n, err
}

// killPriv clears the set-id bits of a regular file, as the kernel does when a process without
// CAP_FSETID writes to it. A daemon that runs as root has that capability, so the source's kernel
// does not clear the bits when the daemon writes. If the group has no permission to execute the
// file, and the caller is in the group, the set-group-id bit stays (setattr_should_drop_sgid of
// Linux 6.2).
func killPriv(l *guard.Lease, w beneath.Changeable, info *Info) error {
	kill := uint32(unix.S_ISUID)
	if info.Mode&unix.S_ISGID != 0 && (info.Mode&unix.S_IXGRP != 0 || !l.Caller().InGroup(info.GID)) {
		kill |= unix.S_ISGID
	}
	if !info.IsRegular() || info.Mode&kill == 0 {
		return nil
	}
	return beneath.Chmod(l, w, info.Mode&07777&^kill)
}

// killPrivFor is killPriv for operations without WriteAtOptions.KillPriv. It leaves the bits if the
// caller's UID is 0.
func killPrivFor(l *guard.Lease, c guard.Caller, w beneath.Changeable) error {
	if c.UID == 0 {
		return nil
	}
	info, err := beneath.Stat(l, w.FD())
	if err != nil {
		return err
	}
	return killPriv(l, w, &info)
}

// Stat returns the file's attributes.
func (f *File) Stat(ctx context.Context, c guard.Caller) (Info, error) {
	req := guard.Request{Caller: c, Op: names.OpGetattr}
	return onFile(ctx, f, req, func(l *guard.Lease, fd int) (Info, int64, error) {
		info, err := f.h.Stat(l)
		walk.Present(l, &info)
		return info, 0, err
	})
}

// Fsync writes the file to the disk; with dataOnly only the parts needed to read the data back.
func (f *File) Fsync(ctx context.Context, c guard.Caller, dataOnly bool) error {
	return f.simple(ctx, guard.Request{Caller: c, Op: names.OpFsync}, func(l *guard.Lease, _ int) error {
		return f.h.Sync(l, dataOnly)
	})
}

// Flush answers a close(2) of one of the file's descriptors. The source's kernel already has
// the written data, so Flush only passes the gate.
func (f *File) Flush(ctx context.Context, c guard.Caller) error {
	return f.simple(ctx, guard.Request{Caller: c, Op: names.OpFlush}, func(*guard.Lease, int) error { return nil })
}

// Allocate is fallocate(2). Taking space on the disk is limited like writing, even if the file
// does not become longer.
func (f *File) Allocate(ctx context.Context, c guard.Caller, mode uint32, off, length int64) error {
	req := guard.Request{Caller: c, Op: names.OpAllocate}
	if off < 0 || length <= 0 || off > math.MaxInt64-length {
		return &guard.Error{Op: req.Op, Path: f.at.Path, Kind: names.Invalid, Err: unix.EINVAL}
	}
	const frees = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_COLLAPSE_RANGE
	if mode&frees == 0 {
		req.Bytes, req.Size = length, off+length
	}
	_, err := onFile(ctx, f, req, func(l *guard.Lease, fd int) (none struct{}, n int64, err error) {
		done, err := f.countWhileUsed(ctx, l)
		if err != nil {
			return none, 0, err
		}
		defer done()
		w, err := f.changeable(l)
		if err != nil {
			return none, 0, err
		}
		if err := killPrivFor(l, c, w); err != nil {
			return none, 0, err
		}
		if mode&unix.FALLOC_FL_INSERT_RANGE != 0 {
			// FALLOC_FL_INSERT_RANGE makes the file longer by length, wherever off is.
			unlock, err := f.t.admitGrowth(ctx, l, fd, length, nil)
			if err != nil {
				return none, 0, err
			}
			defer unlock()
		}
		err = beneath.Fallocate(l, w, mode, off, length)
		return none, req.Bytes, err
	})
	return err
}

func (f *File) simple(ctx context.Context, req guard.Request, g func(l *guard.Lease, fd int) error) error {
	_, err := onFile(ctx, f, req, func(l *guard.Lease, fd int) (struct{}, int64, error) {
		return struct{}{}, 0, g(l, fd)
	})
	return err
}

// Lseek finds the next data or hole from off on (SEEK_DATA, SEEK_HOLE).
func (f *File) Lseek(ctx context.Context, c guard.Caller, off int64, whence int) (int64, error) {
	req := guard.Request{Caller: c, Op: names.OpLseek}
	if whence != unix.SEEK_DATA && whence != unix.SEEK_HOLE {
		return 0, &guard.Error{Op: req.Op, Path: f.at.Path, Kind: names.Invalid, Err: unix.EINVAL}
	}
	return onFile(ctx, f, req, func(_ *guard.Lease, fd int) (int64, int64, error) {
		pos, err := beneath.Lseek(fd, off, whence)
		return pos, 0, err
	})
}

// CopyTo copies up to n bytes to another open file of the same root (copy_file_range). The error
// is EXDEV if the files belong to different roots, nested roots or lifetimes of a root, or if out
// was opened for appending. After EXDEV callers fall back to read and write.
func (f *File) CopyTo(ctx context.Context, c guard.Caller, offIn int64, out *File, offOut int64, n int64) (int64, error) {
	req := guard.Request{Caller: c, Op: names.OpCopyFileRange, Need: guard.Write, Path2: out.at.Path, Bytes: n, Size: offOut + n}
	across := &guard.Error{Op: req.Op, Path: f.at.Path, Kind: names.Invalid, Err: unix.EXDEV}
	if f.at.Path.Root != out.at.Path.Root || f.epoch() != out.epoch() || out.Appending() {
		return 0, across
	}
	outFD, err := out.enter()
	if err != nil {
		return 0, err
	}
	defer out.leave()
	copyRange := func(l *guard.Lease, fd int) (int64, int64, error) {
		if l.Source().Remote() {
			if _, err := out.enter(); err != nil {
				return 0, 0, err
			}
			defer out.leave()
		}
		if err := out.judgeNow(l, outFD, rules.ToChange); err != nil {
			return 0, 0, err
		}
		done, err := out.countWhileUsed(ctx, l)
		if err != nil {
			return 0, 0, err
		}
		defer done()
		w, err := out.changeable(l)
		if err != nil {
			return 0, 0, err
		}
		if err := killPrivFor(l, c, w); err != nil {
			return 0, 0, err
		}
		n, err := beneath.CopyFileRange(l, fd, offIn, w, offOut, int(n))
		return int64(n), int64(n), err
	}
	req.Path = f.at.Path
	done, err := retry(&req, func() (int64, error) {
		// Both files must lie in the same nested roots. The request has both holds, so
		// that the gate checks them as of the moment at which it admits the copy.
		if err := out.refreshHold(ctx, c); err != nil {
			return 0, err
		}
		if err := f.refreshHold(ctx, c); err != nil {
			return 0, err
		}
		req.Held, req.HeldTarget = f.hold.Load(), out.hold.Load()
		if req.Held.Domain() != req.HeldTarget.Domain() {
			return 0, across
		}
		return onFileOnce(ctx, f, req, nil, nil, copyRange)
	}, func() error { return nil })
	f.read.Add(done)
	out.wrote.Add(done)
	return done, err
}

// admitGrowth admits an operation that makes a file longer by n bytes from its end. If a limit
// applies to the size of files, or room is not nil, it charges the size that the file will have
// and calls room with that size. Only the source knows where the end of the file is, and another
// operation may move the end. So until unlock is called, no other such operation on the file
// begins.
func (t *Tree) admitGrowth(ctx context.Context, l *guard.Lease, fd int, n int64, room func(size int64) error) (unlock func(), err error) {
	if !l.Charges().BoundFiles() && room == nil {
		return func() {}, nil
	}
	now, err := beneath.Stat(l, fd)
	if err != nil {
		return nil, err
	}
	if unlock, err = t.claims.LockGrowth(ctx, l, now.ID()); err != nil {
		return nil, err
	}
	if now, err = beneath.Stat(l, fd); err == nil {
		err = l.Charges().Add(0, now.Size+n, 0)
	}
	if err == nil && room != nil {
		err = room(now.Size + n)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}
