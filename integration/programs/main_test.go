package programs

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

func TestMain(m *testing.M) { lab.Main(m, map[string]func(string) error{jobVar: runJob}) }

// box is one root of a mount, with the settings of the programs that run in the root. newBox makes
// a writable root "w", newReadOnly a read-only root "r".
type box struct {
	*lab.Mount
	t   testing.TB
	src string // the source
	// result is the directory on the host that has the programs' changes: the source, or the upper
	// directory of the stage if the root is staged. newBox makes an empty source.
	result string
	dir    string // the root in the mount
	home   string // of the programs; outside the mount
	uid    int    // the user as whom the programs run; 0 is root
}

// packages maps programs to the Debian packages that have them.
var packages = map[string]string{
	"sqlite3": "sqlite3", "rsync": "rsync", "git": "git", "npm": "npm", "node": "nodejs", "tar": "tar",
	"make": "make", "gcc": "gcc", "flock": "util-linux", "setfattr": "attr", "python3": "python3",
	"find": "findutils", "grep": "grep", "cp": "coreutils", "go": "golang-go", "sh": "dash",
}

// need fails the test if a program is missing.
func need(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if strings.Contains(p, "/") {
			continue // made by the test
		}
		if _, err := exec.LookPath(p); err != nil {
			t.Fatalf("%s is missing: apt-get install -y %s", p, packages[p])
		}
	}
}

// The cache levels at which a test runs: everywhere for quick tests, cached for tests that make
// many round trips, byDefault for slow tests.
var (
	everywhere = []string{"audit", "strict", "max", staged}
	cached     = []string{"audit", "max", staged}
	byDefault  = []string{"audit", staged}
)

// staged is used like a cache level: it is the default level with a staged root.
const staged = "staged"

// unstaged returns levels without staged, for tests with a read-only root.
func unstaged(levels []string) []string {
	return slices.DeleteFunc(slices.Clone(levels), func(level string) bool { return level == staged })
}

// inside runs a test in a fresh writable root at each of the levels.
func inside(t *testing.T, levels []string, f func(t *testing.T, b *box)) {
	t.Helper()
	for _, level := range levels {
		t.Run(level, func(t *testing.T) { f(t, newBox(t, level)) })
	}
}

func newBox(t testing.TB, level string) *box {
	t.Helper()
	lab.NeedFUSE(t)
	base := lab.Dir(t)
	b := &box{t: t, src: filepath.Join(base, "src"), home: filepath.Join(base, "home")}
	testkit.Must(t, os.Mkdir(b.src, 0o755))
	testkit.Must(t, os.Mkdir(b.home, 0o777))
	testkit.Must(t, os.Chmod(b.home, 0o777))
	b.result = b.src
	roots := []lab.Root{{Name: "w", Dir: b.src}}
	if level == staged {
		stages := filepath.Join(base, "stages")
		b.Mount = lab.Start(t, "audit", roots, lab.Staged(stages))
		found, err := filepath.Glob(filepath.Join(stages, "*", "upper"))
		if err != nil || len(found) != 1 {
			t.Fatalf("upper directories of the stage: %v, %v", found, err)
		}
		b.result = found[0]
	} else {
		b.Mount = lab.Start(t, level, roots)
	}
	b.dir = b.Path("w")
	return b
}

// command returns a program to be run in a directory of the root.
func (b *box) command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = filepath.Join(b.dir, dir)
	cmd.Env = environ(b.home)
	if b.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(b.uid), Gid: uint32(b.uid), Groups: []uint32{}}}
	}
	return cmd
}

// environ returns the environment of the programs, without the user's settings.
func environ(home string) []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "HOME=") || strings.HasPrefix(s, "GIT_") || strings.HasPrefix(s, "XDG_")
	})
	return append(env, "HOME="+home, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "PYTHONDONTWRITEBYTECODE=", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
}

