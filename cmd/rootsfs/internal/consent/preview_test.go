package consent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// The preview of a question follows no link, enters no directory that the rules withhold, and ends
// when it has looked at as many names as it may, or when its context has ended.
func TestLook(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a/b", ".ssh/deep", "empty"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		for _, d := range []string{"a/b", ".ssh/deep"} {
			if err := os.WriteFile(filepath.Join(dir, d, fmt.Sprint("f", i)), []byte("xy"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for link, to := range map[string]string{"up": "..", "a/self": ".", "out": "/"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	patterns := guard.Patterns{Deny: guard.Texts("empty/")}
	rules, err := patterns.Preview()
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		what     string
		ctx      context.Context
		left     int
		at       string
		complete bool
		files    int64
		dirs     int64
		withheld int64
	}{
		{"all of it", t.Context(), 1000, dir, true, 23, 2, 2},
		{"a file", t.Context(), 1000, dir + "/a/b/f1", true, 1, 0, 0},
		{"a missing path", t.Context(), 1000, dir + "/gone", false, 0, 0, 0},
		{"a link", t.Context(), 1000, dir + "/up", true, 1, 0, 0},
		{"a context that has ended", ended, 1000, dir, false, 0, 0, 0},
	} {
		l := &look{ctx: tt.ctx, rules: rules, left: tt.left, start: time.Now()}
		l.out.Complete = true
		l.run(tt.at)
		if a := l.answer(); a.Complete != tt.complete || a.Files != tt.files || a.Dirs != tt.dirs || a.Withheld != tt.withheld || int(a.Withheld) != len(a.Examples) {
			t.Errorf("%s: %+v", tt.what, a)
		}
	}
	few := &look{ctx: t.Context(), rules: rules, left: 6, start: time.Now()}
	few.out.Complete = true
	few.run(dir)
	if a := few.answer(); a.Complete || a.Files+a.Dirs+a.Withheld > 6 || a.Files+a.Dirs+a.Withheld == 0 {
		t.Errorf("six names: %+v", a)
	}
	if _, err := (&guard.Patterns{Hide: guard.Texts("[")}).Preview(); err == nil {
		t.Error("an invalid pattern is accepted")
	}
}

// The preview of a tree is not complete if a directory could not be read to its end.
func TestLookAtRemovedDirectory(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "at")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, isRemoved := range []bool{false, true} {
		top, err := unix.Open(at, unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(top)
		if isRemoved {
			if err := os.Remove(at); err != nil {
				t.Fatal(err)
			}
		}
		l := newLook(t)
		l.walk(top)
		if a := l.answer(); a.Complete == isRemoved {
			t.Errorf("removed: %v: %+v", isRemoved, a)
		}
	}
}

// The preview does not follow a link that has replaced a directory after the directory was found, at
// the end of the path or on the way.
func TestLookFollowsNoNewLink(t *testing.T) {
	at := t.TempDir()
	if err := os.MkdirAll(filepath.Join(at, "secret/in"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("secret", filepath.Join(at, "link")); err != nil {
		t.Fatal(err)
	}
	top, err := unix.Open(at, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(top)
	for rel, want := range map[string]bool{"secret": true, "secret/in": true, "link": false, "link/in": false} {
		l := newLook(t)
		l.readDir(top, dir{rel, l.rules.At("")})
		if a := l.answer(); a.Complete != want || !want && a.Dirs > 0 {
			t.Errorf("%s: %+v", rel, a)
		}
	}
}

// newLook returns a look with the built-in rules.
func newLook(t *testing.T) *look {
	t.Helper()
	rules, err := (&guard.Patterns{}).Preview()
	if err != nil {
		t.Fatal(err)
	}
	l := &look{ctx: t.Context(), rules: rules, left: 1000, start: time.Now()}
	l.out.Complete = true
	return l
}

// The preview does not hold a descriptor for each level of a deep tree, because the asker may have
// made the tree.
func TestLookHoldsFewDescriptors(t *testing.T) {
	const deep = 1000
	dir := t.TempDir()
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range deep {
		if err := at.Mkdir("d", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := at.Mkdir("e", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := at.OpenRoot("d")
		if err != nil {
			t.Fatal(err)
		}
		at.Close()
		at = next
	}
	at.Close()
	rules, err := (&guard.Patterns{}).Preview()
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = uint64(len(open) + 30)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	l := &look{ctx: t.Context(), rules: rules, left: 10 * deep, start: time.Now()}
	l.out.Complete = true
	l.run(dir)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if a := l.answer(); !a.Complete || a.Dirs != 2*deep {
		t.Errorf("with %d descriptors: %+v", few.Cur, a)
	}
}
