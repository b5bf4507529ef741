// Package hangfs mounts a directory a second time, as a FUSE file system whose requests hang when a
// test wants it. It is for tests.
package hangfs

import (
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// FS is a mounted file system. The name of a request is the string that its method below passes to
// arrive or arriveFor.
type FS struct {
	fuse.RawFileSystem
	mu      sync.Mutex // guards the fields below
	held    map[string]*Held
	hanging []*Held
	changes []string
	names   map[uint64]string // of nodes that were looked up

	noTmpfile, noRenameFlags atomic.Bool // set by WithoutTmpfile and WithoutRenameFlags
}

// Held is a request that hangs, or will hang when it arrives.
type Held struct {
	Entered <-chan struct{} // closed when the request hangs
	Release func()          // lets the request go on; may be called again

	entered, released chan struct{}
}

// Mount shows dir at point until the test ends. It skips the test where it cannot mount.
func Mount(t testing.TB, dir, point string) *FS {
	t.Helper()
	root, err := fs.NewLoopbackRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := &FS{RawFileSystem: fs.NewNodeFS(root, &fs.Options{}), held: map[string]*Held{}, names: map[uint64]string{}}
	srv, err := fuse.NewServer(f, point, &fuse.MountOptions{FsName: "hangfs", Name: "hangfs", AllowOther: unix.Geteuid() == 0, EnableLocks: true})
	if err != nil {
		t.Skip("cannot mount:", err)
	}
	go srv.Serve()
	t.Cleanup(func() {
		f.mu.Lock()
		for _, h := range f.hanging {
			h.Release()
		}
		clear(f.held)
		f.mu.Unlock()
		// Programs may still have files of the mount open. The mount ends when the last file is closed.
		err := unix.Unmount(point, unix.MNT_DETACH)
		if err == unix.EPERM { //nolint:errorlint // bare errno
			err = exec.Command("fusermount3", "-u", "-z", point).Run()
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err := srv.WaitMount(); err != nil {
		t.Fatal(err)
	}
	return f
}

// Hold makes the next request of the given name hang. The name "write" means any write. The names
// "getattr f" and "release f" mean only the requests about the file f.
func (f *FS) Hold(request string) *Held {
	h := &Held{entered: make(chan struct{}), released: make(chan struct{})}
	h.Entered = h.entered
	h.Release = sync.OnceFunc(func() { close(h.released) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[request] = h
	return h
}

// WithoutTmpfile makes the file system refuse O_TMPFILE. Call it before the first use of
// O_TMPFILE.
func (f *FS) WithoutTmpfile() { f.noTmpfile.Store(true) }

// WithoutRenameFlags makes the file system refuse all flags of renameat2(2).
func (f *FS) WithoutRenameFlags() { f.noRenameFlags.Store(true) }

// Changes returns the names of the requests that have arrived since the last call, and forgets
// them. It leaves out the requests in reads.
func (f *FS) Changes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.changes
	f.changes = nil
	return got
}

// reads are the requests that Changes leaves out, because they do not change the file system.
var reads = []string{"lookup", "getattr", "open", "release"}

// arriveFor is arrive for a request about node. The request also hangs if it is held with the
// node's name, as in "getattr f".
func (f *FS) arriveFor(request string, node uint64) {
	f.arrive(request)
	f.mu.Lock()
	h := f.enter(request + " " + f.names[node])
	f.mu.Unlock()
	h.wait()
}

// arrive records request for Changes unless reads has request. If request is held, arrive waits for
// its release.
func (f *FS) arrive(request string) {
	f.mu.Lock()
	if !slices.Contains(reads, request) {
		f.changes = append(f.changes, request)
	}
	h := f.enter(request)
	f.mu.Unlock()
	h.wait()
}

// enter marks a held request as hanging and returns its Held. It returns nil if the request is not
// held. The caller has locked mu.
func (f *FS) enter(request string) *Held {
	h := f.held[request]
	if h != nil {
		delete(f.held, request)
		f.hanging = append(f.hanging, h)
		close(h.entered)
	}
	return h
}

func (h *Held) wait() {
	if h != nil {
		<-h.released
	}
}

type cancel = <-chan struct{}

func (f *FS) Lookup(c cancel, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	f.arrive("lookup")
	status := f.RawFileSystem.Lookup(c, h, name, out)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names[out.NodeId] = name
	return status
}

func (f *FS) GetAttr(c cancel, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	f.arriveFor("getattr", in.NodeId)
	return f.RawFileSystem.GetAttr(c, in, out)
}

// Init does not give the file system its server, so that no file is passed through to the
// kernel: all reads and writes come here.
func (f *FS) Init(*fuse.Server) {}

// Statx is not supported, so that the kernel sends GETATTR.
func (f *FS) Statx(cancel, *fuse.StatxIn, *fuse.StatxOut) fuse.Status { return fuse.ENOSYS }

func (f *FS) Open(c cancel, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	f.arrive("open")
	return f.RawFileSystem.Open(c, in, out)
}

func (f *FS) Release(c cancel, in *fuse.ReleaseIn) {
	f.arriveFor("release", in.NodeId)
	f.RawFileSystem.Release(c, in)
}

func (f *FS) SetAttr(c cancel, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	f.arrive("setattr")
	return f.RawFileSystem.SetAttr(c, in, out)
}

func (f *FS) Mknod(c cancel, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	f.arrive("mknod")
	return f.RawFileSystem.Mknod(c, in, name, out)
}

func (f *FS) Mkdir(c cancel, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	f.arrive("mkdir")
	return f.RawFileSystem.Mkdir(c, in, name, out)
}

func (f *FS) Unlink(c cancel, h *fuse.InHeader, name string) fuse.Status {
	f.arrive("unlink")
	return f.RawFileSystem.Unlink(c, h, name)
}

func (f *FS) Rmdir(c cancel, h *fuse.InHeader, name string) fuse.Status {
	f.arrive("rmdir")
	return f.RawFileSystem.Rmdir(c, h, name)
}

func (f *FS) Rename(c cancel, in *fuse.RenameIn, old, name string) fuse.Status {
	f.arrive("rename")
	if in.Flags != 0 && f.noRenameFlags.Load() {
		return fuse.EINVAL
	}
	return f.RawFileSystem.Rename(c, in, old, name)
}

func (f *FS) Link(c cancel, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	f.arrive("link")
	return f.RawFileSystem.Link(c, in, name, out)
}

func (f *FS) Symlink(c cancel, h *fuse.InHeader, to, name string, out *fuse.EntryOut) fuse.Status {
	f.arrive("symlink")
	return f.RawFileSystem.Symlink(c, h, to, name, out)
}

func (f *FS) SetXAttr(c cancel, in *fuse.SetXAttrIn, attr string, data []byte) fuse.Status {
	f.arrive("setxattr")
	return f.RawFileSystem.SetXAttr(c, in, attr, data)
}

func (f *FS) RemoveXAttr(c cancel, h *fuse.InHeader, attr string) fuse.Status {
	f.arrive("removexattr")
	return f.RawFileSystem.RemoveXAttr(c, h, attr)
}

func (f *FS) Create(c cancel, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	f.arrive("create")
	return f.RawFileSystem.Create(c, in, name, out)
}

func (f *FS) Tmpfile(c cancel, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	if f.noTmpfile.Load() {
		return fuse.ENOSYS
	}
	f.arrive("tmpfile")
	return f.RawFileSystem.Tmpfile(c, in, out)
}

func (f *FS) Write(c cancel, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	f.arrive("write")
	return f.RawFileSystem.Write(c, in, data)
}

func (f *FS) Writev(c cancel, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	f.arrive("write")
	return f.RawFileSystem.Writev(c, in, data)
}

func (f *FS) CopyFileRange(c cancel, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	f.arrive("copy")
	return f.RawFileSystem.CopyFileRange(c, in)
}

func (f *FS) Fsync(c cancel, in *fuse.FsyncIn) fuse.Status {
	f.arrive("fsync")
	return f.RawFileSystem.Fsync(c, in)
}

func (f *FS) FsyncDir(c cancel, in *fuse.FsyncIn) fuse.Status {
	f.arrive("fsync")
	return f.RawFileSystem.FsyncDir(c, in)
}

func (f *FS) Fallocate(c cancel, in *fuse.FallocateIn) fuse.Status {
	f.arrive("fallocate")
	return f.RawFileSystem.Fallocate(c, in)
}

func (f *FS) SetLk(c cancel, in *fuse.LkIn) fuse.Status {
	f.arrive("lock")
	return f.RawFileSystem.SetLk(c, in)
}
