package mount

import (
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/mount/internal/incoming"
)

// rawFS stands between the kernel and go-fuse's bridge and opens a flight for
// every request: all of them, so that a method missing here would be a request
// that a revocation does not wait for (raw_test.go compares with the
// interface). FORGET and RELEASEDIR give things back and need none.
type rawFS struct {
	fuse.RawFileSystem
	flights flights
	wake    *wakeups
	dirs    sync.Map // open directories: file handle number -> *dirHandle
}

// begin opens a request's flight. header is nil for a request that has no caller.
func (r *rawFS) begin(cancel <-chan struct{}, header *fuse.InHeader) *flight {
	if incoming.Watch != nil && header != nil {
		incoming.Watch(header)
	}
	r.wake.request()
	return r.flights.begin(cancel)
}

func (r *rawFS) Lookup(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, header))
	status := r.RawFileSystem.Lookup(cancel, header, name, out)
	if out.EntryValid == 0 && time.Duration(out.EntryValidNsec) == notKept {
		// The kernel keeps what is valid for a nanosecond until its next tick.
		out.EntryValidNsec = 0
	}
	return status
}

func (r *rawFS) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.GetAttr(cancel, in, out)
}

func (r *rawFS) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.SetAttr(cancel, in, out)
}

func (r *rawFS) Statx(cancel <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.Statx(cancel, in, out)
}

func (r *rawFS) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	f := r.begin(cancel, &in.InHeader)
	f.umask = in.Umask
	defer r.flights.end(cancel, f)
	return r.RawFileSystem.Mknod(cancel, in, name, out)
}

func (r *rawFS) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	f := r.begin(cancel, &in.InHeader)
	f.umask = in.Umask
	defer r.flights.end(cancel, f)
	return r.RawFileSystem.Mkdir(cancel, in, name, out)
}

func (r *rawFS) Unlink(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, header))
	return r.RawFileSystem.Unlink(cancel, header, name)
}

func (r *rawFS) Rmdir(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, header))
	return r.RawFileSystem.Rmdir(cancel, header, name)
}

func (r *rawFS) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName string, newName string) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.Rename(cancel, in, oldName, newName)
}

func (r *rawFS) Link(cancel <-chan struct{}, in *fuse.LinkIn, filename string, out *fuse.EntryOut) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.Link(cancel, in, filename, out)
}

func (r *rawFS) Symlink(cancel <-chan struct{}, header *fuse.InHeader, pointedTo string, linkName string, out *fuse.EntryOut) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, header))
	return r.RawFileSystem.Symlink(cancel, header, pointedTo, linkName, out)
}

func (r *rawFS) Access(cancel <-chan struct{}, in *fuse.AccessIn) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.Access(cancel, in)
}

func (r *rawFS) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, attr string, data []byte) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.SetXAttr(cancel, in, attr, data)
}

func (r *rawFS) RemoveXAttr(cancel <-chan struct{}, header *fuse.InHeader, attr string) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, header))
	return r.RawFileSystem.RemoveXAttr(cancel, header, attr)
}

func (r *rawFS) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	f := r.begin(cancel, &in.InHeader)
	f.umask = in.Umask
	defer r.flights.end(cancel, f)
	return r.RawFileSystem.Create(cancel, in, name, out)
}

func (r *rawFS) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	f := r.begin(cancel, &in.InHeader)
	f.umask = in.Umask
	defer r.flights.end(cancel, f)
	return r.RawFileSystem.Tmpfile(cancel, in, out)
}

func (r *rawFS) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.Open(cancel, in, out)
}

func (r *rawFS) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.Lseek(cancel, in, out)
}

func (r *rawFS) GetLk(cancel <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.GetLk(cancel, in, out)
}

func (r *rawFS) SetLk(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.SetLk(cancel, in)
}

func (r *rawFS) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.SetLkw(cancel, in)
}

func (r *rawFS) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	f := r.begin(cancel, &in.InHeader)
	f.lockOwner = in.LockOwner
	defer r.flights.end(cancel, f)
	return r.RawFileSystem.Flush(cancel, in)
}

func (r *rawFS) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.Fsync(cancel, in)
}

func (r *rawFS) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.Fallocate(cancel, in)
}

func (r *rawFS) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	f := r.begin(cancel, &in.InHeader)
	defer r.flights.end(cancel, f)
	status := r.RawFileSystem.OpenDir(cancel, in, out)
	if status.Ok() && f.dir != nil {
		r.dirs.Store(out.Fh, f.dir)
	}
	return status
}

