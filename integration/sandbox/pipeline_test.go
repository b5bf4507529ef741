package sandbox

import (
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// readingCommand is the command that the run in each pipeline starts. The words that the command
// prints are typed in two parts, so that the terminal's echo does not look like the command's own
// output.
const readingCommand = " sh -c 'echo rea''dy; read -r x; echo he''ard $x; exec sleep 1000'"

// eachPipeline runs a subtest for each command line and each caller. The subtest types the command
// line, which is one job: a run with other programs, or a run in a subshell. When the run's command is
// ready, the subtest stops the job with Ctrl-Z, and then calls f.
func eachPipeline(t *testing.T, f func(o *outside, s *terminalShell, line string)) {
	for _, line := range []string{"RUN | cat", "cat | RUN", "cat | RUN | cat", "(RUN; exit $?)"} {
		for _, w := range callers {
			t.Run(line+"/"+w.name, func(t *testing.T) {
				t.Parallel()
				o := newOutside(t, w)
				s := o.startTerminalShell(sandbox.Namespaces)
				s.types(strings.ReplaceAll(line, "RUN", s.run+readingCommand) + "\n")
				s.shows("ready")
				s.types("\x1a")
				s.shows("Stopped")
				f(o, s, line)
			})
		}
	}
}

// Ctrl-Z in a pipeline, or in a shell around the run, stops the whole job, and the shell has
// its terminal back. After bg the run reads nothing that is typed. After fg the run reads the typed
// text, and Ctrl-C ends the run.
func TestPipeline_Continued(t *testing.T) {
	eachPipeline(t, func(_ *outside, s *terminalShell, line string) {
		s.types("bg; sleep 0.5; jobs; echo lo''oked\n")
		if strings.HasPrefix(line, "cat") { // the kernel stops cat, which reads the terminal in the background
			s.shows("Stopped")
		} else {
			s.shows("Running")
		}
		s.shows("looked")
		s.types("fg\n")
		s.shows("sleep 1000")
		s.types("word\n")
		s.shows("heard word")
		s.types("\x03")
		s.shows(`\$ $`)
		s.types("echo co''de=$?\n")
		s.shows("code=130")
	})
}

// kill %1 ends a stopped pipeline: the run's session ends, and wait in the shell returns. (A run that
// still read the terminal would be stopped again, because it is in the background.)
func TestPipeline_Killed(t *testing.T) {
	eachPipeline(t, func(o *outside, s *terminalShell, _ string) {
		s.types("kill %1\n")
		o.until("the end of the session", func() bool { return absent(o.Session) })
		s.types("wait; jobs; echo l''eft none\n")
		s.shows(`left none\r\n`)
	})
}

// When the terminal of a stopped pipeline is closed, the shell and the run's session end.
func TestPipeline_Hangup(t *testing.T) {
	eachPipeline(t, func(o *outside, s *terminalShell, _ string) {
		testkit.Must(o.t, s.master.Close())
		<-s.ended
		o.until("the end of the session", func() bool { return absent(o.Session) })
	})
}
