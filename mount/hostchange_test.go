package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// withoutNotifications runs f. Until f returns, the mount does not notify the kernel of changes
// that the host makes.
func (m *testMount) withoutNotifications(f func()) {
	m.delivery.mu.Lock()
	defer m.delivery.mu.Unlock()
	f()
}

// replace gives name a new file, as editors and log rotation do.
func replace(name, text string) error {
	if err := os.WriteFile(name+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

var (
	childFchmod    = childfs.In("unix.Fchmod", unix.Fchmod)
	childFchown    = childfs.In("unix.Fchown", unix.Fchown)
	childFsetxattr = childfs.In("unix.Fsetxattr", unix.Fsetxattr)
	childFutimens  = childfs.In("futimens", func(fd int, sec int64) error {
		ts := [2]unix.Timespec{{Sec: sec}, {Sec: sec}}
		_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
	childOpenat   = childfs.In("unix.Openat", unix.Openat)
	childGetdents = childfs.In("getdents", func(fd int) (int, error) {
		if _, err := unix.Seek(fd, 0, 0); err != nil {
			return 0, err
		}
		return unix.Getdents(fd, make([]byte, 4096))
	})
	childUtimensat = childfs.In("utimensat", func(path string, sec int64) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Sec: sec}, {Sec: sec}}, 0)
	})
)

const aclName = "system.posix_acl_access"

// testACL is user::rw-, user:1234:r--, group::r--, mask::r--, other::---.
var testACL = []byte("\x02\x00\x00\x00" + "\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x04\x00\xd2\x04\x00\x00" +
	"\x04\x00\x04\x00\xff\xff\xff\xff" + "\x10\x00\x04\x00\xff\xff\xff\xff" + "\x20\x00\x00\x00\xff\xff\xff\xff")

// nodeChanges are changes of a file, by a path and by a descriptor. For most of these changes the
// kernel's request does not say whether a program named the file by a path or by a descriptor.
var nodeChanges = map[string]struct {
	byPath func(path string) error
	byFile func(fd int) error
	isDone func(st *unix.Stat_t, xattr func(name string) string) bool
}{
	"chmod": {
		func(p string) error { return childfs.SysChmod(p, 0o640) },
		func(fd int) error { return childFchmod(fd, 0o640) },
		func(st *unix.Stat_t, _ func(string) string) bool { return st.Mode&0o777 == 0o640 },
	},
	"chown": {
		func(p string) error { return childfs.Chown(p, -1, 1234) },
		func(fd int) error { return childFchown(fd, -1, 1234) },
		func(st *unix.Stat_t, _ func(string) string) bool { return st.Gid == 1234 },
	},
	"utimens": {
		func(p string) error { return childUtimensat(p, 1234) },
		func(fd int) error { return childFutimens(fd, 1234) },
		func(st *unix.Stat_t, _ func(string) string) bool { return st.Mtim.Sec == 1234 },
	},
	"truncate": {
		func(p string) error { return childfs.SysTruncate(p, 1) },
		func(fd int) error { return childfs.SysFtruncate(fd, 1) },
		func(st *unix.Stat_t, _ func(string) string) bool { return st.Size == 1 },
	},
	"setxattr": {
		func(p string) error { return childfs.SysSetxattr(p, "user.x", []byte("new"), 0) },
		func(fd int) error { return childFsetxattr(fd, "user.x", []byte("new"), 0) },
		func(_ *unix.Stat_t, xattr func(string) string) bool { return xattr("user.x") == "new" },
	},
	"set ACL": {
		func(p string) error { return childfs.SysSetxattr(p, aclName, testACL, 0) },
		func(fd int) error { return childFsetxattr(fd, aclName, testACL, 0) },
		func(_ *unix.Stat_t, xattr func(string) string) bool { return xattr(aclName) == string(testACL) },
	},
}

// hostFile is an open file of the source. It stays the same file if the file is renamed or removed.
type hostFile struct {
	*testing.T
	fd int
}

func openHost(t *testing.T, name string) hostFile {
	t.Helper()
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return hostFile{t, fd}
}

func (h hostFile) has(isDone func(*unix.Stat_t, func(string) string) bool) bool {
	var st unix.Stat_t
	testkit.Must(h.T, unix.Fstat(h.fd, &st))
	return isDone(&st, func(name string) string {
		buf := make([]byte, 1000)
		n, err := unix.Fgetxattr(h.fd, name, buf)
		if err != nil {
			return ""
		}
		return string(buf[:n])
	})
}

