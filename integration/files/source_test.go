package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// On a full disk a write fails with IO_ERROR and the old file stays. When there is room again, the
// same write succeeds. R052, R074.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := t.TempDir()
	testkit.Must(t, unix.Mount("none", dir, "tmpfs", 0, "size=128k"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	writeFile(t, filepath.Join(dir, "f"), "old")
	writeFile(t, filepath.Join(dir, "ballast"), strings.Repeat("x", 64<<10))
	h := newHost(t, nil)
	h.grant("r", dir, guard.ReadWrite)
	p := connectRaw(t, h.b)
	large := wire.WriteParams{Path: "r/f", Content: strings.Repeat("y", 100<<10)}
	var refusal *wire.Error
	if err := p.ask(wire.Write, large, nil); !errors.Is(err, names.IO) || !errors.As(err, &refusal) || refusal.Code != wire.Number(names.IOError) {
		t.Errorf("%v, want %v", err, names.IO)
	}
	p.checkAlive("r/f", "old")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("the failed write left %v, %v", left, err)
	}
	testkit.Must(t, p.ask(wire.Delete, wire.DeleteParams{Path: "r/ballast"}, nil))
	testkit.Must(t, p.ask(wire.Write, large, nil))
	p.checkAlive("r/f", large.Content)
}

// stuckFile is a file whose reads hang until the test releases them.
type stuckFile struct {
	fs.MemRegularFile
	release chan struct{}
	reads   atomic.Int64
}

func (f *stuckFile) Read(ctx context.Context, h fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.reads.Add(1)
	<-f.release
	return f.MemRegularFile.Read(ctx, h, dest, off)
}

// A read of a file that hangs, as a file on a dead file server does, fails with TIMEOUT. While the
// file hangs, another file is still served. When the file no longer hangs, it is served again.
// R053, R079.
func TestHangingSource(t *testing.T) {
	stuck := &stuckFile{MemRegularFile: fs.MemRegularFile{Data: []byte("late"), Attr: fuse.Attr{Mode: 0o444}}, release: make(chan struct{})}
	dir := t.TempDir()
	top := &fs.Inode{}
	server, err := fs.Mount(dir, top, &fs.Options{OnAdd: func(ctx context.Context) {
		top.AddChild("stuck", top.NewPersistentInode(ctx, stuck, fs.StableAttr{}), false)
		top.AddChild("fine", top.NewPersistentInode(ctx, &fs.MemRegularFile{Data: []byte("text"), Attr: fuse.Attr{Mode: 0o444}}, fs.StableAttr{}), false)
	}})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, server.Unmount()) })
	release := sync.OnceFunc(func() { close(stuck.release) })
	t.Cleanup(release)
	h := newHost(t, func(c *broker.Config) { c.Limits.Timeout = 2 * time.Second })
	h.grant("r", dir, guard.ReadOnly)
	p := connectRaw(t, h.b)
	p.checkAlive("r/fine", "text")
	var refusal *wire.Error
	if err := p.ask(wire.Read, wire.ReadParams{Path: "r/stuck"}, nil); !errors.Is(err, names.Timeout) || !errors.As(err, &refusal) || refusal.Code != wire.Number(names.TimeoutCode) {
		t.Errorf("%v, want %v", err, names.Timeout)
	}
	if stuck.reads.Load() == 0 {
		t.Error("the source got no read: the test shows nothing")
	}
	p.checkAlive("r/fine", "text")
	release()
	p.checkAlive("r/stuck", "late")
}
