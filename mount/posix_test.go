package mount

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"

	"github.com/rootsfs/rootsfs/guard"
)

// posixDirEnv is the environment variable with the directory of TestPosixtestCase, which
// TestPosixtest starts in a process of its own.
const posixDirEnv = "ROOTSFS_POSIXTEST_DIR"

// TestPosixtest runs the cases of go-fuse's posixtest at every cache level, and skips one case.
// The cases of a level share a mount and a process. Each case has a directory of its own.
func TestPosixtest(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		m := newTestMount(t, guard.ReadWrite, func(o *Options, g *guard.Grant) {
			o.Level = level
			g.Policy.PosixFull = true
			o.Visible = func(string, bool) bool { return true } // some cases have links to absolute paths
		})
		for name := range posixtest.All {
			if err := os.Mkdir(filepath.Join(m.src, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^TestPosixtestCase$", "-test.skip=/^FcntlFlockLocksFile$")
		cmd.Env = append(os.Environ(), posixDirEnv+"="+m.root)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		for name := range posixtest.All {
			t.Run(name, func(t *testing.T) {
				if name == "FcntlFlockLocksFile" {
					// go-fuse's own run leaves it out ("TODO - fix this
					// test"): it expects a process to exclude itself with
					// POSIX locks, and fails on ext4 for the same reason.
					t.Skip("wrong by POSIX: fails on ext4 too")
				}
				result := func(word string) bool {
					return strings.Contains(string(out), "--- "+word+": TestPosixtestCase/"+name+" ")
				}
				switch {
				case result("SKIP"):
					_, own, _ := strings.Cut(string(out), "=== RUN   TestPosixtestCase/"+name+"\n")
					reason, _, _ := strings.Cut(own, "=== RUN")
					t.Skip(reason)
				case !result("PASS"):
					t.Errorf("it has not passed: %s", out)
				}
			})
		}
	})
}

// TestPosixtestCase runs the cases of posixtest in the directory that TestPosixtest serves, each
// in the directory with its name.
func TestPosixtestCase(t *testing.T) {
	dir := os.Getenv(posixDirEnv)
	for name, f := range posixtest.All {
		t.Run(name, func(t *testing.T) {
			if dir != "" { // else this is the process that serves
				f(t, filepath.Join(dir, name))
			}
		})
	}
}
