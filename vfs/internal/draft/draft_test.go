package draft

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

var testMeta = Meta{Root: "p", Path: "/home/u/p", Session: "one"}

// boot makes the machine seem to be in the boot with the id n.
func boot(t *testing.T, n string) {
	t.Helper()
	old := bootFile
	bootFile = filepath.Join(t.TempDir(), "boot_id")
	t.Cleanup(func() { bootFile = old })
	if err := os.WriteFile(bootFile, []byte(n+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func openFor(t *testing.T, stages string) *Store {
	t.Helper()
	s, err := OpenFor(stages, testMeta)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.closeFiles)
	return s
}

// kill closes a store as the end of its process does.
func (s *Store) kill() {
	s.closeFiles()
	s.lock, s.upper, s.tmp, s.points.objects, s.log.file = -1, -1, -1, -1, nil
}

func (s *Store) writeUpper(t *testing.T, rel, text string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(filepath.Join(s.dir, upperName, rel), []byte(text), 0o600))
}

func base(ino uint64) Base {
	return Base{Kind: File, Ino: ino, Birth: 1, Size: 3, Mtime: 2, Ctime: 3, Mode: unix.S_IFREG | 0o644, Hash: [32]byte{31: byte(ino)}}
}

func paths(s *Store) []string {
	var list []string
	for r := range s.Records() {
		list = append(list, r.Path)
	}
	return list
}

// The first base of a path counts, and a whiteout stays. Both exist after the process was
// killed.
func TestFirstBaseCounts(t *testing.T) {
	stages := t.TempDir()
	s := openFor(t, stages)
	testkit.Must(t, s.Note(Record{Path: "a\xff", Base: base(1)}, Record{Path: "d/b", Base: base(2), Whiteout: true}),
		s.Note(Record{Path: "a\xff", Base: base(3), Whiteout: true}, Record{Path: "d/b", Base: base(4)}, Record{Path: ""}),
		s.Note(Record{Path: "gone"}), s.Clear("gone", "never"))
	want := map[string]Record{"a\xff": {"a\xff", true, base(1)}, "d/b": {"d/b", true, base(2)}, "": {}}
	check := func() {
		t.Helper()
		if !maps.Equal(s.records, want) {
			t.Errorf("records are %+v, want %+v", s.records, want)
		}
	}
	check()
	s.kill()
	s = openFor(t, stages)
	check()
	if !s.Continued() || s.Damaged() != "" {
		t.Errorf("continued %v, damaged %q", s.Continued(), s.Damaged())
	}
}

func TestLocate(t *testing.T) {
	s := openFor(t, t.TempDir())
	check := func(rel, upper string, isHidden bool) {
		t.Helper()
		if u, h, _ := s.Locate(rel); u != upper || h != isHidden {
			t.Errorf("Locate(%q) = %q, %v; want %q, %v", rel, u, h, upper, isHidden)
		}
	}
	check("a/b", "", false)
	s.AddUpper("a", true)
	s.AddUpper("a/b", true)
	testkit.Must(t, s.Note(Record{Path: "a/b/c", Whiteout: true}, Record{Path: "x", Whiteout: true}, Record{Path: "a/base"}))
	check("", "", false)
	check("a", "a", false)
	check("ab", "", false)
	check("a/base", "a", false)
	check("a/b/c", "a/b", true)
	check("a/b/c/d", "a/b", true)
	check("a/b/cd", "a/b", false)
	check("x/y", "", true)
	testkit.Must(t, s.MoveUpper("a", "x", false, func() error { return nil }))
	check("x/b/c", "x/b", true)
	check("a/b/c", "", true)
	check("a/b", "", false)
	testkit.Must(t, s.Clear("x"))
	check("x/b/c", "x/b", false)
}

// The index contains all names that the upper can have, and few others, also after the next
// session has opened the store.
func TestMayHave(t *testing.T) {
	const most = 5
	defer func(old int) { maxUpperFiles = old }(maxUpperFiles)
	maxUpperFiles = most
	stages := t.TempDir()
	s := openFor(t, stages)
	check := func(want string, names ...string) {
		t.Helper()
		for _, rel := range names {
			upper, _, mayHave := s.Locate(rel)
			if got := fmt.Sprintf("%q %v", upper, mayHave); got != want {
				t.Errorf("%s: %s, want %s", rel, got, want)
			}
		}
	}
	put := func(rel string) {
		t.Helper()
		s.AddUpper(rel, false)
		testkit.Must(t, os.WriteFile(filepath.Join(s.dir, upperName, rel), nil, 0o600))
	}
	move := func(from, to string, exchange bool) {
		t.Helper()
		testkit.Must(t, s.MoveUpper(from, to, exchange, func() error { check(`"" true`, "anything"); return nil }))
	}
	s.mkdirUpper(t, "d", 0o755)
	put("f")
	put("d/a")
	check(`"" true`, "f", "f/below", "")
	check(`"" false`, "g", "g/below", "fg")
	check(`"d" true`, "d", "d/a", "d/a/below")
	check(`"d" false`, "d/b", "d/b/c")
	move("f", "d/f", false)
	check(`"" false`, "f")
	check(`"d" true`, "d/f")
	move("d", "e", false)
	check(`"e" true`, "e/f", "e/a")
	check(`"" false`, "d", "d/f")
	put("x")
	move("x", "e", true)
	check(`"x" true`, "x/f", "x/a")
	check(`"" true`, "e", "e/a")
	move("x", "e", true)
	move("e", "d", false)
	if err := s.MoveUpper("d", "nowhere", false, func() error { return unix.EACCES }); err != unix.EACCES {
		t.Errorf("a failed move: %v", err)
	}
	check(`"" true`, "x")
	s.DropUpper("x")
	check(`"" false`, "x", "nowhere")

	// d/a and d/f are in the index. Three more have room; then d is crowded.
	for _, name := range []string{"1", "2", "3", "4"} {
		put("d/" + name)
	}
	check(`"d" true`, "d/1", "d/none", "d/none/below")
	check(`"" false`, "none", "none/below")
	if s.files != 0 {
		t.Errorf("%d files are counted after all were dropped", s.files)
	}
	testkit.Must(t, os.Rename(filepath.Join(s.dir, upperName, "d/1"), filepath.Join(s.dir, upperName, "1")))
	move("d/1", "1", false)
	check(`"" true`, "1")
	for _, name := range []string{"f", "x", "d/a"} { // moved in the index only
		testkit.Must(t, os.Remove(filepath.Join(s.dir, upperName, name)))
	}
	s.kill()
	s = openFor(t, stages)
	check(`"" true`, "1")
	check(`"" false`, "2")
	check(`"d" true`, "d/2", "d/4")
	check(`"d" false`, "d/1")
	s.DropUpper("d")
	check(`"" false`, "d", "d/2")
	s.AddUpper("e", true)
	s.AddUpper("e/failed", false)
	if s.DropUpper("e"); s.files != 1 {
		t.Errorf("%d files are counted, want 1", s.files)
	}
}

// A session continues the first stage of its root that nobody holds. Another subject, root or
// path has its own.
func TestContinueOrNext(t *testing.T) {
	stages := t.TempDir()
	first := openFor(t, stages)
	second := openFor(t, stages)
	if first.Continued() || second.Continued() || second.Dir() != first.Dir()+"-2" {
		t.Fatalf("stages are %s and %s", first.Dir(), second.Dir())
	}
	testkit.Must(t, second.Note(Record{Path: "a", Whiteout: true}), second.Close())
	if third := openFor(t, stages); third.Dir() != second.Dir() || !third.Continued() || len(paths(third)) != 1 {
		t.Errorf("the next session has %s with %v, want the second stage", third.Dir(), paths(third))
	}
	for _, m := range []Meta{{Root: "q", Path: testMeta.Path}, {Root: "p", Path: "/other"}, {Root: "p", Path: testMeta.Path, Subject: "s"}} {
		other, err := OpenFor(stages, m)
		testkit.Must(t, err)
		if other.Continued() || other.Dir() == second.Dir() {
			t.Errorf("%+v has the stage %s", m, other.Dir())
		}
		testkit.Must(t, other.Close())
	}
	_, err := Open(first.Dir())
	var e *guard.Error
	if !errors.As(err, &e) || e.Kind != names.Locked || !strings.Contains(err.Error(), "one") {
		t.Errorf("opening a held stage: %v; want Locked, with the session's name", err)
	}
}

// A session in another directory at the same path gets a stage of its own, and the stage of the
// directory that was there stays as it is.
func TestAnotherDirectoryIsNotContinued(t *testing.T) {
	stages := t.TempDir()
	s := openFor(t, stages)
	testkit.Must(t, s.Note(Record{Path: "a", Whiteout: true}), s.Close())
	before, err := os.ReadFile(filepath.Join(s.Dir(), metaFile))
	testkit.Must(t, err)
	m := testMeta
	m.ID.Ino++
	other, err := OpenFor(stages, m)
	testkit.Must(t, err)
	if other.Continued() || other.Dir() != s.Dir()+"-2" {
		t.Errorf("the other directory has the stage %s, continued: %v", other.Dir(), other.Continued())
	}
	testkit.Must(t, other.Note(Record{Path: "b", Whiteout: true}), other.Close())
	if after, err := os.ReadFile(filepath.Join(s.Dir(), metaFile)); err != nil || string(after) != string(before) {
		t.Errorf("the first stage is now %s, %v; want %s", after, err, before)
	}
	again, err := OpenFor(stages, m)
	testkit.Must(t, err)
	if again.Dir() != other.Dir() || !again.Continued() {
		t.Errorf("the other directory's next session has %s", again.Dir())
	}
	testkit.Must(t, again.Close())
}

// Close removes a stage without changes, and keeps a stage with a change. List does not affect a
// stage that is in use.
func TestEmptyIsRemoved(t *testing.T) {
	stages := t.TempDir()
	s := openFor(t, stages)
	testkit.Must(t, os.Mkdir(filepath.Join(s.dir, upperName, "d"), 0o755))
	var st unix.Stat_t
	testkit.Must(t, unix.Lstat(filepath.Join(s.dir, upperName, "d"), &st))
	testkit.Must(t, s.Note(Record{Path: "d", Base: Base{Kind: Dir, Mode: st.Mode}}))
	list, err := List(stages)
	if err != nil || len(list) != 1 || !list[0].Held || list[0].Changed != 0 || list[0].Meta.Session != "one" {
		t.Errorf("List: %+v, %v", list, err)
	}
	testkit.Must(t, s.Close())
	if left, err := os.ReadDir(stages); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}

	for what, change := range map[string]func(*Store){
		"a file":                       func(s *Store) { s.writeUpper(t, "f", "x") },
		"a whiteout":                   func(s *Store) { testkit.Must(t, s.Note(Record{Path: "f", Whiteout: true})) },
		"a new directory":              func(s *Store) { testkit.Must(t, os.Mkdir(filepath.Join(s.dir, upperName, "n"), 0o700)) },
		"a directory of another mode":  func(s *Store) { s.mkdirUpper(t, "d", 0o711) },
		"a file that is being applied": func(s *Store) { testkit.Must(t, s.BeginSteps(Step{Path: "f", Temp: "t"})) },
	} {
		s := openFor(t, stages)
		change(s)
		testkit.Must(t, s.Close())
		list, err := List(stages)
		if err != nil || len(list) != 1 || list[0].Held {
			t.Fatalf("with %s: %+v, %v; want one stage that nobody holds", what, list, err)
		}
		s, err = Open(list[0].Dir)
		testkit.Must(t, err, s.Remove())
		if left, err := os.ReadDir(stages); err != nil || len(left) != 0 {
			t.Errorf("with %s, Remove left %v, %v", what, left, err)
		}
	}
}

