package beneath

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// followsOthers reports whether the kernel follows another user's link in a sticky directory
// that everybody may write to.
func followsOthers(t *testing.T) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/fs/protected_symlinks")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b)) == "0"
}

// Trace and OpenRoot return every link that a path passes, together with the other users who can
// change the link. Both resolve the path to the same file. OpenRoot refuses a link that the kernel
// does not follow.
func TestLinksOfAPath(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make directories of others")
	}
	base := t.TempDir()
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	at := func(rel string) string { return filepath.Join(base, rel) }
	for _, d := range []struct {
		name     string
		mode     uint32
		uid, gid int
	}{
		{"mine", 0o755, 0, 0}, {"secret", 0o755, 0, 0}, {"secret/deep", 0o755, 0, 0}, {"theirs", 0o755, 4711, 4711},
		{"all", 0o777, 0, 0}, {"sticky", 0o1777, 0, 0}, {"group", 0o775, 0, 4711}, {"roots", 0o775, 0, 0},
	} {
		testkit.Must(t, os.Mkdir(at(d.name), 0o755))
		testkit.Must(t, os.Chown(at(d.name), d.uid, d.gid))
		testkit.Must(t, unix.Chmod(at(d.name), d.mode))
	}
	for _, dir := range []string{"mine", "theirs", "all", "sticky", "group", "roots"} {
		testkit.Must(t, os.Symlink(at("secret"), at(dir+"/l")))
	}
	testkit.Must(t, os.Symlink("../secret", at("mine/up")))
	testkit.Must(t, os.Symlink("../all/l/deep", at("mine/chain")))
	testkit.Must(t, os.Symlink(at("secret"), at("sticky/their")))
	testkit.Must(t, os.Lchown(at("sticky/their"), 4711, 4711))
	testkit.Must(t, os.Symlink("loop", at("mine/loop")))
	for _, c := range []struct {
		path, target string
		links        []string // Path: Others
	}{
		{"secret", "secret", nil},
		{"secret/../secret", "secret", nil},
		{"mine/l", "secret", []string{"mine/l: "}},
		{"mine/up/deep", "secret/deep", []string{"mine/up: "}},
		{"roots/l", "secret", []string{"roots/l: "}},
		{"theirs/l", "secret", []string{"theirs/l: user 4711"}},
		{"all/l/deep", "secret/deep", []string{"all/l: every user"}},
		{"sticky/l", "secret", []string{"sticky/l: "}},
		{"sticky/their", "secret", []string{"sticky/their: user 4711"}},
		{"group/l", "secret", []string{"group/l: group 4711"}},
		{"mine/chain", "secret/deep", []string{"mine/chain: ", "all/l: every user"}},
	} {
		resolved, links, err := Opener{}.Trace(at(c.path))
		testkit.Must(t, err)
		s, err := Opener{}.OpenRoot(at(c.path))
		if c.path == "sticky/their" && !followsOthers(t) {
			if !errors.Is(err, names.Permission) {
				t.Errorf("%s, which the kernel does not follow: %v", c.path, err)
			}
		} else {
			testkit.Must(t, err)
			opened := s.(*source).Links()
			if resolved != s.Resolved() || !slices.Equal(links, opened) {
				t.Errorf("%s is traced to %s by %v, and opened at %s by %v", c.path, resolved, links, s.Resolved(), opened)
			}
			testkit.Must(t, s.Close())
		}
		if resolved != at(c.target) {
			t.Errorf("%s leads to %s", c.path, resolved)
		}
		var got []string
		for _, l := range links {
			rel, err := filepath.Rel(base, l.Path)
			testkit.Must(t, err)
			got = append(got, rel+": "+l.Others)
		}
		if !slices.Equal(got, c.links) {
			t.Errorf("%s passes %q, want %q", c.path, got, c.links)
		}
	}
	if _, err := (Opener{}).OpenRoot(at("mine/loop")); err == nil {
		t.Error("a loop was opened")
	}
	if _, links, err := (Opener{}).Trace(at("all/l/none/at/all")); err != nil || len(links) != 1 {
		t.Errorf("a path that ends nowhere: %v, %v", links, err)
	}
}

// A directory of the path is exchanged for a link again and again. OpenRoot reports a link exactly
// if it opens the directory below the target of the link.
func TestLinksRace(t *testing.T) {
	base := t.TempDir()
	at := func(rel string) string { return filepath.Join(base, rel) }
	for _, d := range []string{"work/dir/end", "secret/end"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(at("secret"), at("work/link")); err != nil {
		t.Fatal(err)
	}
	var secret unix.Stat_t
	if err := unix.Stat(at("secret/end"), &secret); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, at("work/dir"), unix.AT_FDCWD, at("work/link"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	seen := map[bool]int{}
	for range 3000 {
		s, err := Opener{}.OpenRoot(at("work/dir/end"))
		if err != nil {
			continue // OpenRoot has lost the race against the exchange, and opened nothing
		}
		links := s.(*source).Links()
		if isSecret := s.ID().Ino == secret.Ino; isSecret != (len(links) > 0) {
			t.Fatalf("opened %s, by the links %v", s.Resolved(), links)
		}
		seen[len(links) > 0]++
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("without a link %d times, with one %d times", seen[false], seen[true])
}
