package vfs_test

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// If the host replaces the file of a name while an operation by path runs, the operation does not
// fail: the tree looks the name up again, as a local file system does. Here the host replaces the
// file once for each operation. If it did so many times during one operation, the operation could
// fail, because its tries are bounded (maxExchanges, readTries).
func TestPathsWhileTheHostSaves(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite})
	b.put("f", "text")
	b.put("g", "text")
	path := b.at("f").Path
	var done atomic.Bool
	var calls atomic.Int64 // how many operations have begun
	ended := make(chan error, 1)
	go func() {
		var err error
		for replaced := int64(0); !done.Load() && err == nil; {
			if began := calls.Load(); began > replaced {
				err = unix.Renameat2(unix.AT_FDCWD, b.host("f"), unix.AT_FDCWD, b.host("g"), unix.RENAME_EXCHANGE)
				replaced = began
			}
			runtime.Gosched()
		}
		ended <- err
	}()
	for name, call := range map[string]func() error{
		"open": func() error {
			f, _, err := b.t.Open(bg, who, b.at("f"), unix.O_RDWR)
			if err == nil {
				f.Close()
			}
			return err
		},
		"create": func() error {
			f, _, _, err := b.t.Create(bg, who, b.at(""), "f", unix.O_RDWR, 0o644)
			if err == nil {
				f.Close()
			}
			return err
		},
		"read": func() error { _, _, err := b.readRange(path, 0, make([]byte, 4), ""); return err },
		"append": func() error {
			_, _, err := b.t.WriteRange(bg, who, path, []byte("x"), vfs.WriteOptions{Append: true})
			return err
		},
		"update": func() error {
			_, _, err := b.t.WriteRange(bg, who, path, []byte("x"), vfs.WriteOptions{Create: true})
			return err
		},
		"update, respecting locks": func() error {
			_, _, err := b.t.WriteRange(bg, who, path, []byte("x"), vfs.WriteOptions{RespectLocks: true})
			return err
		},
		"truncate": func() error {
			size := int64(4)
			_, err := b.t.Setattr(bg, who, b.at("f"), nil, vfs.Attrs{Size: &size})
			return err
		},
	} {
		failed := map[string]int{}
		for range 3000 {
			calls.Add(1)
			if err := call(); err != nil {
				failed[err.Error()]++
			}
		}
		if len(failed) > 0 {
			t.Errorf("%s: %v", name, failed)
		}
	}
	done.Store(true)
	b.must(<-ended)
	_ = os.Remove(b.host("g"))
}