// mkdirUpper makes a directory with a mode in the upper. It records that the source's directory has
// the mode 755.
func (s *Store) mkdirUpper(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(s.dir, upperName, dir)
	testkit.Must(t, os.Mkdir(path, 0o700), s.Note(Record{Path: dir, Base: Base{Kind: Dir, Mode: unix.S_IFDIR | 0o755}}), os.Chmod(path, mode))
	s.AddUpper(dir, true)
}

// Opening a store empties tmp/ and indexes the directories of the upper. It also indexes what lies
// below a directory that its owner may not enter. That directory keeps its mode.
func TestOpeningIndexes(t *testing.T) {
	stages := t.TempDir()
	s := openFor(t, stages)
	s.mkdirUpper(t, "d", 0o755)
	s.mkdirUpper(t, "d/e", 0o755)
	testkit.Must(t, os.Symlink("d", filepath.Join(s.dir, upperName, "l")), os.WriteFile(filepath.Join(s.dir, tmpName, "1"), nil, 0o600),
		os.Chmod(filepath.Join(s.dir, upperName, "d"), 0))
	s.kill()
	s = openFor(t, stages)
	if u, _, _ := s.Locate("d/e/f"); u != "d/e" {
		t.Errorf("the longest part of d/e/f that is a directory is %q, want d/e", u)
	}
	if u, _, _ := s.Locate("l/f"); u != "" {
		t.Errorf("the link l counts as a directory: %q", u)
	}
	info, err := os.Lstat(filepath.Join(s.dir, upperName, "d"))
	testkit.Must(t, os.Chmod(filepath.Join(s.dir, upperName, "d"), 0o700)) // so that the test can remove it
	if err != nil || info.Mode().Perm() != 0 {
		t.Errorf("d is now %v, %v; want mode 0", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Join(s.dir, tmpName)); err != nil || len(left) != 0 {
		t.Errorf("tmp/ has %v, %v", left, err)
	}
}

// The stage takes no more disk space than it may, and notices when programs have freed some.
func TestLimit(t *testing.T) {
	s := openFor(t, t.TempDir())
	s.Limit(1 << 20)
	full := func(what string) {
		t.Helper()
		if err := s.WillWrite(1); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("one byte more %s: %v; want ENOSPC", what, err)
		}
		if room := s.Room(); room != 0 {
			t.Errorf("room for %d bytes %s", room, what)
		}
	}
	s.AddUpper("f", false)
	testkit.Must(t, s.WillWrite(1<<20))
	s.writeUpper(t, "f", strings.Repeat("x", 1<<20))
	full("in a full store")
	measured := s.size.measured
	full("again")
	if s.size.measured != measured {
		t.Error("a full store was measured again although nothing had changed")
	}
	testkit.Must(t, os.Remove(filepath.Join(s.dir, upperName, "f")))
	s.DropUpper("f")
	if room := s.Room(); room != 1<<20 {
		t.Errorf("room for %d bytes after a removal", room)
	}
	testkit.Must(t, s.WillWrite(1<<20))
	s.writeUpper(t, "f", strings.Repeat("x", 1<<20-8192))
	for range 4 { // as for writes over the present contents, which take no more room
		testkit.Must(t, s.WillWrite(8192))
	}
}

