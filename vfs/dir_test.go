package vfs_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// readAll reads the remaining entries of a directory.
func (b *bed) readAll(d *vfs.Dir, at vfs.At) (list []vfs.Entry) {
	b.Helper()
	for {
		entries, err := d.ReadDir(bg, who, at)
		b.must(err)
		if len(entries) == 0 {
			return list
		}
		for _, e := range entries {
			if e.Name != "." && e.Name != ".." {
				list = append(list, e)
			}
		}
	}
}

// Each of thousands of names (10,000 in make soak) comes once, and after Seek reading continues at
// the given position.
func TestReadDirOfMany(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		n := shortOrSoak(4_000, 10_000)
		b.must(os.Mkdir(b.host("d"), 0o755))
		for i := range n {
			b.must(unix.Mknod(b.host(fmt.Sprintf("d/%05d", i)), unix.S_IFREG|0o644, 0))
		}
		d, err := b.t.Opendir(bg, who, b.at("d"))
		b.must(err)
		defer d.Close()
		list := b.readAll(d, b.at("d"))
		seen := map[string]bool{}
		for _, e := range list {
			seen[e.Name] = true
			if e.Type != unix.S_IFREG {
				t.Fatalf("%+v", e)
			}
		}
		if len(list) != n || len(seen) != n {
			t.Fatalf("%d entries, %d names", len(list), len(seen))
		}
		b.must(d.Seek(bg, who, list[n/2].Off))
		if rest := b.readAll(d, b.at("d")); len(rest) == 0 || rest[0].Name != list[n/2+1].Name {
			t.Errorf("after seeking: %d entries", len(rest))
		}
		b.must(d.Seek(bg, who, 0))
		if again := b.readAll(d, b.at("d")); len(again) != n {
			t.Errorf("after rewinding: %d entries", len(again))
		}
	})
}

// A directory that was moved is read at its new path. A directory that was moved out of the
// root is not read, although the descriptor would serve it. A removed directory is empty.
func TestReadDirOfMovedDirectory(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		for _, d := range []string{"inside", "outside", "removed"} {
			b.put(d+"/f", "")
		}
		open := func(rel string) *vfs.Dir {
			d, err := b.t.Opendir(bg, who, b.known(rel))
			b.must(err)
			return d
		}
		in, out, gone := open("inside"), open("outside"), open("removed")
		defer in.Close()
		defer out.Close()
		defer gone.Close()
		b.must(os.Rename(b.host("inside"), b.host("elsewhere")))
		b.must(os.Rename(b.host("outside"), t.TempDir()+"/stolen"))
		b.must(os.RemoveAll(b.host("removed")))
		// This also holds for a front end that knows only the old path: the tree finds the
		// directory.
		for _, at := range []string{"inside", "elsewhere"} {
			b.must(in.Seek(bg, who, 0))
			if got := b.readAll(in, b.at(at)); len(got) != 1 || got[0].Name != "f" {
				t.Errorf("named %s: %v", at, got)
			}
		}
		b.wantErrno(second(out.ReadDir(bg, who, b.at("outside"))), unix.ESTALE)
		b.put("outside/decoy", "")
		b.wantErrno(second(out.ReadDir(bg, who, b.at("outside"))), unix.ESTALE)
		if got := b.readAll(gone, b.at("removed")); len(got) != 0 {
			t.Errorf("a removed directory holds %v", got)
		}
	})
}

// A directory handle ends with its root, for good.
func TestDirOfEndedRoot(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("d/f", "")
		at := b.at("d")
		d, err := b.t.Opendir(bg, who, at)
		b.must(err)
		defer d.Close()
		b.revoke("code")
		b.wantKind(second(d.ReadDir(bg, who, at)), names.Revoked)
		b.grant("code", "", guard.Policy{})
		b.wantKind(second(d.ReadDir(bg, who, at)), names.Revoked)
		b.wantKind(second(d.Lookup(bg, who, at, "f")), names.Revoked)
		b.wantKind(d.Seek(bg, who, 0), names.Revoked)
		b.wantKind(d.Fsync(bg, who, false), names.Revoked)
	})
}

// An open directory can still be read after a root was nested beside it, whether or not its
// opener gave an identity.
func TestDirAfterNesting(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("d/f", "")
	b.put("in/g", "")
	for _, at := range []vfs.At{b.at("d"), b.known("d")} {
		d, err := b.t.Opendir(bg, who, at)
		b.must(err)
		b.grant("in", "in", guard.Policy{Rights: guard.ReadOnly})
		if got := b.readAll(d, at); len(got) != 1 {
			t.Errorf("%v", got)
		}
		d.Close()
		b.revoke("in")
	}
}

// Special files are not listed, and their names cannot be used.
func TestReadDirHidesSpecialFiles(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("a", "")
		b.tree("fifo|", "dev%")
		d, err := b.t.Opendir(bg, who, b.at(""))
		b.must(err)
		defer d.Close()
		var got []string
		for _, e := range b.readAll(d, b.at("")) {
			got = append(got, e.Name)
		}
		if !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q", got)
		}
		b.wantKind(second(d.Lookup(bg, who, b.at(""), "fifo")), names.Hidden)
		b.wantKind(second(b.t.Mknod(bg, who, b.at(""), "new", unix.S_IFIFO|0o644, 0)), names.Permission)
		b.wantKind(second(b.t.Mknod(bg, who, b.at(""), "new", unix.S_IFCHR|0o644, 0x103)), names.Permission)
	})
}

// The names of a directory that may be read but not searched are listed, as by the kernel. The
// entries' attributes cannot be read.
func TestListWithoutSearch(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite})
	b.put("d/f", "x")
	b.must(os.Chown(b.host("d"), 65534, 65534))
	b.must(os.Chmod(b.host("d"), 0o600))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.must(unix.Setfsuid(65534)) // of this thread, which has no file-system capabilities then
	defer func() { b.must(unix.Setfsuid(0)) }()
	d, err := b.t.Opendir(bg, who, b.at("d"))
	b.must(err)
	defer d.Close()
	if list := b.readAll(d, b.at("d")); len(list) != 1 || list[0].Name != "f" {
		t.Errorf("%+v", list)
	}
	page, err := b.t.List(bg, who, b.at("d").Path, vfs.ListOptions{Limit: 10, Depth: 1})
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Name != "f" || page.Entries[0].Info.Type() != unix.S_IFREG {
		t.Errorf("%+v, %v", page, err)
	}
	if _, err := b.t.Lookup(bg, who, b.at("d"), "f"); names.Errno(err) != unix.EACCES {
		t.Errorf("the look-up of a name: %v", err)
	}
}
