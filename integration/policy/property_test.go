package policy

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
)

// world is a root, a mirror directory with the contents that the root should have, and the fronts
// of the root.
type world struct {
	*testing.T
	r            *rand.Rand
	reg          *guard.Registry
	root, mirror string
	rules        rules
	fronts       []front
	tallies      map[string]*tally
}

// tally counts the results of operations through one front.
type tally struct{ succeeded, refused, failed int }

// count adds the result of one operation to a front's tally.
func (w *world) count(front string, refused bool, err error) {
	t := w.tallies[front]
	if t == nil {
		t = &tally{}
		w.tallies[front] = t
	}
	switch {
	case refused:
		t.refused++
	case err == nil:
		t.succeeded++
	default:
		t.failed++ // fails without a policy, too
	}
}

// report logs the numbers of operations, and checks that some operations succeeded and some were
// refused on each front.
func (w *world) report() {
	all := 0
	for _, f := range w.fronts {
		t := w.tallies[f.name]
		if t == nil || t.succeeded == 0 || t.refused == 0 {
			w.Errorf("%s: no operation succeeded, or none was refused: %+v", f.name, t)
			continue
		}
		all += t.succeeded + t.refused + t.failed
		w.Logf("%s: %d done, %d refused, %d failed as without a policy", f.name, t.succeeded, t.refused, t.failed)
	}
	w.Logf("%d operations, no disagreement", all)
}

