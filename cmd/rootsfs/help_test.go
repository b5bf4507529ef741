package main

import (
	"bytes"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
)

// R092: the help of every command has a description and examples, and every reporting command
// takes --json.
func TestEveryCommandIsExplained(t *testing.T) {
	// These commands do not report, nor do commands that only have subcommands.
	noJSON := map[string]bool{"metrics": true, "completion": true, "schema": true, "run": true, "help": true, "top": true, "with": true}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden {
			return // not for people
		}
		if c.Long == "" || c.Example == "" {
			t.Errorf("%s: no long help or no example", c.CommandPath())
		}
		if c.Flags().Lookup("json") == nil && !noJSON[c.Name()] && !c.HasSubCommands() {
			t.Errorf("%s: no --json", c.CommandPath())
		}
		if len(c.Short) > 60 || strings.Count(c.Long, "\n\n") > 1 {
			t.Errorf("%s: shorten %q, or say less than three paragraphs", c.CommandPath(), c.Short)
		}
		for _, line := range strings.Split(c.Long, "\n") {
			if len(line) > 90 {
				t.Errorf("%s: a line of the help is too long: %q", c.CommandPath(), line)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(tree())
}

// Every flag that takes a path of the host accepts ~ for the home directory, also where no shell
// expands ~.
func TestEveryPathMayBeginInHome(t *testing.T) {
	inRoot := map[string]bool{"rootsfs trash restore --to": true} // paths within a root
	t.Setenv("HOME", "/home/x")
	seen := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			what, _ := pflag.UnquoteUsage(f)
			if !slices.Contains([]string{"file", "directory", "path", "session"}, what) || inRoot[c.CommandPath()+" --"+f.Name] {
				return
			}
			seen++
			if err := f.Value.Set("~/a"); err != nil || f.Value.String() != "/home/x/a" {
				t.Errorf("%s --%s: make it with pathVar", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(tree())
	if seen < 20 {
		t.Errorf("only %d flags take a path", seen)
	}
	t.Setenv("HOME", "")
	var errs bytes.Buffer
	const want = "rootsfs: --config \"~/c\": HOME is not set: write the path in full; see: rootsfs doctor --help\n"
	if got := run([]string{"doctor", "--config", "~/c"}, cli.Stdio{In: strings.NewReader(""), Out: io.Discard, Err: &errs}); got != cli.ExitUsage || errs.String() != want {
		t.Errorf("exit %d, %q", got, errs.String())
	}
}

// The tree of a command line that begins with a command's name has that command. The tree of any
// other command line has all commands.
func TestCommands(t *testing.T) {
	const all = "mount run serve unmount roots revoke net resume policy config trash stage undo why allow consent status metrics audit doctor setup wrap console top fleet version completion"
	for name := range strings.FieldsSeq(all) {
		root := tree(name, "--help")
		if got, _, err := root.Find([]string{name}); err != nil || got.Name() != name || got == root {
			t.Errorf("%s: found %v, %v", name, got.Name(), err)
		}
	}
	for _, args := range [][]string{nil, {"help", "run"}, {"--help"}, {"nosuch"}, {cobra.ShellCompRequestCmd, "r"}} {
		root := tree(args...)
		for name := range strings.FieldsSeq(all) {
			if got, _, err := root.Find([]string{name}); err != nil || got.Name() != name {
				t.Errorf("%q: no %s", args, name)
			}
		}
	}
}

// These command lines, run in the test's own process, exit and print as expected.
func TestRunInProcess(t *testing.T) {
	for _, tt := range []struct {
		args string
		want int
		out  string
		err  string
	}{
		{"version", cli.ExitOK, "rootsfs ", ""},
		{"version --json", cli.ExitOK, `"go": "go`, ""},
		{"--version", cli.ExitOK, output(t, "version"), ""},
		{"help", cli.ExitOK, "Usage:", ""},
		{"help", cli.ExitOK, "\n  undo  ", ""},
		{"help roots add", cli.ExitOK, "rootsfs roots add [SPEC]...", ""},
		{"help nosuch", cli.ExitUsage, "", "rootsfs: \"nosuch\" is not a topic or command; see: rootsfs help\n"},
		{"help roots nosuch", cli.ExitUsage, "", "rootsfs: unknown command \"nosuch\"; see: rootsfs roots --help\n"},
		{"completion zsh", cli.ExitOK, "#compdef rootsfs", ""},
		{"completion fish", cli.ExitOK, "fish", ""},
		{"completion powershell", cli.ExitOK, "powershell", ""},
		{"completion tcsh", cli.ExitUsage, "", "rootsfs: there is no completion for \"tcsh\"; there is for bash, fish, powershell, zsh\n"},
		{"completion", cli.ExitUsage, "", "rootsfs: name one shell: bash, fish, powershell, zsh\n"},
		{"roots list --session=", cli.ExitUsage, "", "rootsfs: --session is empty: give it a value, or leave it out; see: rootsfs roots list --help\n"},
		{"mount --name= /mnt", cli.ExitUsage, "", "rootsfs: --name is empty: give it a value, or leave it out; see: rootsfs mount --help\n"},
		{"roots renew x --for soon", cli.ExitUsage, "", "rootsfs: --for \"soon\": write a duration, such as 30m or 8h; see: rootsfs roots renew --help\n"},
		{"stage undo", cli.ExitUsage, "", "rootsfs: unknown command \"undo\": did you mean rootsfs undo; see: rootsfs stage --help\n"},
		{"stage take x", cli.ExitUsage, "", "rootsfs: unknown command \"take\": did you mean apply; see: rootsfs stage --help\n"},
		{"stage drop x", cli.ExitUsage, "", "rootsfs: unknown command \"drop\": did you mean discard; see: rootsfs stage --help\n"},
		{"trash frobnicate", cli.ExitUsage, "", "rootsfs: unknown command \"frobnicate\"; see: rootsfs trash --help\n"},
		{"trash empty", cli.ExitUsage, "", "rootsfs: name what to remove for good, or use --all or --older-than; see: rootsfs trash list\n"},
		{"trash empty --all x", cli.ExitUsage, "", "rootsfs: ids, --all and --older-than cannot be combined: use one of them\n"},
		{"roots add --trash-age 1h x", cli.ExitUsage, "", "rootsfs: --trash-size and --trash-age need --trash: write it as well\n"},
		{"roots add --trash --trash-age 0 x", cli.ExitUsage, "", "rootsfs: --trash-age 0: write a duration from 1s to 8760h0m0s, such as 10m; see: rootsfs roots add --help\n"},
		{"roots add --limit max_file x", cli.ExitUsage, "", "rootsfs: --limit max_file: write max_file=VALUE; see: rootsfs roots add --help\n"},
		{"mount --abuse-escapes=-1 /mnt", cli.ExitUsage, "", "rootsfs: --abuse-escapes -1: write a whole number from 0 (no limit) to 1000000; see: rootsfs mount --help\n"},
		{"roots add --trash-size 1G x", cli.ExitUsage, "", "rootsfs: --trash-size and --trash-age need --trash: write it as well\n"},
		{"config frobnicate", cli.ExitUsage, "", "rootsfs: unknown command \"frobnicate\"; see: rootsfs config --help\n"},
		{"config schema", cli.ExitOK, "draft/2020-12/schema", ""},
		{"consent frobnicate", cli.ExitUsage, "", "rootsfs: unknown command \"frobnicate\"; see: rootsfs consent --help\n"},
		{"consent approve", cli.ExitUsage, "", "rootsfs: a question's id is missing from the command line; see: rootsfs consent approve --help\n"},
		{"consent approve x --for 0", cli.ExitUsage, "", "rootsfs: --for 0s: write a duration of a second or more, such as 30m\n"},
		{"consent approve x --idle 10ms", cli.ExitUsage, "", "rootsfs: --idle 10ms: write a duration from 1s to 8760h0m0s, such as 10m\n"},
		{"consent approve x --only y", cli.ExitUsage, "", "rootsfs: --only \"y\": write whole numbers, as in 1,3; see: rootsfs consent approve --help\n"},
		{"consent approve x --mode rx", cli.ExitUsage, "", "rootsfs: --mode: unknown mode \"rx\": write ro, rw, stage, or a comma list of read, list, write, append, create, delete, rename, watch\n"},
		{"consent deny", cli.ExitUsage, "", "rootsfs: name the question to deny, or use --all; see: rootsfs consent list\n"},
		{"consent forget", cli.ExitUsage, "", "rootsfs: name the denial to lift, or use --all; see: rootsfs consent denials\n"},
		{"consent forget --all x", cli.ExitUsage, "", "rootsfs: an id and --all cannot be combined: use one of them\n"},
		{"consent forget x y", cli.ExitUsage, "", "rootsfs: \"y\" is one argument too many; see: rootsfs consent forget --help\n"},
		{"consent deny --all x", cli.ExitUsage, "", "rootsfs: an id and --all cannot be combined: use one of them\n"},
		{"revoke --all --subject a", cli.ExitUsage, "", "rootsfs: names, --subject, --net and --all cannot be combined: use one of them\n"},
		{"serve --session x --abuse-escapes 3", cli.ExitUsage, "", "rootsfs: --session and --abuse-escapes cannot be combined: the session has its own roots, rules and log\n"},
		{"mount --abuse-suspend /mnt", cli.ExitUsage, "", "rootsfs: --abuse-suspend needs a bound: write --abuse-escapes or --abuse-refusals as well\n"},
		{"revoke --all a", cli.ExitUsage, "", "rootsfs: names, --subject, --net and --all cannot be combined: use one of them\n"},
		{"roots add", cli.ExitUsage, "", "rootsfs: a root is missing from the command line; see: rootsfs roots add --help\n"},
		{"roots add --save --once x", cli.ExitUsage, "", "rootsfs: --save and --once cannot be combined: a grant of one use is not kept\n"},
		{"", cli.ExitOK, "Usage:", ""},
		{"frobnicate", cli.ExitUsage, "", "rootsfs: unknown command \"frobnicate\"; see: rootsfs --help\n"},
		// The error for a beginner's mistake says what was probably meant.
		{"mont --root d m", cli.ExitUsage, "", "rootsfs: unknown command \"mont\": did you mean mount; see: rootsfs --help\n"},
		{"stats", cli.ExitUsage, "", "rootsfs: unknown command \"stats\": did you mean stage or status; see: rootsfs --help\n"},
		{"roots lst", cli.ExitUsage, "", "rootsfs: unknown command \"lst\": did you mean list or set; see: rootsfs roots --help\n"},
		{"renew code", cli.ExitUsage, "", "rootsfs: unknown command \"renew\": did you mean roots renew; see: rootsfs --help\n"},
		{"show --denied", cli.ExitUsage, "", "rootsfs: unknown command \"show\": did you mean audit show or policy show; see: rootsfs --help\n"},
		{"--json status", cli.ExitUsage, "", "rootsfs: unknown flag: --json: flags follow the command, as in rootsfs status --json; see: rootsfs --help\n"},
		{"mount -root d m", cli.ExitUsage, "", "rootsfs: unknown shorthand flag: 'r' in -root: write --root; see: rootsfs mount --help\n"},
		{"mount --roots d m", cli.ExitUsage, "", "rootsfs: unknown flag: --roots: did you mean --root; see: rootsfs mount --help\n"},
		{"mount -r d m", cli.ExitUsage, "", "rootsfs: unknown shorthand flag: 'r' in -r; see: rootsfs mount --help\n"},
		{"mount d m", cli.ExitUsage, "", "rootsfs: \"m\" is one argument too many (a root is written --root PATH); see: rootsfs mount --help\n"},
		{"unmount a b", cli.ExitUsage, "", "rootsfs: \"b\" is one argument too many; see: rootsfs unmount --help\n"},
		{"run / -- ls", cli.ExitUsage, "", "rootsfs: \"/\" is not a command. To approve a root, write --root /\n"},
		{"run no-such-command -- ls", cli.ExitUsage, "", "rootsfs: \"no-such-command\" is not a command. To approve a root, write --root no-such-command\n"},
		{"run / ls", cli.ExitUsage, "", "rootsfs: \"/\" is a directory, not a command. To approve it as a root, write --root /, then -- and the command\n"},
		{"run ls --root d", cli.ExitUsage, "", "rootsfs: --root is written behind the command. Write rootsfs run --root PATH -- ls; if --root is the command's own, write -- before the command\n"},
		{"run ls --root=d", cli.ExitUsage, "", "rootsfs: --root is written behind the command. Write rootsfs run --root PATH -- ls; if --root is the command's own, write -- before the command\n"},
		{"version --a\x1b[31mb\u202e", cli.ExitUsage, "", "rootsfs: unknown flag: --a\\u{1b}[31mb\\u{202e}; see: rootsfs version --help\n"},
		{"version --frobnicate", cli.ExitUsage, "", "rootsfs: unknown flag: --frobnicate; see: rootsfs version --help\n"},
	} {
		var out, errs bytes.Buffer
		got := run(strings.Fields(tt.args), cli.Stdio{In: strings.NewReader(""), Out: &out, Err: &errs})
		if got != tt.want || !strings.Contains(out.String(), tt.out) || errs.String() != tt.err {
			t.Errorf("%q: exit %d, out %q, err %q", tt.args, got, out.String(), errs.String())
		}
	}
}

// full is a standard output that takes nothing, like /dev/full.
type full struct{}

func (full) Write([]byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: "/dev/stdout", Err: unix.ENOSPC}
}

// Each of these commands fails with one message if its results could not be written.
func TestFullOutput(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, args := range []string{
		"version", "version --json", "--version", "help", "help run", "mount --help", "completion bash", "completion zsh", "completion fish",
		"config schema", "policy show --builtin", "policy show --builtin --json", "status", "status --json", "doctor", "doctor --json", "help config",
	} {
		var errs bytes.Buffer
		got := run(strings.Fields(args), cli.Stdio{In: strings.NewReader(""), Out: full{}, Err: &errs})
		const want = "standard output cannot be written: no space left on device; the output is lost\n"
		if got == cli.ExitOK || !strings.HasSuffix(errs.String(), want) || strings.Count(errs.String(), "space left") != 1 || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%q: exit %d, %q", args, got, errs.String())
		}
	}
}
