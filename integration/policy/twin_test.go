package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
)

// twin is the same tree in two roots: the root "on" has patterns, the root "off" has none. A
// bypass is tried on both. It must work on "off", which shows that only the rule stops it on
// "on".
type twin struct {
	*testing.T
	reg   *guard.Registry
	tree  *vfs.Tree
	point string
	src   map[string]string // host directories by root
	files *client.Files
}

func newTwin(t *testing.T, p guard.Patterns, tree ...string) *twin {
	t.Helper()
	needFUSE(t)
	w := &twin{T: t, reg: guard.NewRegistry(guard.Config{Opener: vfs.Opener()}), src: map[string]string{}}
	m, err := mount.New(w.reg, mount.Options{Point: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = w.reg.RevokeAll(bg)
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		<-m.Served()
	})
	w.point, w.tree = m.Point(), m.Tree()
	for root, p := range map[string]guard.Patterns{"on": p, "off": {NoDefaults: true}} {
		w.src[root] = t.TempDir()
		guardtest.Tree(t, w.src[root], "", tree...)
		w.grant(root, w.src[root], p)
	}
	w.files = connect(t, w.reg, w.tree, "server")
	return w
}

func (w *twin) grant(root, dir string, p guard.Patterns) {
	w.Helper()
	_, err := w.reg.Grant(bg, guard.Grant{Root: guard.RootName(root), Dir: names.Foreign(dir), Origin: "test",
		Policy: guard.Policy{Rights: guard.ReadWrite, Patterns: p}})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *twin) at(root, rel string) string { return filepath.Join(w.point, root, rel) }

// checkMountBypass is checkBypass for a function that takes the root's directory in the mount.
func (w *twin) checkMountBypass(name string, want syscall.Errno, f func(dir string) error) {
	w.Helper()
	w.checkBypass(name, want, func(root string) error { return f(w.at(root, "")) })
}

// checkBypass checks that f fails with want for the root "on" and succeeds for the root "off".
func (w *twin) checkBypass(name string, want error, f func(root string) error) {
	w.Helper()
	if err := f("on"); !errors.Is(err, want) {
		w.Errorf("%s: %v, want %v", name, err, want)
	}
	if err := f("off"); err != nil {
		w.Errorf("%s fails without the rule, too, so this shows nothing: %v", name, err)
	}
}

// checkFile checks the text of a file on the host; "" means that there is no such file.
func (w *twin) checkFile(root, rel, text string) {
	w.Helper()
	got, err := os.ReadFile(filepath.Join(w.src[root], rel))
	if string(got) != text || (err == nil) != (text != "") {
		w.Errorf("%s/%s holds %q, %v; want %q", root, rel, got, err, text)
	}
}

// neutral returns the text of an error with "NAME" in the place of each of the names.
func neutral(err error, names ...string) string {
	if err == nil {
		return "no error"
	}
	text := err.Error()
	for _, n := range names {
		text = strings.ReplaceAll(text, n, "NAME")
	}
	return text
}
