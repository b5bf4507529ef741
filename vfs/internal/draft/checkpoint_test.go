package draft

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// keepFile makes a checkpoint with one file that contains a text.
func (s *Store) keepFile(t *testing.T, path, text string, at time.Time) Checkpoint {
	t.Helper()
	number, err := s.NewObject()
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(s.dir, objectsName, ObjectName(number)), []byte(text), 0o600))
	c, err := s.AddCheckpoint(Checkpoint{Cause: CauseAsked, Time: at}, &State{
		Nodes:   []Node{{Mode: 0o40755, Attrs: map[string][]byte{"user.a": {0xff}}}, {Path: []byte(path), Object: number}},
		Records: []Record{{Path: path, Whiteout: true, Base: base(7)}},
	})
	testkit.Must(t, err)
	return c
}

func numbers(s *Store) (out []int) {
	for _, c := range s.Checkpoints() {
		out = append(out, c.Number)
	}
	return out
}

// A checkpoint is found again after the process was killed, and so is an undo that has not ended. A
// checkpoint whose file is damaged is not listed, and the others are.
func TestCheckpointsOutliveTheirProcess(t *testing.T) {
	stages := t.TempDir()
	s := openFor(t, stages)
	s.keepFile(t, "a\xff", "one", time.Now())
	s.keepFile(t, "b", "two", time.Now())
	want, err := s.State(1)
	testkit.Must(t, err, s.BeginUndo(1), s.Note(Record{Path: "x", Whiteout: true}))
	s.kill()
	s = openFor(t, stages)
	got, err := s.State(1)
	if err != nil || !got.Equal(&want) || string(got.Nodes[1].Path) != "a\xff" || got.Records[0] != (Record{"a\xff", true, base(7)}) {
		t.Errorf("the state is %+v (%v), want %+v", got, err, want)
	}
	if n, ok := s.Undoing(); n != 1 || !ok || !slices.Equal(numbers(s), []int{1, 2}) {
		t.Errorf("undoing %d, checkpoints %v", n, numbers(s))
	}
	if n, err := s.NewObject(); n != 3 || err != nil {
		t.Errorf("the next object is %d (%v)", n, err)
	}
	testkit.Must(t, s.EndUndo())
	s.kill()
	path := s.checkpointPath(1)
	text, err := os.ReadFile(path)
	testkit.Must(t, err)
	text[bytes.Index(text, []byte(`"time":"`))+len(`"time":"`)] ^= 1 // still JSON, so only the checksum is wrong
	testkit.Must(t, os.WriteFile(path, text, 0o600))
	s = openFor(t, stages)
	if n, ok := s.Undoing(); ok || !slices.Equal(numbers(s), []int{2}) {
		t.Errorf("undoing %d, checkpoints %v, after 1 was damaged", n, numbers(s))
	}
	unused, err := s.Unused()
	if err != nil || !slices.Equal(unused, []uint64{1}) {
		t.Errorf("unused are %v (%v)", unused, err)
	}
}

// After a power loss, a checkpoint is removed if its file or one of its objects is newer than the
// last commit. The checkpoint to which an undo was going back stays, because the undo is finished
// from it.
func TestPowerLossDropsYoungCheckpoints(t *testing.T) {
	for _, undoing := range []int{0, 3} {
		stages := t.TempDir()
		boot(t, "1")
		s := openFor(t, stages)
		s.keepFile(t, "a", "one", time.Now())
		s.keepFile(t, "b", "two", time.Now())
		testkit.Must(t, s.Note(Record{Path: "x", Whiteout: true}))
		time.Sleep(2 * commitMargin) // the commit counts for older files
		testkit.Must(t, s.Commit(nil))
		time.Sleep(2 * commitMargin)
		s.keepFile(t, "c", "three", time.Now())
		testkit.Must(t, os.Chmod(filepath.Join(s.dir, objectsName, "2"), 0o400), s.BeginUndo(undoing))
		s.kill()
		boot(t, "2")
		s = openFor(t, stages)
		want := []int{1}
		if undoing != 0 {
			want = append(want, undoing)
		}
		if got := numbers(s); !slices.Equal(got, want) {
			t.Errorf("undoing %d: checkpoints %v, want %v", undoing, got, want)
		}
	}
}

