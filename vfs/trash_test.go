package vfs_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

func trashBed(t *testing.T, remote bool, trash rules.Trash) *bed {
	t.Helper()
	trash.On = true
	return newBed(t, remote, guard.Policy{Rights: guard.ReadWrite, Trash: trash})
}

// trashContents lists what is in the trash: path and contents, in the order of removal.
func (b *bed) trashContents() (out []string) {
	b.Helper()
	list, err := b.t.TrashList(bg, "code")
	b.must(err)
	for _, e := range list {
		data, err := os.ReadFile(b.host(rules.TrashName + "/" + e.ID))
		if e.Type == "link" {
			var target string
			target, err = os.Readlink(b.host(rules.TrashName + "/" + e.ID))
			data = []byte("-> " + target)
		}
		b.must(err)
		out = append(out, e.Path.Raw()+"="+string(data))
	}
	return out
}

// wantKept checks that the trash holds exactly these paths and contents.
func (b *bed) wantKept(want ...string) {
	b.Helper()
	if got := b.trashContents(); strings.Join(got, "|") != strings.Join(want, "|") {
		b.Errorf("the trash holds %q, want %q", got, want)
	}
}

func setSize(n int64) vfs.Attrs { return vfs.Attrs{Size: &n} }

// Each operation that loses all contents of a file keeps them in the trash: unlink, a rename over a
// file, truncation to 0, replacement and recursive removal. Operations that lose nothing keep
// nothing. This holds on a local source and on one whose requests run detached.
func TestTrashKeeps(t *testing.T) {
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprint("remote ", remote), func(t *testing.T) {
			b := trashBed(t, remote, rules.Trash{})
			dir := b.at("")
			for _, f := range []string{"a", "b", "c", "d", "e", "f", "g", "new", "h", "tree/x", "tree/in/y"} {
				b.put(f, f+"!")
			}
			b.must(os.Symlink("elsewhere", b.host("l")))
			var want []string
			lost := func(err error, path, text string) {
				t.Helper()
				b.must(err)
				want = append(want, path+"="+text)
				b.wantKept(want...)
			}
			lost(b.t.Unlink(bg, who, dir, "a"), "a", "a!")
			lost(b.t.Unlink(bg, who, dir, "l"), "l", "-> elsewhere")
			lost(b.t.Rename(bg, who, dir, "new", dir, "b", 0), "b", "b!")
			b.contents("b", "new!")
			f, _, err := b.t.Open(bg, who, b.at("c"), unix.O_WRONLY|unix.O_TRUNC)
			lost(err, "c", "c!")
			b.contents("c", "")
			b.must(b.write(f, "c2", 0))
			f.Close()
			lost(second(b.t.Setattr(bg, who, b.at("d"), nil, setSize(0))), "d", "d!")
			lost(second(b.t.Replace(bg, who, b.at("e"), strings.NewReader("e2"), vfs.IfMatch{})), "e", "e!")
			b.contents("e", "e2")
			_, _, err = b.t.WriteRange(bg, who, b.path("f"), []byte("f2"), vfs.WriteOptions{Truncate: true})
			lost(err, "f", "f!")
			lost(b.t.RenamePath(bg, who, b.path("h"), b.path("g"), true, ""), "g", "g!")
			lost(b.t.RemovePath(bg, who, b.path("g"), vfs.RemoveOptions{}), "g", "h!")
			lost(second(b.t.CopyFile(bg, who, b.path("e"), b.path("f"), vfs.CopyOptions{Overwrite: true})), "f", "f2")
			b.must(b.t.RemovePath(bg, who, b.path("tree"), vfs.RemoveOptions{Recursive: true}))
			if got := b.trashContents(); len(got) != len(want)+2 || !strings.Contains(strings.Join(got, "|"), "tree/in/y=tree/in/y!") {
				t.Errorf("after a recursive removal: %q", got)
			}
			n := len(b.trashContents())
			// Nothing is lost by these.
			b.must(b.t.Rename(bg, who, dir, "b", dir, "moved", 0))
			b.must(os.Link(b.host("moved"), b.host("second")))
			b.must(b.t.Rename(bg, who, dir, "moved", dir, "second", 0)) // both names are one file's: nothing happens
			b.must(second(b.t.Setattr(bg, who, b.at("d"), nil, setSize(0))))
			// Data that these operations remove is not kept, because it is only a part of a file.
			// "rootsfs help trash" says so.
			b.must(second(b.t.Setattr(bg, who, b.at("e"), nil, setSize(2))))
			f, _, err = b.t.Open(bg, who, b.at("e"), unix.O_WRONLY)
			b.must(err)
			b.must(b.write(f, "xx", 0))
			f.Close()
			b.must(second(b.t.Mkdir(bg, who, dir, "empty", 0o755)))
			b.must(b.t.Rmdir(bg, who, dir, "empty"))
			if err := b.t.Rename(bg, who, dir, "second", dir, "c", vfs.RenameNoReplace); names.Reason(err) != names.Exist {
				t.Errorf("rename over without replacing: %v", err)
			}
			if err := b.t.Unlink(bg, who, dir, "nothing"); names.Reason(err) != names.NotExist {
				t.Errorf("unlink of nothing: %v", err)
			}
			b.must(os.Mkdir(b.host("adir"), 0o755))
			if err := b.t.Unlink(bg, who, dir, "adir"); names.Reason(err) != names.IsDir {
				t.Errorf("unlink of a directory: %v", err)
			}
			if got := b.trashContents(); len(got) != n {
				t.Errorf("kept although nothing was lost: %q", got[n:])
			}
		})
	}
}