func newWorld(t *testing.T, seed uint64, level mount.Level, all bool) *world {
	w := &world{T: t, r: rand.New(rand.NewPCG(seed, 3)), root: t.TempDir(), mirror: t.TempDir(), tallies: map[string]*tally{}}
	w.reg = guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	_, err := w.reg.Grant(bg, guard.Grant{Root: "r", Dir: names.Foreign(w.root), Origin: "test",
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
	w.fronts = []front{{"mount", allKinds, hostCalls(filepath.Join(m.Point(), "r"))}}
	if all {
		w.fronts = append(w.fronts, front{"tree", treeKinds, treeCalls(m.Tree())}, front{"tree by paths", allKinds, pathCalls(m.Tree())},
			front{"broker", fileKinds, brokerCalls(connect(t, w.reg, m.Tree(), "server"))})
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

// existing returns a random path, in most cases one of an existing file or directory.
func (w *world) existing() string {
	paths := []string{w.path()}
	_ = filepath.WalkDir(w.mirror, func(at string, _ fs.DirEntry, err error) error {
		if err == nil && at != w.mirror {
			paths = append(paths, at[len(w.mirror)+1:])
		}
		return nil
	})
	return paths[w.r.IntN(len(paths))]
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

// changePatterns gives the root and the model new random patterns.
func (w *world) changePatterns() {
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

// isDir reports whether there is a directory at a path in the mirror, and whether there is
// anything.
func (w *world) isDir(rel string) (dir, exists bool) {
	info, err := os.Lstat(filepath.Join(w.mirror, rel))
	return err == nil && info.IsDir(), err == nil
}

// refused reports whether the model refuses an operation.
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
	case "write", "unlink", "rmdir", "delete", "chmod":
		return v != none
	case "purge":
		return v != none || len(w.matched(o.p)) > 0
	}
	qDir, qThere := w.isDir(o.q)
	if o.what == "copy" {
		return v >= deny || w.rules.verdict(o.q, false) != none || qThere && w.rules.verdict(o.q, qDir) != none
	}
	if !pThere || v != none || w.rules.verdict(o.q, pDir) != none || qThere && w.rules.verdict(o.q, qDir) != none {
		return true
	}
	switch o.what {
	case "rename":
		return w.movesMatched(o.p, o.q)
	case "exchange":
		return !qThere || w.rules.verdict(o.p, qDir) != none || w.movesMatched(o.p, o.q) || w.movesMatched(o.q, o.p)
	}
	return false
}

// matched returns the paths that a pattern is about, among p and all paths below p.
func (w *world) matched(p string) (list []string) {
	base := filepath.Join(w.mirror, p)
	_ = filepath.WalkDir(base, func(at string, d fs.DirEntry, err error) error {
		if rel := p + at[len(base):]; err == nil && w.rules.verdict(rel, d.IsDir()) != none {
			list = append(list, rel)
		}
		return nil
	})
	return list
}

// followPurge removes from the mirror the files that the purge of p removed from the root before
// the purge was refused.
func (w *world) followPurge(p string) {
	_ = filepath.WalkDir(filepath.Join(w.mirror, p), func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if _, err := os.Lstat(w.root + at[len(w.mirror):]); err == nil {
			return nil
		}
		if err := os.RemoveAll(at); err != nil {
			w.Fatal(err)
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}

// movesMatched reports whether a move of p to q moves a file below p that a pattern is about, at
// its path before or after the move.
func (w *world) movesMatched(p, q string) (matched bool) {
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
	// There are no hard links here: the kernel does not say which of two names a program used,
	// so a mount may judge by either name. The conformance suite tests hard links.
	f := w.fronts[w.r.IntN(len(w.fronts))]
	o := &op{what: f.kinds[w.r.IntN(len(f.kinds))], p: w.path(), q: w.path()}
	if w.r.IntN(2) == 0 {
		o.p = w.existing()
	}
	for o.p == o.q {
		o.q = w.path()
	}
	refused, matched := w.refused(o), w.matched(o.p)
	got, err := f.do(o)
	// The kernel may report the close of a file to the mount after close(2) has returned. Until
	// this report the file counts as open for the other fronts.
	if names.Reason(err) == names.Locked {
		testkit.Eventually(func() bool {
			got, err = f.do(o)
			return names.Reason(err) != names.Locked
		})
	}
	fatal := func(format string, args ...any) {
		w.Helper()
		w.Errorf("seed %d step %d: %s: %s %s %s, rules %+v", seed, n, f.name, o.what, o.p, o.q, w.rules)
		w.Fatalf(format, args...)
	}
	w.count(f.name, refused, err)
	if refused {
		if err == nil && !w.sameFile(o) {
			fatal("succeeded; the model refuses it")
		}
		for _, rel := range matched {
			if _, err := os.Lstat(filepath.Join(w.root, rel)); err != nil {
				fatal("moved or removed %s, which a pattern is about: %v", rel, err)
			}
		}
		if o.what == "purge" {
			w.followPurge(o.p)
		}
		return
	}
	want, plainErr := hostCalls(w.mirror)(o)
	if (err == nil) != (plainErr == nil) {
		fatal("%v; without a policy %v", err, plainErr)
	}
	// A list judges a name as a directory's, and a write as a file's, before the type is known.
	refusedByAssumedType := o.what == "list" && w.rules.verdict(o.p, true) >= deny || o.what == "write" && w.rules.verdict(o.p, false) != none
	if names.Errno(err) == syscall.EACCES && !refusedByAssumedType {
		fatal("refused (%v); the model does not refuse it, and without a policy the result is %v", err, plainErr)
	}
	if o.what == "list" && err == nil {
		want = slices.DeleteFunc(want, func(name string) bool {
			rel := o.p + "/" + name
			dir, _ := w.isDir(rel)
			return w.rules.verdict(rel, dir) == hide
		})
		if !slices.Equal(got, want) {
			fatal("names %q, want %q", got, want)
		}
	}
}

// sameFile reports whether o is a rename between two names of one file. rename(2) does nothing
// then, and the kernel sends no request for it.
func (w *world) sameFile(o *op) bool {
	a, err := os.Lstat(filepath.Join(w.mirror, o.p))
	b, err2 := os.Lstat(filepath.Join(w.mirror, o.q))
	return o.what == "rename" && err == nil && err2 == nil && os.SameFile(a, b)
}

// compare checks that the root has the same directories and files as the mirror.
func (w *world) compare(seed uint64) {
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
		w.Fatalf("seed %d: the root has %q, and should have %q", seed, a, b)
	}
}

// R110, R162: random operations under random patterns go through up to four fronts: a mount, the
// tree's methods for system calls, the tree's methods that the broker calls, and files/* over an
// MCP session. An operation that the slow model refuses fails. Any other operation succeeds or
// fails as it does without a policy, except that lists omit hidden names. The patterns change
// meanwhile.
func TestAgainstModel(t *testing.T) {
	needFUSE(t)
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
		// This mount uses the kernel's cache, and the kernel learns of changes by other fronts a
		// moment later. So this case has no other fronts.
		{"audit, mount", mount.Audit, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := rand.Uint64()
			w := newWorld(t, seed, c.level, c.all)
			for n := range steps {
				if n%60 == 0 {
					w.changePatterns()
				}
				w.step(seed, n)
				if n%200 == 199 {
					w.compare(seed)
				}
			}
			w.report()
		})
	}
}
