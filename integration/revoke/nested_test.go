package revoke

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount"
)

// nest is an outer root whose directory in/ is another root, and a holder that reaches the
// inner root's files through the outer one.
type nest struct {
	*lab
	src string // the source of the outer root
	h   *child
	// The holder's descriptors.
	rfd  int // outer/in/f, opened for reading
	wfd  int // outer/in/f, opened for reading and writing
	dir  int // outer/in
	path int // outer/in/f, opened with O_PATH
	out  int // outer/x, opened for reading and writing
	tmp  int // a nameless file (O_TMPFILE) in outer/in
	part int // outer/in/many, whose entries have been read in part
}

func newNest(t *testing.T, level mount.Level, innerFirst bool) *nest {
	t.Helper()
	n := &nest{src: t.TempDir()}
	testkit.Must(t, os.MkdirAll(filepath.Join(n.src, "in", "many"), 0o777))
	testkit.Must(t, os.WriteFile(filepath.Join(n.src, "in", "f"), []byte(strings.Repeat("i", fileSize)), 0o666))
	testkit.Must(t, os.WriteFile(filepath.Join(n.src, "x"), []byte(strings.Repeat("x", fileSize)), 0o666))
	for i := range bigNames {
		testkit.Must(t, makeEmpty(filepath.Join(n.src, "in", "many", strings.Repeat("n", 20)+string(rune('a'+i%26))+string(rune('a'+i/26)))))
	}
	n.lab = newLab(t, mount.Options{Level: level}, grantOf("outer", n.src, guard.ReadWrite))
	if innerFirst {
		n.grantInner(guard.ReadWrite)
	}
	n.h = start(t, "holder", nil)
	open := func(name string, flags int, fd *int) {
		n.h.call("open", callArg{Path: n.in("outer", name), Flags: flags}, fd)
	}
	open("in/f", unix.O_RDONLY, &n.rfd)
	open("in/f", unix.O_RDWR, &n.wfd)
	open("in", unix.O_RDONLY|unix.O_DIRECTORY, &n.dir)
	open("in/f", unix.O_PATH, &n.path)
	open("x", unix.O_RDWR, &n.out)
	open("in", unix.O_TMPFILE|unix.O_RDWR, &n.tmp)
	open("in/many", unix.O_RDONLY|unix.O_DIRECTORY, &n.part)
	n.h.call("map", callArg{FD: n.wfd, Len: fileSize, Flags: unix.PROT_WRITE}, nil)
	n.h.call("write", callArg{FD: n.tmp, Text: "secret"}, nil)
	n.h.call("list", callArg{FD: n.part}, nil)
	return n
}

func (n *nest) grantInner(r guard.Rights) {
	n.t.Helper()
	n.grant(grantOf("inner", filepath.Join(n.src, "in"), r))
}

