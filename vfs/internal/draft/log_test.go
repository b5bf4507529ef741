package draft

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A log that was cut at any place, as by a kill, has the records of its complete lines.
func TestLogCutAnywhere(t *testing.T) {
	stages := t.TempDir()
	s := openFor(t, stages)
	testkit.Must(t, s.Note(Record{Path: "a", Base: base(1)}), s.Note(Record{Path: "b", Base: base(2), Whiteout: true}),
		s.Note(Record{Path: "a", Whiteout: true}), s.BeginSteps(Step{Path: "p", Temp: "t"}), s.EndStep("p"), s.Clear("b"), s.Commit(nil))
	path := filepath.Join(s.dir, logName)
	s.kill()
	all, err := os.ReadFile(path)
	testkit.Must(t, err)
	for cut := range len(all) + 1 {
		testkit.Must(t, os.WriteFile(path, all[:cut], 0o600))
		s, err := Open(filepath.Dir(path))
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want := newStore("")
		for l := range bytes.Lines(all[:cut]) {
			if d, err := decode(bytes.TrimSuffix(l, []byte("\n"))); err == nil && bytes.HasSuffix(l, []byte("\n")) {
				testkit.Must(t, want.applyLine(&d))
			}
		}
		if !maps.Equal(s.records, want.records) || !maps.Equal(s.steps, want.steps) || s.Damaged() != "" || len(s.unsure) > 0 {
			t.Errorf("cut at %d: %+v, %+v, damaged %q, unsure %v; want %+v", cut, s.records, s.steps, s.Damaged(), s.unsure, want.records)
		}
		testkit.Must(t, s.Note(Record{Path: "next"}))
		s.kill()
		if s, err = Open(filepath.Dir(path)); err != nil {
			t.Fatalf("cut at %d, again: %v", cut, err)
		}
		if _, ok := s.RecordOf("next"); !ok {
			t.Errorf("cut at %d: what was noted afterwards is lost", cut)
		}
		s.kill()
	}
}

// A damaged line ends the log: no later line counts, and the owner is told, also in later
// sessions.
func TestDamagedLineEndsTheLog(t *testing.T) {
	stages := t.TempDir()
	s := openFor(t, stages)
	testkit.Must(t, s.Note(Record{Path: "a", Base: base(1)}), s.Note(Record{Path: "damaged", Base: base(2)}), s.Note(Record{Path: "c", Whiteout: true}))
	path := filepath.Join(s.dir, logName)
	s.kill()
	all, err := os.ReadFile(path)
	testkit.Must(t, err)
	lines := bytes.SplitAfter(all, []byte("\n"))
	start := len(lines[0]) + len(lines[1])
	for at := range len(lines[2]) {
		bad := bytes.Clone(all)
		bad[start+at] ^= 0x10
		testkit.Must(t, os.WriteFile(path, bad, 0o600))
		list, err := List(stages)
		if err != nil || len(list) != 1 || !strings.Contains(list[0].Damaged, "damaged after record 1,") {
			t.Fatalf("byte %d: List says %+v, %v", at, list, err)
		}
		for range 2 {
			s := openFor(t, stages)
			if got := strings.Join(paths(s), " "); got != "a" || !strings.Contains(s.Damaged(), "damaged after record 1,") {
				t.Fatalf("byte %d: the log has %q, damaged %q; want only a", at, got, s.Damaged())
			}
			if info, err := s.log.file.Stat(); err != nil || info.Size() != s.log.end {
				t.Fatalf("byte %d: the log has %d bytes, %v; want none after the %d that count", at, info.Size(), err, s.log.end)
			}
			if _, isHidden, _ := s.Locate("c"); isHidden {
				t.Fatalf("byte %d: a whiteout after the damage counts", at)
			}
			s.kill()
		}
	}
}

