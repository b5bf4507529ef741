package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// newStaged returns a staged root whose source has the files of a list: "dir/" is a directory,
// "name=text" a file.
func newStaged(t *testing.T, files ...string) *stageScene {
	t.Helper()
	return newStagedIn(t, "", files...)
}

// newStagedIn is newStaged with a store in the directory stages, unless that is "".
func newStagedIn(t *testing.T, stages string, files ...string) *stageScene {
	t.Helper()
	s := emptyScene(t)
	if stages != "" {
		s.keepIn(stages)
	}
	s.make(s.source, files...)
	s.make(s.model, files...)
	s.start()
	t.Cleanup(s.end)
	return s
}

// make makes the files of a list below top, see newStaged.
func (s *stageScene) make(top string, files ...string) {
	s.Helper()
	for _, f := range files {
		name, text, isFile := strings.Cut(f, "=")
		err := error(nil)
		if isFile {
			err = errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(top, name)), 0o755), os.WriteFile(filepath.Join(top, name), []byte(text), 0o644))
		} else {
			err = os.MkdirAll(filepath.Join(top, name), 0o755)
		}
		s.must(err)
	}
}

func (s *stageScene) must(err error) {
	s.Helper()
	testkit.Must(s, err)
}

func (s *stageScene) put(rel, text string) {
	s.Helper()
	if s.write(rel, text, unix.O_WRONLY|unix.O_TRUNC) != nil {
		s.must(stageOps[0].staged(s, rel, "", text))
	}
}

func (s *stageScene) unlink(rel string) {
	s.Helper()
	dir, name := s.split(rel)
	s.must(s.tree.Unlink(s.Context(), s.who, dir, name))
}

func (s *stageScene) rmdir(rel string) {
	s.Helper()
	dir, name := s.split(rel)
	s.must(s.tree.Rmdir(s.Context(), s.who, dir, name))
}

func (s *stageScene) mkdir(rel string) {
	s.Helper()
	dir, name := s.split(rel)
	_, err := s.tree.Mkdir(s.Context(), s.who, dir, name, 0o755)
	s.must(err)
}

func (s *stageScene) lstat(rel string) vfs.Info {
	s.Helper()
	info, err := s.tree.Lstat(s.Context(), s.who, s.at(rel))
	if err != nil {
		s.Fatalf("%s: %v", rel, err)
	}
	return info
}

// list returns the names of a directory and the inode numbers that their entries show.
func (s *stageScene) list(rel string) map[string]uint64 {
	s.Helper()
	d, err := s.tree.Opendir(s.Context(), s.who, s.at(rel))
	s.must(err)
	defer d.Close()
	out := map[string]uint64{}
	for off := uint64(0); ; {
		got, err := d.Read(s.Context(), s.who, vfs.ReadDirOptions{At: s.at(rel), Names: true, Off: off})
		s.must(err)
		if len(got.Entries) == 0 {
			return out
		}
		for _, e := range got.Entries {
			if e.Name != "." && e.Name != ".." {
				out[e.Name] = e.Ino
			}
		}
		off = got.Next
	}
}

// If programs remove a directory, the owner's files in it stay hidden, also files that the owner
// adds later, and also after programs make a directory with the same name. A directory that
// programs did not touch shows the owner's changes at once.
func TestWhiteoutHidesBelow(t *testing.T) {
	s := newStaged(t, "gone/a=1", "gone/sub/b=2", "kept/c=3")
	s.unlink("gone/a")
	s.unlink("gone/sub/b")
	s.rmdir("gone/sub")
	s.rmdir("gone")
	s.make(s.source, "gone/late=owner", "kept/late=owner")
	want := map[string]string{"kept": "40755 1 \"\"", "kept/c": "100644 1 \"3\"", "kept/late": "100644 1 \"owner\""}
	if have := s.seen(); difference(have, want) != "" {
		t.Errorf("after the removal: %s", difference(have, want))
	}
	s.mkdir("gone")
	s.put("gone/new", "4")
	want["gone"], want["gone/new"] = "40755 1 \"\"", "100644 1 \"4\""
	if have := s.seen(); difference(have, want) != "" {
		t.Errorf("after it was made again: %s", difference(have, want))
	}
}