// checkRefused checks that a call fails. If want lists errors, the call must fail with one of them.
func (n *nest) checkRefused(what, cmd string, a callArg, want ...syscall.Errno) {
	n.t.Helper()
	err := n.h.try(cmd, a, nil)
	if err == nil {
		n.t.Errorf("%s still works through the outer root", what)
		return
	}
	if errors.Is(err, errHung) {
		n.t.Fatal(err)
	}
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	if len(want) > 0 {
		n.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// checkInnerGone checks that the inner root's files are out of reach. where is the path of their
// directory in the outer root.
func (n *nest) checkInnerGone(where string) {
	n.t.Helper()
	refused := n.checkRefused
	refused("stat by path", "stat", callArg{Path: n.in("outer", where, "f")})
	refused("open by path", "open", callArg{Path: n.in("outer", where, "f")})
	refused("opening the directory by path", "open", callArg{Path: n.in("outer", where), Flags: unix.O_DIRECTORY})
	refused("read", "read", callArg{FD: n.rfd, Len: 10})
	refused("read of a page never read", "read", callArg{FD: n.rfd, Off: fileSize - 1, Len: 1})
	refused("write", "write", callArg{FD: n.wfd, Text: "no"})
	refused("fstat", "stat", callArg{FD: n.rfd})
	refused("fstat of O_PATH", "stat", callArg{FD: n.path})
	refused("reopen of O_PATH", "open", callArg{Path: procFD(n.path)})
	refused("openat from the inner directory", "open", callArg{FD: n.dir, Path: "f"})
	refused("creation in the inner directory", "open", callArg{FD: n.dir, Path: "new", Flags: unix.O_CREAT | unix.O_RDWR})
	refused("listing of the inner directory", "list", callArg{FD: n.dir})
	refused("load from a mapping", "load", callArg{Off: 0})
	refused("store to a mapping", "store", callArg{Off: 4096, Text: "no"})
	refused("copy_file_range out of the inner root", "copy", callArg{FD: n.rfd, FD2: n.out, Len: 100})
	refused("copy_file_range into the inner root", "copy", callArg{FD: n.out, FD2: n.wfd, Len: 100})
	refused("linking a nameless file out of the inner root", "linkfd", callArg{FD: n.tmp, Path: n.in("outer", "leak-"+where)})
	refused("continued listing of the inner directory", "more", callArg{FD: n.part})
}

// A revoked inner root leaves a tombstone: no access through the outer root reaches the inner
// root's files, even after the host has moved their directory within the outer root.
func TestTombstone(t *testing.T) {
	for _, s := range []setting{settings[0], settings[1], settings[3]} {
		for _, innerFirst := range []bool{true, false} {
			name := s.name + "/opened before the inner grant"
			if innerFirst {
				name = s.name + "/opened after the inner grant"
			}
			t.Run(name, func(t *testing.T) {
				n := newNest(t, s.level, innerFirst)
				if !innerFirst {
					n.grantInner(guard.ReadWrite)
				}
				n.revoke("inner")
				n.checkInnerGone("in")
				n.checkOuterAlive()
				testkit.Must(t, os.Rename(filepath.Join(n.src, "in"), filepath.Join(n.src, "moved")))
				n.checkInnerGone("moved")
				n.checkOuterAlive()
				data, err := os.ReadFile(filepath.Join(n.src, "moved", "f"))
				testkit.Must(t, err)
				if strings.Contains(string(data), "no") || strings.Contains(string(data), "x") {
					t.Error("a write reached the revoked inner root")
				}
			})
		}
	}
}

// checkOuterAlive checks that the outer root's own files can be used.
func (n *nest) checkOuterAlive() {
	n.t.Helper()
	if err := n.h.try("write", callArg{FD: n.out, Text: "ok"}, nil); err != nil {
		n.t.Errorf("a file of the outer root that was open cannot be written: %v", err)
	}
	if err := n.h.try("stat", callArg{Path: n.in("outer", "x")}, nil); err != nil {
		n.t.Errorf("a path of the outer root cannot be used: %v", err)
	}
}

// A read-only root that is granted inside a writable one makes writes fail with EROFS, also
// through earlier descriptors of the outer root. Stores through an earlier mapping may succeed, but
// do not reach the source.
func TestInnerReadOnlyRootInsideAWritableOne(t *testing.T) {
	for _, s := range settings[:2] {
		t.Run(s.name, func(t *testing.T) {
			n := newNest(t, s.level, false)
			n.grantInner(guard.ReadOnly)
			n.checkRefused("write", "write", callArg{FD: n.wfd, Text: "no"}, syscall.EROFS)
			n.checkRefused("copy_file_range into the inner root", "copy", callArg{FD: n.out, FD2: n.wfd, Len: 100}, syscall.EROFS)
			n.checkRefused("creation in the inner directory", "open", callArg{FD: n.dir, Path: "new", Flags: unix.O_CREAT | unix.O_RDWR}, syscall.EROFS)
			n.checkRefused("open for writing by path", "open", callArg{Path: n.in("outer", "in", "f"), Flags: unix.O_RDWR}, syscall.EROFS)
			n.checkRefused("reopening for writing", "open", callArg{Path: procFD(n.wfd), Flags: unix.O_RDWR}, syscall.EROFS)
			_ = n.h.try("store", callArg{Off: 4096, Text: "STORED"}, nil)
			_ = n.h.try("msync", nil, nil)
			data, err := os.ReadFile(filepath.Join(n.src, "in", "f"))
			testkit.Must(t, err)
			if string(data) != strings.Repeat("i", fileSize) {
				t.Error("a write reached the inner read-only root")
			}
			var got string
			if err := n.h.try("read", callArg{FD: n.rfd, Len: 2}, &got); err != nil || got != "ii" {
				t.Errorf("reading through a descriptor of the outer root: %q, %v", got, err)
			}
			n.checkOuterAlive()
		})
	}
}

// When the inner root becomes read-only, its files cannot be changed through the outer root
// either. Neither the source nor a new reader sees later stores through a mapping.
func TestInnerRootSetReadOnly(t *testing.T) {
	for _, s := range settings[:2] {
		t.Run(s.name, func(t *testing.T) {
			n := newNest(t, s.level, true)
			testkit.Must(t, n.reg.Set(context.Background(), "inner", guard.ReadOnly))
			n.checkRefused("write", "write", callArg{FD: n.wfd, Text: "no"}, syscall.EROFS)
			n.checkRefused("copy_file_range into the inner root", "copy", callArg{FD: n.out, FD2: n.wfd, Len: 100}, syscall.EROFS)
			n.checkRefused("creation in the inner directory", "open", callArg{FD: n.dir, Path: "new", Flags: unix.O_CREAT | unix.O_RDWR}, syscall.EROFS)
			_ = n.h.try("store", callArg{Off: 4096, Text: "STORED"}, nil)
			reader := start(t, "holder", nil)
			var fd int
			reader.call("open", callArg{Path: n.in("outer", "in", "f")}, &fd)
			var got string
			reader.call("read", callArg{FD: fd, Off: 4096, Len: 6}, &got)
			if got == "STORED" {
				t.Error("another reader sees what was stored after the inner root became read-only")
			}
			_ = n.h.try("msync", nil, nil)
			data, err := os.ReadFile(filepath.Join(n.src, "in", "f"))
			testkit.Must(t, err)
			if string(data) != strings.Repeat("i", fileSize) {
				t.Error("a write reached the inner read-only root")
			}
		})
	}
}

// If the inner root's directory is replaced, access to its files through the outer root ends, as
// with a revocation.
func TestInnerRootUnavailable(t *testing.T) {
	n := newNest(t, mount.Audit, true)
	testkit.Must(t, os.Rename(filepath.Join(n.src, "in"), filepath.Join(n.src, "moved")))
	testkit.Must(t, os.Mkdir(filepath.Join(n.src, "in"), 0o777))
	testkit.Must(t, n.reg.Recheck(context.Background(), "inner"))
	n.checkInnerGone("moved")
	n.checkOuterAlive()
}