// The tree hides the trash, whatever patterns the owner writes. A file cannot get the name of the
// trash, at the top of the root or below, and an entry of the trash cannot be reached by its path.
func TestTrashIsHidden(t *testing.T) {
	for name, p := range map[string]guard.Patterns{
		"default": {}, "allowed": {Allow: guard.Texts(rules.TrashName, "/"+rules.TrashName+"/**", "*")}, "no defaults": {NoDefaults: true},
		"hide negated": {Hide: guard.Texts("!" + rules.TrashName)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite, Patterns: p, Trash: rules.Trash{On: true}})
			b.put("a", "text")
			b.put("in/b", "text")
			b.must(b.t.Unlink(bg, who, b.at(""), "a"))
			list, err := b.t.TrashList(bg, "code")
			b.must(err)
			b.wantKind(second(b.t.Lookup(bg, who, b.at(""), rules.TrashName)), names.Hidden)
			b.wantKind(second(b.t.Lstat(bg, who, b.at(rules.TrashName+"/"+list[0].ID))), names.Hidden)
			_, _, err = b.t.Open(bg, who, b.at(rules.TrashName+"/"+list[0].ID), unix.O_RDONLY)
			b.wantKind(err, names.Hidden)
			b.wantKind(b.t.Rename(bg, who, b.at(""), rules.TrashName, b.at(""), "mine", 0), names.Hidden)
			for _, dir := range []string{"", "in"} {
				b.wantKind(second(b.t.Mkdir(bg, who, b.at(dir), rules.TrashName, 0o700)), names.Permission)
				b.wantKind(second(b.t.Symlink(bg, who, "x", b.at(dir), rules.TrashName)), names.Permission)
				b.wantKind(b.t.Rename(bg, who, b.at("in"), "b", b.at(dir), rules.TrashName, 0), names.Permission)
			}
			if err := b.t.RemovePath(bg, who, b.path("in"), vfs.RemoveOptions{Recursive: true}); err != nil {
				t.Error(err)
			}
			if n := len(b.trashContents()); n != 2 {
				t.Errorf("%d kept, want 2", n)
			}
		})
	}
}

