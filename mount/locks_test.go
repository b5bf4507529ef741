package mount

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// With --locks host a lock taken on the host is seen through the mount and the other way round.
// With --locks local, locks on the host and in the mount do not affect each other. R075.
func TestLocksReachTheHost(t *testing.T) {
	for _, where := range []Locks{LocksLocal, LocksHost} {
		t.Run(where.String(), func(t *testing.T) {
			m := newTestMount(t, guard.ReadWrite, func(o *Options, _ *guard.Grant) { o.Locks = where })
			testkit.Must(t, childfs.WriteFile(filepath.Join(m.src, "f"), []byte("x"), 0o644))
			open := func(dir string) *childfs.File {
				f, err := childfs.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
				testkit.Must(t, err)
				t.Cleanup(func() { f.Close() })
				return f
			}
			busy := where == LocksHost
			for _, kind := range []struct {
				name string
				lock func(f *childfs.File, typ int16) error
			}{
				{"flock", func(f *childfs.File, typ int16) error {
					how := map[int16]int{unix.F_WRLCK: unix.LOCK_EX, unix.F_RDLCK: unix.LOCK_SH, unix.F_UNLCK: unix.LOCK_UN}[typ]
					return childfs.SysFlock(int(f.Fd()), how|unix.LOCK_NB)
				}},
				{"ofd", func(f *childfs.File, typ int16) error {
					return childfs.SysFcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: typ, Start: 10, Len: 5})
				}},
			} {
				t.Run(kind.name, func(t *testing.T) {
					inside, outside, third := open(m.root), open(m.src), open(m.root)
					testkit.Must(t, kind.lock(inside, unix.F_WRLCK))
					if err := kind.lock(third, unix.F_WRLCK); !errors.Is(err, unix.EAGAIN) {
						t.Errorf("two owners in the mount: %v, want EAGAIN", err)
					}
					if err := kind.lock(outside, unix.F_WRLCK); errors.Is(err, unix.EAGAIN) != busy {
						t.Errorf("the host while the mount holds the lock: %v", err)
					}
					testkit.Must(t, kind.lock(outside, unix.F_UNLCK))
					testkit.Must(t, inside.Close()) // the lock ends with the file
					testkit.Until(t, "the end of the lock", func() bool { return kind.lock(outside, unix.F_WRLCK) == nil })
					if err := kind.lock(third, unix.F_WRLCK); errors.Is(err, unix.EAGAIN) != busy {
						t.Errorf("the mount while the host holds the lock: %v", err)
					}
				})
			}
		})
	}
}
