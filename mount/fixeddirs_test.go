package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// fixedDir makes a mount with one fixed directory: a spare directory or, without spare, a
// directory of Layout.Tops. at is a path to the fixed directory through a descriptor. The
// descriptor holds the fixed directory as a bind mount would. host is a directory of the host.
// Once a test has granted host as the root "top", the fixed directory shows this root.
func fixedDir(t *testing.T, spare bool) (m *testMount, at, host string) {
	t.Helper()
	host, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	o := Layout{ByPath: true, Spare: 1}
	at = SparePath(0)
	if !spare {
		if os.Geteuid() != 0 {
			t.Skip("a directory in / needs root")
		}
		host, err = os.MkdirTemp("/", "rootsfs-shown-")
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, childfs.RemoveAll(host)) })
		o = Layout{ByPath: true, Tops: []string{host[1:]}}
		at = host[1:]
	}
	testkit.Must(t, childfs.WriteFile(filepath.Join(host, "f"), []byte("f"), 0o644))
	testkit.Must(t, childfs.Mkdir(filepath.Join(host, "sub"), 0o755))
	m = newTestMount(t, guard.ReadOnly, func(opt *Options, _ *guard.Grant) { opt.Layout = o })
	fd, err := childfs.SysOpen(filepath.Join(m.Point(), at), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	t.Cleanup(func() { childfs.SysClose(fd) })
	if spare {
		testkit.Must(t, m.Show(0, "top"))
	}
	return m, "/proc/self/fd/" + strconv.Itoa(fd), host
}

// bothKinds runs a test for a directory of Layout.Tops and for a spare directory.
func bothKinds(t *testing.T, f func(t *testing.T, spare bool)) {
	t.Run("top", func(t *testing.T) { f(t, false) })
	t.Run("spare", func(t *testing.T) { f(t, true) })
}

// A fixed directory has the same inode before, while and after it shows a root. The directory
// shows each root at once, with the root's own rights. Without a root the directory is empty.
func TestFixedDirShowsRoots(t *testing.T) {
	bothKinds(t, func(t *testing.T, spare bool) {
		m, at, host := fixedDir(t, spare)
		ino := inode(t, at)
		for _, rights := range []guard.Rights{guard.ReadOnly, guard.ReadWrite, guard.ReadWrite} {
			if got := listed(t, at); len(got) != 0 {
				t.Fatalf("without a root there is %v", got)
			}
			if err := childfs.WriteFile(at+"/new", nil, 0o644); !isUnchangeable(err) {
				t.Errorf("making a file without a root: %v", err)
			}
			m.grant(t, "top", host, rights)
			if b, err := childfs.ReadFile(at + "/f"); err != nil || string(b) != "f" {
				t.Fatalf("in the root: %q, %v", b, err)
			}
			if got := listed(t, at); !slices.Equal(got, []string{"f", "sub"}) {
				t.Errorf("listed: %v", got)
			}
			if got := inode(t, at); got != ino {
				t.Errorf("the inode number is %d, was %d", got, ino)
			}
			tryChanges(t, at, host, rights)
			held, err := childfs.Open(at + "/f")
			testkit.Must(t, err)
			dir, err := childfs.Open(at)
			testkit.Must(t, err)
			_, err = m.reg.Revoke(context.Background(), "top")
			testkit.Must(t, err)
			if n, err := held.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes of an open file after the revocation", n)
			}
			if list, err := dir.Readdirnames(-1); err == nil && len(list) > 0 {
				t.Errorf("an open directory lists %v after the revocation", list)
			}
			if _, err := childfs.Stat(at + "/f"); !errors.Is(err, unix.ENOENT) {
				t.Errorf("a name after the revocation: %v", err)
			}
			held.Close()
			dir.Close()
		}
		if got := inode(t, at); got != ino {
			t.Errorf("the inode number is %d, was %d", got, ino)
		}
	})
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	testkit.Must(t, childfs.SysStat(path, &st))
	return st.Ino
}

// tryChanges tries operations that change a directory or the names in it. If rights allow changes,
// they must succeed, else they must fail with EROFS. tryChanges leaves the names as they were.
func tryChanges(t *testing.T, at, host string, rights guard.Rights) {
	t.Helper()
	try := func(what string, err error) {
		t.Helper()
		if (err == nil) != rights.Mutating() || err != nil && !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: %v", what, err)
		}
	}
	try("create", childfs.WriteFile(at+"/new", []byte("new"), 0o644))
	try("rename", childfs.Rename(at+"/f", at+"/sub/moved"))
	if rights.Mutating() {
		try("rename back", childfs.Rename(at+"/sub/moved", at+"/f"))
	}
	try("link", childfs.Link(at+"/f", at+"/link"))
	try("symlink", childfs.Symlink("f", at+"/sym"))
	try("mkdir", childfs.Mkdir(at+"/dir", 0o755))
	try("chmod", childfs.Chmod(at+"/.", 0o700))
	try("set an attribute", childfs.SysSetxattr(at+"/.", "user.x", []byte("y"), 0))
	try("mknod", childfs.SysMknod(at+"/node", unix.S_IFREG|0o644, 0))
	if rights.Mutating() {
		if b, err := childfs.ReadFile(host + "/new"); err != nil || string(b) != "new" {
			t.Errorf("on the host: %q, %v", b, err)
		}
		if st, err := childfs.Stat(host); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("on the host: %v, %v", st.Mode(), err)
		}
		if b := make([]byte, 1); !hasAttr(t, at, "user.x", b) || b[0] != 'y' {
			t.Errorf("the attribute is %q", b)
		}
	}
	for _, name := range []string{"new", "link", "sym", "node"} {
		try("unlink "+name, removeCreated(rights, at+"/"+name))
	}
	try("rmdir", removeCreated(rights, at+"/dir"))
}

