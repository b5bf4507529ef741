package policy

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
)

// world is a root, the directory that shows what it should hold, and the fronts.
type world struct {
	*testing.T
	r            *rand.Rand
	reg          *guard.Registry
	root, mirror string
	rules        rules
	fronts       []front
}

// front is one way to the root. Paths are below it.
type front struct {
	name string
	do   func(o *op) ([]string, error)
}

// op is one operation; of a list, the answer is the names.
type op struct {
	what string
	p, q string
}

var (
	bg  = context.Background()
	who = guard.Caller{Via: guard.ViaFiles}
)

// host does an operation by system calls below a directory.
func host(dir string) func(o *op) ([]string, error) {
	return func(o *op) ([]string, error) {
		p, q := filepath.Join(dir, o.p), filepath.Join(dir, o.q)
		switch o.what {
		case "read":
			_, err := os.ReadFile(p)
			return nil, err
		case "stat":
			return nil, unix.Lstat(p, &unix.Stat_t{})
		case "list":
			list, err := os.ReadDir(p)
			return entryNames(list), err
		case "write":
			return nil, os.WriteFile(p, []byte(o.p), 0o644)
		case "mkdir":
			return nil, unix.Mkdir(p, 0o755)
		case "unlink":
			return nil, unix.Unlink(p)
		case "rmdir":
			return nil, unix.Rmdir(p)
		case "rename":
			return nil, unix.Rename(p, q)
		case "exchange":
			return nil, unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, q, unix.RENAME_EXCHANGE)
		case "link":
			return nil, unix.Link(p, q)
		case "chmod":
			return nil, unix.Chmod(p, 0o755)
		}
		return nil, errors.ErrUnsupported
	}
}

func entryNames(list []fs.DirEntry) (out []string) {
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func path(rel string) guard.Path {
	p, err := guard.NewPath("r", rel)
	if err != nil {
		panic(err)
	}
	return p
}

func at(rel string) (vfs.At, string) {
	dir, base := path(rel).Split()
	return vfs.At{Path: dir}, base
}

// calls does an operation by the tree's system calls.
func calls(t *vfs.Tree) func(o *op) ([]string, error) {
	return func(o *op) ([]string, error) {
		dir, base := at(o.p)
		dir2, base2 := at(o.q)
		switch o.what {
		case "read":
			f, _, err := t.Open(bg, who, vfs.At{Path: path(o.p)}, unix.O_RDONLY)
			if err == nil {
				f.Close()
			}
			return nil, err
		case "stat":
			_, err := t.Lookup(bg, who, dir, base)
			return nil, err
		case "list":
			return list(t, o.p)
		case "write":
			f, _, _, err := t.Create(bg, who, dir, base, unix.O_WRONLY, 0o644)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			_, err = f.WriteAt(bg, who, [][]byte{[]byte(o.p)}, 0, vfs.Writing{})
			return nil, err
		case "mkdir":
			_, err := t.Mkdir(bg, who, dir, base, 0o755)
			return nil, err
		case "unlink":
			return nil, t.Unlink(bg, who, dir, base)
		case "rmdir":
			return nil, t.Rmdir(bg, who, dir, base)
		case "rename":
			return nil, t.Rename(bg, who, dir, base, dir2, base2, 0)
		case "exchange":
			return nil, t.Rename(bg, who, dir, base, dir2, base2, vfs.RenameExchange)
		case "link":
			_, err := t.Link(bg, who, vfs.At{Path: path(o.p)}, nil, dir2, base2)
			return nil, err
		case "chmod":
			mode := uint32(0o755)
			_, err := t.Setattr(bg, who, vfs.At{Path: path(o.p)}, nil, vfs.Attrs{Mode: &mode})
			return nil, err
		}
		return nil, errors.ErrUnsupported
	}
}

func list(t *vfs.Tree, rel string) (out []string, err error) {
	d, err := t.Opendir(bg, who, vfs.At{Path: path(rel)})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(bg, who, vfs.At{Path: path(rel)})
		if err != nil || len(entries) == 0 {
			slices.Sort(out)
			return out, err
		}
		for _, e := range entries {
			if e.Name != "." && e.Name != ".." {
				out = append(out, e.Name)
			}
		}
	}
}

