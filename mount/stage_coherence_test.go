package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

const stagedRights = guard.ReadWrite | guard.Stage

// stagedMount is a mount of a staged root. Programs use the mount, the owner changes the source,
// and other fronts and the owner's commands change the stage.
type stagedMount struct {
	*testMount
	*testing.T
}

func newStagedMount(t *testing.T) stagedMount {
	t.Helper()
	return stagedMount{newTestMount(t, stagedRights, nil), t}
}

func (m stagedMount) must(err error) { m.Helper(); testkit.Must(m.T, err) }

func (m stagedMount) seen(name string) string { return filepath.Join(m.root, name) }
func (m stagedMount) host(name string) string { return filepath.Join(m.src, name) }

func (m stagedMount) read(name string) string {
	text, err := childfs.ReadFile(m.seen(name))
	if err != nil {
		return "no " + filepath.Base(name)
	}
	return string(text)
}

// reads waits until a program reads the text want from the file name.
func (m stagedMount) reads(name, want string) {
	m.Helper()
	got := ""
	if !testkit.Eventually(func() bool { got = m.read(name); return got == want }) {
		m.Fatalf("%s: %q instead of %q", name, got, want)
	}
}

func (m stagedMount) at(name string) vfs.At {
	p, err := guard.NewPath("code", name)
	m.must(err)
	return vfs.At{Path: p}
}

