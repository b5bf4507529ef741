package mount

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/mount/incoming"
)

// countReads begins to count the READ requests of programs. The caller must call countReads before
// it mounts.
func countReads(t *testing.T) *atomic.Int64 {
	t.Helper()
	const opRead = 15
	var reads atomic.Int64
	before := incoming.Observe
	incoming.Observe = func(h *fuse.InHeader) {
		if h.Opcode == opRead {
			reads.Add(1)
		}
		before(h)
	}
	t.Cleanup(func() { incoming.Observe = before }) // runs after the mount has ended
	return &reads
}

// expectRefused checks that reads of a file get EACCES without a READ request. Before each read,
// expectRefused gets the file's attributes, because the kernel may cache them.
func expectRefused(t *testing.T, f *childfs.File, reads *atomic.Int64) {
	t.Helper()
	for range 2 {
		if _, err := f.Stat(); err != nil {
			t.Errorf("the attributes of the file: %v", err)
		}
		if _, err := f.ReadAt(make([]byte, 5), 0); !errors.Is(err, syscall.EACCES) {
			t.Errorf("reading the file: %v, want EACCES", err)
		}
	}
	if n := reads.Load(); n != 0 {
		t.Errorf("%d READ requests have reached the mount, want none: a kernel may turn their refusal into EIO", n)
	}
}

// A kernel turns every error of a READ for its page cache into EIO (Linux 6.19 and newer). A read
// that the root's rights do not allow is refused without a READ, so that programs get EACCES.
func TestUnreadableWithoutOpen(t *testing.T) {
	reads := countReads(t)
	m := newTestMount(t, guard.List, func(o *Options, _ *guard.Grant) { o.Level, o.ReadOnly = Max, true })
	if err := os.WriteFile(filepath.Join(m.src, "a"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := childfs.Open(filepath.Join(m.root, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	expectRefused(t, f, reads)
}

// A read of an open file is refused in the same way after the root has lost the right to read. The
// read succeeds when the root has the right again.
func TestUnreadableAfterOpen(t *testing.T) {
	for _, level := range []Level{Strict, Audit} { // at level Max rights do not change
		t.Run(level.String(), func(t *testing.T) { unreadableAfterOpen(t, level) })
	}
}

func unreadableAfterOpen(t *testing.T, level Level) {
	reads := countReads(t)
	m := newTestMount(t, guard.ReadOnly, func(o *Options, _ *guard.Grant) { o.Level = level })
	if err := os.WriteFile(filepath.Join(m.src, "a"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := childfs.Open(filepath.Join(m.root, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := m.reg.Set(context.Background(), "code", guard.List); err != nil {
		t.Fatal(err)
	}
	expectRefused(t, f, reads)
	if err := m.reg.Set(context.Background(), "code", guard.ReadOnly); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(f); string(text) != "hello" || err != nil {
		t.Errorf("with the right again: %q, %v", text, err)
	}
}
