package reports

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// runCases are reports of other sandboxes: a command, and its right exit code.
var runCases = map[string]struct {
	command []string // %s is the directory of the scripts
	code    int
}{
	"semaphores":   {[]string{"python3", "%s/run/semaphores.py"}, 0},
	"abort":        {[]string{"sh", "-c", "kill -ABRT $$"}, 134},
	"closed_pipe":  {[]string{"bash", "-c", "yes | head -n 1; exit ${PIPESTATUS[0]}"}, 141},
	"substitution": {[]string{"bash", "-c", "diff <(echo a) <(echo a) && echo x | tee /dev/fd/2"}, 0},
	"missing":      {[]string{"/nowhere/command"}, 127},
}

func TestRuns(t *testing.T) {
	asEachUser(t, func(t *testing.T, who *user) {
		from := scripts(t, who)
		for name, c := range runCases {
			t.Run(name, func(t *testing.T) {
				args := []string{who.program, "run", "--root", filepath.Join(from, "run"), "--"}
				for _, a := range c.command {
					args = append(args, strings.ReplaceAll(a, "%s", from))
				}
				out, err := who.command(args...).CombinedOutput()
				code := 0
				var exit *exec.ExitError
				if errors.As(err, &exit) {
					code = exit.ExitCode()
				} else {
					testkit.Must(t, err)
				}
				if code != c.code {
					t.Errorf("exit code %d, want %d: %s", code, c.code, out)
				}
			})
		}
	})
}
