package vfs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// Descriptors that a tree keeps for the whole process are opened before any test counts
// descriptors.
func init() {
	vfs.New(nil)
	_ = vfs.Opener().LocationOf("/x")
}

// alias bind-mounts a directory of the bed at another path, and returns that path.
func (b *bed) alias(rel string) string {
	b.Helper()
	at := b.TempDir()
	if err := unix.Mount(b.host(rel), at, "", unix.MS_BIND, ""); err != nil {
		b.Skipf("cannot bind-mount: %v", err)
	}
	b.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return at
}

// A root that lies in another one is nested, by whatever path it was granted: its stricter
// policy holds through the outer root, and after its revocation it stays denied there.
func TestNestedRootGrantedThroughBindMount(t *testing.T) {
	for name, rel := range map[string]string{"the directory itself": "in", "a directory above it": ""} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, false, guard.Policy{})
			b.put("in/f", "inner")
			b.put("g", "outer")
			at := b.alias(rel)
			if rel == "" {
				at = filepath.Join(at, "in")
			}
			f := b.open("in/f", unix.O_RDWR)
			defer f.Close()
			b.must(second(b.reg.Grant(bg, guard.Grant{Root: "in", Dir: names.Foreign(at), Policy: guard.Policy{Rights: guard.ReadOnly}, Origin: "test"})))
			b.wantKind(b.write(f, "x", 0), names.ReadOnly)
			_, _, err := b.t.Open(bg, who, b.at("in/f"), unix.O_WRONLY)
			b.wantKind(err, names.ReadOnly)
			if st, _ := b.reg.Lookup("code"); len(st.Nested) != 1 || st.Nested[0] != "in" {
				t.Errorf("nested: %q", st.Nested)
			}
			b.revoke("in")
			b.wantKind(second(f.ReadAt(bg, who, make([]byte, 1), 0)), names.Revoked)
			b.wantKind(second(b.t.Lstat(bg, who, b.at("in/f"))), names.Revoked)
			b.must(second(b.t.Lstat(bg, who, b.at("g"))))
			b.grant("in", "in", guard.Policy{}) // by its path in the outer root
			b.must(second(b.t.Lstat(bg, who, b.at("in/f"))))
		})
	}
}

// A directory cannot be granted a second time under another path.
func TestSameDirectoryThroughBindMountIsRefused(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	_, err := b.reg.Grant(bg, guard.Grant{Root: "again", Dir: names.Foreign(b.alias("")), Policy: guard.Policy{Rights: guard.ReadOnly}, Origin: "test"})
	b.wantKind(err, names.Exist)
}

// A root cannot contain, or lie in, one of the owner's own directories, such as the audit log,
// under another path either.
func TestOwnersDirectoryThroughBindMountIsRefused(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadOnly})
	b.must(os.MkdirAll(b.host("state/audit/deep"), 0o755))
	b.reg.ReservePaths(rules.ReservedPath{Path: b.host("state/audit"), What: "the audit log"},
		rules.ReservedPath{Path: b.host("state/none/yet"), What: "the session directory"})
	for rel, says := range map[string]string{
		"state": "the audit log", "state/audit": "the audit log", "state/audit/deep": "the audit log",
	} {
		_, err := b.reg.Grant(bg, guard.Grant{Root: "x", Dir: names.Foreign(b.alias(rel)), Policy: guard.Policy{Rights: guard.ReadOnly}, Origin: "test"})
		b.wantKind(err, names.Permission)
		if err != nil && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%v", err)
		}
	}
	b.must(os.MkdirAll(b.host("beside"), 0o755))
	b.must(second(b.reg.Grant(bg, guard.Grant{Root: "y", Dir: names.Foreign(b.alias("beside")), Policy: guard.Policy{Rights: guard.ReadOnly}, Origin: "test"})))
}
