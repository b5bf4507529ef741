package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// R092: every command says what it does at length, with examples, and every
// reporting command takes --json.
func TestEveryCommandIsExplained(t *testing.T) {
	// These do something else than report.
	noJSON := map[string]bool{"rootsfs": true, "roots": true, "net": true, "audit": true, "consent": true, "metrics": true, "completion": true, "policy": true, "config": true, "trash": true, "schema": true, "run": true, "help": true, "top": true}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden {
			return // not for people
		}
		if c.Long == "" || c.Example == "" {
			t.Errorf("%s: no long help or no example", c.CommandPath())
		}
		if c.Flags().Lookup("json") == nil && !noJSON[c.Name()] {
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
	walk(newRootCmd(newApp(nil, stdio{})))
}

// Every flag that takes a path takes ~ for the home directory, also where no shell has
// seen it.
func TestEveryPathMayBeginInHome(t *testing.T) {
	inRoot := map[string]bool{"rootsfs trash restore --to": true}
	seen := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			what, _ := pflag.UnquoteUsage(f)
			if !slices.Contains([]string{"file", "directory", "path", "session"}, what) || inRoot[c.CommandPath()+" --"+f.Name] {
				return
			}
			seen++
			if _, ok := f.Value.(pathValue); !ok {
				t.Errorf("%s --%s: make it with pathVar", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCmd(newApp(nil, stdio{})))
	if seen < 20 {
		t.Errorf("only %d flags take a path", seen)
	}
	t.Setenv("HOME", "/home/x")
	for in, want := range map[string]string{"~": "/home/x", "~/a": "/home/x/a", "a/~": "a/~", "~b": "~b", "/~/": "/~/"} {
		var got string
		if err := (pathValue{&got}).Set(in); err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	t.Setenv("HOME", "")
	var errs bytes.Buffer
	const want = "rootsfs: --config \"~/c\": HOME is not set: write the path in full; see: rootsfs doctor --help\n"
	if got := run([]string{"doctor", "--config", "~/c"}, stdio{in: strings.NewReader(""), out: io.Discard, err: &errs}); got != exitUsage || errs.String() != want {
		t.Errorf("exit %d, %q", got, errs.String())
	}
}

// A command line that begins with a command's name has that command, and every
// other one has all of them.
func TestCommands(t *testing.T) {
	for _, c := range commands {
		root := newRootCmd(newApp([]string{c.name, "--help"}, stdio{}))
		if got, _, err := root.Find([]string{c.name}); err != nil || got.Name() != c.name || got == root {
			t.Errorf("%s: found %v, %v", c.name, got.Name(), err)
		}
	}
	for _, args := range [][]string{nil, {"help", "run"}, {"--help"}, {"nosuch"}, {cobra.ShellCompRequestCmd, "r"}} {
		root := newRootCmd(newApp(args, stdio{}))
		for _, c := range commands {
			if got, _, err := root.Find([]string{c.name}); err != nil || got.Name() != c.name {
				t.Errorf("%q: no %s", args, c.name)
			}
		}
	}
}

// run is testable in process.
func TestRunInProcess(t *testing.T) {
	for _, tt := range []struct {
		args string
		want int
		out  string
		err  string
	}{
		{"version", exitOK, "rootsfs ", ""},
		{"version --json", exitOK, `"go": "go`, ""},
		{"--version", exitOK, readVersion().line() + "\n", ""},
		{"help", exitOK, "Usage:", ""},
		{"help roots add", exitOK, "rootsfs roots add [SPEC]...", ""},
		{"help nosuch", exitUsage, "", "rootsfs: \"nosuch\" is not a topic or command; see: rootsfs help\n"},
		{"help roots nosuch", exitUsage, "", "rootsfs: unknown command \"nosuch\"; see: rootsfs roots --help\n"},
		{"completion zsh", exitOK, "#compdef rootsfs", ""},
		{"completion fish", exitOK, "fish", ""},
		{"completion powershell", exitOK, "powershell", ""},
		{"completion tcsh", exitUsage, "", "rootsfs: there is no completion for \"tcsh\"; there is for bash, fish, powershell, zsh\n"},
		{"completion", exitUsage, "", "rootsfs: name one shell: bash, fish, powershell, zsh\n"},
		{"roots list --session=", exitUsage, "", "rootsfs: --session is empty: give it a value, or leave it out; see: rootsfs roots list --help\n"},
		{"mount --name= /mnt", exitUsage, "", "rootsfs: --name is empty: give it a value, or leave it out; see: rootsfs mount --help\n"},
		{"allow --last --for 0", exitUsage, "", "rootsfs: --for 0s: write a positive duration, such as 30m\n"},
		{"allow --last --for 1h --for-session", exitUsage, "", "rootsfs: --for and --for-session: use one of them\n"},
		{"allow --last --for soon", exitUsage, "", "rootsfs: --for \"soon\": write a duration, such as 30m or 8h; see: rootsfs allow --help\n"},
		{"trash frobnicate", exitUsage, "", "rootsfs: unknown command \"frobnicate\"; see: rootsfs trash --help\n"},
		{"trash empty", exitUsage, "", "rootsfs: name what to remove for good, or use --all or --older-than; see: rootsfs trash list\n"},
		{"trash empty --all x", exitUsage, "", "rootsfs: ids, --all and --older-than cannot be combined: use one of them\n"},
		{"roots add --trash-age 0 x", exitUsage, "", "rootsfs: --trash-size and --trash-age need --trash: write it as well\n"},
		{"roots add --trash --trash-age 0 x", exitUsage, "", "rootsfs: --trash-age 0s: write a duration from 1s to 8760h0m0s, such as 72h\n"},
		{"roots add --trash-size 1G x", exitUsage, "", "rootsfs: --trash-size and --trash-age need --trash: write it as well\n"},
		{"config frobnicate", exitUsage, "", "rootsfs: unknown command \"frobnicate\"; see: rootsfs config --help\n"},
		{"config schema", exitOK, "draft/2020-12/schema", ""},
		{"consent frobnicate", exitUsage, "", "rootsfs: unknown command \"frobnicate\"; see: rootsfs consent --help\n"},
		{"consent approve", exitUsage, "", "rootsfs: a question's id is missing from the command line; see: rootsfs consent approve --help\n"},
		{"consent approve x --for 0", exitUsage, "", "rootsfs: --for 0s: write a duration of a second or more, such as 30m\n"},
		{"consent approve x --idle 10ms", exitUsage, "", "rootsfs: --idle 10ms: write a duration from 1s to 8760h0m0s, such as 10m\n"},
		{"consent approve x --only y", exitUsage, "", "rootsfs: --only \"y\": write whole numbers, as in 1,3; see: rootsfs consent approve --help\n"},
		{"consent approve x --mode rx", exitUsage, "", "rootsfs: --mode: unknown mode \"rx\": write ro, rw, or a comma list of read, list, write, append, create, delete, rename, watch\n"},
		{"consent deny", exitUsage, "", "rootsfs: name the question to deny, or use --all; see: rootsfs consent list\n"},
		{"consent forget", exitUsage, "", "rootsfs: name the denial to lift, or use --all; see: rootsfs consent denials\n"},
		{"consent forget --all x", exitUsage, "", "rootsfs: --all and an id cannot be combined: use one of them\n"},
		{"consent forget x y", exitUsage, "", "rootsfs: \"y\" is one argument too many; see: rootsfs consent forget --help\n"},
		{"consent deny --all x", exitUsage, "", "rootsfs: --all and an id cannot be combined: use one of them\n"},
		{"revoke --all --subject a", exitUsage, "", "rootsfs: --subject cannot be combined with names or --all: use one of them\n"},
		{"serve --session x --abuse-escapes 3", exitUsage, "", "rootsfs: --session and --abuse-escapes cannot be combined: the session has its own roots, rules and log; set it where the session is started, or at once in [abuse] of its configuration\n"},
		{"mount --abuse-suspend /mnt", exitUsage, "", "rootsfs: --abuse-suspend needs a bound: write --abuse-escapes or --abuse-refusals as well\n"},
		{"revoke --all a", exitUsage, "", "rootsfs: --all and names cannot be combined: use one of them\n"},
		{"roots add", exitUsage, "", "rootsfs: a root is missing from the command line; see: rootsfs roots add --help\n"},
		{"roots add --save --once x", exitUsage, "", "rootsfs: --save and --once cannot be combined: a grant of one use is not kept\n"},
		{"roots add --config x .", exitUsage, "", "rootsfs: --config names the file for --save: write --save as well\n"},
		{"", exitOK, "Usage:", ""},
		{"frobnicate", exitUsage, "", "rootsfs: unknown command \"frobnicate\"; see: rootsfs --help\n"},
		// A beginner's mistakes are told from what was meant.
		{"mont --root d m", exitUsage, "", "rootsfs: unknown command \"mont\": did you mean mount; see: rootsfs --help\n"},
		{"stats", exitUsage, "", "rootsfs: unknown command \"stats\": did you mean status; see: rootsfs --help\n"},
		{"roots lst", exitUsage, "", "rootsfs: unknown command \"lst\": did you mean list or set; see: rootsfs roots --help\n"},
		{"renew code", exitUsage, "", "rootsfs: unknown command \"renew\": did you mean roots renew; see: rootsfs --help\n"},
		{"show --denied", exitUsage, "", "rootsfs: unknown command \"show\": did you mean audit show or policy show; see: rootsfs --help\n"},
		{"--json status", exitUsage, "", "rootsfs: unknown flag: --json: flags follow the command, as in rootsfs status --json; see: rootsfs --help\n"},
		{"mount -root d m", exitUsage, "", "rootsfs: unknown shorthand flag: 'r' in -root: write --root; see: rootsfs mount --help\n"},
		{"mount --roots d m", exitUsage, "", "rootsfs: unknown flag: --roots: did you mean --root; see: rootsfs mount --help\n"},
		{"mount -r d m", exitUsage, "", "rootsfs: unknown shorthand flag: 'r' in -r; see: rootsfs mount --help\n"},
		{"mount d m", exitUsage, "", "rootsfs: \"m\" is one argument too many (a root is written --root PATH); see: rootsfs mount --help\n"},
		{"unmount a b", exitUsage, "", "rootsfs: \"b\" is one argument too many; see: rootsfs unmount --help\n"},
		{"run / -- ls", exitUsage, "", "rootsfs: \"/\" is not a command. To approve a root, write --root /\n"},
		{"run no-such-command -- ls", exitUsage, "", "rootsfs: \"no-such-command\" is not a command. To approve a root, write --root no-such-command\n"},
		{"run / ls", exitUsage, "", "rootsfs: \"/\" is a directory, not a command. To approve it as a root, write --root /, then -- and the command\n"},
		{"run ls --root d", exitUsage, "", "rootsfs: --root is written behind the command. Write rootsfs run --root PATH -- ls; if --root is the command's own, write -- before the command\n"},
		{"run ls --root=d", exitUsage, "", "rootsfs: --root is written behind the command. Write rootsfs run --root PATH -- ls; if --root is the command's own, write -- before the command\n"},
		{"version --a\x1b[31mb\u202e", exitUsage, "", "rootsfs: unknown flag: --a\\u{1b}[31mb\\u{202e}; see: rootsfs version --help\n"},
		{"version --frobnicate", exitUsage, "", "rootsfs: unknown flag: --frobnicate; see: rootsfs version --help\n"},
	} {
		var out, errs bytes.Buffer
		got := run(strings.Fields(tt.args), stdio{in: strings.NewReader(""), out: &out, err: &errs})
		if got != tt.want || !strings.Contains(out.String(), tt.out) || errs.String() != tt.err {
			t.Errorf("%q: exit %d, out %q, err %q", tt.args, got, out.String(), errs.String())
		}
	}
}

// full is a standard output that takes nothing, as /dev/full.
type full struct{}

func (full) Write([]byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: "/dev/stdout", Err: unix.ENOSPC}
}

// Results that could not be written are a failure that is said, once, by whatever
// command and in whatever way it prints.
func TestFullOutput(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, args := range []string{
		"version", "version --json", "--version", "help", "help run", "mount --help", "completion bash", "completion zsh", "completion fish",
		"config schema", "policy show --builtin", "status", "status --json", "doctor",
	} {
		var errs bytes.Buffer
		got := run(strings.Fields(args), stdio{in: strings.NewReader(""), out: full{}, err: &errs})
		const want = "standard output cannot be written: no space left on device; the output is lost\n"
		if got == exitOK || !strings.HasSuffix(errs.String(), want) || strings.Count(errs.String(), "space left") != 1 || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%q: exit %d, %q", args, got, errs.String())
		}
	}
	// A command's own failure keeps its exit code.
	a := newApp(nil, stdio{out: full{}})
	a.say("x")
	if got := exitCode(a.told(usage(errors.New("y")))); got != exitUsage {
		t.Errorf("exit %d", got)
	}
}

// The service manager is told in one datagram; without one nothing happens.
func TestNotifySystemd(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: sock, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", "")
	notifySystemd("READY=0")
	t.Setenv("NOTIFY_SOCKET", sock)
	notifySystemd("READY=1")
	buf := make([]byte, 64)
	n, err := l.Read(buf)
	if err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

// The journal is only taken for ours if standard error is the stream that
// systemd made, not because the variable was inherited.
func TestJournalIsVerified(t *testing.T) {
	for _, v := range []string{"", "8:1", "nonsense", "1"} {
		t.Setenv("JOURNAL_STREAM", v)
		if journal() {
			t.Errorf("JOURNAL_STREAM=%s is believed", v)
		}
	}
}
