package revoke

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount"
)

// From linux/userfaultfd.h, except unfilledLength.
const (
	uffdioAPI       = 0xc018aa3f
	uffdioRegister  = 0xc020aa00
	uffdAPI         = 0xaa
	uffdModeMissing = 1
	unfilledLength  = 64 << 10 // of the memory whose page faults are never served
)

// listForEver begins to read a directory into memory whose page fault is never served, so that
// the kernel holds the directory's lock until the process ends. It returns when the read hangs.
func listForEver(dir int) error {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return errno
	}
	api := struct{ api, features, ioctls uint64 }{api: uffdAPI}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdioAPI, uintptr(unsafe.Pointer(&api))); errno != 0 {
		return errno
	}
	addr, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, unfilledLength, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
	if errno != 0 {
		return errno
	}
	reg := struct{ start, length, mode, ioctls uint64 }{uint64(addr), unfilledLength, uffdModeMissing, 0}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdioRegister, uintptr(unsafe.Pointer(&reg))); errno != 0 {
		return errno
	}
	go func() { _, _, _ = unix.Syscall(unix.SYS_GETDENTS64, uintptr(dir), addr, unfilledLength) }()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
	if err == nil && n == 0 {
		err = errors.New("the reading is not stuck")
	}
	return err
}

// A program that reads a directory into memory that is never filled holds the directory's lock
// in the kernel. No revocation waits for that lock. After the revocation, an open file and a
// mapping of the root are dead, and the other roots are not affected.
func TestStuckListingDoesNotHangRevoke(t *testing.T) {
	for _, s := range []setting{settings[0], settings[1], settings[3]} {
		for _, where := range []string{"", "code", "code/in"} {
			t.Run(s.name+"/"+filepath.Base("top/"+where), func(t *testing.T) {
				t.Parallel()
				code, other := t.TempDir(), t.TempDir()
				testkit.Must(t, os.Mkdir(filepath.Join(code, "in"), 0o777))
				testkit.Must(t, os.WriteFile(filepath.Join(code, "in", "f"), []byte("0123456789"), 0o666))
				testkit.Must(t, os.WriteFile(filepath.Join(other, "f"), []byte("other"), 0o666))
				l := newLab(t, mount.Options{Level: s.level}, grantOf("code", code, guard.ReadWrite), grantOf("other", other, guard.ReadWrite))
				stuck, h := start(t, "holder", nil), start(t, "holder", nil)
				var dir, held, otherFD int
				stuck.call("open", callArg{Path: filepath.Join(l.point, where), Flags: unix.O_RDONLY | unix.O_DIRECTORY}, &dir)
				h.call("open", callArg{Path: l.in("code", "in", "f"), Flags: unix.O_RDWR}, &held)
				h.call("open", callArg{Path: l.in("other", "f")}, &otherFD)
				h.call("map", callArg{FD: held, Len: 10, Flags: unix.PROT_WRITE}, nil)
				err := stuck.try("list for ever", callArg{FD: dir}, nil)
				if errors.Is(err, syscall.ENOSYS) {
					t.Skip("this kernel has no userfaultfd")
				}
				testkit.Must(t, err)
				defer stuck.stop() // before newLab's cleanup unmounts

				if err := bounded(t, "revoke", func() error {
					_, err := l.reg.Revoke(context.Background(), "code")
					return err
				}); err != nil {
					t.Errorf("revoke: %v", err)
				}
				for _, c := range []struct {
					cmd string
					arg callArg
				}{
					{"read", callArg{FD: held, Len: 4}},
					{"write", callArg{FD: held, Text: "x"}},
					{"load", callArg{Off: 0}},
					{"stat", callArg{FD: held}},
				} {
					if err := h.try(c.cmd, c.arg, nil); err == nil {
						t.Errorf("%s works after the revocation", c.cmd)
					}
				}
				if err := h.try("read", callArg{FD: otherFD, Len: 4}, nil); err != nil {
					t.Errorf("reading a file of another root: %v", err)
				}
				if err := bounded(t, "revoking the rest", func() error {
					_, err := l.reg.RevokeAll(context.Background())
					return err
				}); err != nil {
					t.Errorf("revoke the rest: %v", err)
				}
			})
		}
	}
}