// A trash that somebody else has made, or that others can read, is not used. Removals are then
// refused.
func TestTrashOfSomebodyElse(t *testing.T) {
	b := trashBed(t, false, rules.Trash{})
	b.put("a", "text")
	b.must(os.Mkdir(b.host("other"), 0o700))
	for what, make := range map[string]func(string) error{
		"a link":  func(p string) error { return os.Symlink("other", p) },
		"a file":  func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"open":    func(p string) error { _ = os.Mkdir(p, 0o700); return os.Chmod(p, 0o755) },
		"foreign": func(p string) error { _ = os.Mkdir(p, 0o700); return os.Chown(p, os.Geteuid()+1, -1) },
	} {
		if what == "foreign" && os.Geteuid() != 0 {
			continue
		}
		b.must(os.RemoveAll(b.host(rules.TrashName)))
		b.must(make(b.host(rules.TrashName)))
		b.wantKind(b.t.Unlink(bg, who, b.at(""), "a"), names.Permission)
		b.contents("a", "text")
		// A grant with a trash is then refused at once. Without a trash, or without the right
		// to remove, the grant works.
		for _, p := range []guard.Policy{{Rights: guard.ReadWrite, Trash: rules.Trash{On: true}}, {Rights: guard.ReadOnly, Trash: rules.Trash{On: true}}, {Rights: guard.ReadWrite}} {
			_, err := guard.NewRegistry(guard.Config{Opener: vfs.Opener()}).Grant(bg, guard.Grant{Root: "again", Dir: names.Foreign(b.src), Policy: p, Origin: "test"})
			if bad := p.Trash.On && p.Rights.Mutating(); bad != (names.Reason(err) == names.Permission) || !bad && err != nil {
				t.Errorf("%s: %+v: %v", what, p, err)
			}
		}
	}
	if left, err := os.ReadDir(b.host("other")); err != nil || len(left) > 0 {
		t.Error("something was put where the link leads")
	}
}

// The trash is bounded in size, entries and age, and the oldest entries are removed first. A
// file larger than the whole trash is not kept.
func TestTrashIsBounded(t *testing.T) {
	b := trashBed(t, false, rules.Trash{Size: 100 << 10})
	text := strings.Repeat("x", 10<<10)
	for i := range 30 {
		b.put(fmt.Sprint("f", i), text)
		b.must(b.t.Unlink(bg, who, b.at(""), fmt.Sprint("f", i)))
	}
	list, err := b.t.TrashList(bg, "code")
	b.must(err)
	if n := len(list); n < 3 || n > 7 || list[n-1].Path != "f29" {
		t.Errorf("%d kept, the last %+v", n, list[n-1])
	}
	b.put("big", strings.Repeat("x", 200<<10))
	f, _, err := b.t.Open(bg, who, b.at("big"), unix.O_WRONLY|unix.O_TRUNC)
	b.must(err)
	f.Close()
	for _, e := range value(b.t.TrashList(bg, "code")) {
		if e.Path == "big" {
			t.Error("a copy larger than the trash was kept")
		}
	}
	if rec := b.rec.All(); !strings.Contains(rec[len(rec)-2].Detail+rec[len(rec)-1].Detail, "larger than the trash") {
		t.Error("the record does not say that the copy was not kept")
	}

	old := trashBed(t, false, rules.Trash{Age: time.Hour})
	old.put("a", "text")
	old.must(old.t.Unlink(bg, who, old.at(""), "a"))
	e := value(old.t.TrashList(bg, "code"))[0]
	aged := time.Now().Add(-2*time.Hour).UTC().Format("20060102T150405.000000000") + "-" + e.Short()
	dir := old.host(rules.TrashName)
	old.must(os.Rename(filepath.Join(dir, e.ID), filepath.Join(dir, aged)))
	old.must(os.Rename(filepath.Join(dir, e.ID+".json"), filepath.Join(dir, aged+".json")))
	old.put("b", "text")
	old.must(old.t.Unlink(bg, who, old.at(""), "b"))
	old.must(old.t.TrashPrune(bg, "code"))
	old.wantKept("b=text")
}

