package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
)

// newMountedHost returns a host whose broker shares the tree of a mount.
func newMountedHost(t *testing.T, level mount.Level) (h *host, point string) {
	t.Helper()
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	point = t.TempDir()
	m, err := mount.New(reg, mount.Options{Point: point, Level: level})
	if err != nil {
		t.Skipf("no mount here: %v", err)
	}
	t.Cleanup(func() {
		if _, err := reg.RevokeAll(context.Background()); err != nil {
			t.Error(err)
		}
		testkit.Must(t, m.Close())
	})
	h = &host{t: t, reg: reg}
	h.b = newBroker(t, reg, func(c *broker.Config) { c.Tree = m.Tree() })
	return h, point
}

// R004, R009, R095: two servers at the broker and two programs in the mount increment a number in
// one file. The programs write the file in place. The servers replace the file on condition that
// its etag is unchanged. Whatever the order, each increment is either refused with an error or
// counted.
func TestMountAndBrokersCount(t *testing.T) {
	steps := 20
	if lab.Soak() {
		steps = 60
	}
	for _, level := range []mount.Level{mount.Strict, mount.Audit, mount.Max} {
		t.Run(level.String(), func(t *testing.T) {
			h, point := newMountedHost(t, level)
			dir := h.root("r", guard.ReadWrite, "n=0")
			var program sync.Mutex // the two programs exclude each other, as programs of one machine can
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					for range steps {
						for {
							program.Lock()
							err := addInPlace(filepath.Join(point, "r/n"))
							program.Unlock()
							if err == nil {
								break
							}
							if !errors.Is(err, unix.ESTALE) && !errors.Is(err, unix.EIO) {
								t.Error(err)
								return
							}
						}
					}
				})
				p := connect(t, h.b, "memory", nil)
				wg.Go(func() {
					for range steps {
						for !addByReplacing(t, p) {
						}
					}
				})
			}
			wg.Wait()
			if got, err := os.ReadFile(filepath.Join(dir, "n")); string(got) != strconv.Itoa(4*steps) {
				t.Errorf("counted to %q, %v, of %d", got, err, 4*steps)
			}
		})
	}
}

// addInPlace adds one to the number in a file. It runs in another process, as a program does.
var addInPlace = childfs.In("addInPlace", func(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 20)
	n, err := unix.Pread(int(f.Fd()), buf, 0)
	if err != nil {
		return err
	}
	i, err := strconv.Atoi(string(buf[:n]))
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(strconv.Itoa(i+1)), 0)
	return err
})

func addByReplacing(t *testing.T, p *pair) bool {
	c, err := p.files.Read(p.ctx, "r/n", client.ReadOptions{})
	if err == nil {
		i, aerr := strconv.Atoi(string(c.Data))
		if aerr != nil {
			t.Error(aerr)
			return true
		}
		_, err = p.files.WriteFile(p.ctx, "r/n", []byte(strconv.Itoa(i+1)), client.WriteOptions{IfMatch: c.ETag})
	}
	switch names.Reason(err) {
	case names.Conflict, names.Locked:
		return false
	}
	if err != nil {
		t.Error(err)
	}
	return true
}

// R054, R095: while a program in the mount has a file open for writing, a server cannot replace the
// file by a write, a rename or a copy. The server can append. The program's writes are in the file.
func TestOpenInMountIsNotReplaced(t *testing.T) {
	for _, level := range []mount.Level{mount.Strict, mount.Audit} {
		t.Run(level.String(), func(t *testing.T) {
			h, point := newMountedHost(t, level)
			dir := h.root("r", guard.ReadWrite, "f=text", "g=other")
			p := connect(t, h.b, "memory", nil)
			for _, flags := range []int{os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND} {
				f, err := childfs.OpenFile(filepath.Join(point, "r/f"), flags, 0)
				testkit.Must(t, err)
				_, werr := p.files.WriteFile(p.ctx, "r/f", []byte("server"), client.WriteOptions{})
				_, merr := p.files.Rename(p.ctx, "r/g", "r/f", client.MoveOptions{Overwrite: true})
				_, cerr := p.files.Copy(p.ctx, "r/g", "r/f", client.MoveOptions{Overwrite: true})
				for _, err := range []error{werr, merr, cerr} {
					if !errors.Is(err, names.Locked) {
						t.Errorf("with the file open: %v", err)
					}
				}
				_, err = p.files.Append(p.ctx, "r/f", []byte("+"), false)
				testkit.Must(t, err)
				_, err = f.WriteString("program")
				testkit.Must(t, err)
				testkit.Must(t, f.Close())
			}
			if got, err := os.ReadFile(filepath.Join(dir, "f")); string(got) != "program+program" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
