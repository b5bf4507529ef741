//go:build linux

package posix

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		os.Exit(Main(m))
	}
	lab.Main(m, nil)
}

// skipSlow sets -test.short, which leaves out long cases that show little. In make soak skipSlow
// does nothing, so that these cases run.
func skipSlow(t *testing.T) {
	if !lab.Soak() {
		if err := flag.Set("test.short", "true"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMount runs the suite on a real mount with --posix full. Every call must have the result
// that it has on ext4. R132.
func TestMount(t *testing.T) {
	skipSlow(t)
	levels := []string{"audit"}
	if lab.Soak() {
		levels = []string{"strict", "audit", "max"}
	}
	for _, level := range levels {
		t.Run(level, func(t *testing.T) {
			m := lab.Start(t, level, []lab.Root{{Name: "p", Dir: lab.Dir(t)}}, lab.PosixFull)
			Run(t, m.Path("p"), Options{Full: true, Root: os.Getuid() == 0, Light: !lab.Soak()})
		})
	}
}

// TestStaged runs the suite on a staged root, which keeps changes apart from the root's source.
// The source must stay empty.
func TestStaged(t *testing.T) {
	skipSlow(t)
	dir := lab.Dir(t)
	m := lab.Start(t, "audit", []lab.Root{{Name: "p", Dir: dir}}, lab.PosixFull, lab.Staged(lab.Dir(t)))
	Run(t, m.Path("p"), Options{Full: true, Root: os.Getuid() == 0, UncountedDirs: true, Light: !lab.Soak()})
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("the source has %v, %v", list, err)
	}
}

// runsAllSubtests reports whether the -run pattern has no slash. A pattern with a slash selects
// some sub-tests only.
func runsAllSubtests() bool { return !strings.Contains(flag.Lookup("test.run").Value.String(), "/") }

// TestLocal shows that an ordinary file system passes the whole suite: it runs on the file
// system of the temporary directory.
func TestLocal(t *testing.T) {
	skipSlow(t)
	n := Run(t, t.TempDir(), Options{Full: true, Root: os.Getuid() == 0})
	if runsAllSubtests() && os.Getuid() == 0 && n < 3000 {
		t.Errorf("%d assertions, want at least 3000: has a table been emptied?", n)
	}
}

// TestSafe runs the suite in safe mode (without special files and set-id bits) and without other
// users, so that the suite keeps working in this way, too.
func TestSafe(t *testing.T) {
	skipSlow(t)
	n := Run(t, t.TempDir(), Options{})
	if runsAllSubtests() && n < 1000 {
		t.Errorf("%d assertions, want at least 1000: has a table been emptied?", n)
	}
}

// TestDir runs the suite in the directory that the environment variable ROOTSFS_POSIX_DIR names,
// for example in another program's mount. ROOTSFS_POSIX_MODE=safe leaves out the cases whose calls
// rootsfs refuses without --posix full.
func TestDir(t *testing.T) {
	dir := os.Getenv("ROOTSFS_POSIX_DIR")
	if dir == "" {
		t.Skip("ROOTSFS_POSIX_DIR is not set")
	}
	Run(t, dir, Options{Full: os.Getenv("ROOTSFS_POSIX_MODE") != "safe", Root: os.Getuid() == 0})
}
