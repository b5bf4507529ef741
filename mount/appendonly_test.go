package mount

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
)

// appendOnly mounts a root whose rights let programs create files and append to them, but not
// overwrite them. The root has a file "log" with the contents "old\n".
func appendOnly(t *testing.T, level Level) *testMount {
	m := newTestMount(t, guard.Create|guard.Append|guard.Read|guard.List, func(o *Options, _ *guard.Grant) { o.Level = level })
	if err := childfs.WriteFile(filepath.Join(m.src, "log"), []byte("old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return m
}

// checkContents checks the contents of a file on the source and in the mount.
func (m *testMount) checkContents(t *testing.T, rel, want string) {
	t.Helper()
	for _, dir := range []string{m.src, m.root} { // the source, and what readers of the mount see
		if got, err := childfs.ReadFile(filepath.Join(dir, rel)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", rel, got, err, want)
		}
	}
}

// R162, R110: with the rights to create and to append, no write changes the existing contents of
// a file. Written bytes are added at the end.
func TestAppendOnlyWritesLandAtTheEnd(t *testing.T) {
	for _, level := range []Level{Strict, Audit} {
		t.Run(level.String(), func(t *testing.T) {
			m := appendOnly(t, level)
			log := filepath.Join(m.root, "log")
			f, err := childfs.OpenFile(log, os.O_RDWR|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fd := int(f.Fd())
			want := "old\n"
			for i, write := range []func(text []byte) (int, error){
				f.Write,
				func(b []byte) (int, error) { return childfs.SysPwrite(fd, b, 0) },
				func(b []byte) (int, error) {
					const noAppend = 0x20 // RWF_NOAPPEND, Linux 6.9
					return childfs.SysPwritev2(fd, [][]byte{b}, 0, noAppend)
				},
				func(b []byte) (int, error) { // after O_APPEND was cleared
					if _, err := childfs.SysFcntlInt(uintptr(fd), unix.F_SETFL, 0); err != nil {
						return 0, err
					}
					return childfs.SysPwrite(fd, b, 0)
				},
			} {
				text := strings.Repeat(string(rune('a'+i)), 3) + "\n"
				n, err := write([]byte(text))
				if errors.Is(err, unix.EOPNOTSUPP) {
					continue // a kernel without RWF_NOAPPEND
				}
				if err != nil || n != len(text) {
					t.Fatalf("write %d: %d, %v", i, n, err)
				}
				want += text
				m.checkContents(t, "log", want)
			}
		})
	}
}

// R162, R110: a call that opens an existing file for writing without O_APPEND is refused. So is a
// call that would overwrite, shorten, lengthen, replace or remove a file, or change its
// attributes. The contents of the file are unchanged.
func TestAppendOnlyRefusesEverythingElse(t *testing.T) {
	for _, level := range []Level{Strict, Audit} {
		t.Run(level.String(), func(t *testing.T) {
			m := appendOnly(t, level)
			log, other := filepath.Join(m.root, "log"), filepath.Join(m.root, "other")
			if err := childfs.WriteFile(filepath.Join(m.src, "other"), []byte("XXXX"), 0o644); err != nil {
				t.Fatal(err)
			}
			in, err := childfs.Open(other)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			f, err := childfs.OpenFile(log, os.O_RDWR|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fd := int(f.Fd())
			open := func(flags int) error {
				f, err := childfs.OpenFile(log, flags, 0o644)
				if err == nil {
					f.Close()
				}
				return err
			}
			for name, call := range map[string]func() error{
				"open for writing":    func() error { return open(os.O_WRONLY) },
				"open read-write":     func() error { return open(os.O_RDWR) },
				"open O_TRUNC":        func() error { return open(os.O_WRONLY | os.O_TRUNC) },
				"append with O_TRUNC": func() error { return open(os.O_WRONLY | os.O_APPEND | os.O_TRUNC) },
				"create with O_TRUNC": func() error { return open(os.O_WRONLY | os.O_CREATE | os.O_TRUNC) },
				"truncate":            func() error { return childfs.SysTruncate(log, 0) },
				"ftruncate":           func() error { return childfs.SysFtruncate(fd, 0) },
				"ftruncate longer":    func() error { return childfs.SysFtruncate(fd, 100) },
				"fallocate":           func() error { return childfs.SysFallocate(fd, 0, 0, 100) },
				"punch hole": func() error {
					return childfs.SysFallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 2)
				},
				"zero range":     func() error { return childfs.SysFallocate(fd, unix.FALLOC_FL_ZERO_RANGE, 0, 4) },
				"collapse range": func() error { return childfs.SysFallocate(fd, unix.FALLOC_FL_COLLAPSE_RANGE, 0, 4) },
				"map for writing": func() error {
					id, err := mapPage(fd, 4, unix.PROT_READ|unix.PROT_WRITE)
					if err != nil {
						return err
					}
					return unmapPage(id)
				},
				"copy_file_range": func() error {
					off := int64(0)
					_, err := childfs.SysCopyFileRange(int(in.Fd()), nil, fd, &off, 4, 0)
					return err
				},
				"rename over": func() error { return childfs.Rename(other, log) },
				"exchange": func() error {
					return childfs.SysRenameat2(unix.AT_FDCWD, other, unix.AT_FDCWD, log, unix.RENAME_EXCHANGE)
				},
				"link over":    func() error { return childfs.Link(other, log) },
				"symlink over": func() error { return childfs.Symlink("other", log) },
				"remove":       func() error { return childfs.Remove(log) },
				"chmod":        func() error { return childfs.Chmod(log, 0) },
				"setxattr":     func() error { return childfs.SysSetxattr(log, "user.x", []byte("v"), 0) },
			} {
				if err := call(); err == nil {
					t.Errorf("%s succeeded", name)
				}
				m.checkContents(t, "log", "old\n")
			}
			m.checkContents(t, "other", "XXXX")
		})
	}
}

// R162: a program can append to a file that it has created, and make the file longer. The program
// cannot change the contents that the file has, map the file for writing, or open the file again
// for writing without O_APPEND.
func TestAppendOnlyNewFiles(t *testing.T) {
	m := appendOnly(t, Audit)
	name := filepath.Join(m.root, "new")
	f, err := childfs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range []string{"one,", "two,"} {
		if _, err := io.WriteString(f, s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.WriteAt([]byte("X"), 0); !errors.Is(err, unix.EACCES) {
		t.Errorf("overwriting existing contents: %v, want EACCES", err)
	}
	if err := f.Truncate(4); !errors.Is(err, unix.EACCES) {
		t.Errorf("shortening the file: %v, want EACCES", err)
	}
	if err := f.Truncate(10); err != nil {
		t.Errorf("lengthening the file: %v", err)
	}
	if _, err := mapPage(int(f.Fd()), 4, unix.PROT_READ|unix.PROT_WRITE); !errors.Is(err, unix.ENODEV) {
		t.Errorf("mapping the file for writing: %v, want ENODEV", err)
	}
	m.checkContents(t, "new", "one,two,\x00\x00")
	if again, err := childfs.OpenFile(name, os.O_WRONLY, 0); err == nil {
		again.Close()
		t.Error("the file was opened again for writing without O_APPEND")
	}
}
