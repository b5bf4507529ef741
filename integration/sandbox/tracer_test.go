package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// leaks is the source of a C program. When the program ends, LeakSanitizer traces it.
const leaks = `#include <stdio.h>
int main(void) { puts("fine"); return 0; }
`

// traceMe is the source of a C program that makes its parent, rootsfs's init, its tracer. Then the
// program sends itself a signal, which stops a traced process. The exit code is 9 if the tracer
// lets the process continue with the signal.
const traceMe = `#include <signal.h>
#include <sys/ptrace.h>
static volatile int got;
static void take(int sig) { got = sig; }
int main(void) {
	signal(SIGUSR1, take);
	if (ptrace(PTRACE_TRACEME, 0, 0, 0)) return 1;
	raise(SIGUSR1);
	return got == SIGUSR1 ? 9 : 2;
}
`

// Debuggers, tracers and sanitizers work on the processes that they start. (If ptrace is
// refused, a program built with -fsanitize=address ends with an error of LeakSanitizer.) A
// command that makes the init its tracer still gets its signals, and ends.
func TestTracers(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	built := map[string][]string{"leaks": {leaks, "-fsanitize=address"}, "leaks.plain": {leaks}, "traceme": {traceMe}}
	for name, source := range built {
		file := filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(file+".c", []byte(source[0]), 0o644))
		cmd := exec.Command("gcc", append(source[1:], "-g", "-o", file, file+".c")...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	eachLevel(t, func(t *testing.T, o *outside, level sandbox.Level) {
		for name := range built {
			testkit.Must(t, copyFile(filepath.Join(dir, name), filepath.Join(o.root, name), 0o755))
		}
		for _, c := range []struct {
			script, want string
		}{
			{"./leaks; echo code=$?", "fine\ncode=0\n"},
			{"strace -o /dev/null ./leaks.plain; echo code=$?", "fine\ncode=0\n"},
			{"gdb -q -batch -ex 'break main' -ex run -ex 'print 40+2' ./leaks.plain </dev/null 2>&1 | grep '= 42'", "$1 = 42\n"},
			{"exec ./traceme", ""},
		} {
			args := o.rootsfs("run", "--level", level.String(), "--name", sessionName, "--root", "root="+o.root, "--", "sh", "-c", c.script)
			cmd := o.driver(order{Args: args})
			var log strings.Builder
			cmd.Stderr = &log
			out, _ := cmd.Output() // the exit code is checked below
			if string(out) != c.want || strings.HasPrefix(c.script, "exec") && cmd.ProcessState.ExitCode() != 9 {
				t.Errorf("%s: %q, code %d, want %q; %s", c.script, out, cmd.ProcessState.ExitCode(), c.want, log.String())
			}
		}
	})
}
