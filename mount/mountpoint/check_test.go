package mountpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// R092: Check returns the resolved path of a directory that can be used. Otherwise its error is one
// line that says why the path cannot be used.
func TestCheckR092(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sub := func(name string) string { return filepath.Join(base, name) }
	for _, d := range []string{"empty", "full", "100%s d"} {
		if err := os.Mkdir(sub(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"file", "full/x"} {
		if err := os.WriteFile(sub(f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"link": "empty", "dangling": "nowhere", "tofile": "file", "loop": "loop"} {
		if err := os.Symlink(target, sub(link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		path, want string
		err        error
		says       []string
	}{
		{path: "empty", want: "empty"},
		{path: "empty/", want: "empty"},
		{path: "link", want: "empty"},
		{path: "100%s d", want: "100%s d"},
		{path: "absent", err: fs.ErrNotExist, says: []string{sub("absent") + " does not exist", "mkdir -p " + sub("absent")}},
		{path: "100%s d/x", err: fs.ErrNotExist, says: []string{names.ShellWord(sub("100%s d/x")) + " does not exist"}},
		{path: "absent/deeper", err: fs.ErrNotExist, says: []string{"mkdir -p " + sub("absent/deeper")}},
		{path: "dangling", err: fs.ErrNotExist, says: []string{"mkdir -p " + sub("nowhere")}},
		{path: "file", err: unix.ENOTDIR, says: []string{sub("file") + " is not a directory"}},
		{path: "tofile", err: unix.ENOTDIR, says: []string{sub("file") + " is not a directory"}},
		{path: "file/x", err: unix.ENOTDIR, says: []string{"is not a directory"}},
		{path: "full", err: unix.ENOTEMPTY, says: []string{sub("full") + " is not empty", "choose an empty"}},
		{path: "loop", err: unix.ELOOP, says: []string{"link that never ends"}},
		{path: strings.Repeat("n", 300), err: unix.ENAMETOOLONG, says: []string{"cannot be used"}},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			got, err := Check(base + "/" + tt.path)
			if tt.err == nil {
				if err != nil || got != sub(tt.want) {
					t.Fatalf("got %q, %v", got, err)
				}
				return
			}
			if !errors.Is(err, tt.err) || got != "" {
				t.Errorf("got %q, %v, want %v", got, err, tt.err)
			}
			oneLine(t, err, tt.says...)
		})
	}
}

// pointError also has texts for the causes that TestCheckR092 does not produce.
func TestPointErrorSentences(t *testing.T) {
	for _, tt := range []struct {
		err  error
		says string
	}{
		{unix.EACCES, "is not yours to use"},
		{errNotOwned, "mkdir '/a b/rootsfs'"},
		{unix.EROFS, "read-only file system"},
		{os.ErrDeadlineExceeded, "does not answer"},
		{unix.EIO, "cannot be used: input/output error"},
	} {
		err := pointError("/a b", tt.err)
		oneLine(t, err, "mountpoint '/a b' ", tt.says)
		if !errors.Is(err, tt.err) {
			t.Errorf("%v does not wrap %v", err, tt.err)
		}
	}
}

func TestWithTimeoutGivesUp(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	got, err := withTimeout(time.Millisecond, func() (int, error) { <-release; return 1, nil })
	if !errors.Is(err, os.ErrDeadlineExceeded) || got != 0 {
		t.Errorf("got %d, %v", got, err)
	}
}

func TestResolve(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"real/sub", "other"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"abs": base + "/real", "rel": "real/sub", "chain": "rel/../sub", "loop": "loop", "dangling": "nowhere",
	} {
		if err := os.Symlink(target, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(base, "other"))
	tests := []struct {
		path, want string // relative to base
		err        error
	}{
		{base + "/real/sub", "real/sub", nil},
		{base + "//real/./sub//.", "real/sub", nil},
		{base + "/abs", "real", nil},
		{base + "/abs/", "real", nil},
		{base + "/abs/sub", "real/sub", nil},
		{base + "/rel", "real/sub", nil},
		{base + "/rel/..", "real", nil}, // not base, as filepath.Clean would say
		{base + "/chain", "real/sub", nil},
		{base + "/dangling", "", unix.ENOENT},
		{base + "/real/absent", "", unix.ENOENT},
		{".", "other", nil},
		{"..", "", nil},
		{"../rel", "real/sub", nil},
		{base + "/absent/x", "", unix.ENOENT},
		{base + "/loop", "", unix.ELOOP},
		{"", "", unix.ENOENT},
	}
	for _, tt := range tests {
		got, err := Resolve(tt.path)
		if tt.err != nil {
			if !errors.Is(err, tt.err) {
				t.Errorf("%q: error %v, want %v", tt.path, err, tt.err)
			}
		} else if want := filepath.Join(base, tt.want); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", tt.path, got, err, want)
		}
	}
	if got, err := Resolve("/"); got != "/" || err != nil {
		t.Errorf("/: %q, %v", got, err)
	}
}

// R092: a path that names.ShellWord quotes is one line on the user's terminal, without hidden
// characters.
func TestShellQuoteR092(t *testing.T) {
	for in, want := range map[string]string{
		"/a/b-c_1.x":  "/a/b-c_1.x",
		"":            "''",
		"/a b":        "'/a b'",
		"/it's":       `'/it'\''s'`,
		"/é":          "/é",
		"/$(x)":       "'/$(x)'",
		"/a\nb":       `"$(printf '/a\012b')"`,
		"/\x1b[2J":    `"$(printf '/\033\1332J')"`,
		"/\xff":       `"$(printf '/\377')"`,
		"/\u202ex":    `"$(printf '/\342\200\256x')"`,
		"/\uFFFDx":    `"$(printf '/\357\277\275x')"`,
		"/new\u2028l": `"$(printf '/new\342\200\250l')"`,
	} {
		if got := names.ShellWord(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

// The error for a mount that could not be made says what to do.
func TestCannotMountSaysWhatToDo(t *testing.T) {
	for want, err := range map[string]error{
		"`rootsfs doctor` says what is missing": errors.New("exit status 1"),
		"--cap-add SYS_ADMIN":                   unix.EPERM,
		"an entry in /etc/passwd":               errors.New(`/usr/bin/fusermount3: exit status 1 ("/usr/bin/fusermount3: could not determine username")`),
	} {
		if got := CannotMount("/a b", err).Error(); !strings.Contains(got, want) || !strings.Contains(got, "cannot mount at '/a b': "+err.Error()) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}
