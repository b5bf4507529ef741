package hostwatch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// With Entries, changes of the names in a directory and of the contents of its files are reported,
// also when the directory appears later, is replaced, or is reached by a link.
func TestEntries(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	changed := make(chan struct{}, 1)
	New(t.Context()).Signal(at("link/records"), Entries, changed)
	drain(changed, nil)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"the link", func() error { return os.Symlink("a", at("link")) }},
		{"a directory of the path", func() error { return os.Mkdir(at("a"), 0o755) }},
		{"the directory", func() error { return os.Mkdir(at("a/records"), 0o755) }},
		{"a file", func() error { return os.WriteFile(at("a/records/1"), nil, 0o600) }},
		{"its contents", func() error { return appendByte(at("a/records/1")) }},
		{"the next file", func() error { return os.WriteFile(at("a/records/2"), nil, 0o600) }},
		{"a file renamed", func() error { return os.Rename(at("a/records/2"), at("a/records/3")) }},
		{"a file removed", func() error { return os.Remove(at("a/records/1")) }},
		{"the directory moved away", func() error { return os.Rename(at("a"), at("away")) }},
		{"another one in its place", func() error { return os.MkdirAll(at("a/records"), 0o755) }},
		{"a file there", func() error { return os.WriteFile(at("a/records/4"), nil, 0o600) }},
		{"and another one at once", func() error {
			if err := os.Rename(at("a"), at("again")); err != nil {
				return err
			}
			return os.MkdirAll(at("a/records"), 0o755)
		}},
		{"a file there", func() error { return os.WriteFile(at("a/records/4"), nil, 0o600) }},
		{"the directory removed", func() error { return os.RemoveAll(at("a/records")) }},
		{"and made again", func() error { return os.Mkdir(at("a/records"), 0o755) }},
		{"a file in that", func() error { return os.WriteFile(at("a/records/5"), nil, 0o600) }},
		{"its contents", func() error { return appendByte(at("a/records/5")) }},
	} {
		t.Log(step.name)
		testkit.Must(t, step.do())
		<-changed
		drain(changed, nil)
	}
}

// Two paths may lead to one file. The kernel has one watch for both. When one path is no longer
// watched, changes are still reported for the other.
func TestTwoPathsToOneFile(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"1", "2", "3"} {
		testkit.Must(t, os.Mkdir(at(name), 0o755))
	}
	testkit.Must(t, os.WriteFile(at("1/f"), nil, 0o600))
	testkit.Must(t, os.Link(at("1/f"), at("2/f")))
	testkit.Must(t, os.Link(at("1/f"), at("3/f")))
	w := New(t.Context())
	one, two := make(chan struct{}, 1), make(chan struct{}, 1)
	stopOne := w.Signal(at("1/f"), Path, one)
	<-one
	stopTwo := w.Signal(at("2/f"), Path, two)
	<-two
	drain(one, two)
	testkit.Must(t, appendByte(at("3/f")))
	<-one
	<-two
	stopOne()
	drain(one, two)
	testkit.Must(t, appendByte(at("3/f")))
	<-two
	stopOne = w.Signal(at("1/f"), Path, one)
	<-one
	stopTwo()
	drain(one, two)
	testkit.Must(t, appendByte(at("3/f")))
	<-one
	stopOne()
}

// drain receives the reports of earlier changes, so that the next report is about a later one.
func drain(one, two <-chan struct{}) {
	for {
		select {
		case <-one:
		case <-two:
		case <-time.After(5 * pause):
			return
		}
	}
}

func appendByte(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("x")
	return err
}
