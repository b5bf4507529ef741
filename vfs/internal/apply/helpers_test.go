package apply_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/apply"
)

// scene is a staged root, its programs and its owner.
type scene struct {
	*testing.T
	source, stages, store string
	policy                guard.Policy
	deadline              time.Duration // guard.Config.Deadline: how long the end of the root waits
	reg                   *guard.Registry
	tree                  *vfs.Tree
	who                   guard.Caller
}

// newScene grants a staged root. Each file of its source has its own path as contents. A path that
// ends in a slash makes a directory.
func newScene(t *testing.T, files ...string) *scene {
	t.Helper()
	top := t.TempDir()
	s := &scene{T: t, source: filepath.Join(top, "source"), stages: filepath.Join(top, "stages"), who: guard.Caller{Via: guard.ViaFUSE, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}}
	s.policy = guard.Policy{Rights: guard.ReadWrite | guard.Stage}
	s.must(os.Mkdir(s.source, 0o755))
	for _, f := range files {
		if dir, ok := strings.CutSuffix(f, "/"); ok {
			s.must(os.MkdirAll(s.at(dir), 0o755))
			continue
		}
		s.write(f, f)
	}
	s.start()
	t.Cleanup(func() { s.end() })
	return s
}

// start grants the root with the changes of its store. end revokes the root.
func (s *scene) start() {
	s.Helper()
	s.reg = guard.NewRegistry(guard.Config{Opener: vfs.StagingOpener(s.stages, "test"), Deadline: s.deadline})
	got, err := s.reg.Grant(s.Context(), guard.Grant{Root: "r", Dir: names.Foreign(s.source), Origin: "test", Policy: s.policy, Store: s.store})
	s.must(err)
	s.store, s.tree = got.Store, vfs.New(s.reg)
}

func (s *scene) end() {
	if _, err := s.reg.Revoke(s.T.Context(), "r"); err == nil {
		s.reg.AwaitStages(s.T.Context())
	}
}

// restart revokes the root, and grants it again with the changes of its store.
func (s *scene) restart() {
	s.Helper()
	s.end()
	if _, err := os.Stat(s.store); err != nil {
		s.store = "" // the store was empty, so the end of the root removed it
	}
	s.start()
}

func (s *scene) must(errs ...error) {
	s.Helper()
	testkit.Must(s, errs...)
}

// The owner.

func (s *scene) at(rel string) string { return filepath.Join(s.source, rel) }

func (s *scene) write(rel, text string) {
	s.Helper()
	s.must(os.MkdirAll(filepath.Dir(s.at(rel)), 0o755), os.WriteFile(s.at(rel), []byte(text), 0o644))
}

// replace writes as editors do: to another file, which then gets the name.
func (s *scene) replace(rel, text string) {
	s.Helper()
	s.write(rel+"~", text)
	s.must(os.Rename(s.at(rel+"~"), s.at(rel)))
}

// wantSource compares the source with "path=contents" for each file, "path" for a file whose
// contents are its path, "path/" for each directory and "path->target" for each link. It ignores
// the trash.
func (s *scene) wantSource(want ...string) {
	s.Helper()
	var have []string
	s.must(filepath.WalkDir(s.source, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil || path == s.source:
			return err
		case d.Name() == rules.TrashName:
			return filepath.SkipDir
		}
		rel := path[len(s.source)+1:]
		switch {
		case d.IsDir():
			rel += "/"
		case d.Type() == os.ModeSymlink:
			target, _ := os.Readlink(path)
			rel += "->" + target
		default:
			b, _ := os.ReadFile(path)
			if string(b) != rel {
				rel += "=" + string(b)
			}
		}
		have = append(have, rel)
		return nil
	}))
	if strings.Join(have, " ") != strings.Join(want, " ") {
		s.Errorf("the source has\n\t%s, want\n\t%s", strings.Join(have, " "), strings.Join(want, " "))
	}
}

// The programs.

func (s *scene) place(rel string) vfs.At {
	s.Helper()
	p, err := guard.NewPath("r", rel)
	s.must(err)
	return vfs.At{Path: p}
}

func (s *scene) split(rel string) (vfs.At, string) {
	s.Helper()
	dir, name := filepath.Split(rel)
	return s.place(strings.TrimSuffix(dir, "/")), name
}

func (s *scene) put(rel, text string) {
	s.Helper()
	dir, name := s.split(rel)
	f, _, _, err := s.tree.Create(s.Context(), s.who, dir, name, unix.O_WRONLY|unix.O_TRUNC, 0o644)
	s.must(err)
	defer f.Close()
	_, err = f.WriteAt(s.Context(), s.who, [][]byte{[]byte(text)}, 0, vfs.WriteAtOptions{})
	s.must(err)
}

func (s *scene) mkdir(rel string) {
	s.Helper()
	dir, name := s.split(rel)
	_, err := s.tree.Mkdir(s.Context(), s.who, dir, name, 0o755)
	s.must(err)
}

func (s *scene) link(rel, target string) {
	s.Helper()
	dir, name := s.split(rel)
	_, err := s.tree.Symlink(s.Context(), s.who, target, dir, name)
	s.must(err)
}

func (s *scene) rm(list ...string) {
	s.Helper()
	for _, rel := range list {
		dir, name := s.split(rel)
		s.must(s.tree.Unlink(s.Context(), s.who, dir, name))
	}
}

func (s *scene) rmdir(rel string) {
	s.Helper()
	dir, name := s.split(rel)
	s.must(s.tree.Rmdir(s.Context(), s.who, dir, name))
}

func (s *scene) mv(from, to string) {
	s.Helper()
	d1, n1 := s.split(from)
	d2, n2 := s.split(to)
	s.must(s.tree.Rename(s.Context(), s.who, d1, n1, d2, n2, 0))
}

func (s *scene) chmod(rel string, mode uint32) {
	s.Helper()
	_, err := s.tree.Setattr(s.Context(), s.who, s.place(rel), nil, vfs.Attrs{Mode: &mode})
	s.must(err)
}

// The owner's commands.

func words(list []vfs.StageChange) string {
	var out []string
	for _, c := range list {
		out = append(out, string(rune(c.Class))+" "+c.Path.Raw())
	}
	return strings.Join(out, ", ")
}

func (s *scene) wantChanges(want string) {
	s.Helper()
	list, err := s.tree.StageChanges(s.Context(), "r", nil)
	s.must(err)
	if words(list) != want {
		s.Errorf("changes are %q, want %q: %+v", words(list), want, whys(list))
	}
}

func whys(list []vfs.StageChange) []string {
	var out []string
	for _, c := range list {
		out = append(out, c.Why.Raw())
	}
	return out
}

func (s *scene) apply(a vfs.StageApply, done, left string) {
	s.Helper()
	r, err := s.tree.StageApply(s.Context(), "r", a)
	s.must(err)
	if words(r.Done) != done || words(r.Left) != left {
		s.Errorf("applied %q and left %q, want %q and %q: %q", words(r.Done), words(r.Left), done, left, whys(r.Left))
	}
}

// runAt makes f run once at a point of an apply. An error of f ends the apply there.
func (s *scene) runAt(point string, f func(rel string) error) {
	done := false
	apply.AtStep = func(at, rel string) error {
		if at != point || done {
			return nil
		}
		done = true
		return f(rel)
	}
	s.Cleanup(func() { apply.AtStep = nil })
}

var errKilled = errors.New("killed by the test")