// forEachHostChange runs a test at the levels Strict and Audit, for each way in which the host can
// take the name "p/f" from a file. The test calls afterChange, which makes the change and then
// runs f. In one case f runs after programs see the change. In the other case the mount does not
// notify the kernel of the change before f has returned.
func forEachHostChange(t *testing.T, run func(t *testing.T, m *testMount, change string, afterChange func(f func()))) {
	for _, level := range []Level{Strict, Audit} {
		for change, do := range map[string]func(name string) error{
			"removed":  os.Remove,
			"replaced": func(name string) error { return replace(name, "new") },
			"renamed":  func(name string) error { return os.Rename(name, name+"2") },
			"moved":    func(name string) error { return os.Rename(name, filepath.Join(filepath.Dir(name), "d", "f")) },
			"linked": func(name string) error {
				return errors.Join(os.Link(name, filepath.Join(filepath.Dir(name), "d", "l")), os.Remove(name))
			},
			"moved with dir": func(name string) error { return os.Rename(filepath.Dir(name), filepath.Dir(name)+"2") },
		} {
			for _, notified := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%s/notified %v", level, change, notified), func(t *testing.T) {
					m := newTestMount(t, guard.ReadWrite, func(o *Options, _ *guard.Grant) { o.Level = level })
					testkit.Must(t, childfs.MkdirAll(filepath.Join(m.src, "p/d"), 0o755))
					name := filepath.Join(m.src, "p/f")
					testkit.Must(t, childfs.WriteFile(name, []byte("old"), 0o644))
					run(t, m, change, func(f func()) {
						if notified {
							testkit.Must(t, do(name))
							testkit.Until(t, "the host's change in the mount", func() bool {
								got, err := childfs.ReadFile(filepath.Join(m.root, "p/f"))
								if change == "replaced" {
									return string(got) == "new"
								}
								return errors.Is(err, unix.ENOENT)
							})
							f()
							return
						}
						m.withoutNotifications(func() {
							testkit.Must(t, do(name))
							f()
						})
					})
				})
			}
		}
	}
}

// A descriptor refers to the same file whatever the host does with the file's name: changes
// through the descriptor change that file.
func TestDescriptorsOutliveNames(t *testing.T) {
	for name, c := range nodeChanges {
		t.Run(name, func(t *testing.T) {
			if name == "chown" && os.Geteuid() != 0 {
				t.Skip("only root gives a file to a group that it is not in")
			}
			forEachHostChange(t, func(t *testing.T, m *testMount, _ string, afterChange func(func())) {
				host := openHost(t, filepath.Join(m.src, "p/f"))
				f, err := childfs.OpenFile(filepath.Join(m.root, "p/f"), os.O_RDWR, 0)
				testkit.Must(t, err)
				defer f.Close()
				afterChange(func() {
					if err := c.byFile(int(f.Fd())); err != nil {
						t.Errorf("by descriptor: %v", err)
					}
					if !host.has(c.isDone) {
						t.Error("the open file was not changed")
					}
				})
			})
		})
	}
}

// A change by name changes the file that has the name. It does not change a file that has lost the
// name, even if a program has that file open.
func TestNamesLeadToTheFileThatHasThem(t *testing.T) {
	for name, c := range nodeChanges {
		t.Run(name, func(t *testing.T) {
			if name == "chown" && os.Geteuid() != 0 {
				t.Skip("only root gives a file to a group that it is not in")
			}
			forEachHostChange(t, func(t *testing.T, m *testMount, change string, afterChange func(func())) {
				path := filepath.Join(m.root, "p/f")
				old := openHost(t, filepath.Join(m.src, "p/f"))
				f, err := childfs.OpenFile(path, os.O_RDWR, 0)
				testkit.Must(t, err)
				defer f.Close()
				afterChange(func() {
					err := c.byPath(path)
					if old.has(c.isDone) {
						t.Error("the file that had the name was changed")
					}
					switch {
					case change != "replaced":
						if !errors.Is(err, unix.ENOENT) {
							t.Errorf("%v, want ENOENT", err)
						}
					case err != nil:
						t.Error(err)
					case !openHost(t, filepath.Join(m.src, "p/f")).has(c.isDone):
						t.Error("the file that has the name was not changed")
					}
				})
			})
		})
	}
}

// A write to a file by name reaches the file that has the name. This holds even if the host has
// replaced, moved or removed the file that the kernel knows, while a program has that file open.
func TestNoWriteByNameIsLost(t *testing.T) {
	for name, flags := range map[string]int{
		"append": os.O_WRONLY | os.O_APPEND, "append or create": os.O_WRONLY | os.O_APPEND | os.O_CREATE,
		"truncate": os.O_WRONLY | os.O_TRUNC | os.O_CREATE, "update": os.O_RDWR | os.O_CREATE,
	} {
		t.Run(name, func(t *testing.T) {
			forEachHostChange(t, func(t *testing.T, m *testMount, change string, afterChange func(func())) {
				path, host := filepath.Join(m.root, "p/f"), filepath.Join(m.src, "p/f")
				reader, err := childfs.Open(path)
				testkit.Must(t, err)
				defer reader.Close()
				afterChange(func() {
					f, err := childfs.OpenFile(path, flags, 0o644)
					if err == nil {
						defer f.Close()
					}
					if change == "moved with dir" || change != "replaced" && flags&os.O_CREATE == 0 {
						if !errors.Is(err, unix.ENOENT) {
							t.Errorf("%v, want ENOENT", err)
						}
						return
					}
					testkit.Must(t, err)
					_, err = f.WriteString("line")
					testkit.Must(t, err)
					want := "line"
					if change == "replaced" && flags&os.O_APPEND != 0 {
						want = "newline"
					}
					if got, err := childfs.ReadFile(host); err != nil || string(got) != want {
						t.Errorf("the file holds %q, %v; want %q", got, err, want)
					}
				})
			})
		})
	}
}

