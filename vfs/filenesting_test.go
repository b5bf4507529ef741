package vfs_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// A single file is a root inside another root. The stricter policy of the inner root also holds
// for the file's path in the outer root, even if the file was opened before, and after the host
// has replaced the file. When the inner root is revoked, every access to the file through the
// outer root is refused until the inner root is granted again.
func TestFileRootInsideRoot(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("d/one", "mine")
		b.put("d/other", "free")
		before := b.open("d/one", unix.O_RDWR)
		defer before.Close()
		b.grant("one", "d/one", guard.Policy{Rights: guard.ReadOnly})
		dir, at := b.at("d"), b.at("d/one")

		reads := func(want guard.Kind) {
			t.Helper()
			b.wantKind(second(before.ReadAt(bg, who, make([]byte, 4), 0)), want)
			b.wantKind(second(b.t.Lookup(bg, who, dir, "one")), want)
			b.wantKind(second(b.t.Lstat(bg, who, at)), want)
			f, _, err := b.t.Open(bg, who, at, unix.O_RDONLY)
			b.wantKind(err, want)
			if err == nil {
				f.Close()
			}
			d, err := b.t.Opendir(bg, who, dir)
			b.must(err)
			b.wantKind(second(d.Lookup(bg, who, dir, "one")), want)
			b.must(second(d.Lookup(bg, who, dir, "other")))
			d.Close()
		}
		changes := func(want guard.Kind) {
			t.Helper()
			mode := uint32(0o600)
			b.wantKind(b.write(before, "x", 0), want)
			for _, flags := range []int{unix.O_WRONLY, unix.O_RDWR, unix.O_RDWR | unix.O_APPEND, unix.O_WRONLY | unix.O_TRUNC} {
				_, _, err := b.t.Open(bg, who, at, flags)
				b.wantKind(err, want)
			}
			b.wantKind(second(b.t.Setattr(bg, who, at, nil, vfs.Attrs{Mode: &mode})), want)
			b.wantKind(b.t.Unlink(bg, who, dir, "one"), want)
			b.wantKind(b.t.Rename(bg, who, dir, "one", dir, "x", 0), want)
			b.wantKind(b.t.Rename(bg, who, dir, "other", dir, "one", 0), want)
			b.wantKind(b.t.Rename(bg, who, dir, "other", dir, "one", vfs.RenameExchange), want)
			b.wantKind(second(b.t.Replace(bg, who, at, strings.NewReader("x"), vfs.IfMatch{})), want)
			_, _, err := b.t.WriteRange(bg, who, at.Path, []byte("x"), vfs.WriteOptions{})
			b.wantKind(err, want)
		}
		reads(0)
		changes(names.ReadOnly)
		if err := b.t.RemovePath(bg, who, dir.Path, vfs.RemoveOptions{Recursive: true}); err == nil {
			t.Error("removed with its directory")
		}
		if err := second(b.t.Link(bg, who, at, nil, dir, "hard")); names.Errno(err) != unix.EROFS {
			t.Errorf("linked out of its root: %v", err)
		}
		b.contents("d/one", "mine")

		// The file is replaced by a rename, as editors do: the name counts.
		b.put("d/tmp", "edit")
		b.must(os.Rename(b.host("d/tmp"), b.host("d/one")))
		b.wantKind(second(before.ReadAt(bg, who, make([]byte, 4), 0)), 0)
		f, _, err := b.t.Open(bg, who, at, unix.O_RDONLY)
		b.must(err)
		f.Close()
		_, _, err = b.t.Open(bg, who, at, unix.O_WRONLY)
		b.wantKind(err, names.ReadOnly)

		b.revoke("one")
		reads(names.Revoked)
		changes(names.Revoked)
		b.put("d/tmp", "more")
		b.must(os.Rename(b.host("d/tmp"), b.host("d/one")))
		b.wantKind(second(b.t.Lstat(bg, who, at)), names.Revoked)
		b.contents("d/one", "more")
		b.contents("d/other", "free")

		b.grant("one", "d/one", guard.Policy{Rights: guard.ReadWrite})
		f, _, err = b.t.Open(bg, who, at, unix.O_RDWR)
		b.must(err)
		b.must(b.write(f, "M", 0))
		f.Close()
		b.contents("d/one", "More")
		// The file is still a root: its name cannot be removed or moved, and it gets no second name.
		b.wantErrno(b.t.Unlink(bg, who, dir, "one"), unix.EBUSY)
		b.wantErrno(b.t.Rename(bg, who, dir, "one", dir, "x", 0), unix.EXDEV)
		b.wantErrno(b.t.Rename(bg, who, dir, "other", dir, "one", 0), unix.EXDEV)
		b.wantErrno(second(b.t.Link(bg, who, at, nil, dir, "hard")), unix.EXDEV)
		b.revoke("one")
	})
}

// A listing shows the name of a file whose root was revoked, but not the file's size.
func TestListFileOfRevokedRoot(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("one", "mine")
	b.put("two", "free")
	b.grant("one", "one", guard.Policy{Rights: guard.ReadOnly})
	b.revoke("one")
	page, err := b.t.List(bg, who, b.at("").Path, vfs.ListOptions{})
	b.must(err)
	for _, e := range page.Entries {
		if hasSize := e.Info.Size != 0; hasSize != (e.Name == "two") {
			t.Errorf("%s: size %d", e.Name, e.Info.Size)
		}
	}
	if len(page.Entries) != 2 {
		t.Errorf("%d entries", len(page.Entries))
	}
}
