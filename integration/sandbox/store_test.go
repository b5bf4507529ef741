package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// searchStore is a shell script. It changes a file of a staged root. Then it looks for the store,
// the directory in which rootsfs keeps staged changes: by the store's path, also below
// /proc/PID/root, and in other files of /proc. Last, it runs rootsfs with the owner's directories
// to apply, undo or discard the change.
const searchStore = `
state=$1; runtime=$2; source=$3
echo staged >a && echo changed
ls -d "$state"/rootsfs/stage/*/upper /proc/[0-9]*/root"$state"/rootsfs/stage/*/upper 2>/dev/null
find /proc/[0-9]*/fd /proc/[0-9]*/cwd -maxdepth 1 -lname '*/rootsfs/stage*' 2>/dev/null
grep -s rootsfs/stage /proc/self/mountinfo /proc/self/maps /proc/self/environ
for command in "stage apply" "undo 0" "stage discard --all --yes"; do
	XDG_STATE_HOME=$state XDG_RUNTIME_DIR=$runtime ./rootsfs $command --root "$source" 2>/dev/null && echo $command
done
:`

// A confined program can neither find the store of its staged root nor apply, undo or discard the
// staged change.
func TestProgramsCannotReachTheStore(t *testing.T) {
	eachLevel(t, func(t *testing.T, o *outside, level sandbox.Level) {
		code := filepath.Join(o.base, "code")
		testkit.Must(t, os.Mkdir(code, 0o755), os.WriteFile(code+"/a", []byte("owner\n"), 0o644), os.Link(programsDir(t)+"/rootsfs", code+"/rootsfs"))
		o.give(code, 0o755)
		o.give(code+"/a", 0o644)
		state, runtime := filepath.Join(o.base, "xdg_state_home"), filepath.Join(o.base, "xdg_runtime_dir")
		output := func(ord order) string {
			cmd := o.driver(ord)
			cmd.Stderr = nil
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("%q: %v", ord.Args[1:], err)
			}
			return string(out)
		}
		inside := []string{"run", "--level", level.String(), "--mcp", "off", "--root", code + ":stage", "--", "sh", "-c", searchStore, "sh", state, runtime, code}
		if out := output(order{Args: o.rootsfs(inside...)}); out != "changed\n" {
			t.Errorf("the program found the store, or could use it:\n%s", out)
		}
		if b, err := os.ReadFile(code + "/a"); err != nil || string(b) != "owner\n" {
			t.Errorf("the source has %q, %v", b, err)
		}
		if out := output(order{Args: o.rootsfs("stage", "diff", "--root", code, "--name-only")}); out != "code/a\n" {
			t.Errorf("staged is %q", out)
		}
		// Outside, the same script finds the store, and can apply the change.
		out := output(order{Bare: true, Args: []string{"/bin/sh", "-c", "cd $3; " + searchStore, "sh", state, runtime, code}, Env: o.env})
		for _, want := range []string{"/upper\n", "stage apply\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("the search outside does not say %q:\n%s", want, out)
			}
		}
	})
}