func (r *rawFS) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	f := r.begin(cancel, &in.InHeader)
	defer r.flights.end(cancel, f)
	return r.readDir(cancel, f, in, out, false)
}

func (r *rawFS) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	f := r.begin(cancel, &in.InHeader)
	defer r.flights.end(cancel, f)
	return r.readDir(cancel, f, in, out, true)
}

func (r *rawFS) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.FsyncDir(cancel, in)
}

func (r *rawFS) StatFs(cancel <-chan struct{}, header *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	defer r.flights.end(cancel, r.begin(cancel, header))
	return r.RawFileSystem.StatFs(cancel, header, out)
}

func (r *rawFS) Readlink(cancel <-chan struct{}, header *fuse.InHeader) ([]byte, fuse.Status) {
	defer r.flights.end(cancel, r.begin(cancel, header))
	return r.RawFileSystem.Readlink(cancel, header)
}

func (r *rawFS) GetXAttr(cancel <-chan struct{}, header *fuse.InHeader, attr string, dest []byte) (uint32, fuse.Status) {
	defer r.flights.end(cancel, r.begin(cancel, header))
	return r.RawFileSystem.GetXAttr(cancel, header, attr, dest)
}

func (r *rawFS) ListXAttr(cancel <-chan struct{}, header *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	defer r.flights.end(cancel, r.begin(cancel, header))
	return r.RawFileSystem.ListXAttr(cancel, header, dest)
}

func (r *rawFS) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.Read(cancel, in, buf)
}

// beginWrite opens a WRITE's flight. What the kernel writes back from its cache has no
// caller: any thread may be the one that makes it do so.
func (r *rawFS) beginWrite(cancel <-chan struct{}, in *fuse.WriteIn) *flight {
	header, writeCache := &in.InHeader, in.WriteFlags&fuse.WRITE_CACHE != 0
	if writeCache {
		header = nil
	}
	f := r.begin(cancel, header)
	f.writeCache, f.killPriv = writeCache, in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0
	return f
}

func (r *rawFS) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	f := r.beginWrite(cancel, in)
	defer r.flights.end(cancel, f)
	return r.RawFileSystem.Write(cancel, in, data)
}

func (r *rawFS) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	f := r.beginWrite(cancel, in)
	defer r.flights.end(cancel, f)
	return r.RawFileSystem.Writev(cancel, in, data)
}

func (r *rawFS) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	defer r.flights.end(cancel, r.begin(cancel, &in.InHeader))
	return r.RawFileSystem.CopyFileRange(cancel, in)
}

func (r *rawFS) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	f := r.begin(cancel, &in.InHeader)
	f.lockOwner, f.unlock = in.LockOwner, in.ReleaseFlags&fuse.FUSE_RELEASE_FLOCK_UNLOCK != 0
	defer r.flights.end(cancel, f)
	r.RawFileSystem.Release(cancel, in)
}

// readDir answers a reading of a directory. The gate is passed first: the bridge and
// our handle keep entries they have read, and would hand those out without asking
// anybody.
func (r *rawFS) readDir(cancel <-chan struct{}, f *flight, in *fuse.ReadIn, out *fuse.DirEntryList, plus bool) fuse.Status {
	read := r.RawFileSystem.ReadDir
	if plus {
		read = r.RawFileSystem.ReadDirPlus
	}
	d, ok := r.dirs.Load(in.Fh)
	if !ok {
		return read(cancel, in, out) // the mountpoint's own list
	}
	h := d.(*dirHandle)
	asked := &fuse.Context{Caller: in.Caller, Cancel: cancel}
	ctx := f.enter(asked, h.node.view)
	if h.dir == nil {
		return read(cancel, in, out)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.prepare(ctx, h.node.view.m.caller(asked), in, plus); err != nil {
		return fuse.Status(errnoOf(err))
	}
	status := read(cancel, in, out)
	h.at, h.looked, h.sought = out.Offset, nil, nil
	return status
}

// ReleaseDir forgets the handle before the bridge can give its number away.
func (r *rawFS) ReleaseDir(in *fuse.ReleaseIn) {
	r.dirs.Delete(in.Fh)
	r.RawFileSystem.ReleaseDir(in)
}

// Ioctl is not offered: an ioctl on the source could do anything.
func (r *rawFS) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return fuse.Status(syscall.ENOTTY)
}