// whole does an operation as the broker's methods do.
func whole(t *vfs.Tree) func(o *op) ([]string, error) {
	tree := calls(t)
	return func(o *op) ([]string, error) {
		switch o.what {
		case "read":
			_, _, err := t.ReadChunk(bg, who, path(o.p), 0, 10, "", func(int64) error { return nil })
			return nil, err
		case "stat":
			_, _, err := t.Stat(bg, who, path(o.p))
			return nil, err
		case "list":
			page, err := t.List(bg, who, path(o.p), vfs.ListOptions{Hidden: true})
			var out []string
			for _, e := range page.Entries {
				out = append(out, e.Name)
			}
			slices.Sort(out)
			return out, err
		case "write":
			_, err := t.Replace(bg, who, vfs.At{Path: path(o.p)}, strings.NewReader(o.p), vfs.IfMatch{Follow: true, NoDurable: true, Mode: 0o644})
			return nil, err
		case "mkdir":
			_, err := t.MkdirPath(bg, who, path(o.p), 0o755)
			return nil, err
		case "rename":
			return nil, t.RenamePath(bg, who, path(o.p), path(o.q), true, "")
		}
		return tree(o)
	}
}

func newWorld(t *testing.T, seed uint64, level mount.Level, all bool) *world {
	w := &world{T: t, r: rand.New(rand.NewPCG(seed, 3)), root: t.TempDir(), mirror: t.TempDir()}
	w.reg = guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	_, err := w.reg.Grant(bg, guard.Grant{Root: "r", Dir: w.root, Origin: "test",
		Policy: guard.Policy{Rights: guard.ReadWrite, Patterns: guard.Patterns{NoDefaults: true}}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := mount.New(w.reg, mount.Options{Point: t.TempDir(), Level: level})
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
	w.fronts = []front{{"mount", host(filepath.Join(m.Point(), "r"))}}
	if all {
		w.fronts = append(w.fronts, front{"tree", calls(m.Tree())}, front{"whole", whole(m.Tree())})
	}
	return w
}

var words = []string{"a", "b", "ab", "c.d", "x1", "x2"}

func (w *world) path() string {
	var list []string
	for range 1 + w.r.IntN(3) {
		list = append(list, words[w.r.IntN(len(words))])
	}
	return strings.Join(list, "/")
}

func (w *world) pattern() string {
	parts := []string{"a", "b", "ab", "x*", "*b", "*.d", "x?"}
	var list []string
	for range 1 + w.r.IntN(2) {
		if w.r.IntN(4) == 0 {
			list = append(list, "**")
		}
		list = append(list, parts[w.r.IntN(len(parts))])
	}
	s := strings.Join(list, "/")
	for _, form := range []string{"/", "!"} {
		if w.r.IntN(5) == 0 {
			s = form + s
		}
	}
	if w.r.IntN(5) == 0 {
		s += "/"
	}
	return s
}

// repolicy puts other patterns in force.
func (w *world) repolicy() {
	some := func() (out []string) {
		for range w.r.IntN(3) {
			out = append(out, w.pattern())
		}
		return out
	}
	w.rules = rules{some(), some(), some()}
	err := w.reg.SetPatterns(bg, "r", guard.Patterns{NoDefaults: true, Hide: guard.Texts(w.rules.hide...),
		Deny: guard.Texts(w.rules.deny...), Protect: guard.Texts(w.rules.protect...)})
	if err != nil {
		w.Fatal(err)
	}
}

// isDir reports what lies at a path, by the mirror.
func (w *world) isDir(rel string) (dir, exists bool) {
	info, err := os.Lstat(filepath.Join(w.mirror, rel))
	return err == nil && info.IsDir(), err == nil
}

// refused is what the model says of an operation.
func (w *world) refused(o *op) bool {
	pDir, pThere := w.isDir(o.p)
	v := w.rules.verdict(o.p, pDir)
	switch o.what {
	case "stat":
		return v == hide || w.rules.within(filepath.Dir("/" + o.p)[1:]) != none
	case "read", "list":
		return v >= deny
	case "mkdir":
		return w.rules.verdict(o.p, true) != none || pThere && v != none
	case "write", "unlink", "rmdir", "chmod":
		return v != none
	}
	qDir, qThere := w.isDir(o.q)
	if !pThere || v != none || w.rules.verdict(o.q, pDir) != none || qThere && w.rules.verdict(o.q, qDir) != none {
		return true
	}
	switch o.what {
	case "rename":
		return w.moved(o.p, o.q)
	case "exchange":
		return !qThere || w.rules.verdict(o.p, qDir) != none || w.moved(o.p, o.q) || w.moved(o.q, o.p)
	}
	return false
}

// moved reports whether a pattern is about something in a directory, where it is
// or where it would be.
func (w *world) moved(p, q string) (matched bool) {
	base := filepath.Join(w.mirror, p)
	_ = filepath.WalkDir(base, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == base {
			return nil
		}
		rel := at[len(base):]
		matched = matched || w.rules.verdict(p+rel, d.IsDir()) != none || w.rules.verdict(q+rel, d.IsDir()) != none
		return nil
	})
	return matched
}

func (w *world) step(seed uint64, n int) {
	// No links: of a file with two names the kernel does not say which was used,
	// so a mount judges by either, and either could have been used. The
	// conformance suite has them.
	kinds := []string{"read", "stat", "list", "write", "write", "mkdir", "mkdir", "unlink", "rmdir", "rename", "rename", "exchange", "chmod"}
	o := &op{what: kinds[w.r.IntN(len(kinds))], p: w.path(), q: w.path()}
	if o.p == o.q {
		return
	}
	f := w.fronts[w.r.IntN(len(w.fronts))]
	refused := w.refused(o)
	got, err := f.do(o)
	// The kernel says that a file was closed after close(2) has returned; until
	// then the other fronts hold it for open.
	for range 2000 {
		if names.Reason(err) != names.Locked {
			break
		}
		time.Sleep(time.Millisecond)
		got, err = f.do(o)
	}
	say := func(format string, args ...any) {
		w.Helper()
		w.Errorf("seed %d step %d: %s: %s %s %s, rules %+v", seed, n, f.name, o.what, o.p, o.q, w.rules)
		w.Fatalf(format, args...)
	}
	if refused {
		if err == nil && !w.oneFile(o) {
			say("succeeded; the model refuses it")
		}
		return
	}
	want, bare := host(w.mirror)(o)
	if (err == nil) != (bare == nil) {
		say("%v; without a policy %v", err, bare)
	}
	// What is to be entered is judged as a directory, before it is looked for.
	asDir := o.what == "list" && w.rules.verdict(o.p, true) >= deny || o.what == "write" && w.rules.verdict(o.p, false) != none
	if names.Errno(err) == syscall.EACCES && !asDir {
		say("refused (%v); the model does not, and the system says %v", err, bare)
	}
	if o.what == "list" && err == nil {
		want = slices.DeleteFunc(want, func(name string) bool {
			rel := o.p + "/" + name
			dir, _ := w.isDir(rel)
			return w.rules.verdict(rel, dir) == hide
		})
		if !slices.Equal(got, want) {
			say("names %q, want %q", got, want)
		}
	}
}

// oneFile reports a rename between two names of one file, which the kernel
// answers by itself: it does nothing, rename(2).
func (w *world) oneFile(o *op) bool {
	a, err := os.Lstat(filepath.Join(w.mirror, o.p))
	b, err2 := os.Lstat(filepath.Join(w.mirror, o.q))
	return o.what == "rename" && err == nil && err2 == nil && os.SameFile(a, b)
}

// same compares the root with the mirror.
func (w *world) same(seed uint64) {
	show := func(dir string) (out []string) {
		_ = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
			if err == nil {
				out = append(out, d.Type().String()+at[len(dir):])
			}
			return nil
		})
		return out
	}
	if a, b := show(w.root), show(w.mirror); !slices.Equal(a, b) {
		w.Fatalf("seed %d: the root holds %q, and should %q", seed, a, b)
	}
}

// Random trees, policies and operations through a mount, the tree and what the
// broker's methods call: what the slow model refuses is refused, and everything
// else is as without a policy. Patterns change meanwhile. R110, R162.
func TestAgainstModel(t *testing.T) {
	if err := mount.CheckFUSE(); err != nil {
		t.Skip(err)
	}
	steps := 2000
	if os.Getenv("ROOTSFS_SOAK") != "" {
		steps = 100_000
	}
	for _, c := range []struct {
		name  string
		level mount.Level
		all   bool
	}{
		{"strict, all fronts", mount.Strict, true},
		// With what the kernel keeps; other fronts are like the host to it,
		// whose changes it learns of a moment later.
		{"audit, mount", mount.Audit, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := rand.Uint64()
			w := newWorld(t, seed, c.level, c.all)
			for n := range steps {
				if n%60 == 0 {
					w.repolicy()
				}
				w.step(seed, n)
				if n%200 == 199 {
					w.same(seed)
				}
			}
		})
	}
}
