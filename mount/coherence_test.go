package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The host's changes of contents, sizes, modes and names become visible, although the kernel may
// cache what it knows for an hour.
func TestHostChangesBecomeVisible(t *testing.T) {
	m := newTestMount(t, guard.ReadWrite, nil)
	host := func(name string) string { return filepath.Join(m.src, name) }
	seen := func(name string) string { return filepath.Join(m.root, name) }
	content := func(name string) string { b, _ := childfs.ReadFile(seen(name)); return string(b) }
	for i := range 30 {
		name := fmt.Sprintf("d%d/f", i)
		testkit.Must(t, childfs.Mkdir(host(fmt.Sprintf("d%d", i)), 0o755))
		testkit.Must(t, childfs.WriteFile(host(name), []byte("one"), 0o644))
		if got := content(name); got != "one" {
			t.Fatalf("read %q", got)
		}
		if _, err := childfs.Stat(seen(name + "x")); err == nil { // now cached as absent
			t.Fatal("a look-up of an absent name succeeded")
		}
		testkit.Must(t, childfs.WriteFile(host(name), []byte("two"), 0o644)) // same size
		testkit.Until(t, "write of equal size", func() bool { return content(name) == "two" })
		testkit.Must(t, childfs.Truncate(host(name), 1))
		testkit.Until(t, "truncation", func() bool { return content(name) == "t" })
		testkit.Must(t, childfs.Chmod(host(name), 0o600))
		testkit.Until(t, "chmod", func() bool { st, err := childfs.Stat(seen(name)); return err == nil && st.Mode() == 0o600 })
		testkit.Must(t, childfs.Rename(host(name), host(name+"x")))
		testkit.Until(t, "rename: new name", func() bool { return content(name+"x") == "t" })
		testkit.Until(t, "rename: old name", func() bool { _, err := childfs.Stat(seen(name)); return os.IsNotExist(err) })
		testkit.Must(t, childfs.Remove(host(name+"x")))
		testkit.Until(t, "removal", func() bool { e, err := childfs.ReadDir(seen(fmt.Sprintf("d%d", i))); return err == nil && len(e) == 0 })
	}
}

// The kernel may send FORGET for an earlier answer after a later look-up has returned the node
// again. If the node is a directory, the mount then keeps the node and goes on watching the
// directory.
func TestForgottenLate(t *testing.T) {
	m := newTestMount(t, guard.ReadWrite, nil)
	testkit.Must(t, childfs.Mkdir(filepath.Join(m.src, "d"), 0o755))
	testkit.Must(t, childfs.WriteFile(filepath.Join(m.src, "d/f"), nil, 0o644))
	_, err := childfs.Stat(filepath.Join(m.root, "d/f"))
	testkit.Must(t, err)
	code := m.top.child("code")
	d := code.child("d")
	a := &asker{T: t, m: m}
	a.ok(m.raw.Lookup(nil, a.in(code.id), "d", &fuse.EntryOut{}))
	m.raw.Forget(d.id, 1) // for the answer to Stat
	if d.isForgotten() || m.nodes.find(d.id) != d {
		t.Error("the mount has removed a node that the kernel knows")
	}
	testkit.Must(t, childfs.Rename(filepath.Join(m.src, "d/f"), filepath.Join(m.src, "d/g")))
	testkit.Until(t, "the end of the old name", func() bool {
		_, err := childfs.Stat(filepath.Join(m.root, "d/f"))
		return os.IsNotExist(err)
	})
}

// Changes that the host makes in a file that is also written through the mount are seen: the
// filter of the mount's own events must not drop the host's.
func TestHostAndMountWriteTheSameFile(t *testing.T) {
	m := newTestMount(t, guard.ReadWrite, nil)
	f, err := childfs.OpenFile(filepath.Join(m.root, "f"), os.O_RDWR|os.O_CREATE, 0o644)
	testkit.Must(t, err)
	defer f.Close()
	h, err := childfs.OpenFile(filepath.Join(m.src, "f"), os.O_RDWR, 0)
	testkit.Must(t, err)
	defer h.Close()
	for i := range 200 {
		_, err := f.WriteAt([]byte(fmt.Sprintf("%08d", i)), 0)
		testkit.Must(t, err)
		_, err = h.WriteAt([]byte(fmt.Sprintf("%08d", i)), 8)
		testkit.Must(t, err)
		want := fmt.Sprintf("%08d%08d", i, i)
		testkit.Until(t, "host's half of round "+fmt.Sprint(i), func() bool {
			b := make([]byte, 16)
			_, _ = f.ReadAt(b, 0)
			return string(b) == want
		})
	}
}

// A listing leaves out the attributes of names for which the kernel still has them from earlier
// LOOKUPs, and includes the attributes of the other names. The listing has every name. Programs
// see a change that the host makes after the LOOKUPs.
func TestListingAfterLookups(t *testing.T) {
	for _, lookups := range []int{0, 50, 100} {
		t.Run(fmt.Sprint(lookups), func(t *testing.T) { listAfterLookups(t, lookups) })
	}
}

func listAfterLookups(t *testing.T, lookups int) {
	m := newTestMount(t, guard.ReadOnly, nil)
	var all []string
	for i := range 100 { // for several answers
		all = append(all, fmt.Sprintf("file%02d", i))
		testkit.Must(t, os.WriteFile(filepath.Join(m.src, all[i]), []byte("a"), 0o644))
	}
	size := func(name string) int64 {
		t.Helper()
		info, err := childfs.Lstat(filepath.Join(m.root, name))
		testkit.Must(t, err)
		return info.Size()
	}
	for _, name := range all[:lookups] {
		size(name)
	}
	testkit.Must(t, os.WriteFile(filepath.Join(m.src, all[0]), []byte("longer"), 0o644))
	list, err := childfs.ReadDir(m.root)
	testkit.Must(t, err)
	var got []string
	for _, e := range list {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, all) {
		t.Errorf("listed %q", got)
	}
	counts := map[string]uint64{}
	nodes := m.view("code").all()
	m.nodes.mu.Lock()
	for _, n := range nodes {
		counts[n.name.name] = n.lookups
	}
	m.nodes.mu.Unlock()
	for _, name := range all[1:] {
		if counts[name] != 1 {
			t.Errorf("the kernel has %d look-ups of %s, want 1", counts[name], name)
		}
	}
	testkit.Until(t, "the new size", func() bool { return size(all[0]) == 6 })
	for _, name := range all[1:] {
		if got := size(name); got != 1 {
			t.Errorf("%s has %d bytes", name, got)
		}
	}
}
