package revoke

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// slowfs is a file system whose operations hang while the test blocks them, like a source on a dead
// server. It holds files of fileSize bytes, called ok, other and slow0 to slow9, at its top and in
// its directory in/.
type slowfs struct {
	mu      sync.Mutex // guards blocked and waiting
	blocked map[string]chan struct{}
	waiting map[string]int
	srv     *fuse.Server
}

func (s *slowfs) do(cmd string, arg json.RawMessage) (any, error) {
	if cmd == "mount" {
		var a slowMount
		if err := json.Unmarshal(arg, &a); err != nil {
			return nil, err
		}
		return nil, s.mount(a)
	}
	var key string
	if err := json.Unmarshal(arg, &key); err != nil {
		return nil, err
	}
	switch cmd {
	case "block":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.blocked[key] = make(chan struct{})
		return nil, nil
	case "release":
		s.mu.Lock()
		defer s.mu.Unlock()
		for k, c := range s.blocked {
			if k == key || key == everything {
				close(c)
				delete(s.blocked, k)
			}
		}
		return nil, nil
	case "waiting":
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.waiting[key], nil
	}
	return nil, fmt.Errorf("no command %q", cmd)
}

// slowMount is how a slowfs is mounted.
type slowMount struct {
	Point string
	Type  string // the file system type is "fuse." followed by Type
	User  int    // the user that the kernel takes for the mounter
}

func (s *slowfs) mount(a slowMount) error {
	s.blocked, s.waiting = map[string]chan struct{}{}, map[string]int{}
	zero := time.Duration(0)
	opt := fuse.MountOptions{FsName: "slowfs", Name: a.Type, AllowOther: true}
	if a.User != 0 {
		opt.DirectMount, opt.Options = true, []string{fmt.Sprintf("user_id=%d", a.User)}
	}
	srv, err := fs.Mount(a.Point, &slowDir{fs: s}, &fs.Options{EntryTimeout: &zero, AttrTimeout: &zero, MountOptions: opt})
	s.srv = srv
	return err
}

// everything is the key that blocks all operations.
const everything = "*"

// pause waits while the test blocks the operation op on the name, or everything.
func (s *slowfs) pause(op, name string) {
	key := op + " " + name
	s.mu.Lock()
	c := s.blocked[key]
	if all := s.blocked[everything]; all != nil {
		c, key = all, everything
	}
	if c != nil {
		s.waiting[key]++
	}
	s.mu.Unlock()
	if c == nil {
		return
	}
	<-c
	s.mu.Lock()
	s.waiting[key]--
	s.mu.Unlock()
}

type slowDir struct {
	fs.Inode
	fs *slowfs
}

func (d *slowDir) OnAdd(ctx context.Context) {
	names := []string{"ok", "other"}
	for i := range 10 {
		names = append(names, fmt.Sprintf("slow%d", i))
	}
	for _, n := range names {
		f := &slowFile{fs: d.fs, name: n, data: make([]byte, fileSize)}
		for i := range f.data {
			f.data[i] = n[0]
		}
		d.AddChild(n, d.NewPersistentInode(ctx, f, fs.StableAttr{Mode: syscall.S_IFREG}), true)
	}
	if d.IsRoot() {
		d.AddChild("in", d.NewPersistentInode(ctx, &slowDir{fs: d.fs}, fs.StableAttr{Mode: syscall.S_IFDIR}), true)
	}
}

func (d *slowDir) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	d.fs.pause("getattr", ".")
	out.Mode = 0o777
	return 0
}

func (d *slowDir) Lookup(_ context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	d.fs.pause("lookup", name)
	c := d.GetChild(name)
	if c == nil {
		return nil, syscall.ENOENT
	}
	switch n := c.Operations().(type) {
	case *slowFile:
		n.attr(&out.Attr)
	default:
		out.Mode = 0o777
	}
	return c, 0
}

type slowFile struct {
	fs.Inode
	fs   *slowfs
	name string
	mu   sync.Mutex // guards data
	data []byte
}

func (f *slowFile) attr(out *fuse.Attr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out.Mode, out.Size = 0o666, uint64(len(f.data))
}

func (f *slowFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.fs.pause("getattr", f.name)
	f.attr(&out.Attr)
	return 0
}

func (f *slowFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f.fs.pause("open", f.name)
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (f *slowFile) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.fs.pause("read", f.name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if off >= int64(len(f.data)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(append([]byte(nil), f.data[off:min(off+int64(len(dest)), int64(len(f.data)))]...)), 0
}

func (f *slowFile) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	f.fs.pause("write", f.name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if end := off + int64(len(data)); end > int64(len(f.data)) {
		f.data = append(f.data, make([]byte, end-int64(len(f.data)))...)
	}
	return uint32(copy(f.data[off:], data)), 0
}

func (f *slowFile) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return 0 }

// Statfs waits while the test blocks "statfs ." or everything.
func (d *slowDir) Statfs(context.Context, *fuse.StatfsOut) syscall.Errno {
	d.fs.pause("statfs", ".")
	return 0
}

// slow is a mounted slowfs.
type slow struct {
	*child
	dir string
}

func newSlow(t *testing.T, dir string) *slow {
	t.Helper()
	return newSlowAs(t, slowMount{Point: dir, Type: "slowfs"})
}

func newSlowAs(t *testing.T, a slowMount) *slow {
	t.Helper()
	needFUSE(t)
	s := &slow{child: start(t, "slowfs", nil), dir: a.Point}
	t.Cleanup(func() { _ = unix.Unmount(a.Point, unix.MNT_DETACH) })
	s.call("mount", a, nil)
	return s
}

// releaseAtEnd releases all operations when the test ends, before the children that were started
// before this call are killed.
func (s *slow) releaseAtEnd() { s.t.Cleanup(func() { _ = s.try("release", "*", nil) }) }

// await waits until at least n of the operations that key blocks hang.
func (s *slow) await(key string, n int) {
	s.t.Helper()
	var got int
	if !testkit.Eventually(func() bool { s.call("waiting", key, &got); return got >= n }) {
		s.t.Fatalf("%d operations hang in %q, want %d", got, key, n)
	}
}
