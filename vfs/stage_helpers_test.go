package vfs_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// stageScene is a staged root and a plain directory, the model. Tests do operations in both, and
// compare the results.
type stageScene struct {
	*testing.T
	seed          uint64
	rnd           *rand.Rand
	source, model string
	stages, store string
	reg           *guard.Registry
	tree          *vfs.Tree
	who           guard.Caller
	contents      int // how many texts text has returned
	limits        guard.Limits
	log           []string
	open          []*bothOpen
	crashes       int
	ops           []stageOp
}

// bothOpen is a file that is open in the staged root and in the model.
type bothOpen struct {
	f     *vfs.File
	model *os.File
	path  string
}

// emptyScene returns a scene with an empty source and no root.
func emptyScene(t *testing.T) *stageScene {
	t.Helper()
	return emptySceneIn(t, t.TempDir())
}

// inMemory is a directory in memory, for stores that are closed many times, and their models. A
// source cannot lie there.
const inMemory = "/dev/shm"

// tempDirIn returns a temporary directory in another directory, if that is possible.
func tempDirIn(t *testing.T, top string) string {
	t.Helper()
	dir, err := os.MkdirTemp(top, "rootsfs-stage-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// keepIn moves the store, and the model, which is still empty, to a temporary directory in top.
func (s *stageScene) keepIn(top string) {
	s.Helper()
	dir := tempDirIn(s.T, top)
	s.stages, s.model = filepath.Join(dir, "stages"), filepath.Join(dir, "model")
	if err := os.Mkdir(s.model, 0o755); err != nil {
		s.Fatal(err)
	}
}

func emptySceneIn(t *testing.T, top string) *stageScene {
	t.Helper()
	s := &stageScene{T: t, who: guard.Caller{Via: guard.ViaFUSE, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}}
	s.source, s.model, s.stages = filepath.Join(top, "source"), filepath.Join(top, "model"), filepath.Join(top, "stages")
	for _, dir := range []string{s.source, s.model} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// newStageScene returns a staged root with a source of random files.
func newStageScene(t *testing.T, seed uint64) *stageScene {
	t.Helper()
	s := emptyScene(t)
	if seed%4 != 0 {
		s.keepIn(inMemory)
	}
	s.seed, s.rnd, s.ops = seed, rand.New(rand.NewPCG(seed, 1)), stageOps
	for range 20 {
		path, text, isDir := s.path(), s.text(), s.rnd.IntN(2) == 0
		for _, dir := range []string{s.source, s.model} {
			if isDir {
				_ = os.Mkdir(filepath.Join(dir, path), 0o755)
			} else if f, err := os.OpenFile(filepath.Join(dir, path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
				_, _ = f.WriteString(text)
				_ = f.Close()
			}
		}
	}
	s.start()
	return s
}

// start grants the root, with the changes that its store has.
func (s *stageScene) start() {
	s.Helper()
	if _, err := os.Stat(s.store); err != nil {
		s.store = "" // the store was empty, so its end removed it
	}
	s.reg = guard.NewRegistry(guard.Config{Opener: vfs.StagingOpener(s.stages, "test"), Deadline: patience})
	got, err := s.reg.Grant(s.Context(), guard.Grant{Root: "r", Dir: names.Foreign(s.source), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite | guard.Stage, Limits: s.limits}, Store: s.store})
	if err != nil {
		s.Fatal(err)
	}
	s.store = got.Store
	s.tree = vfs.New(s.reg)
}

// end revokes the root, as the end of a session does.
func (s *stageScene) end() {
	s.Helper()
	for _, o := range s.open {
		o.f.Close()
		_ = o.model.Close()
	}
	s.open = nil
	if _, live := s.reg.Lookup("r"); !live {
		return
	}
	if _, err := s.reg.Revoke(s.Context(), "r"); err != nil {
		s.Fatal(err)
	}
	s.reg.AwaitStages(s.Context())
}

func (s *stageScene) path() string {
	var elems []string
	for range 1 + s.rnd.IntN(3) {
		elems = append(elems, string("abc"[s.rnd.IntN(3)]))
	}
	return strings.Join(elems, "/")
}

func (s *stageScene) text() string {
	s.contents++
	return fmt.Sprintf("c%d\n", s.contents)
}

func (s *stageScene) at(rel string) vfs.At {
	s.Helper()
	p, err := guard.NewPath("r", rel)
	if err != nil {
		s.Fatal(err)
	}
	return vfs.At{Path: p}
}

func (s *stageScene) split(rel string) (vfs.At, string) {
	dir, name := filepath.Split(rel)
	return s.at(strings.TrimSuffix(dir, "/")), name
}

// errnoOf returns the errno that a program would get.
func errnoOf(err error) error {
	var errno unix.Errno
	var e *guard.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &e) && e.Kind == names.Invalid:
		return unix.EINVAL
	}
	return err
}

// seen returns what programs see in the staged root. For each path it has the mode with the type,
// the count of links, and the contents or the target. seen fails the test if two paths show one
// identity and the file has only one link.
func (s *stageScene) seen() map[string]string { s.Helper(); return s.seenBelow("") }

// seenBelow is seen for one directory. The paths are below it.
func (s *stageScene) seenBelow(top string) map[string]string {
	s.Helper()
	out, ids := map[string]string{}, map[rules.Identity]string{}
	for cursor := ""; ; {
		page, err := s.tree.List(s.Context(), s.who, s.at(top).Path, vfs.ListOptions{Recursive: true, Hidden: true, Cursor: cursor})
		if err != nil {
			s.fail("list: %v", err)
		}
		for _, e := range page.Entries {
			out[strings.TrimPrefix(strings.TrimPrefix(e.Path.Rel(), top), "/")] = s.describe(e.Path.Rel(), &e.Info)
			if other, twice := ids[e.Info.ID()]; twice && e.Info.Nlink < 2 {
				s.fail("%s and %s show one identity", other, e.Path.Rel())
			}
			ids[e.Info.ID()] = e.Path.Rel()
		}
		if cursor = page.Next; cursor == "" {
			return out
		}
	}
}

func (s *stageScene) describe(rel string, info *vfs.Info) string {
	text := ""
	switch {
	case info.IsRegular():
		f, _, err := s.tree.Open(s.Context(), s.who, s.at(rel), unix.O_RDONLY)
		if err != nil {
			s.fail("open %s: %v", rel, err)
		}
		defer f.Close()
		buf := make([]byte, 4096)
		n, err := f.ReadAt(s.Context(), s.who, buf, 0)
		if err != nil {
			s.fail("read %s: %v", rel, err)
		}
		text = string(buf[:n])
	case info.Type() == unix.S_IFLNK:
		target, err := s.tree.Readlink(s.Context(), s.who, s.at(rel), nil)
		if err != nil {
			s.fail("readlink %s: %v", rel, err)
		}
		text = target
	}
	return fmt.Sprintf("%o %d %q", info.Mode, linksOf(info.Mode, uint64(info.Nlink)), text)
}

// linksOf returns a file's count of links. For a directory it returns 1, because a staged root
// does not count the links of directories.
func linksOf(mode uint32, n uint64) uint64 {
	if mode&unix.S_IFMT == unix.S_IFDIR {
		return 1
	}
	return n
}

// seenIn is seen for a plain directory.
func seenIn(t *testing.T, top string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(top, func(path string, _ os.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		text := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(b)
		case unix.S_IFLNK:
			if text, err = os.Readlink(path); err != nil {
				return err
			}
		}
		out[path[len(top)+1:]] = fmt.Sprintf("%o %d %q", st.Mode, linksOf(st.Mode, st.Nlink), text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// isFile reports whether a text of seen describes a regular file that is not executable.
func isFile(text string) bool { return strings.HasPrefix(text, "1006") }

// stateOf describes a tree that must not change: contents, modes, counts of links, inode numbers,
// and the times of the last modification and change.
func stateOf(t *testing.T, top string) map[string]string {
	t.Helper()
	out := seenIn(t, top)
	for rel, text := range out {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(top, rel), &st); err != nil {
			t.Fatal(err)
		}
		out[rel] = fmt.Sprintf("%s %d %v %v", text, st.Ino, st.Mtim, st.Ctim)
	}
	return out
}

func (s *stageScene) fail(format string, args ...any) {
	s.Helper()
	s.Fatalf("seed %d: after\n\t%s\n%s", s.seed, strings.Join(s.log, "\n\t"), fmt.Sprintf(format, args...))
}

// difference returns the parts of two descriptions of a tree that differ.
func difference(have, want map[string]string) string {
	var out []string
	for _, p := range slices.Sorted(maps.Keys(have)) {
		if want[p] != have[p] {
			out = append(out, fmt.Sprintf("%s: %s, want %s", p, have[p], want[p]))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if _, ok := have[p]; !ok {
			out = append(out, fmt.Sprintf("%s: missing, want %s", p, want[p]))
		}
	}
	return strings.Join(out, "\n")
}
