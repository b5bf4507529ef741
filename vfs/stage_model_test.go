package vfs_test

import (
	"context"
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
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// stageScene is a staged root beside a plain directory, the model, in which the same is done.
type stageScene struct {
	*testing.T
	seed               uint64
	rnd                *rand.Rand
	source, model      string
	stages, store      string
	reg                *guard.Registry
	tree               *vfs.Tree
	who                guard.Caller
	contents           int
	log                []string
	open               []*bothOpen
	crashes, conflicts int
}

// bothOpen is a file that is open in the staged root and in the model.
type bothOpen struct {
	f     *vfs.File
	model *os.File
	path  string
}

func newStageScene(t *testing.T, seed uint64) *stageScene {
	t.Helper()
	s := &stageScene{T: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), who: guard.Caller{Via: guard.ViaFUSE, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}}
	top := t.TempDir()
	s.source, s.model, s.stages = filepath.Join(top, "source"), filepath.Join(top, "model"), filepath.Join(top, "stages")
	for _, dir := range []string{s.source, s.model} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
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
		s.store = "" // it was empty
	}
	s.reg = guard.NewRegistry(guard.Config{Opener: vfs.StagingOpener(s.stages, "test")})
	got, err := s.reg.Grant(s.Context(), guard.Grant{Root: "r", Dir: s.source, Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite | guard.Stage}, Store: s.store})
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

// stageOp is one operation, on the staged root and on the model.
type stageOp struct {
	name   string
	staged func(s *stageScene, a, b, text string) error
	model  func(a, b, text string) error
}

