package beneath

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// The location of a directory is the same through every mount that shows it, and is right
// immediately after a mount was made.
func TestLocationThroughBindMounts(t *testing.T) {
	base := t.TempDir()
	dir := func(rel string) string { return filepath.Join(base, rel) }
	for _, d := range []string{"a/s p\\ace/b", "m", "n"} {
		if err := os.MkdirAll(dir(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	at := func(path string) string {
		t.Helper()
		s, err := Opener{}.OpenRoot(path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.(*source).Location()
	}
	before := at(dir("m"))
	if before == "" || before == at(dir("n")) {
		t.Fatalf("locations %q and %q", before, at(dir("n")))
	}
	if err := unix.Mount(dir("a/s p\\ace"), dir("m"), "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot bind-mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir("m"), unix.MNT_DETACH) })
	if err := os.WriteFile(dir("a/s p\\ace/f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for one, other := range map[string]string{"a/s p\\ace": "m", "a/s p\\ace/b": "m/b", "a/s p\\ace/f": "m/f"} {
		if p, q := at(dir(one)), at(dir(other)); p == "" || p != q {
			t.Errorf("%s is at %q, %s at %q", one, p, other, q)
		}
	}
	if got, want := (Opener{}).LocationOf(dir("m/b/not/there")), at(dir("a/s p\\ace/b"))+"/not/there"; got != want {
		t.Errorf("a path that does not exist is at %q, want %q", got, want)
	}
	if got := (Opener{}).LocationOf(dir("m")); got != before {
		t.Errorf("the mount point itself is at %q, want %q", got, before)
	}
	if err := unix.Unmount(dir("m"), 0); err != nil {
		t.Fatal(err)
	}
	if got := at(dir("m")); got != before {
		t.Errorf("after the unmount the mount point is at %q", got)
	}
}

// The kernel escapes some characters in the roots and mount points of mounts, and the parser
// restores them. A mount that shows neither a directory nor a file is left out.
func TestMountsOfOtherKinds(t *testing.T) {
	got, err := mountinfo.GetMountsFromReader(strings.NewReader("29 1 8:1 / / rw - ext4 /dev/sda1 rw\n"+
		"40 29 8:1 /a\\040b\\134 /mnt/x\\011y rw,relatime shared:3 - ext4 /dev/sda1 rw\n"+
		"41 29 0:4 net:[4026531840] /run/netns/n rw - nsfs nsfs rw\n"), isNoFile)
	if err != nil || len(got) != 2 || got[1].ID != 40 || got[1].Root != `/a b\` || got[1].Mountpoint != "/mnt/x\ty" {
		t.Errorf("%v, %v", got, err)
	}
}