// A file keeps its identity when it is copied up, and so does a directory above it. Directory
// entries show the same inode numbers.
func TestCopyUpKeepsIdentity(t *testing.T) {
	s := newStaged(t, "d/e/f=text", "d/e/other=x", "d/g=y")
	all := []string{"", "d", "d/e", "d/e/f", "d/e/other", "d/g"}
	before, times := map[string]rules.Identity{}, map[string]time.Time{}
	for _, rel := range all {
		info := s.lstat(rel)
		before[rel], times[rel] = info.ID(), info.ModTime()
	}
	check := func(after string) {
		t.Helper()
		for _, rel := range all {
			if info := s.lstat(rel); info.ID() != before[rel] {
				t.Errorf("after %s %q shows %v, want %v", after, rel, info.ID(), before[rel])
			}
		}
		for _, dir := range []string{"", "d", "d/e"} {
			for name, ino := range s.list(dir) {
				rel := strings.TrimPrefix(dir+"/"+name, "/")
				if id, known := before[rel]; known && ino != id.Ino {
					t.Errorf("after %s the entry of %q shows %d, want %d", after, rel, ino, id.Ino)
				}
			}
		}
	}
	f, _, err := s.tree.Open(s.Context(), s.who, s.at("d/e/f"), unix.O_RDONLY)
	s.must(err)
	defer f.Close()
	dir, err := s.tree.Opendir(s.Context(), s.who, s.at("d/e"))
	s.must(err)
	defer dir.Close()
	s.put("d/e/f", "changed")
	check("a write")
	for _, rel := range []string{"", "d", "d/e", "d/e/other"} {
		if info := s.lstat(rel); !info.ModTime().Equal(times[rel]) {
			t.Errorf("after a write to a file in it %q has the time %v, want %v", rel, info.ModTime(), times[rel])
		}
	}
	mode := uint32(0o700)
	for _, rel := range []string{"d/e/other", "d", ""} {
		_, err = s.tree.Setattr(s.Context(), s.who, s.at(rel), nil, vfs.Attrs{Mode: &mode})
		s.must(err)
	}
	check("a chmod")
	for rel, open := range map[string]*vfs.File{"d/e/f": f, "d/e": dir.File()} {
		info, err := open.Stat(s.Context(), s.who)
		if err != nil || info.ID() != before[rel] {
			t.Errorf("the open %s shows %v, %v; want %v", rel, info.ID(), err, before[rel])
		}
	}
	buf := make([]byte, 100)
	if n, err := f.ReadAt(s.Context(), s.who, buf, 0); err != nil || string(buf[:n]) != "changed" {
		t.Errorf("the open file has %q, %v", buf[:n], err)
	}
	s.must(s.rename("d/e/f", "moved", 0))
	if info := s.lstat("moved"); info.ID() != before["d/e/f"] {
		t.Errorf("after a rename it shows %v, want %v", info.ID(), before["d/e/f"])
	}
}

// The owner renames a file that programs have changed, or adds a hard link to it. Then the stage's
// copy and the owner's file have different identities.
func TestCopyAfterOwnersRename(t *testing.T) {
	s := newStaged(t, "foo=owner's", "linked=both", "dir/x=1")
	foo, linked, dir := s.lstat("foo"), s.lstat("linked"), s.lstat("dir")
	for _, rel := range []string{"foo", "linked", "dir/x"} {
		s.put(rel, "changed")
	}
	at := func(rel string) string { return filepath.Join(s.source, rel) }
	s.must(errors.Join(os.Rename(at("foo"), at("foo~")), os.Link(at("linked"), at("other")), os.Rename(at("dir"), at("dir~"))))
	for rel, want := range map[string]rules.Identity{"foo": foo.ID(), "linked": linked.ID(), "dir": dir.ID()} {
		if info := s.lstat(rel); info.ID() != want {
			t.Errorf("%s shows %v, want %v", rel, info.ID(), want)
		}
	}
	for rel, other := range map[string]rules.Identity{"foo~": foo.ID(), "other": linked.ID(), "dir~": dir.ID()} {
		if info := s.lstat(rel); info.ID() == other {
			t.Errorf("%s shows the identity of the file that programs changed", rel)
		}
	}
	have := s.seen() // seen also compares all identities
	if have["foo~"] != "100644 1 \"owner's\"" || have["foo"] != "100644 1 \"changed\"" {
		t.Errorf("foo~ is %s, and foo %s", have["foo~"], have["foo"])
	}
	s.put("foo~", "changed, too")
	if one, two := s.lstat("foo"), s.lstat("foo~"); one.ID() == two.ID() {
		t.Error("the two copies show one identity")
	}
}

