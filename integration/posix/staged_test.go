//go:build linux

package posix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// stagedDifferences lists the differences that a program notices between a staged root and a
// root of mode rw. Apart from these, the suite of this package passes on both.
var stagedDifferences = []struct {
	operation  string
	rw, staged string // the expected result; "" if the result depends on the file system
	help       string // the sentence of help stage about the difference
	make       func(t *testing.T, source string)
	do         func(t *testing.T, root, source string) string
}{
	{
		"rename a large directory", "renamed", "EXDEV",
		"A directory of your files that holds more than 4,096 names or 64 MiB cannot be renamed (EXDEV): `mv`, npm and pip copy it instead.",
		func(t *testing.T, source string) {
			testkit.Must(t, os.Mkdir(source+"/large", 0o755), os.WriteFile(source+"/large/file", nil, 0o644))
			testkit.Must(t, os.Truncate(source+"/large/file", 65<<20))
		},
		func(_ *testing.T, root, _ string) string {
			err := os.Rename(root+"/large", root+"/other")
			if errno := unix.Errno(0); errors.As(err, &errno) {
				return unix.ErrnoName(errno)
			}
			return "renamed"
		},
	},
	{
		"write to a file with two names", "new", "old",
		"A file with several hard links is changed under the one name only.",
		func(t *testing.T, source string) {
			testkit.Must(t, os.WriteFile(source+"/name", []byte("old"), 0o644))
			testkit.Must(t, os.Link(source+"/name", source+"/second"))
		},
		func(t *testing.T, root, _ string) string {
			testkit.Must(t, os.WriteFile(root+"/name", []byte("new"), 0o644))
			return contents(t, root+"/second")
		},
	},
	{
		"count the links of a directory", "", "1",
		"A directory has one link, whatever is in it.",
		func(t *testing.T, source string) {
			testkit.Must(t, os.MkdirAll(source+"/dir/a", 0o755), os.Mkdir(source+"/dir/b", 0o755))
		},
		func(t *testing.T, root, _ string) string {
			var st unix.Stat_t
			testkit.Must(t, unix.Lstat(root+"/dir", &st))
			return fmt.Sprint(st.Nlink)
		},
	},
	{
		"read a file that the owner has changed after the program", "owner", "program",
		"A file that a program has changed shows the program's changes, not yours.",
		func(t *testing.T, source string) {
			testkit.Must(t, os.WriteFile(source+"/both", nil, 0o644), os.WriteFile(source+"/yours", nil, 0o644))
		},
		func(t *testing.T, root, source string) string {
			testkit.Must(t, os.WriteFile(root+"/both", []byte("program"), 0o644))
			for _, name := range []string{"/both", "/yours"} {
				testkit.Must(t, os.WriteFile(source+name, []byte("owner"), 0o644))
			}
			testkit.Until(t, "the owner's later edit is seen", func() bool { return contents(t, root+"/yours") == "owner" })
			return contents(t, root+"/both")
		},
	},
}

func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	testkit.Must(t, err)
	return string(b)
}

// A staged root differs from a root of mode rw as stagedDifferences says, and help stage has a
// sentence about each difference.
func TestStagedDifferences(t *testing.T) {
	help, err := os.ReadFile(filepath.Join("..", "..", "cmd", "rootsfs", "help", "stage.md"))
	testkit.Must(t, err)
	words := strings.Join(strings.Fields(string(help)), " ")
	for _, mode := range []string{"rw", "stage"} {
		source, opts := lab.Dir(t), []lab.Option{}
		if mode == "stage" {
			opts = append(opts, lab.Staged(lab.Dir(t)))
		}
		for _, d := range stagedDifferences {
			d.make(t, source)
		}
		m := lab.Start(t, "audit", []lab.Root{{Name: "p", Dir: source}}, opts...)
		for _, d := range stagedDifferences {
			want := d.rw
			if mode == "stage" {
				want = d.staged
			}
			if got := d.do(t, m.Path("p"), source); got != want && want != "" {
				t.Errorf("%s, in a root of mode %s: %q, want %q", d.operation, mode, got, want)
			}
			if !strings.Contains(words, d.help) {
				t.Errorf("help stage does not say: %s", d.help)
			}
		}
	}
}
