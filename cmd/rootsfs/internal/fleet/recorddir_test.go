package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// newRecordFiles makes files with checkpoints in a directory of its own. The parts of a name are the
// session and the hour at which the file begins. It returns the names of the files.
func newRecordFiles(t *testing.T, files ...string) (recordDir, []string) {
	t.Helper()
	d := recordDir{dir: t.TempDir()}
	list := make([]string, len(files))
	for i, f := range files {
		session, hour := f[:len(f)-2], f[len(f)-2:]
		list[i] = fmt.Sprintf("%s-20260101T%s0000.000000000Z.jsonl", session, hour)
		for _, name := range []string{list[i], list[i] + checkpointSuffix} {
			if err := os.WriteFile(d.file(name), []byte(f), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return d, list
}

// has reports whether a file is in the directory.
func (d recordDir) has(name string) bool {
	_, err := os.Lstat(d.file(name))
	return err == nil
}

// block makes a directory that is not empty at a name, so that nothing can be removed or renamed there.
func (d recordDir) block(t *testing.T, name string) {
	t.Helper()
	_ = os.Remove(d.file(name))
	if err := os.MkdirAll(filepath.Join(d.file(name), "in"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// A damaged file that cannot be set aside keeps its checkpoint: without the checkpoint, mend would
// remove the file as the remains of a crash.
func TestSetAsideFails(t *testing.T) {
	d, files := newRecordFiles(t, "work01")
	d.block(t, asidePrefix+files[0])
	if err := d.setAside(files[0]); err == nil || !d.has(files[0]) || !d.has(files[0]+checkpointSuffix) {
		t.Errorf("%v; the file is there: %v, its checkpoint: %v", err, d.has(files[0]), d.has(files[0]+checkpointSuffix))
	}
}

// A file whose checkpoint cannot be removed stays: otherwise an owner would be told that the file's
// records are lost. A file without a checkpoint can be removed.
func TestRemoveFails(t *testing.T) {
	d, files := newRecordFiles(t, "work01", "work02")
	d.block(t, files[0]+checkpointSuffix)
	if err := d.remove(files[0]); err == nil || !d.has(files[0]) {
		t.Errorf("%v; the file is there: %v", err, d.has(files[0]))
	}
	if err := os.Remove(d.file(files[1] + checkpointSuffix)); err != nil {
		t.Fatal(err)
	}
	if err := d.remove(files[1]); err != nil || d.has(files[1]) {
		t.Errorf("%v; the file without a checkpoint is there: %v", err, d.has(files[1]))
	}
}

// A machine can name a newer file before its older ones. The keeper then removes older files for the
// new one, and does not go on at a file that it has removed.
func TestShrinkWithNewestNameFirst(t *testing.T) {
	for _, tt := range []struct {
		files []string
		keep  int
		want  string
	}{
		{[]string{"work01", "work02", "work03"}, 0, "[work01]"},
		{[]string{"work01", "work02", "work03", "other09"}, 3, "[work03 other09]"},
	} {
		d, files := newRecordFiles(t, tt.files...)
		s := &recordStore{recordDir: d, newest: map[string]*checkpoint{"work": {File: files[0]}}, size: int64(len(files)) * (recordCharge + 6)}
		if err := s.shrink(s.size-2*recordCharge, files[tt.keep]); err != nil {
			t.Fatal(err)
		}
		var left []string
		for i, name := range files {
			if d.has(name) {
				left = append(left, tt.files[i])
			}
		}
		if fmt.Sprint(left) != tt.want {
			t.Errorf("%s of %v is kept: left are %v, want %s", tt.files[tt.keep], tt.files, left, tt.want)
		}
		if c := s.newest["work"]; c != nil && !d.has(c.File) {
			t.Errorf("%s of %v is kept: the session's newest file %s is not there", tt.files[tt.keep], tt.files, c.File)
		}
	}
}