// Reading names continues at an offset, whatever was added, removed or copied up meanwhile. A name
// that exists all the time is read exactly once.
func TestMergedNamesSeek(t *testing.T) {
	var files []string
	for i := range 1500 {
		files = append(files, fmt.Sprintf("d/low%04d=x", i))
	}
	s := newStaged(t, files...)
	s.put("d/new", "y") // both sides have names from here on
	d, err := s.tree.Opendir(s.Context(), s.who, s.at("d"))
	s.must(err)
	defer d.Close()
	got := map[string]int{}
	for off, step := uint64(0), 0; ; step++ {
		read, err := d.Read(s.Context(), s.who, vfs.ReadDirOptions{At: s.at("d"), Names: true, Off: off})
		s.must(err)
		if len(read.Entries) == 0 {
			break
		}
		for _, e := range read.Entries {
			got[e.Name]++
		}
		off = read.Next
		s.put(fmt.Sprintf("d/late%d", step), "z")
		s.unlink(fmt.Sprintf("d/low%04d", step))
	}
	for i := 100; i < 1500; i++ {
		if name := fmt.Sprintf("low%04d", i); got[name] != 1 {
			t.Errorf("%s came %d times", name, got[name])
		}
	}
	for name, n := range got {
		if n > 1 {
			t.Errorf("%s came %d times", name, n)
		}
	}
	if got["new"] != 1 {
		t.Errorf("new came %d times", got["new"])
	}
}