// trashUsage returns the space that the files of the trash take on the disk, and which of the paths
// are among them.
func (b *bed) trashUsage(paths ...string) (bytes int64, there []string) {
	b.Helper()
	for _, e := range value(b.t.TrashList(bg, "code")) {
		var st unix.Stat_t
		b.must(unix.Stat(b.host(rules.TrashName+"/"+e.ID), &st))
		bytes += st.Blocks * 512
		if slices.Contains(paths, e.Path.Raw()) {
			there = append(there, e.Path.Raw())
		}
	}
	return bytes, there
}

// A file may grow after it was removed, through a descriptor or through another name. The next run
// of Prune counts the new size. If the file has become larger than the trash's bound, only that file
// is removed.
func TestTrashCountsGrowingFiles(t *testing.T) {
	const bound, piece = 1 << 20, 64 << 10
	text := strings.Repeat("x", piece)
	grow := map[string]func(b *bed) (write func(off int64) error){
		"descriptor": func(b *bed) func(int64) error {
			f := b.open("big", unix.O_WRONLY)
			b.Cleanup(f.Close)
			b.must(b.t.Unlink(bg, who, b.at(""), "big"))
			return func(off int64) error { return b.write(f, text, off) }
		},
		"replaced": func(b *bed) func(int64) error {
			f := b.open("big", unix.O_WRONLY)
			b.Cleanup(f.Close)
			b.put("other", "x")
			b.must(b.t.Rename(bg, who, b.at(""), "other", b.at(""), "big", 0))
			return func(off int64) error { return b.write(f, text, off) }
		},
		"allocated": func(b *bed) func(int64) error {
			f := b.open("big", unix.O_WRONLY)
			b.Cleanup(f.Close)
			b.must(b.t.Unlink(bg, who, b.at(""), "big"))
			return func(off int64) error { return f.Allocate(bg, who, 0, off, piece) }
		},
		"second name": func(b *bed) func(int64) error {
			b.must(os.Link(b.host("big"), b.host("second")))
			b.must(b.t.Unlink(bg, who, b.at(""), "big"))
			return func(off int64) error {
				_, _, err := b.t.WriteRange(bg, who, b.path("second"), []byte(text), vfs.WriteOptions{Off: off})
				return err
			}
		},
	}
	for name, begin := range grow {
		t.Run(name, func(t *testing.T) {
			b := trashBed(t, false, rules.Trash{Size: bound})
			b.put("old", strings.Repeat("o", bound/2))
			b.must(b.t.Unlink(bg, who, b.at(""), "old"))
			b.put("young", strings.Repeat("y", bound/4))
			b.must(b.t.Unlink(bg, who, b.at(""), "young"))
			b.put("big", "x")
			write := begin(b)
			for off := int64(0); off < 13*piece; off += piece {
				b.must(write(off))
			}
			b.must(b.t.TrashPrune(bg, "code"))
			if n, _ := b.trashUsage(); n > bound {
				t.Fatalf("the trash takes %d bytes, want at most %d", n, bound)
			}
			if _, there := b.trashUsage("old", "young", "big"); !slices.Equal(there, []string{"big"}) {
				t.Errorf("big fills the trash, so the trash must hold only big; it holds %q", there)
			}
			b.put("last", "z")
			b.must(b.t.Unlink(bg, who, b.at(""), "last"))
			for off := int64(13 * piece); off <= bound; off += piece {
				b.must(write(off))
			}
			b.must(b.t.TrashPrune(bg, "code"))
			if _, there := b.trashUsage("big", "last"); !slices.Equal(there, []string{"last"}) {
				t.Errorf("big outgrew the trash, so the trash must hold only last; it holds %q", there)
			}
		})
	}
}