// A log of a later version, or with an unknown key, is refused and left as it is.
func TestNewerLogIsRefused(t *testing.T) {
	for _, text := range []string{`{"stage":2,"boot":"b"`, `{"stage":1,"boot":"b","later":1`} {
		stages := t.TempDir()
		s := openFor(t, stages)
		path := filepath.Join(s.dir, logName)
		s.kill()
		all := fmt.Appendf(nil, "%s%s%08x\"}\n", text, checkKey, checksum([]byte(text)))
		testkit.Must(t, os.WriteFile(path, all, 0o600))
		if s, err := Open(filepath.Dir(path)); err == nil || !strings.Contains(err.Error(), "newer rootsfs") {
			t.Errorf("%s: %v, %v; want a refusal", text, s, err)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, all) {
			t.Errorf("%s: the log is now %q, %v", text, now, err)
		}
	}
}

// After a power loss, records and files that are newer than the last commit are unsure. They stay
// unsure when the store is opened and committed again. Older records and files are not unsure. A
// kill makes nothing unsure.
func TestUncleanBoot(t *testing.T) {
	stages := t.TempDir()
	boot(t, "1")
	s := openFor(t, stages)
	testkit.Must(t, s.Note(Record{Path: "old", Base: base(1)}))
	s.writeUpper(t, "old", "x")
	time.Sleep(2 * commitMargin)
	testkit.Must(t, s.Commit(nil), s.Note(Record{Path: "young", Whiteout: true}))
	s.writeUpper(t, "new", "x")
	s.kill()

	check := func(when string, want bool) {
		t.Helper()
		inos := map[string]uint64{}
		testkit.Must(t, s.walkUpper(func(rel string, st *unix.Stat_t) { inos[rel] = st.Ino }))
		for path, isUnsure := range map[string]bool{"old": false, "young": want, "new": want} {
			if s.Unsure(path, inos[path]) != isUnsure {
				t.Errorf("%s: %s unsure: %v, want %v", when, path, !isUnsure, isUnsure)
			}
		}
	}
	s = openFor(t, stages)
	check("after a kill", false)
	s.kill()
	boot(t, "2")
	s = openFor(t, stages)
	check("after a power loss", true)
	testkit.Must(t, s.Close())
	boot(t, "3")
	s = openFor(t, stages)
	check("after a clean end and another boot", true)
	testkit.Must(t, s.Clear("young"))
	if s.Unsure("young", 0) {
		t.Error("a cleared record is unsure")
	}
}

// A commit never includes a record whose change may not have been made yet: it waits for the
// lock under which changes are made.
func TestCommitWaitsForTheChange(t *testing.T) {
	stages := t.TempDir()
	boot(t, "1")
	s := openFor(t, stages)
	var changing hookedLock
	changing.onLock = func() { testkit.Must(t, s.Note(Record{Path: "before", Whiteout: true})) }
	changing.onUnlock = func() { testkit.Must(t, s.Note(Record{Path: "after", Whiteout: true})) }
	testkit.Must(t, s.Note(Record{Path: "first"}), s.Commit(&changing))
	s.kill()
	boot(t, "2")
	s = openFor(t, stages)
	if s.Unsure("before", 0) || !s.Unsure("after", 0) {
		t.Errorf("unsure are %v; want only the record that was noted after Commit had released the lock", s.unsure)
	}
}

type hookedLock struct{ onLock, onUnlock func() }

func (l *hookedLock) Lock()   { l.onLock() }
func (l *hookedLock) Unlock() { l.onUnlock() }