// When a staged root changes without the mount, programs see the change: the kernel does not go on
// using its stale cache. In each case, programs first look at some names. Then the owner, another
// front or a command changes the root. The source has d/f, d/g and an empty directory e.
func TestStagedChangesBecomeVisible(t *testing.T) {
	ctx := context.Background()
	owner := func(m stagedMount) guard.Caller { return m.self() }
	for _, c := range []struct {
		name   string
		before func(m stagedMount) error // by programs
		lookAt []string                  // what programs look at before the change
		change func(m stagedMount) error
		want   map[string]string
	}{
		{"owner writes", nil, []string{"d/f"},
			func(m stagedMount) error { return os.WriteFile(m.host("d/f"), []byte("two"), 0o644) },
			map[string]string{"d/f": "two"}},
		{"owner writes beside a change by a program", func(m stagedMount) error { return childfs.WriteFile(m.seen("d/g"), []byte("mine"), 0o644) },
			[]string{"d/f", "d/new"},
			func(m stagedMount) error {
				return errors.Join(os.WriteFile(m.host("d/f"), []byte("two"), 0o644), os.WriteFile(m.host("d/new"), []byte("new"), 0o644))
			},
			map[string]string{"d/f": "two", "d/new": "new", "d/g": "mine"}},
		{"owner makes the same directories as a program", func(m stagedMount) error { return childfs.MkdirAll(m.seen("p/q"), 0o755) },
			[]string{"p/x", "p/q/x"},
			func(m stagedMount) error {
				return errors.Join(os.MkdirAll(m.host("p/q"), 0o755), os.WriteFile(m.host("p/q/x"), []byte("x"), 0o644))
			},
			map[string]string{"p/q/x": "x", "p/x": "no x"}},
		{"owner writes later in a directory that a program has made", func(m stagedMount) error { return childfs.MkdirAll(m.seen("p/q"), 0o755) },
			[]string{"p/q/x"},
			func(m stagedMount) error {
				held, err := childfs.Open(m.seen("p/q")) // so the kernel does not forget the directory
				m.must(err)
				m.T.Cleanup(func() { _ = held.Close() })
				m.must(os.MkdirAll(m.host("p/q"), 0o755))
				m.settle()
				m.read("p/q/x") // the absence is cached once more
				return os.WriteFile(m.host("p/q/x"), []byte("x"), 0o644)
			},
			map[string]string{"p/q/x": "x"}},
		{"owner removes a directory with a change", func(m stagedMount) error { return childfs.WriteFile(m.seen("d/g"), []byte("mine"), 0o644) },
			[]string{"d/f", "d/g"},
			func(m stagedMount) error { return os.RemoveAll(m.host("d")) },
			map[string]string{"d/f": "no f", "d/g": "mine"}},
		{"owner writes where a program has moved a directory",
			func(m stagedMount) error {
				return errors.Join(childfs.Mkdir(m.seen("made"), 0o755), childfs.WriteFile(m.seen("made/x"), nil, 0o644),
					childfs.Remove(m.seen("e")), childfs.Rename(m.seen("made"), m.seen("other")))
			},
			[]string{"other/x", "other/new"},
			func(m stagedMount) error {
				return errors.Join(os.Mkdir(m.host("other"), 0o755), os.WriteFile(m.host("other/new"), []byte("new"), 0o644))
			},
			map[string]string{"other/new": "new", "other/x": ""}},
		{"owner writes in an empty directory that a program has replaced",
			func(m stagedMount) error {
				if err := errors.Join(childfs.Mkdir(m.seen("made"), 0o755), childfs.WriteFile(m.seen("made/x"), nil, 0o644)); err != nil {
					return err
				}
				m.read("made/new") // the absence is cached
				return childfs.SysRename(m.seen("made"), m.seen("e"))
			},
			[]string{"e/x"},
			func(m stagedMount) error { return os.WriteFile(m.host("e/new"), []byte("new"), 0o644) },
			map[string]string{"e/new": "new", "e/x": ""}},
		{"another front makes a file", nil, []string{"d/f", "d/new"},
			func(m stagedMount) error {
				_, err := m.tree.CreateFile(ctx, owner(m), m.at("d/new").Path, 0o644, false)
				return err
			},
			map[string]string{"d/new": "", "d/f": "one"}},
		{"another front removes a file of the source", nil, []string{"d/f"},
			func(m stagedMount) error { return m.tree.Unlink(ctx, owner(m), m.at("d"), "f") },
			map[string]string{"d/f": "no f"}},
		{"another front writes", nil, []string{"d/f"},
			func(m stagedMount) error {
				_, err := m.tree.Replace(ctx, owner(m), m.at("d/f"), strings.NewReader("two"), vfs.IfMatch{})
				return err
			},
			map[string]string{"d/f": "two"}},
		{"discard",
			func(m stagedMount) error {
				return errors.Join(childfs.WriteFile(m.seen("d/f"), []byte("mine"), 0o644), childfs.Remove(m.seen("d/g")), childfs.WriteFile(m.seen("d/new"), nil, 0o644))
			},
			[]string{"d/f", "d/g", "d/new"},
			func(m stagedMount) error { _, err := m.tree.StageDiscard(ctx, "code", nil); return err },
			map[string]string{"d/f": "one", "d/g": "g", "d/new": "no new"}},
		{"discard of a replaced directory",
			func(m stagedMount) error {
				return errors.Join(childfs.RemoveAll(m.seen("d")), childfs.Mkdir(m.seen("d"), 0o755))
			},
			[]string{"d/f", "d/g"},
			func(m stagedMount) error { _, err := m.tree.StageDiscard(ctx, "code", nil); return err },
			map[string]string{"d/f": "one", "d/g": "g"}},
		{"owner writes in a directory that a program has replaced and an apply has merged",
			func(m stagedMount) error {
				return errors.Join(childfs.RemoveAll(m.seen("d")), childfs.Mkdir(m.seen("d"), 0o755), childfs.WriteFile(m.seen("d/mine"), nil, 0o644))
			},
			[]string{"d/mine", "d/new"},
			func(m stagedMount) error {
				held, err := childfs.Open(m.seen("d")) // so the kernel does not forget the directory
				m.must(err)
				m.T.Cleanup(func() { _ = held.Close() })
				_, err = m.tree.StageApply(ctx, "code", vfs.StageApply{Paths: []string{"d/mine"}})
				m.must(err)
				m.settle()
				m.read("d/new") // the absence is cached once more
				return os.WriteFile(m.host("d/new"), []byte("new"), 0o644)
			},
			map[string]string{"d/new": "new", "d/mine": "", "d/f": "no f"}},
		{"owner writes after apply",
			func(m stagedMount) error {
				if err := childfs.WriteFile(m.seen("d/f"), []byte("mine"), 0o644); err != nil {
					return err
				}
				// The file stays in the stage as long as a program may write to it.
				testkit.Until(m.T, "apply of the closed file", func() bool {
					_, err := m.tree.StageApply(ctx, "code", vfs.StageApply{})
					m.must(err)
					left, err := m.tree.StageChanges(ctx, "code", nil)
					return err == nil && len(left) == 0
				})
				return nil
			},
			[]string{"d/f"},
			func(m stagedMount) error { return os.WriteFile(m.host("d/f"), []byte("two"), 0o644) },
			map[string]string{"d/f": "two"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newStagedMount(t)
			m.must(os.MkdirAll(m.host("d"), 0o755))
			m.must(os.Mkdir(m.host("e"), 0o755))
			m.must(os.WriteFile(m.host("d/f"), []byte("one"), 0o644))
			m.must(os.WriteFile(m.host("d/g"), []byte("g"), 0o644))
			if c.before != nil {
				m.must(c.before(m))
			}
			m.settle()
			for _, name := range c.lookAt {
				m.read(name)
			}
			m.must(c.change(m))
			for name, want := range c.want {
				m.reads(name, want)
			}
		})
	}
}

