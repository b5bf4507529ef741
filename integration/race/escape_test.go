package race

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// escapes lists links of the source that lead out. Without rootsfs all can be read and
// followed, so only the mount stops them.
var escapes = []struct {
	name, at, target string
}{
	{"traversal to passwd, R188", "up", "../../../../../../../../../etc/passwd"},
	{"traversal through a directory inside, R188", "a/up", "../a/../../../../../../../../../etc/passwd"},
	{"link to /etc, R189", "etc", "/etc"},
	{"link to a file in /etc, R189", "a/passwd", "/etc/passwd"},
	{"absolute link that happens to lead back inside", "back", "SRC/f"},
	{"one level too many", "a/one", "../../outside/secret"},
	{"climbing and coming back by the source's own name", "a/again", "../../src/f"},
	{"to the parent of the root", "parent", ".."},
	{"by way of a link to a shallower place", "a/b/via", "deep/../../../outside/secret"},
}

// Links that lead out are seen as links, but cannot be read or followed. Links that stay inside
// work. R064, R188, R189.
func TestLinksThatLeadOut(t *testing.T) {
	for _, level := range []string{"strict", "audit", "max"} {
		t.Run(level, func(t *testing.T) {
			src, base := escapeTree(t)
			m := lab.Start(t, level, []lab.Root{{Name: "code", Dir: src}})
			for _, e := range escapes {
				t.Run(e.name, func(t *testing.T) {
					if _, err := os.Stat(filepath.Join(src, e.at)); err != nil {
						t.Fatalf("without rootsfs: %v", err)
					}
					checkRefused(t, m.Path("code", e.at))
				})
			}
			for at, want := range map[string]string{"a/ok": "inside", "a/b/ok": "inside", "a/b/c/ok": "inside"} {
				if got, err := os.ReadFile(m.Path("code", at)); err != nil || string(got) != want {
					t.Errorf("%s: %q, %v", at, got, err)
				}
			}
			if got, _ := os.ReadFile(filepath.Join(base, "outside/secret")); string(got) != canary {
				t.Errorf("the secret is %q", got)
			}
		})
	}
}

// escapeTree makes a source with the links of escapes and links that stay inside, and
// an outside directory beside it.
func escapeTree(t *testing.T) (src, base string) {
	base = lab.Dir(t)
	src = filepath.Join(base, "src")
	write(t, filepath.Join(src, "f"), "inside")
	write(t, filepath.Join(src, "a/b/c/f"), "inside")
	write(t, filepath.Join(base, "outside/secret"), canary)
	// a/b/deep, at depth 3, leads to a/d, at depth 2.
	testkit.Must(t, os.Symlink("../d", filepath.Join(src, "a/b/deep")))
	testkit.Must(t, os.Mkdir(filepath.Join(src, "a/d"), 0o777))
	for _, e := range escapes {
		testkit.Must(t, os.Symlink(strings.ReplaceAll(e.target, "SRC", src), filepath.Join(src, e.at)))
	}
	testkit.Must(t, os.Symlink("../f", filepath.Join(src, "a/ok")))
	testkit.Must(t, os.Symlink("../../f", filepath.Join(src, "a/b/ok")))
	testkit.Must(t, os.Symlink("../../../a/./b/c/f", filepath.Join(src, "a/b/c/ok")))
	return src, base
}

// checkRefused checks that lstat shows a link, and that calls that read or follow the link get
// EACCES.
func checkRefused(t *testing.T, link string) {
	t.Helper()
	if fi, err := os.Lstat(link); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Errorf("lstat: %v, %v; it should be seen as a link", fi, err)
	}
	buf := make([]byte, 4096)
	for call, f := range map[string]func() error{
		"readlink": func() error { _, err := unix.Readlink(link, buf); return err },
		"stat":     func() error { return unix.Stat(link, &unix.Stat_t{}) },
		"open":     func() error { return closeIfOpen(unix.Open(link, unix.O_RDONLY|unix.O_CLOEXEC, 0)) },
		"create":   func() error { return closeIfOpen(unix.Open(link, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)) },
		"truncate": func() error { return unix.Truncate(link, 1<<20) },
		"chmod":    func() error { return unix.Chmod(link, 0o600) },
		"chown":    func() error { return unix.Chown(link, 0, 0) },
		"setxattr": func() error { return unix.Setxattr(link, "user.w", nil, 0) },
		"below it": func() error { return unix.Mkdir(link+"/made", 0o700) },
	} {
		if err := f(); !errors.Is(err, unix.EACCES) {
			t.Errorf("%s: %v, want EACCES", call, err)
		}
	}
}

// closeIfOpen closes the descriptor that an open has returned, and returns the open's error.
func closeIfOpen(fd int, err error) error {
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// R064, R189: a link has two names, one deep in the root and one at its top. It stays inside
// when followed from the deep name, and leads out from the other one. Each access is judged by
// the name that it uses, although the mount may know the file under the other one.
func TestLinkWithTwoNames(t *testing.T) {
	for _, level := range []string{"strict", "audit", "max"} {
		t.Run(level, func(t *testing.T) {
			base := lab.Dir(t)
			src := filepath.Join(base, "src")
			write(t, filepath.Join(src, "outside/secret"), "inside")
			testkit.Must(t, os.MkdirAll(filepath.Join(src, "a/b"), 0o777))
			// Followed from MOUNTPOINT/code, the link leads to a file beside the mountpoint.
			deep, top := "a/b/l", "l"
			testkit.Must(t, os.Symlink("../../outside/secret", filepath.Join(src, deep)))
			testkit.Must(t, os.Link(filepath.Join(src, deep), filepath.Join(src, top)))
			m := lab.Start(t, level, []lab.Root{{Name: "code", Dir: src}})
			write(t, filepath.Join(filepath.Dir(m.Point), "outside/secret"), canary)
			// The mount sees the deep name last, and the kernel need not look up the name at the
			// top again.
			for _, name := range []string{top, deep} {
				testkit.Must(t, unix.Lstat(m.Path("code", name), &unix.Stat_t{}))
			}
			if got, err := os.ReadFile(m.Path("code", top)); !errors.Is(err, unix.EACCES) {
				t.Errorf("the name at the top: %q, %v; want EACCES", got, err)
			}
			if got, err := os.ReadFile(m.Path("code", deep)); !errors.Is(err, unix.EACCES) && string(got) != "inside" {
				t.Errorf("the deep name: %q, %v; want what is inside, or EACCES", got, err)
			}
		})
	}
}