// A long file that takes no disk space displaces nothing from the trash.
func TestTrashCountsNoHoles(t *testing.T) {
	const bound = 1 << 20
	b := trashBed(t, false, rules.Trash{Size: bound})
	b.put("precious", strings.Repeat("p", bound/2))
	b.must(b.t.Unlink(bg, who, b.at(""), "precious"))
	for i := range 5 {
		b.put("hole", "")
		b.must(os.Truncate(b.host("hole"), bound-1+int64(i)*bound))
		b.must(b.t.Unlink(bg, who, b.at(""), "hole"))
	}
	b.must(b.t.TrashPrune(bg, "code"))
	if _, there := b.trashUsage("precious"); len(there) != 1 {
		t.Error("precious was removed from the trash")
	}
	// A file that is larger than the bound of the trash displaces nothing either.
	b.put("huge", strings.Repeat("h", bound+1<<16))
	b.must(b.t.Unlink(bg, who, b.at(""), "huge"))
	b.must(b.t.TrashPrune(bg, "code"))
	if _, there := b.trashUsage("precious", "huge"); !slices.Equal(there, []string{"precious"}) {
		t.Errorf("the trash must hold only precious; it holds %q", there)
	}
}

// The copy of a truncated file keeps the holes of the file. Otherwise a server that truncates long
// files without contents could fill the disk with zeros that its quota does not count.
func TestTrashKeepsHoles(t *testing.T) {
	b := trashBed(t, false, rules.Trash{})
	const long = 64 << 20
	b.put("sparse", "head")
	b.must(os.Truncate(b.host("sparse"), long))
	h, err := os.OpenFile(b.host("sparse"), os.O_WRONLY, 0)
	b.must(err)
	b.must(second(h.WriteAt([]byte("middle"), long/2)))
	b.must(h.Close())
	var st unix.Stat_t
	b.must(unix.Stat(b.host("sparse"), &st))
	if st.Blocks*512 > long/4 {
		t.Skip("a file system without holes")
	}
	f, _, err := b.t.Open(bg, who, b.at("sparse"), unix.O_WRONLY|unix.O_TRUNC)
	b.must(err)
	f.Close()
	list := value(b.t.TrashList(bg, "code"))
	if len(list) != 1 || list[0].Size != long {
		t.Fatalf("the trash holds %+v", list)
	}
	kept := b.host(rules.TrashName + "/" + list[0].ID)
	b.must(unix.Stat(kept, &st))
	if st.Blocks*512 > long/4 {
		t.Errorf("the copy takes %d bytes of the disk", st.Blocks*512)
	}
	data := value(os.ReadFile(kept))
	want := make([]byte, long)
	copy(want, "head")
	copy(want[long/2:], "middle")
	if !bytes.Equal(data, want) {
		t.Error("the copy has other contents")
	}
}