// settle waits until the events of earlier changes were delivered. A late event could make the
// kernel drop a cache entry that the tested event has to drop.
func (m stagedMount) settle() {
	m.Helper()
	m.must(os.WriteFile(m.host("settled"), nil, 0o644))
	m.reads("settled", "")
	m.must(os.Remove(m.host("settled")))
	m.reads("settled", "no settled")
}

// Two names of one file of the source are two files once a program has changed one of them.
func TestStagedHardLinksPart(t *testing.T) {
	m := newStagedMount(t)
	m.must(os.WriteFile(m.host("f"), []byte("one"), 0o644))
	m.read("f") // the kernel caches the name for long: the file has no other name yet
	m.must(os.Link(m.host("f"), m.host("g")))
	m.reads("g", "one")
	m.settle()
	m.must(childfs.WriteFile(m.seen("g"), []byte("mine"), 0o644))
	m.reads("f", "one")
	m.reads("g", "mine")
}

// A staged root is cached like a writable one: until the kernel is notified, programs keep the
// contents that they have read and the absence of names that they have looked up.
func TestStagedIsCached(t *testing.T) {
	m := newStagedMount(t)
	m.must(os.Mkdir(m.host("d"), 0o755))
	m.must(os.WriteFile(m.host("d/f"), []byte("one"), 0o644))
	for _, isChanged := range []bool{false, true} { // whether programs have changed the directory
		if isChanged {
			m.must(childfs.WriteFile(m.seen("d/mine"), nil, 0o644))
		}
		m.settle()
		m.reads("d/f", "one")
		m.reads("d/f", "one") // after the first read the kernel asks once for the access time
		absent := fmt.Sprintf("d/new %v", isChanged)
		m.read(absent)
		m.withoutNotifications(func() {
			m.must(os.WriteFile(m.host("d/f"), []byte("two"), 0o644))
			m.must(os.WriteFile(m.host(absent), nil, 0o644))
			if got := m.read("d/f") + ", " + m.read(absent); got != "one, no "+filepath.Base(absent) {
				t.Errorf("directory changed %v: %q was read anew", isChanged, got)
			}
		})
		m.reads("d/f", "two")
		m.reads(absent, "")
		m.must(os.WriteFile(m.host("d/f"), []byte("one"), 0o644))
		m.reads("d/f", "one")
	}
}

// stormNames are the names that the random changes of TestStagedStorm use, in directories up to a
// depth of three.
var stormNames = []string{"a", "b", "c"}

func stormPath(rnd *rand.Rand) string {
	var elems []string
	for range 1 + rnd.IntN(3) {
		elems = append(elems, stormNames[rnd.IntN(len(stormNames))])
	}
	return filepath.Join(elems...)
}

// stormStep makes a random change below the directory top, and ignores errors.
func stormStep(rnd *rand.Rand, top string, text string) {
	name, other := filepath.Join(top, stormPath(rnd)), filepath.Join(top, stormPath(rnd))
	switch rnd.IntN(9) {
	case 0, 1:
		_ = childfs.WriteFile(name, []byte(text), 0o644)
	case 2, 3:
		_ = childfs.MkdirAll(name, 0o755)
	case 4:
		_ = childfs.RemoveAll(name)
	case 5:
		_ = childfs.Remove(name)
	case 6:
		_ = childfs.Rename(name, other)
	case 7:
		_ = childfs.Link(name, other)
	case 8:
		_ = childfs.Chmod(name, fs.FileMode(0o700+rnd.IntN(2)*0o55)) // an ordinary user can still enter it
	}
}