// A copy-up exchanges the descriptors of a file for those of the copy. If one of them has just been
// closed, and its number now belongs to a file of the host, the host's file is not exchanged.
func TestSwapNeverHitsAClosedFile(t *testing.T) {
	s := newStaged(t, "f=of the source")
	foreign := filepath.Join(t.TempDir(), "foreign")
	s.must(os.WriteFile(foreign, []byte("the host's own"), 0o600))
	f, _, err := s.tree.Open(s.Context(), s.who, s.at("f"), unix.O_RDONLY)
	s.must(err)
	closed := 0
	t.Cleanup(func() { beneath.AtStep = nil })
	beneath.AtStep = func(point string) error {
		if point != "closed" || closed > 0 {
			return nil
		}
		closed++
		var fds []int
		for range 64 { // one of them gets the number
			fd, err := unix.Open(foreign, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			s.must(err)
			defer unix.Close(fd)
			fds = append(fds, fd)
		}
		s.put("f", "changed")
		for _, fd := range fds {
			buf := make([]byte, 100)
			if n, err := unix.Pread(fd, buf, 0); err != nil || string(buf[:n]) != "the host's own" {
				t.Errorf("a file of the host's has %q, %v", buf[:n], err)
			}
		}
		return nil
	}
	f.Close()
	if closed != 1 {
		t.Errorf("a file of the source was closed %d times", closed)
	}
}

// Files are opened, read and closed while they are copied up: each reading finds the old
// contents or the new.
func TestOpenFilesOverCopyUp(t *testing.T) {
	var files []string
	for i := range 100 {
		files = append(files, fmt.Sprintf("f%03d=old", i))
	}
	s := newStaged(t, files...)
	var wg sync.WaitGroup
	var now atomic.Int64
	for range 3 {
		wg.Go(func() {
			for now.Load() < 100 {
				rel := fmt.Sprintf("f%03d", now.Load()%100)
				f, _, err := s.tree.Open(s.Context(), s.who, s.at(rel), unix.O_RDONLY)
				if err != nil {
					t.Errorf("open %s: %v", rel, err)
					return
				}
				for range 20 {
					buf := make([]byte, 10)
					n, err := f.ReadAt(s.Context(), s.who, buf, 0)
					if text := string(buf[:n]); err != nil || text != "old" && text != "new" {
						t.Errorf("%s has %q, %v", rel, text, err)
					}
				}
				f.Close()
			}
		})
	}
	for i := range 100 {
		rel := fmt.Sprintf("f%03d", i)
		now.Store(int64(i))
		f, _, err := s.tree.Open(s.Context(), s.who, s.at(rel), unix.O_RDONLY)
		s.must(err)
		s.must(s.write(rel, "new", unix.O_WRONLY))
		buf := make([]byte, 10)
		if n, err := f.ReadAt(s.Context(), s.who, buf, 0); err != nil || string(buf[:n]) != "new" {
			t.Errorf("the open %s has %q, %v, want the new contents", rel, buf[:n], err)
		}
		f.Close()
	}
	now.Store(100)
	wg.Wait()
}

// A file that is opened with O_TRUNC is not copied first, however large it is. Without O_TRUNC it
// is copied, and the copy counts towards the bound of the store.
func TestTruncationCopiesNothing(t *testing.T) {
	s := emptyScene(t)
	s.limits.MaxStage = 1 << 20
	s.must(os.WriteFile(filepath.Join(s.source, "f"), bytes.Repeat([]byte("x"), 8<<20), 0o644))
	s.start()
	t.Cleanup(s.end)
	if err := errnoOf(s.write("f", "new", unix.O_WRONLY)); err != unix.ENOSPC { //nolint:errorlint // an errno
		t.Errorf("a write: %v, want %v", err, unix.ENOSPC)
	}
	s.must(s.write("f", "new", unix.O_WRONLY|unix.O_TRUNC))
	if have := s.seen()["f"]; have != "100644 1 \"new\"" {
		t.Errorf("f is %s", have)
	}
}

// A full store has room as soon as programs have removed or truncated files, and no call writes
// past its bound, not even copy_file_range.
func TestFullStore(t *testing.T) {
	s := emptyScene(t)
	s.limits.MaxStage = 1 << 20
	s.start()
	t.Cleanup(s.end)
	large := strings.Repeat("x", 900<<10)
	s.put("f", large)
	in, _, err := s.tree.Open(t.Context(), s.who, s.at("f"), unix.O_RDONLY)
	s.must(err)
	defer in.Close()
	out, _, _, err := s.tree.Create(t.Context(), s.who, s.at(""), "copy", unix.O_WRONLY, 0o644)
	s.must(err)
	defer out.Close()
	copied := func() error {
		n, err := in.CopyTo(t.Context(), s.who, 0, out, 0, 1<<30)
		if err == nil && n != int64(len(large)) {
			t.Errorf("%d bytes were copied", n)
		}
		return err
	}
	if err := errnoOf(copied()); err != unix.ENOSPC { //nolint:errorlint // an errno
		t.Errorf("a copy: %v, want %v", err, unix.ENOSPC)
	}
	s.unlink("f")
	s.must(copied())
	size := int64(0)
	_, err = s.tree.Setattr(t.Context(), s.who, s.at("copy"), nil, vfs.Attrs{Size: &size})
	s.must(err)
	s.put("f", large)
}

// An open directory of the source can still be read after it got a copy in the stage (it was
// raised), after it was renamed, and after it was removed. A reading from the beginning shows the
// names that it has then.
func TestOpenDirectoryIsRaised(t *testing.T) {
	s := newStaged(t, "d/a=1", "d/b=2", "d/sub/c=3")
	dir, err := s.tree.Opendir(s.Context(), s.who, s.at("d"))
	s.must(err)
	defer dir.Close()
	read := func(rel string) []string {
		t.Helper()
		got, err := dir.Read(s.Context(), s.who, vfs.ReadDirOptions{At: s.at(rel), Names: true})
		if err != nil {
			t.Fatalf("reading %s: %v", rel, err)
		}
		var list []string
		for _, e := range got.Entries {
			if e.Name != "." && e.Name != ".." {
				list = append(list, e.Name)
			}
		}
		slices.Sort(list)
		return list
	}
	if have := read("d"); !slices.Equal(have, []string{"a", "b", "sub"}) {
		t.Errorf("at first: %v", have)
	}
	s.put("d/new", "4")
	s.unlink("d/a")
	if have := read("d"); !slices.Equal(have, []string{"b", "new", "sub"}) {
		t.Errorf("raised: %v", have)
	}
	s.must(s.rename("d", "e", 0))
	if have := read("e"); !slices.Equal(have, []string{"b", "new", "sub"}) {
		t.Errorf("renamed: %v", have)
	}
	s.must(s.tree.RemovePath(s.Context(), s.who, s.at("e").Path, vfs.RemoveOptions{Recursive: true}))
	if have := s.seen(); len(have) != 0 {
		t.Errorf("after the removal: %v", have)
	}
	if have := read("e"); len(have) != 0 {
		t.Errorf("removed, and open: %v", have)
	}
}
