package revoke

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount"
)

// Data that fsync confirmed before the daemon was killed are in the source. The writer gets an
// error instead of waiting for ever.
func TestKillUnderWriteLoadLosesNothingConfirmed(t *testing.T) {
	for _, s := range []setting{settings[0], settings[1], settings[3]} {
		for _, how := range []string{"load by write", "load by mapping"} {
			t.Run(s.name+"/"+how, func(t *testing.T) {
				for range reps(1, 25) {
					killOnce(t, s, how)
				}
			})
		}
	}
}

func killOnce(t *testing.T, s setting, how string) {
	t.Helper()
	needFUSE(t)
	src, point := t.TempDir(), t.TempDir()
	d := start(t, "daemon", nil)
	t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
	d.call("mount", daemonArg{Source: src, Point: point, Level: s.level}, nil)
	w := start(t, "holder", nil)
	testkit.Must(t, w.send(how, callArg{Path: filepath.Join(point, "code", "log")}))
	// The daemon is killed after some progress, not after some time.
	testkit.Until(t, "50 records", func() bool {
		data, err := os.ReadFile(filepath.Join(src, "log"))
		return err == nil && records(data) > 50
	})
	testkit.Must(t, d.cmd.Process.Signal(syscall.SIGKILL))
	var confirmed int
	testkit.Must(t, w.receive(how, &confirmed))
	data, err := os.ReadFile(filepath.Join(src, "log"))
	testkit.Must(t, err)
	if got := records(data); got < confirmed || confirmed == 0 {
		t.Errorf("fsync confirmed %d records, the source has %d", confirmed, got)
	}
	w.stop()
}

const recordSize = 512

// records counts the leading records that are whole.
func records(data []byte) int {
	n := 0
	for ; len(data) >= recordSize; data = data[recordSize:] {
		if !bytes.Equal(data[:recordSize], record(n)) {
			break
		}
		n++
	}
	return n
}

func record(i int) []byte {
	r := bytes.Repeat([]byte{byte(i%255) + 1}, recordSize)
	binary.BigEndian.PutUint32(r, uint32(i)+1)
	return r
}

// The largest numbers of records that writeLoad and mapLoad write.
const maxRecords, maxMapped = 20_000, 1000

// writeLoad writes records and has each confirmed by fsync, until an error. It returns the number
// of confirmed records.
func writeLoad(path string) (confirmed int, err error) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return 0, err
	}
	for i := range maxRecords {
		if _, err := unix.Pwrite(fd, record(i), int64(i)*recordSize); err != nil {
			break
		}
		if unix.Fsync(fd) != nil {
			break
		}
		confirmed++
	}
	return confirmed, nil
}

// mapLoad does the same as writeLoad through a mapping and msync.
func mapLoad(path string) (confirmed int, err error) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return 0, err
	}
	const size = maxMapped * recordSize
	if err := unix.Ftruncate(fd, size); err != nil {
		return 0, err
	}
	m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 0, err
	}
	for i := range size / recordSize {
		if touch(func() { copy(m[i*recordSize:], record(i)) }) != nil || unix.Msync(m, unix.MS_SYNC) != nil {
			break
		}
		confirmed++
	}
	return confirmed, nil
}

// tmpfs mounts a tmpfs for a source.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	needFUSE(t)
	dir := t.TempDir()
	testkit.Must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, options))
	t.Cleanup(func() {
		for unix.Unmount(dir, unix.MNT_DETACH) == nil {
		}
	})
	return dir
}

// wantErr checks that a call's error is one of want.
func wantErr(t *testing.T, what string, err error, want ...syscall.Errno) {
	t.Helper()
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	t.Errorf("%s: %v, want %v", what, err, want)
}

func TestFullDisk(t *testing.T) {
	for _, s := range []setting{settings[0], settings[1], settings[3]} {
		t.Run(s.name, func(t *testing.T) {
			src := tmpfs(t, "size=1m")
			l := newLab(t, mount.Options{Level: s.level}, grantOf("code", src, guard.ReadWrite))
			h := start(t, "holder", nil)
			var fd int
			h.call("open", callArg{Path: l.in("code", "big"), Flags: unix.O_CREAT | unix.O_RDWR}, &fd)
			text := string(bytes.Repeat([]byte("x"), 64<<10))
			var err error
			for i := range 64 {
				if err = h.try("write", callArg{FD: fd, Off: int64(i) * 64 << 10, Text: text}, nil); err != nil {
					break
				}
			}
			wantErr(t, "write to a full disk", err, syscall.ENOSPC)
			wantErr(t, "allocating on a full disk", h.try("allocate", callArg{FD: fd, Len: 4 << 20}, nil), syscall.ENOSPC)
			var got string
			h.call("read", callArg{FD: fd, Len: 4}, &got)
			if got != "xxxx" {
				t.Errorf("after ENOSPC: read %q", got)
			}
		})
	}
}