// changeWithoutMount makes a random change: as the owner in the source, as another front, or with
// the owner's commands.
func (m stagedMount) changeWithoutMount(rnd *rand.Rand, text string) {
	ctx := context.Background()
	at := m.at(stormPath(rnd))
	switch rnd.IntN(8) {
	default:
		stormStep(rnd, m.src, text)
	case 0:
		_, _ = m.tree.Replace(ctx, m.self(), at, strings.NewReader(text), vfs.IfMatch{Mode: 0o644})
	case 1:
		_ = m.tree.RemovePath(ctx, m.self(), at.Path, vfs.RemoveOptions{})
	case 2:
		_ = m.tree.RenamePath(ctx, m.self(), at.Path, m.at(stormPath(rnd)).Path, true, "")
	case 3:
		var paths []string
		if rnd.IntN(3) > 0 {
			paths = []string{at.Path.Rel()}
		}
		switch rnd.IntN(4) {
		case 0:
			_, _ = m.tree.StageDiscard(ctx, "code", paths)
		case 1:
			_, _ = m.tree.StageApply(ctx, "code", vfs.StageApply{Paths: paths, Partial: true})
		case 2:
			_ = m.tree.StageCheckpointOf(ctx, "code", paths, vfs.CheckpointApply)
		case 3:
			_, _ = m.tree.StageUndo(ctx, "code", []string{"", "0", "1"}[rnd.IntN(3)], false)
		}
	}
}

// everyPath calls f with each path of at most depth names below dir, in which each name is one of
// stormNames.
func everyPath(dir string, depth int, f func(rel string)) {
	for _, name := range stormNames {
		rel := filepath.Join(dir, name)
		f(rel)
		if depth > 1 {
			everyPath(rel, depth-1, f)
		}
	}
}

// inKernel describes what programs see at a path, and inTree what m.tree shows at the path.
func (m stagedMount) inKernel(rel string) string {
	info, err := childfs.Lstat(m.seen(rel))
	if err != nil {
		return "nothing"
	}
	if info.IsDir() {
		return fmt.Sprintf("dir %o", info.Mode().Perm())
	}
	text, err := childfs.ReadFile(m.seen(rel))
	return fmt.Sprintf("file %o %q %v", info.Mode().Perm(), text, err)
}

func (m stagedMount) inTree(rel string) string {
	ctx := context.Background()
	if dir := filepath.Dir(rel); dir != "." && !strings.HasPrefix(m.inTree(dir), "dir") {
		return "nothing"
	}
	info, err := m.tree.Lstat(ctx, m.self(), m.at(rel))
	if err != nil {
		return "nothing"
	}
	if info.IsDir() {
		return fmt.Sprintf("dir %o", info.Mode&0o777)
	}
	f, _, err := m.tree.Open(ctx, m.self(), m.at(rel), unix.O_RDONLY)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	buf := make([]byte, 100)
	n, err := f.ReadAt(ctx, m.self(), buf, 0)
	return fmt.Sprintf("file %o %q %v", info.Mode&0o777, buf[:n], err)
}

// Programs, the owner, other fronts and the owner's commands change a staged root at random.
// After each round of changes, the kernel shows the present state of each name, and no earlier
// absence or file.
func TestStagedStorm(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := newStagedMount(t)
			rnd := rand.New(rand.NewPCG(seed, 50))
			for round := range rounds {
				for i := range 12 {
					text := fmt.Sprintf("%d.%d", round, i)
					if rnd.IntN(2) > 0 {
						stormStep(rnd, m.root, text)
					} else {
						m.changeWithoutMount(rnd, text)
					}
					m.inKernel(stormPath(rnd))
				}
				everyPath("", 3, func(rel string) {
					var kernel, tree string
					if !testkit.Eventually(func() bool { kernel, tree = m.inKernel(rel), m.inTree(rel); return kernel == tree }) {
						t.Fatalf("round %d, %s: the kernel shows %s, the tree %s", round, rel, kernel, tree)
					}
				})
			}
		})
	}
}