// run runs a program that must succeed and returns its output.
func (b *box) run(dir, name string, args ...string) string {
	b.t.Helper()
	need(b.t, name)
	cmd := b.command(dir, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// sh runs a script that must succeed.
func (b *box) sh(script string) string {
	b.t.Helper()
	return b.run("", "sh", "-euc", script)
}

// listing describes everything of a tree that a copy must preserve. Each name has a line: type,
// mode, owner, size, modification time in nanoseconds, target, attributes, content, and which
// names are one file.
func listing(t testing.TB, root string) []string {
	t.Helper()
	var lines []string
	first := map[[2]uint64]string{}
	testkit.Must(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%s mode=%o owner=%d:%d mtime=%d.%09d", rel, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + target
		case d.Type().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" size=%d sum=%x", st.Size, sum(b))
			id := [2]uint64{uint64(st.Dev), st.Ino}
			if st.Nlink > 1 && first[id] != "" {
				line += " same as " + first[id]
			} else {
				first[id] = rel
			}
		}
		lines = append(lines, line+attributes(p))
		return nil
	}))
	return lines
}

func attributes(p string) string {
	buf := make([]byte, 4096)
	n, err := unix.Llistxattr(p, buf)
	if err != nil || n == 0 {
		return ""
	}
	names := strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
	sort.Strings(names)
	out := ""
	for _, name := range names {
		val := make([]byte, 4096)
		if n, err := unix.Lgetxattr(p, name, val); err == nil {
			out += fmt.Sprintf(" %s=%q", name, val[:n])
		}
	}
	return out
}

// equal fails the test with the first differences of two listings.
func equal(t testing.TB, what string, got, want []string) {
	t.Helper()
	if len(want) < 2 {
		t.Fatalf("%s: nothing to compare: %q", what, want)
	}
	if slices.Equal(got, want) {
		return
	}
	var diff []string
	for _, l := range want {
		if !slices.Contains(got, l) {
			diff = append(diff, "- "+l)
		}
	}
	for _, l := range got {
		if !slices.Contains(want, l) {
			diff = append(diff, "+ "+l)
		}
	}
	t.Errorf("%s differ (%d lines):\n%s", what, len(diff), strings.Join(diff[:min(len(diff), 20)], "\n"))
}

// sample makes a tree with everything that a copy can lose.
func sample(t testing.TB, dir string) {
	t.Helper()
	file := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		testkit.Must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		testkit.Must(t, os.WriteFile(p, []byte(text), mode))
		testkit.Must(t, os.Chmod(p, mode))
		return p
	}
	for i := range 40 {
		file(fmt.Sprintf("many/d%d/f%d.txt", i%7, i), strings.Repeat(fmt.Sprintf("line %d\n", i), i*37), 0o644)
	}
	a := file("a", "one file with three names", 0o640)
	testkit.Must(t, os.Link(a, filepath.Join(dir, "b")))
	testkit.Must(t, os.Link(a, filepath.Join(dir, "many/c")))
	file("run.sh", "#!/bin/sh\n", 0o755)
	file("none", "nobody may read", 0)
	file("spaced name\tand\nmore", "x", 0o600)
	file(strings.Repeat("n", 255), "a name of 255 bytes", 0o644)
	file("not-utf8-\xff\xfe", "x", 0o644)
	testkit.Must(t, os.Symlink("many/d1", filepath.Join(dir, "todir")))
	testkit.Must(t, os.Symlink("../a", filepath.Join(dir, "many/tofile")))
	testkit.Must(t, os.Symlink("nowhere", filepath.Join(dir, "broken")))
	testkit.Must(t, os.Chown(file("owned", "x", 0o644), 1234, 2345))
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "sticky"), 0o755))
	testkit.Must(t, os.Chmod(filepath.Join(dir, "sticky"), 0o777|os.ModeSticky))
	testkit.Must(t, unix.Setxattr(a, "user.note", []byte("value\x00with a zero"), 0))
	sparse := file("sparse", "", 0o644)
	testkit.Must(t, os.Truncate(sparse, 3<<20))
	file("big", strings.Repeat("0123456789abcdef", 1<<16), 0o644)
	testkit.Must(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{{Sec: 1e9, Nsec: 1}, {Sec: 1e9 + int64(len(p)), Nsec: 123456789}}, unix.AT_SYMLINK_NOFOLLOW)
	}))
}