// A store without a change stays for a time because of its checkpoints.
func TestEmptyStoreIsKeptForCheckpoints(t *testing.T) {
	for age, isKept := range map[time.Duration]bool{0: true, keepEmptyFor - time.Hour: true, keepEmptyFor + time.Hour: false} {
		stages := t.TempDir()
		s := openFor(t, stages)
		s.keepFile(t, "a", "one", time.Now().Add(-age))
		testkit.Must(t, s.Close())
		if _, err := os.Stat(s.dir); isKept != (err == nil) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("checkpoint of %v ago: %v", age, err)
		}
		s.lock, s.upper, s.tmp, s.points.objects, s.log.file = -1, -1, -1, -1, nil
	}
}

// When a checkpoint is removed, its notes of applies stay for an undo to an earlier checkpoint, in the
// order of the applies.
func TestAppliedIsNoted(t *testing.T) {
	s := openFor(t, t.TempDir())
	testkit.Must(t, s.NoteApplied(Applied{Path: "without a checkpoint"}))
	for n := range 3 {
		s.keepFile(t, "a", "x", time.Now())
		object, err := s.NewObject()
		testkit.Must(t, err, os.WriteFile(filepath.Join(s.dir, objectsName, ObjectName(object)), nil, 0o600))
		if !s.PinObject(object) {
			t.Error("the object is not kept")
		}
		testkit.Must(t, s.NoteApplied(Applied{Path: strconv.Itoa(n), Existed: true, Old: Node{Object: object}, New: base(9)}))
	}
	testkit.Must(t, s.Forget(2))
	for since, want := range map[int][]string{1: {"0", "1", "2"}, 3: {"2"}} {
		var got []string
		list, err := s.AppliedSince(since)
		for _, a := range list {
			got = append(got, a.Path)
			if a.New != base(9) || !a.Existed || a.Old.Object == 0 {
				t.Errorf("noted: %+v", a)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("since %d: %q (%v), want %q", since, got, err, want)
		}
	}
	unused, err := s.Unused()
	if err != nil || !slices.Equal(unused, []uint64{3}) {
		t.Errorf("unused are %v (%v), want the object of the removed checkpoint", unused, err)
	}
	testkit.Must(t, s.Forget(1))
	if list, err := s.AppliedSince(1); err != nil || len(list) != 1 || list[0].Path != "2" {
		t.Errorf("after checkpoint 1 was removed: %+v (%v)", list, err)
	}
}

// A process that is killed while it removes a checkpoint loses no note of an apply, and the notes stay
// in the order of the applies.
func TestAppliedOutlivesItsCheckpoint(t *testing.T) {
	for _, removed := range []int{2, 3} {
		stages := t.TempDir()
		s := openFor(t, stages)
		for n := range 3 {
			s.keepFile(t, "a", "x", time.Now())
			testkit.Must(t, s.NoteApplied(Applied{Path: strconv.Itoa(n + 1), New: base(9)}))
		}
		testkit.Must(t, os.Remove(s.checkpointPath(removed))) // as Forget does first
		s.kill()
		s = openFor(t, stages)
		testkit.Must(t, s.NoteApplied(Applied{Path: "late", New: base(9)}))
		next := s.keepFile(t, "a", "x", time.Now()).Number
		for since, want := range map[int][]string{0: {"1", "2", "3", "late"}, 1: {"1", "2", "3", "late"}, next: nil} {
			var got []string
			list, err := s.AppliedSince(since)
			for _, a := range list {
				got = append(got, a.Path)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("without checkpoint %d, since %d: %q (%v), want %q", removed, since, got, err, want)
			}
		}
	}
}

// If only a part of a note was written, because the disk was full or the process was killed, no later
// note is damaged.
func TestNoteAfterATornOne(t *testing.T) {
	s := openFor(t, t.TempDir())
	number := s.keepFile(t, "a", "x", time.Now()).Number
	for _, name := range []string{"first", "torn", "last"} {
		testkit.Must(t, s.NoteApplied(Applied{Path: name, New: base(9)}))
		if path := s.checkpointPath(number) + appliedSuffix; name == "torn" {
			text, err := os.ReadFile(path)
			testkit.Must(t, err, os.Truncate(path, int64(len(text)-10)))
		}
	}
	list, err := s.AppliedSince(number)
	if err != nil || len(list) != 2 || list[0].Path != "first" || list[1].Path != "last" {
		t.Errorf("noted: %+v (%v)", list, err)
	}
}
