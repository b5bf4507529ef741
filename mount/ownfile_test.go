package mount

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// R084: a change of the mount's own directories is refused, and recorded like a refusal in a
// root.
func TestTopRefusalsAreRecorded(t *testing.T) {
	rec := &guardtest.Recorder{}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: rec})
	if _, err := reg.Grant(context.Background(), guard.Grant{Root: "code", Dir: names.Foreign(t.TempDir()), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}}); err != nil {
		t.Fatal(err)
	}
	m, err := New(reg, Options{Point: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		testkit.Must(t, m.Close())
		<-m.Served()
	})
	a := &asker{T: t, m: &testMount{Mount: m, reg: reg}, cancel: make(chan struct{})}
	top, fs := a.in(fuse.FUSE_ROOT_ID), m.raw
	var out fuse.EntryOut
	a.ok(fs.Lookup(a.cancel, top, "code", &out))
	root := a.in(out.NodeId)
	for want, ask := range map[string]func() fuse.Status{
		"mkdir /a": func() fuse.Status { return fs.Mkdir(a.cancel, &fuse.MkdirIn{InHeader: *top}, "a", &fuse.EntryOut{}) },
		"mknod /b": func() fuse.Status {
			return fs.Mknod(a.cancel, &fuse.MknodIn{InHeader: *top, Mode: unix.S_IFIFO}, "b", &fuse.EntryOut{})
		},
		"symlink /c": func() fuse.Status { return fs.Symlink(a.cancel, top, "x", "c", &fuse.EntryOut{}) },
		"create /d":  func() fuse.Status { return fs.Create(a.cancel, &fuse.CreateIn{InHeader: *top}, "d", &fuse.CreateOut{}) },
		"unlink /e":  func() fuse.Status { return fs.Unlink(a.cancel, top, "e") },
		"rmdir /f":   func() fuse.Status { return fs.Rmdir(a.cancel, top, "f") },
		"rename /g": func() fuse.Status {
			return fs.Rename(a.cancel, &fuse.RenameIn{InHeader: *top, Newdir: fuse.FUSE_ROOT_ID}, "g", "h")
		},
		"rename /i": func() fuse.Status { // onto the name of a root
			return fs.Rename(a.cancel, &fuse.RenameIn{InHeader: *top, Newdir: fuse.FUSE_ROOT_ID}, "i", "code")
		},
		"tmpfile /": func() fuse.Status { return fs.Tmpfile(a.cancel, &fuse.CreateIn{InHeader: *top}, &fuse.CreateOut{}) },
		"link /j": func() fuse.Status {
			return fs.Link(a.cancel, &fuse.LinkIn{InHeader: *top, Oldnodeid: root.NodeId}, "j", &fuse.EntryOut{})
		},
		"setattr /": func() fuse.Status {
			return fs.SetAttr(a.cancel, &fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: *top, Valid: fuse.FATTR_MODE}}, &fuse.AttrOut{})
		},
		"setxattr /":    func() fuse.Status { return fs.SetXAttr(a.cancel, &fuse.SetXAttrIn{InHeader: *top}, "user.a", nil) },
		"removexattr /": func() fuse.Status { return fs.RemoveXAttr(a.cancel, top, "user.a") },
	} {
		t.Run(want, func(t *testing.T) {
			before := len(rec.All())
			if got := ask(); got != fuse.EROFS {
				t.Errorf("answered %v, want EROFS", got)
			}
			added := rec.All()[before:]
			if len(added) != 1 || added[0].Detail != want+": of the mount, in none of its roots" || added[0].Kind != names.ReadOnly || added[0].Verdict != guard.Refused {
				t.Errorf("on record: %+v", added)
			}
			if len(added) == 1 && added[0].UID != top.Uid {
				t.Error(fmt.Sprint("the record names another user: ", added[0].UID))
			}
		})
	}
	t.Run("rename from a root", func(t *testing.T) {
		before := len(rec.All())
		in := &fuse.RenameIn{InHeader: *root, Newdir: fuse.FUSE_ROOT_ID}
		if got := fs.Rename(a.cancel, in, "f", "k"); got != fuse.EXDEV && got != fuse.EROFS {
			t.Errorf("answered %v", got)
		}
		if added := rec.All()[before:]; slices.ContainsFunc(added, func(r guard.Record) bool { return r.Verdict != guard.Refused }) {
			t.Errorf("on record: %+v", added)
		}
	})
	if slices.ContainsFunc(rec.All(), func(r guard.Record) bool { return r.Path.Rel() != "" }) {
		t.Error("a root was asked")
	}
}