// A change is counted at once, also right after the store was measured.
func TestSizeIsUpToDate(t *testing.T) {
	s := openFor(t, t.TempDir())
	if changed, _ := s.Size(); changed != 0 {
		t.Fatalf("an empty store has %d changes", changed)
	}
	testkit.Must(t, s.WillWrite(1))
	s.writeUpper(t, "new", "x")
	if changed, bytes := s.Size(); changed != 1 || bytes == 0 {
		t.Errorf("%d changes, %d bytes after a file was made; want 1 change", changed, bytes)
	}
	testkit.Must(t, s.Note(Record{Path: "gone", Whiteout: true, Base: base(1)}))
	if changed, _ := s.Size(); changed != 2 {
		t.Errorf("%d changes after a removal; want 2", changed)
	}
}

// A log is rewritten when most of its lines are obsolete, and then has the same meaning.
func TestCompaction(t *testing.T) {
	stages := t.TempDir()
	s := openFor(t, stages)
	testkit.Must(t, s.Note(Record{Path: "keep", Base: base(1)}, Record{Path: "white", Base: base(2), Whiteout: true}))
	for range compactFrom {
		testkit.Must(t, s.Note(Record{Path: "x"}), s.Clear("x"))
	}
	testkit.Must(t, s.BeginSteps(Step{Path: "p", Temp: "t", Old: base(3), New: base(4)}))
	want, steps := maps.Clone(s.records), s.OpenSteps()
	s.kill()
	s = openFor(t, stages)
	s.kill()
	b, err := os.ReadFile(filepath.Join(s.dir, logName))
	if n := bytes.Count(b, []byte("\n")); err != nil || n > 10 {
		t.Errorf("the log has %d lines, %v; want few", n, err)
	}
	s = openFor(t, stages)
	if !maps.Equal(s.records, want) || !slices.Equal(s.OpenSteps(), steps) {
		t.Errorf("records %+v and %+v, want %+v and %+v", s.records, s.OpenSteps(), want, steps)
	}
}
