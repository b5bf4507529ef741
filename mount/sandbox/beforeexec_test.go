package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
)

// At every level, OnLevel is called once before BeforeExec, and the command has not run when
// BeforeExec is called. The command gets the umask of Options.Umask.
func TestBeforeExec(t *testing.T) {
	atLevels(t, append(confining, None), func(t *testing.T, level Level) {
		point := tree(t, "home/u/code")
		code := point + "/home/u/code"
		if err := os.Chmod(code, 0o777); err != nil {
			t.Fatal(err)
		}
		put(t, code+"/f", "there")
		umask, levels := 0o027, []Level(nil)
		o := Options{
			Level: level, Umask: &umask, Private: private(t), Tree: point, Roots: []string{"/home/u/code"}, Dir: "/home/u/code",
			OnLevel: func(l Level) { levels = append(levels, l) },
			BeforeExec: func() error {
				if _, err := os.Stat(code + "/ran"); err == nil || len(levels) != 1 || levels[0] != level {
					t.Errorf("in BeforeExec: the command has run, or the levels are %v, want only %v", levels, level)
				}
				return nil
			},
		}
		if level == None && os.Geteuid() == 0 {
			o.UID, o.GID = DefaultID()
		}
		out, exit := output(t, o, "touch ran; cat f; umask")
		if out != "there0027" || exit != (Exit{}) {
			t.Errorf("inside: %q, %+v", out, exit)
		}
	})
}

// If BeforeExec fails, or Tree is not an absolute path, the command does not run and no process is
// left. Start returns the error of BeforeExec.
func TestBeforeExecFails(t *testing.T) {
	reason := errors.New("the session has failed")
	atLevels(t, confining, func(t *testing.T, level Level) {
		point := tree(t)
		made := filepath.Join(point, "made")
		if err := os.Chmod(point, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, o := range map[string]Options{
			"relative tree":    {Tree: "relative"},
			"BeforeExec fails": {Tree: point, BeforeExec: func() error { return reason }},
		} {
			o.Level, o.Private, o.Map, o.Args = level, private(t), Flat, []string{"touch", DefaultFlatAt + "/made"}
			p, err := Start(context.Background(), o)
			if err == nil {
				p.Kill()
				t.Fatalf("%s: it was started", name)
			}
			if name != "relative tree" && !errors.Is(err, reason) || errors.Is(err, ErrCannot) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := os.Stat(made); err == nil {
				t.Errorf("%s: the command ran", name)
			}
		}
		// The init of a killed bwrap ends a moment later.
		if !testkit.Eventually(func() bool { return len(living()) == 0 }) {
			t.Errorf("processes %v are left", living())
		}
	})
}

// If a command sends its init each signal that a program can handle, none ends or stops the init.
// At level None no filter keeps the signals away from the init.
func TestInitOutlivesSignals(t *testing.T) {
	o := Options{Level: None, Private: private(t)}
	if os.Geteuid() == 0 {
		o.UID, o.GID = DefaultID()
	}
	// 9 and 19 are SIGKILL and SIGSTOP, which no program can catch. 32 to 34 belong to the C
	// libraries, and Go does not handle them.
	out, exit := output(t, o, `sent=0; for n in $(seq 64); do case $n in 9|19|32|33|34) ;; *) kill -$n $PPID 2>/dev/null && sent=$((sent+1));; esac; sleep 0.01; done
		test $sent -ge 59 && kill -0 $PPID && echo alive`)
	if out != "alive" || exit != (Exit{}) {
		t.Errorf("inside: %q, %+v", out, exit)
	}
}

// living returns the descendants of this process that have not ended.
func living() []int {
	return slices.DeleteFunc(initproc.Descendants(os.Getpid()), func(pid int) bool {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		return err != nil || strings.HasPrefix(field(string(b), "State:"), "Z")
	})
}
