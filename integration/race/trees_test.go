package race

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The marks of the files outside (canary...), and the content of the files inside (plain, other).
const (
	canary     = "CANARY-b7c1e0d4" // in every outside file, and in some names
	canaryUID  = 4242              // owns everything outside
	canaryTime = 987654321         // modification time of everything outside
	canaryAttr = "user.canary"
	plain      = "inside"
	other      = "OTHER" // in the files of src/inner, at which links within the root point
)

// dirNames are the files in each exchanged directory. They are the same inside and outside, so that
// an operation that leaves the root hits a file there.
var dirNames = []string{"f", "victim", "sub/f", "sub/victim"}

// fillDir makes a directory with the files dirNames, each with the content text.
func fillDir(t testing.TB, dir, text string) {
	t.Helper()
	for _, name := range dirNames {
		write(t, filepath.Join(dir, name), text)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// buildTrees makes the source and the outside tree, which lie beside each other
// on one file system, so that a directory can be moved from one to the other.
func buildTrees(t testing.TB, base string) (src, out string) {
	t.Helper()
	src, out = filepath.Join(base, "src"), filepath.Join(base, "outside")
	for _, d := range []string{"dir", "dirp/p3", "park"} {
		fillDir(t, filepath.Join(out, d), canary)
		write(t, filepath.Join(out, d, canary+"-name"), canary)
		testkit.Must(t, os.Mkdir(filepath.Join(out, d, "empty"), 0o777))
	}
	write(t, filepath.Join(out, "secret"), canary)
	for _, d := range []string{"a/dl", "p1/p2/p3", "m/out", "a/il", "a/abs"} {
		fillDir(t, filepath.Join(src, d), plain)
	}
	fillDir(t, filepath.Join(src, "inner"), other)
	for _, f := range []string{"a/fl", "a/ff", "a/ifl", "stable", "a/copy"} {
		write(t, filepath.Join(src, f), plain)
	}
	link := func(target, name string) { testkit.Must(t, os.Symlink(target, filepath.Join(src, name))) }
	// The links with .. lead elsewhere from the mount than from the source, but in both cases
	// each leads out of the root.
	link("../../outside/dir", "a/dl.alt")
	link(filepath.Join(out, "secret"), "a/fl.alt")
	link("../../outside/dirp", "p1/alt")
	link(filepath.Join(out, "dir"), "a/abs.alt")
	link("../inner", "a/il.alt")
	link("../inner/f", "a/ifl.alt")
	testkit.Must(t, unix.Mkfifo(filepath.Join(src, "a/ff.alt"), 0o666))
	mark(t, out)
	return src, out
}

// mark gives everything outside the signs of a canary.
func mark(t testing.TB, out string) {
	t.Helper()
	var all []string
	testkit.Must(t, filepath.WalkDir(out, func(p string, _ fs.DirEntry, err error) error {
		all = append(all, p)
		return err
	}))
	stamp := []unix.Timespec{{Sec: canaryTime}, {Sec: canaryTime}}
	for _, p := range all {
		testkit.Must(t, os.Chown(p, canaryUID, canaryUID))
		testkit.Must(t, unix.Setxattr(p, canaryAttr, []byte(canary), 0))
	}
	for _, p := range all {
		testkit.Must(t, unix.UtimesNanoAt(unix.AT_FDCWD, p, stamp, unix.AT_SYMLINK_NOFOLLOW))
	}
}

// picture describes the outside tree completely, with one line for each file. It leaves out the
// directory park/visitor, which the swapper moves, and the times, links and size of park, which
// these moves change.
func picture(t testing.TB, out string) string {
	t.Helper()
	var lines []string
	testkit.Must(t, filepath.WalkDir(out, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == filepath.Join(out, "park", "visitor") {
			return fs.SkipDir
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		text := ""
		if d.Type().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text = string(b)
		}
		mtime, ctime := st.Mtim, st.Ctim
		if p == filepath.Join(out, "park") {
			mtime, ctime, st.Nlink, st.Size = unix.Timespec{}, unix.Timespec{}, 0, 0
		}
		lines = append(lines, fmt.Sprintf("%s ino=%d mode=%o nlink=%d owner=%d:%d size=%d mtime=%v ctime=%v xattrs=%q text=%q",
			p, st.Ino, st.Mode, st.Nlink, st.Uid, st.Gid, st.Size, mtime, ctime, xattrs(t, p), text))
		return nil
	}))
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func xattrs(t testing.TB, p string) string {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := unix.Llistxattr(p, buf)
	testkit.Must(t, err)
	var all []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		val := make([]byte, 4096)
		k, err := unix.Lgetxattr(p, name, val)
		testkit.Must(t, err)
		all = append(all, name+"="+string(val[:k]))
	}
	sort.Strings(all)
	return strings.Join(all, " ")
}
