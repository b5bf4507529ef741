package writabledirs

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func open(t *testing.T) *Dirs {
	t.Helper()
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Every session knows the directories that another session has noted, even if the file was read
// before they were noted.
func TestOthersKnow(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	a, b := open(t), open(t)
	if w := b.Writer("/src/sub"); w != "" {
		t.Fatalf("nothing was noted, but Writer returns %q", w)
	}
	for _, dir := range []string{"/src", "/src/inner", "/with\nnewline", "/src2"} {
		if err := a.NoteWritable(dir); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"/src/sub/x": "/src", "/src/inner/y": "/src", "/src": "/src", "/with\nnewline/l": "/with\nnewline",
		"/srcother": "", "/": "", "/src2/l": "/src2",
	} {
		if got := b.Writer(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
	data, err := os.ReadFile(a.path)
	if err != nil || string(data) != "\"/src\"\n\"/with\\nnewline\"\n\"/src2\"\n" {
		t.Errorf("the file holds %q (%v)", data, err)
	}
}

// If the file cannot be read, a path counts as one that programs could write, and NoteWritable
// fails.
func TestUnreadable(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	d := open(t)
	if err := os.MkdirAll(d.path, 0o700); err != nil { // a directory cannot be read as a file
		t.Fatal(err)
	}
	if d.Writer("/any/where") == "" {
		t.Error("no writer, though the file cannot be read")
	}
	if d.NoteWritable("/src") == nil {
		t.Error("noted in a file that cannot be written")
	}
}

// The file is bounded, and many concurrent writers lose no line.
func TestBounded(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	first := open(t)
	for i := range 2 * maxDirs {
		first.noteLocked(fmt.Sprintf("/old/%d", i))
	}
	if err := os.MkdirAll(filepath.Dir(first.path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := first.replaceLocked(first.list); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := open(t).NoteWritable(fmt.Sprintf("/new/%d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	d := open(t)
	for i := range 20 {
		if d.Writer(fmt.Sprintf("/new/%d/link", i)) == "" {
			t.Errorf("/new/%d is lost", i)
		}
	}
	if len(d.list) > maxDirs+20 {
		t.Errorf("%d directories are kept", len(d.list))
	}
	if d.Writer("/old/19999") == "" || d.Writer("/old/0") != "" {
		t.Error("the directories that are kept are not the newest")
	}
}