// value returns v, and panics if err is not nil.
func value[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A kept file is restored to its path or elsewhere, with its mode and contents, and replaces
// nothing. Emptied entries are gone.
func TestTrashRestore(t *testing.T) {
	b := trashBed(t, false, rules.Trash{})
	b.put("d/a", "one")
	b.must(os.Chmod(b.host("d/a"), 0o640))
	raw := "r\xff"
	b.put(raw, "raw")
	b.must(b.t.Unlink(bg, who, b.at("d"), "a"))
	b.must(b.t.Unlink(bg, who, b.at(""), raw))
	list := value(b.t.TrashList(bg, "code"))
	restore := func(i int, to string) error {
		return second(b.t.TrashRestore(bg, "code", list[i].Short(), to))
	}
	b.put("d/a", "two")
	b.wantKind(restore(0, ""), names.Exist)
	b.contents("d/a", "two")
	b.wantKind(restore(0, "nowhere/a"), names.Conflict)
	b.must(os.Symlink(t.TempDir(), b.host("planted")))
	b.wantKind(restore(0, "planted/a"), names.Conflict)
	b.wantKind(restore(0, "../a"), names.Invalid)
	b.wantKind(restore(0, rules.TrashName+"/x"), names.Invalid)
	b.must(restore(0, "d/old"))
	b.contents("d/old", "one")
	if info, err := os.Stat(b.host("d/old")); err != nil || info.Mode().Perm() != 0o640 {
		t.Error(info.Mode(), err)
	}
	b.must(restore(1, ""))
	b.contents(raw, "raw")
	b.wantKept()
	b.wantKind(restore(0, "x"), names.NotExist)
	b.wantKind(second(b.t.TrashEmpty(bg, "code", []string{list[0].ID}, time.Time{})), names.NotExist)
	b.must(b.t.Unlink(bg, who, b.at(""), raw))
	e, err := b.t.TrashEmpty(bg, "code", nil, time.Now().Add(time.Hour))
	if err != nil || e.Files != 1 || e.Bytes != 3 {
		t.Errorf("%+v, %v", e, err)
	}
	left, err := os.ReadDir(b.host(rules.TrashName))
	left = slices.DeleteFunc(left, func(e os.DirEntry) bool { return e.Name() == ".gitignore" || e.Name() == ".hg" })
	if err != nil || len(left) > 0 {
		t.Errorf("%v left, %v", left, err)
	}
	if err := second(newBed(t, false, guard.Policy{}).t.TrashList(bg, "code")); names.Reason(err) != names.Invalid {
		t.Errorf("a root without a trash: %v", err)
	}
}

// Many concurrent removals, replacements and truncations put each file into the trash, and leave no
// incomplete entry.
func TestTrashConcurrently(t *testing.T) {
	b := trashBed(t, false, rules.Trash{})
	const writers, each = 8, 40
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				name := fmt.Sprintf("w%d-%d", w, i)
				b.put(name, name)
				var err error
				switch i % 3 {
				case 0:
					err = b.t.Unlink(bg, who, b.at(""), name)
				case 1:
					err = second(b.t.Replace(bg, who, b.at(name), strings.NewReader("x"), vfs.IfMatch{NoDurable: true}))
				case 2:
					err = second(b.t.Setattr(bg, who, b.at(name), nil, setSize(0)))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	list := value(b.t.TrashList(bg, "code"))
	if len(list) != writers*each {
		t.Errorf("%d kept, want %d", len(list), writers*each)
	}
	for _, e := range list {
		if data, err := os.ReadFile(b.host(rules.TrashName + "/" + e.ID)); err != nil || !bytes.Equal(data, []byte(e.Path)) {
			t.Errorf("%s: %q, %v", e.Path, data, err)
		}
	}
}

// A nested root with a trash puts a file that is removed through the outer root into its own
// trash, at the path in the nested root. A file beside the nested root is not put there.
func TestTrashOfNestedRoot(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite})
	b.put("in/d/a", "one")
	b.put("in/d/b", "two")
	b.put("beside", "three")
	b.grant("inner", "in", guard.Policy{Rights: guard.ReadWrite, Trash: rules.Trash{On: true}})
	b.must(b.t.Unlink(bg, who, b.at("in/d"), "a"))
	b.must(b.t.Unlink(bg, who, b.at(""), "beside"))
	b.must(b.t.RemovePath(bg, who, b.path("in/d"), vfs.RemoveOptions{Recursive: true}))
	list, err := b.t.TrashList(bg, "inner")
	b.must(err)
	if len(list) != 2 || list[0].Path != "d/a" || list[1].Path != "d/b" {
		t.Errorf("kept: %+v", list)
	}
	if _, err := os.Lstat(b.host(rules.TrashName)); err == nil {
		t.Error("the outer root has a trash")
	}
	b.wantKind(second(b.t.Lookup(bg, who, b.at("in"), rules.TrashName)), names.Hidden)
	b.must(os.Mkdir(b.host("in/d"), 0o755))
	b.must(second(b.t.TrashRestore(bg, "inner", list[0].ID, "")))
	b.contents("in/d/a", "one")
}
