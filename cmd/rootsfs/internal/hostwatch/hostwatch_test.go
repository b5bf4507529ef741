package hostwatch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// Changes that make a path lead elsewhere, or that change its target, are reported: changes of the
// directories, links and files on the path, also when a missing one is created.
func TestPaths(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	testkit.Must(t, os.WriteFile(at("other"), nil, 0o600))
	changed := make(chan struct{}, 1)
	paths := New(t.Context())
	stop := paths.Signal(at("a/link/f"), Path, changed)
	<-changed
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"a directory of the path", func() error { return os.Mkdir(at("a"), 0o755) }},
		{"a link", func() error { return os.Symlink("../b/./c", at("a/link")) }},
		{"a directory behind the link", func() error { return os.MkdirAll(at("b/c"), 0o755) }},
		{"the file", func() error { return os.WriteFile(at("b/c/f"), nil, 0o600) }},
		{"its contents", func() error { return os.WriteFile(at("b/c/f"), []byte("x"), 0o600) }},
		{"a second name", func() error { return os.Link(at("b/c/f"), at("second")) }},
		{"its contents, by the second name", func() error { return os.WriteFile(at("second"), []byte("xy"), 0o600) }},
		{"its mode", func() error { return os.Chmod(at("b/c/f"), 0o640) }},
		{"a directory's mode", func() error { return os.Chmod(at("b"), 0o700) }},
		{"another file", func() error { return os.Rename(at("other"), at("b/c/f")) }},
		{"a directory moved away", func() error { return os.Rename(at("b"), at("away")) }},
		{"another in its place", func() error { return os.MkdirAll(at("b/c"), 0o755) }},
		{"the file in it", func() error { return os.WriteFile(at("b/c/f"), nil, 0o600) }},
		{"the link gone", func() error { return os.Remove(at("a/link")) }},
		{"a link in a circle, looked at again and again", func() error { return os.Symlink("link", at("a/link")) }},
		{"still", func() error { return nil }},
		{"and still", func() error { return nil }},
	} {
		t.Log(step.name)
		testkit.Must(t, step.do())
		<-changed
	}
	stop()
	paths.CheckAll()
}
