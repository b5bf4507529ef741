package vfs_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// A new file has the requested mode without the bits of the caller's umask, whatever the umask
// of this process is. In a directory with a default ACL, the ACL applies instead of both umasks.
func TestUmaskOfTheProcess(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.must(os.Mkdir(b.host("plain"), 0o777))
		b.must(os.Mkdir(b.host("acl"), 0o777))
		acl := true
		// user::rwx, group::r-x, other::---, as acl(5) stores them: version, tag, permissions, id.
		entry := func(tag, perm byte) []byte { return []byte{tag, 0, perm, 0, 0xff, 0xff, 0xff, 0xff} }
		value := append([]byte{2, 0, 0, 0}, append(entry(1, 7), append(entry(4, 5), entry(0x20, 0)...)...)...)
		if err := unix.Setxattr(b.host("acl"), "system.posix_acl_default", value, 0); err != nil {
			acl = false // the file system of TMPDIR has no ACLs
		}
		old := unix.Umask(0o077)
		defer unix.Umask(old)
		c := guard.Caller{Via: guard.ViaFUSE, Umask: 0o002, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
		for dir, want := range map[string][2]uint32{"plain": {0o775, 0o664}, "acl": {0o750, 0o640}} {
			if dir == "acl" && !acl {
				continue
			}
			at := b.at(dir)
			check := func(name string, info vfs.Info, err error, want uint32) {
				t.Helper()
				b.must(err)
				if info.Mode&0o777 != want {
					t.Errorf("%s in %s: the returned mode is %#o, want %#o", name, dir, info.Mode&0o777, want)
				}
				if st, err := os.Lstat(b.host(dir + "/" + name)); err == nil && uint32(st.Mode().Perm()) != want {
					t.Errorf("%s in %s: the file's mode is %#o, want %#o", name, dir, st.Mode().Perm(), want)
				}
			}
			info, err := b.t.Mkdir(bg, c, at, "mkdir", 0o777)
			check("mkdir", info, err, want[0])
			info, err = b.t.Mknod(bg, c, at, "mknod", unix.S_IFREG|0o666, 0)
			check("mknod", info, err, want[1])
			f, info, _, err := b.t.Create(bg, c, at, "create", unix.O_RDWR, 0o666)
			check("create", info, err, want[1])
			f.Close()
			f, info, err = b.t.Tmpfile(bg, c, at, unix.O_RDWR, 0o666)
			check("tmpfile", info, err, want[1])
			f.Close()
		}
	})
}