// Opening a descriptor's name in /proc opens the descriptor's file, even if the host has moved
// the file inside the root, or has removed it.
func TestReopeningByDescriptor(t *testing.T) {
	forEachHostChange(t, func(t *testing.T, m *testMount, _ string, afterChange func(func())) {
		host := openHost(t, filepath.Join(m.src, "p/f"))
		f, err := childfs.Open(filepath.Join(m.root, "p/f"))
		testkit.Must(t, err)
		defer f.Close()
		afterChange(func() {
			for range 2 {
				again, err := childfs.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_WRONLY|os.O_APPEND, 0)
				testkit.Must(t, err)
				_, err = again.WriteString("+")
				testkit.Must(t, err)
				testkit.Must(t, again.Close())
			}
		})
		buf := make([]byte, 10)
		if n, err := unix.Pread(host.fd, buf, 0); err != nil || string(buf[:n]) != "old++" {
			t.Errorf("the file holds %q, %v", buf[:n], err)
		}
	})
}

// The kernel retries a path only once after ESTALE. No program sees ESTALE, even if the host
// replaces a file, or exchanges files or directories, before each request of the kernel.
func TestNoStaleWhileTheHostChanges(t *testing.T) {
	for _, level := range []Level{Strict, Audit} {
		for name, change := range map[string]func(src string) error{
			"replaces a file": func(src string) error { return replace(filepath.Join(src, "d/f"), "text") },
			"exchanges directories": func(src string) error {
				return unix.Renameat2(unix.AT_FDCWD, filepath.Join(src, "d"), unix.AT_FDCWD, filepath.Join(src, "e"), unix.RENAME_EXCHANGE)
			},
			"exchanges far directories": func(src string) error {
				return unix.Renameat2(unix.AT_FDCWD, filepath.Join(src, "d"), unix.AT_FDCWD, filepath.Join(src, "p/q"), unix.RENAME_EXCHANGE)
			},
			"exchanges files": func(src string) error {
				return unix.Renameat2(unix.AT_FDCWD, filepath.Join(src, "d/f"), unix.AT_FDCWD, filepath.Join(src, "e/f"), unix.RENAME_EXCHANGE)
			},
		} {
			t.Run(level.String()+"/"+name, func(t *testing.T) {
				src := t.TempDir()
				var on, failed atomic.Bool
				m := newTestMount(t, guard.ReadWrite, func(o *Options, g *guard.Grant) {
					g.Dir, o.Level = names.Foreign(src), level
					o.atStep = func(s step, _ guard.RootName) {
						if s == viewEntry && on.Load() && change(src) != nil {
							failed.Store(true)
						}
					}
				})
				for _, dir := range []string{"d", "e", "p/q"} {
					testkit.Must(t, childfs.MkdirAll(filepath.Join(src, dir), 0o755))
					testkit.Must(t, childfs.WriteFile(filepath.Join(src, dir, "f"), []byte("text"), 0o644))
				}
				path := filepath.Join(m.root, "d/f")
				for _, flags := range []int{os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_TRUNC} {
					for range 5 {
						on.Store(true)
						f, err := childfs.OpenFile(path, flags, 0o644)
						on.Store(false)
						if err != nil {
							t.Errorf("open with %#x: %v", flags, err)
							continue
						}
						testkit.Must(t, f.Close())
					}
				}
				dir, err := childfs.SysOpen(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				testkit.Must(t, err)
				defer func() { _ = childfs.SysClose(dir) }()
				for what, call := range map[string]func() error{
					"open in an open directory": func() error {
						fd, err := childOpenat(dir, "f", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
						if err == nil {
							err = childfs.SysClose(fd)
						}
						return err
					},
					"fstat of a directory":  func() error { return childfs.SysFstat(dir, &unix.Stat_t{}) },
					"fchmod of a directory": func() error { return childFchmod(dir, 0o755) },
					"getdents":              func() error { _, err := childGetdents(dir); return err },
					"stat":                  func() error { _, err := childfs.Stat(path); return err },
					"chmod":                 func() error { return childfs.SysChmod(path, 0o644) },
					"list":                  func() error { _, err := childfs.ReadDir(filepath.Dir(path)); return err },
					"create": func() error {
						f, err := childfs.OpenFile(filepath.Join(filepath.Dir(path), "new"), os.O_WRONLY|os.O_CREATE, 0o644)
						if err == nil {
							err = f.Close()
						}
						return err
					},
				} {
					for range 5 {
						on.Store(true)
						err := call()
						on.Store(false)
						if err != nil {
							t.Errorf("%s: %v", what, err)
						}
					}
				}
				if failed.Load() {
					t.Error("the host could not make its changes")
				}
			})
		}
	}
}