var stageOps = []stageOp{
	{"create", func(s *stageScene, a, _, text string) error {
		dir, name := s.split(a)
		f, _, _, err := s.tree.Create(s.Context(), s.who, dir, name, unix.O_WRONLY|unix.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt(s.Context(), s.who, [][]byte{[]byte(text)}, 0, vfs.Writing{})
		return err
	}, func(a, _, text string) error {
		f, err := os.OpenFile(a, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(text)
		return err
	}},
	{"write", func(s *stageScene, a, _, text string) error {
		return s.write(a, text, unix.O_WRONLY|unix.O_TRUNC)
	}, func(a, _, text string) error { return writeModel(a, text, os.O_WRONLY|os.O_TRUNC) }},
	{"append", func(s *stageScene, a, _, text string) error {
		return s.write(a, text, unix.O_WRONLY|unix.O_APPEND)
	}, func(a, _, text string) error { return writeModel(a, text, os.O_WRONLY|os.O_APPEND) }},
	{"unlink", func(s *stageScene, a, _, _ string) error {
		dir, name := s.split(a)
		return s.tree.Unlink(s.Context(), s.who, dir, name)
	}, func(a, _, _ string) error { return unix.Unlink(a) }},
	{"mkdir", func(s *stageScene, a, _, _ string) error {
		dir, name := s.split(a)
		_, err := s.tree.Mkdir(s.Context(), s.who, dir, name, 0o755)
		return err
	}, func(a, _, _ string) error { return unix.Mkdir(a, 0o755) }},
	{"rmdir", func(s *stageScene, a, _, _ string) error {
		dir, name := s.split(a)
		return s.tree.Rmdir(s.Context(), s.who, dir, name)
	}, func(a, _, _ string) error { return unix.Rmdir(a) }},
	{"rename", func(s *stageScene, a, b, _ string) error { return s.rename(a, b, 0) },
		func(a, b, _ string) error { return unix.Rename(a, b) }},
	{"rename", func(s *stageScene, a, b, _ string) error { return s.rename(a, b, 0) },
		func(a, b, _ string) error { return unix.Rename(a, b) }},
	{"renamenew", func(s *stageScene, a, b, _ string) error { return s.rename(a, b, unix.RENAME_NOREPLACE) },
		func(a, b, _ string) error {
			return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_NOREPLACE)
		}},
	{"exchange", func(s *stageScene, a, b, _ string) error { return s.rename(a, b, unix.RENAME_EXCHANGE) },
		func(a, b, _ string) error {
			return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
		}},
	{"link", func(s *stageScene, a, b, _ string) error {
		dir, name := s.split(b)
		_, err := s.tree.Link(s.Context(), s.who, s.at(a), nil, dir, name)
		return err
	}, func(a, b, _ string) error { return unix.Link(a, b) }},
	{"symlink", func(s *stageScene, a, _, text string) error {
		dir, name := s.split(a)
		_, err := s.tree.Symlink(s.Context(), s.who, "to-"+strings.TrimSpace(text), dir, name)
		return err
	}, func(a, _, text string) error { return unix.Symlink("to-"+strings.TrimSpace(text), a) }},
	{"chmod", func(s *stageScene, a, _, text string) error {
		mode := uint32(0o700 | len(text)%8)
		_, err := s.tree.Setattr(s.Context(), s.who, s.at(a), nil, vfs.Attrs{Mode: &mode})
		return err
	}, func(a, _, text string) error {
		return unix.Fchmodat(unix.AT_FDCWD, a, uint32(0o700|len(text)%8), unix.AT_SYMLINK_NOFOLLOW)
	}},
}

func (s *stageScene) write(a, text string, flags int) error {
	f, _, err := s.tree.Open(s.Context(), s.who, s.at(a), flags)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(s.Context(), s.who, [][]byte{[]byte(text)}, 0, vfs.Writing{})
	return err
}

func writeModel(a, text string, flags int) error {
	f, err := os.OpenFile(a, flags|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

func (s *stageScene) rename(a, b string, flags uint32) error {
	from, old := s.split(a)
	to, name := s.split(b)
	return s.tree.Rename(s.Context(), s.who, from, old, to, name, flags)
}

// errnoOf is what a program would get.
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

// seen is everything that is seen in a tree: type, mode, and contents or target by path.
func (s *stageScene) seen() map[string]string {
	s.Helper()
	out, ids := map[string]string{}, map[guard.Identity]string{}
	for cursor := ""; ; {
		page, err := s.tree.List(s.Context(), s.who, s.at("").Path, vfs.ListOptions{Recursive: true, Hidden: true, Cursor: cursor})
		if err != nil {
			s.fail("list: %v", err)
		}
		for _, e := range page.Entries {
			out[e.Path.Rel()] = s.describe(e.Path.Rel(), &e.Info)
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

// linksOf leaves out the links of directories, which a staged root does not count.
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

// stateOf is the state of a tree that must not change: contents, and what stat(2) tells but
// the access time.
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

// difference is what two descriptions of a tree do not share.
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

var errKilled = errors.New("killed by the test")

// step does one operation on both sides. With crash, the process may be killed in the middle.
func (s *stageScene) step(crash bool) {
	op := stageOps[s.rnd.IntN(len(stageOps))]
	a, b, text := s.path(), s.path(), s.text()
	s.log = append(s.log, fmt.Sprintf("%s %s %s %q", op.name, a, b, text))
	if crash && s.rnd.IntN(3) == 0 {
		s.stepKilled(op, a, b, text)
		return
	}
	got := errnoOf(op.staged(s, a, b, text))
	if errors.Is(got, unix.ELOOP) {
		return // links are not followed
	}
	want := errnoOf(op.model(filepath.Join(s.model, a), filepath.Join(s.model, b), text))
	twoPaths := slices.Contains([]string{"rename", "renamenew", "exchange", "link"}, op.name) // either can be at fault
	if (got == nil) != (want == nil) || got != nil && !twoPaths && !errors.Is(got, want) {
		s.fail("%s: %v, want %v", op.name, got, want)
	}
}

// stepKilled kills the process in the middle of the operation. Then what is seen is as before
// or as after.
func (s *stageScene) stepKilled(op stageOp, a, b, text string) {
	before, point, killed := s.seen(), s.rnd.IntN(4), false
	beneath.AtStep = func(string) error {
		if point--; point < 0 || killed {
			killed = true
			return errKilled
		}
		return nil
	}
	err := op.staged(s, a, b, text)
	beneath.AtStep = nil
	if killed && err == nil {
		s.fail("killed in the middle, and no error")
	}
	if killed {
		s.crashes++
		s.end()
		s.start()
		now := s.seen()
		if maps.Equal(now, before) {
			return
		}
		if err := op.model(filepath.Join(s.model, a), filepath.Join(s.model, b), text); err != nil || !maps.Equal(now, seenIn(s.T, s.model)) {
			s.fail("killed in the middle of it:\n%s", difference(now, before))
		}
		return
	}
	if errors.Is(err, unix.ELOOP) {
		return
	}
	if want := op.model(filepath.Join(s.model, a), filepath.Join(s.model, b), text); (err == nil) != (want == nil) {
		s.fail("%s: %v, want %v", op.name, err, want)
	}
}

// openBoth opens a file on both sides, and uses those that are open.
func (s *stageScene) useOpen() {
	if len(s.open) < 4 {
		path := s.path()
		flags := []int{os.O_RDONLY, os.O_RDONLY, os.O_RDWR}[s.rnd.IntN(3)]
		f, _, err := s.tree.Open(s.Context(), s.who, s.at(path), flags)
		m, merr := os.OpenFile(filepath.Join(s.model, path), flags|unix.O_NOFOLLOW, 0)
		var st os.FileInfo
		if merr == nil {
			if st, merr = m.Stat(); merr == nil && st.IsDir() {
				_, merr = m.Close(), unix.EISDIR
			}
		}
		if errors.Is(err, unix.ELOOP) {
			_ = m.Close()
			return
		}
		if (err == nil) != (merr == nil) {
			s.fail("open %s: %v, want %v", path, err, merr)
		}
		if err == nil {
			s.log = append(s.log, fmt.Sprintf("open %s %d", path, flags))
			s.open = append(s.open, &bothOpen{f, m, path})
		}
	}
	for i := 0; i < len(s.open); i++ {
		o := s.open[i]
		if s.rnd.IntN(6) == 0 {
			o.f.Close()
			_ = o.model.Close()
			s.open = slices.Delete(s.open, i, i+1)
			continue
		}
		if o.f.Writable() && s.rnd.IntN(3) == 0 {
			text, off := []byte(s.text()), int64(s.rnd.IntN(5))
			s.log = append(s.log, fmt.Sprintf("write to the open %s", o.path))
			_, err := o.f.WriteAt(s.Context(), s.who, [][]byte{text}, off, vfs.Writing{})
			_, merr := o.model.WriteAt(text, off)
			if err != nil || merr != nil {
				s.fail("write to the open %s: %v, %v", o.path, err, merr)
			}
		}
		have, want := make([]byte, 4096), make([]byte, 4096)
		n, err := o.f.ReadAt(s.Context(), s.who, have, 0)
		m, _ := o.model.ReadAt(want, 0)
		if err != nil || string(have[:n]) != string(want[:m]) {
			s.fail("the open %s has %q (%v), want %q", o.path, have[:n], err, want[:m])
		}
		info, err := o.f.Stat(context.Background(), s.who)
		if err != nil || info.ID() != o.f.ID() {
			s.fail("the open %s shows the identity %v (%v), want %v", o.path, info.ID(), err, o.f.ID())
		}
	}
}

// TestStageModel does the same in a staged root and in a plain directory. Errors, what is seen,
// and open files are equal after each operation; the source stays as it was; and whatever
// happens when the process is killed, an operation has taken effect or not.
func TestStageModel(t *testing.T) {
	runs, steps := uint64(2000), 50
	if testing.Short() {
		runs = 100
	}
	crashes := 0
	for seed := range runs {
		s := newStageScene(t, seed)
		before := stateOf(t, s.source)
		for range steps {
			s.step(seed%2 == 1)
			if have, want := s.seen(), seenIn(t, s.model); !maps.Equal(have, want) {
				s.fail("seen:\n%s", difference(have, want))
			}
			if seed%2 == 0 {
				s.useOpen()
			}
		}
		if now := stateOf(t, s.source); !maps.Equal(now, before) {
			s.fail("the source has changed:\n%s", difference(now, before))
		}
		s.end()
		crashes += s.crashes
	}
	t.Logf("%d runs of %d steps, %d crashes", runs, steps, crashes)
	if crashes == 0 {
		t.Error("nothing was killed")
	}
}