// Reading a log with any contents ends. A log that can be read has the same meaning without its
// damaged end. Each of its records has the same path and base after it was encoded and decoded.
func FuzzLog(f *testing.F) {
	for _, l := range []line{
		{Stage: version, Boot: "b"}, recordLine(Record{Path: "a/b", Base: base(1), Whiteout: true}), {Clear: pathOf("a")},
		{Placing: pathOf("p"), Temp: []byte("t"), Old: baseLineOf(base(2))}, {Commit: 1, Boot: "b", Upto: 9}, {Unsure: pathOf("u")}, {Lost: []uint64{3}},
	} {
		b, err := l.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:len(b)-checkLen-1], uint8(1))
		f.Add(b, uint8(0))
	}
	f.Fuzz(func(t *testing.T, data []byte, form uint8) {
		if form%2 == 1 { // a line whose checksum is right
			header, err := (&line{Stage: version, Boot: "b"}).encode()
			testkit.Must(t, err)
			data = append(header, fmt.Appendf(bytes.Clone(data), "%s%08x\"}\n", checkKey, checksum(data))...)
		}
		s := newStore("")
		got, err := s.replay(bytes.NewReader(data))
		if err != nil {
			return
		}
		if got.end > int64(len(data)) {
			t.Fatalf("the log ends at %d of %d", got.end, len(data))
		}
		again := newStore("")
		if _, err := again.replay(bytes.NewReader(data[:got.end])); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(s.records, again.records) || !maps.Equal(s.steps, again.steps) || !maps.Equal(s.hidden, again.hidden) {
			t.Fatalf("without its damaged end, the log has other records, steps or whiteouts: %+v, %+v", s.records, again.records)
		}
		for _, r := range s.records {
			l := recordLine(r)
			b, err := l.encode()
			testkit.Must(t, err)
			d, err := decode(bytes.TrimSuffix(b, []byte("\n")))
			testkit.Must(t, err)
			if base, err := d.Base.base(); err != nil || base != r.Base || string(*d.Path) != r.Path {
				t.Fatalf("%+v is read as %+v, %v", r, base, err)
			}
		}
	})
}

// A store whose log is missing, or whose meta.json is empty, is listed with that problem, and can
// be removed. A store without its log can be opened, but has no records.
func TestStoreWithoutItsLog(t *testing.T) {
	for lost, damage := range map[string]string{logName: "its log is missing", metaFile: "unexpected end of JSON input"} {
		stages := t.TempDir()
		s := openFor(t, stages)
		testkit.Must(t, s.Note(Record{Path: "f", Base: base(1)}))
		s.writeUpper(t, "f", "x")
		s.kill()
		path := filepath.Join(s.dir, lost)
		testkit.Must(t, os.Remove(path))
		if lost == metaFile {
			testkit.Must(t, os.WriteFile(path, nil, 0o600))
		}
		list, err := List(stages)
		if err != nil || len(list) != 1 || !strings.Contains(list[0].Damaged, damage) || lost == logName && list[0].Changed != 1 {
			t.Errorf("without its %s: %+v, %v", lost, list, err)
		}
		if lost == logName {
			again := openFor(t, stages)
			if again.Dir() != s.dir || !strings.Contains(again.Damaged(), damage) || len(paths(again)) > 0 {
				t.Errorf("opened %s: damaged %q, records %v", again.Dir(), again.Damaged(), paths(again))
			}
			again.kill()
		}
		testkit.Must(t, Remove(s.dir))
		if left, err := os.ReadDir(stages); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

// The files of a store have one mode, whatever the umask of the owner's shell is.
func TestStoreUnderAnyUmask(t *testing.T) {
	stages := filepath.Join(t.TempDir(), "stages")
	old := unix.Umask(0o777)
	defer unix.Umask(old)
	s := openFor(t, stages)
	_, err := s.NewObject()
	testkit.Must(t, err)
	_, err = s.AddCheckpoint(Checkpoint{Cause: CauseAsked}, &State{})
	testkit.Must(t, err, s.NoteApplied(Applied{Path: "f"}), s.compact(), filepath.WalkDir(stages, func(path string, d os.DirEntry, err error) error {
		want := os.FileMode(0o600)
		if err == nil && d.IsDir() {
			want = 0o700
		}
		if info, infoErr := os.Lstat(path); err != nil || infoErr != nil || info.Mode().Perm() != want {
			t.Errorf("%s is %v, %v", path, info, err)
		}
		return err
	}))
}