func TestReadOnlySource(t *testing.T) {
	for _, s := range []setting{settings[0], settings[1], settings[3]} {
		t.Run(s.name, func(t *testing.T) {
			src := tmpfs(t, "")
			testkit.Must(t, os.WriteFile(filepath.Join(src, "f"), []byte("text"), 0o666))
			testkit.Must(t, unix.Mount("", src, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			l := newLab(t, mount.Options{Level: s.level}, grantOf("code", src, guard.ReadWrite))
			h := start(t, "holder", nil)
			var fd int
			err := h.try("open", callArg{Path: l.in("code", "f"), Flags: unix.O_RDWR}, &fd)
			if err == nil && s.level == mount.Max {
				err = h.try("write", callArg{FD: fd, Text: "no"}, nil) // at level max the daemon sees no open
			}
			wantErr(t, "writing", err, syscall.EROFS)
			wantErr(t, "creating", h.try("open", callArg{Path: l.in("code", "g"), Flags: unix.O_CREAT | unix.O_RDWR}, nil), syscall.EROFS)
			h.call("open", callArg{Path: l.in("code", "f")}, &fd)
			var got string
			h.call("read", callArg{FD: fd, Len: 4}, &got)
			if got != "text" {
				t.Errorf("read %q", got)
			}
		})
	}
}

// A caller gets EACCES for a directory that it may not read, because default_permissions judges
// by the mode.
func TestUnreadableDirectory(t *testing.T) {
	for _, s := range []setting{settings[0], settings[1], settings[3]} {
		t.Run(s.name, func(t *testing.T) {
			guardtest.ShareTemp(t)
			src := t.TempDir()
			testkit.Must(t, os.Mkdir(filepath.Join(src, "shut"), 0o700))
			testkit.Must(t, os.WriteFile(filepath.Join(src, "shut", "f"), nil, 0o666))
			testkit.Must(t, os.WriteFile(filepath.Join(src, "f"), []byte("text"), 0o644))
			l := newLab(t, mount.Options{Level: s.level, AllowOther: true}, grantOf("code", src, guard.ReadWrite))
			testkit.Must(t, os.Chmod(filepath.Dir(l.point), 0o755))
			testkit.Must(t, os.Chmod(src, 0o755))
			h := start(t, "holder", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65434, Gid: 65434}})
			wantErr(t, "listing", h.try("open", callArg{Path: l.in("code", "shut"), Flags: unix.O_DIRECTORY}, nil), syscall.EACCES)
			wantErr(t, "stat inside", h.try("stat", callArg{Path: l.in("code", "shut", "f")}, nil), syscall.EACCES)
			wantErr(t, "writing to a file that belongs to root", h.try("open", callArg{Path: l.in("code", "f"), Flags: unix.O_RDWR}, nil), syscall.EACCES)
			h.call("open", callArg{Path: l.in("code", "f")}, nil)
		})
	}
}

// If a source is unmounted while it is a root, the daemon lives and answers. When it checks the
// root again, the root becomes unavailable. Other roots are not affected.
func TestSourceUnmountedUnderneath(t *testing.T) {
	for _, s := range []setting{settings[0], settings[1], settings[3]} {
		t.Run(s.name, func(t *testing.T) {
			src, local := tmpfs(t, ""), t.TempDir()
			testkit.Must(t, os.WriteFile(filepath.Join(src, "f"), []byte("text"), 0o666))
			testkit.Must(t, os.WriteFile(filepath.Join(local, "f"), []byte("local"), 0o666))
			l := newLab(t, mount.Options{Level: s.level}, grantOf("code", src, guard.ReadWrite), grantOf("local", local, guard.ReadWrite))
			h := start(t, "holder", nil)
			var fd, other int
			h.call("open", callArg{Path: l.in("code", "f"), Flags: unix.O_RDWR}, &fd)
			h.call("open", callArg{Path: l.in("local", "f")}, &other)
			h.call("read", callArg{FD: fd, Len: 4}, nil)
			testkit.Must(t, unix.Unmount(src, unix.MNT_DETACH))
			// The daemon may still reach the file system through its descriptors until the root is
			// rechecked, so any answer is right.
			if err := h.try("read", callArg{FD: fd, Len: 4}, nil); errors.Is(err, errHung) {
				t.Fatal(err)
			}
			testkit.Must(t, l.reg.Recheck(context.Background(), "code"))
			for what, err := range map[string]error{
				"read":         h.try("read", callArg{FD: fd, Len: 4}, nil),
				"write":        h.try("write", callArg{FD: fd, Text: "no"}, nil),
				"stat by path": h.try("stat", callArg{Path: l.in("code", "f")}, nil),
				"open by path": h.try("open", callArg{Path: l.in("code", "f")}, nil),
			} {
				wantErr(t, what, err, syscall.ESTALE, syscall.ENOENT, syscall.EACCES, syscall.EIO)
			}
			var got string
			h.call("read", callArg{FD: other, Len: 5}, &got)
			if got != "local" {
				t.Errorf("the other root reads %q", got)
			}
		})
	}
}