// hasAttr reads an extended attribute of a directory into b, and reports whether the value has the
// length of b.
func hasAttr(t *testing.T, at, attr string, b []byte) bool {
	t.Helper()
	n, err := childfs.SysGetxattr(at+"/.", attr, b)
	return err == nil && n == len(b)
}

// removeCreated removes a file that the test has created. With rights that do not allow changes
// there is no such file, and removeCreated returns EROFS without a call.
func removeCreated(rights guard.Rights, path string) error {
	if !rights.Mutating() {
		return unix.EROFS
	}
	return childfs.Remove(path)
}

// Changes by the host in the root are seen through the fixed directory as through any other
// directory: changes of names, of contents and of absent names.
func TestFixedDirFollowsHost(t *testing.T) {
	bothKinds(t, func(t *testing.T, spare bool) {
		m, at, host := fixedDir(t, spare)
		m.grant(t, "top", host, guard.ReadOnly)
		for i := range 3 {
			name := "/n" + strconv.Itoa(i)
			if _, err := childfs.Stat(at + name); !os.IsNotExist(err) {
				t.Fatal(err)
			}
			testkit.Must(t, childfs.WriteFile(host+name, []byte("one"), 0o644))
			testkit.Until(t, "a new file", func() bool { b, _ := childfs.ReadFile(at + name); return string(b) == "one" })
			testkit.Must(t, childfs.WriteFile(host+name, []byte("three"), 0o644))
			testkit.Until(t, "new contents", func() bool { b, _ := childfs.ReadFile(at + name); return string(b) == "three" })
			testkit.Must(t, childfs.Remove(host+name))
			testkit.Until(t, "a removal", func() bool { _, err := childfs.Stat(at + name); return os.IsNotExist(err) })
			testkit.Until(t, "the list", func() bool { return slices.Equal(listed(t, at), []string{"f", "sub"}) })
		}
	})
}

// If a name is absent from a root that a fixed directory shows, this absence is not cached for
// the next root, nor for the same root when it is granted again.
func TestFixedDirKeepsNoAbsence(t *testing.T) {
	m, at, host := fixedDir(t, true)
	absent := func(name string, want bool) {
		t.Helper()
		if _, err := childfs.Stat(at + name); os.IsNotExist(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.grant(t, "top", host, guard.ReadOnly)
	m.grant(t, "in", host+"/sub", guard.ReadOnly)
	testkit.Must(t, childfs.WriteFile(host+"/sub/g", nil, 0o644))
	absent("/g", true)
	absent("/late", true)
	testkit.Must(t, m.Show(0, "in"))
	absent("/g", false)
	testkit.Must(t, m.Show(0, "top"))
	testkit.Must(t, second(m.reg.Revoke(context.Background(), "top")))
	testkit.Must(t, childfs.WriteFile(host+"/late", nil, 0o644))
	m.grant(t, "top", host, guard.ReadOnly)
	absent("/late", false)
}

// A root inside the root that a fixed directory shows has its own rights, whichever was granted
// first, and stays when the outer root ends.
func TestFixedDirWithInnerRoot(t *testing.T) {
	m, at, host := fixedDir(t, false)
	testkit.Must(t, childfs.WriteFile(host+"/sub/g", []byte("g"), 0o644))
	inner := func() {
		t.Helper()
		if b, err := childfs.ReadFile(at + "/sub/g"); err != nil || string(b) != "g" {
			t.Errorf("in the inner root: %q, %v", b, err)
		}
		if err := childfs.WriteFile(at+"/sub/made", nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("writing in the inner root: %v", err)
		}
	}
	m.grant(t, "in", host+"/sub", guard.ReadOnly)
	inner()
	m.grant(t, "top", host, guard.ReadWrite)
	inner()
	testkit.Must(t, childfs.WriteFile(at+"/made", nil, 0o644))
	_, err := m.reg.Revoke(context.Background(), "top")
	testkit.Must(t, err)
	inner()
	if _, err := childfs.Stat(at + "/f"); !os.IsNotExist(err) {
		t.Errorf("the outer root after its revocation: %v", err)
	}
	m.grant(t, "top", host, guard.ReadWrite)
	_, err = m.reg.Revoke(context.Background(), "in")
	testkit.Must(t, err)
	if _, err := childfs.ReadFile(at + "/sub/g"); !errors.Is(err, unix.EACCES) {
		t.Errorf("a file of the revoked inner root, through the outer root: %v", err)
	}
	testkit.Must(t, childfs.WriteFile(at+"/made", []byte("again"), 0o644))
}

// A spare directory shows the roots that Show sets, one after the other. Show fails if there is
// no spare directory with the given number.
func TestShow(t *testing.T) {
	m, at, host := fixedDir(t, true)
	m.grant(t, "top", host, guard.ReadOnly)
	m.grant(t, "in", host+"/sub", guard.ReadOnly)
	for _, c := range []struct {
		root guard.RootName
		want []string
	}{{"top", []string{"f", "sub"}}, {"in", nil}, {"top", []string{"f", "sub"}}, {"", nil}, {"nobody", nil}} {
		testkit.Must(t, m.Show(0, c.root))
		if got := listed(t, at); !slices.Equal(got, c.want) && len(got)+len(c.want) > 0 {
			t.Errorf("showing %q: %v, want %v", c.root, got, c.want)
		}
	}
	for _, i := range []int{-1, 1} {
		if err := m.Show(i, "top"); err == nil {
			t.Errorf("there is a spare directory %d", i)
		}
	}
	if slices.Contains(listed(t, m.Point()), spareDir) {
		t.Error("spare directories are listed")
	}
}
