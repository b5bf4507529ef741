package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/help"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/markdown"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard/names"
)

const helpLong = `Show a topic of the manual, or what a command does. Without arguments, list the
commands and topics. On a terminal, topics are shown by $PAGER.

Where a topic has a command's name, help shows the topic, and COMMAND --help the
command.

--man writes the manual for man(1): a page for each command into DIR/man1, and one
for each topic into DIR/man7. DIR is made if it is missing.`

const helpExamples = `  rootsfs help policy       # a topic
  rootsfs help roots add    # a command, as rootsfs roots add --help
  rootsfs help --man ~/.local/share/man`

// newHelpCmd returns the command help. It replaces the help command of cobra, which succeeds for an
// unknown command and has no topics.
func newHelpCmd(a *app) *cobra.Command {
	var man string
	cmd := &cobra.Command{
		Use:               "help [TOPIC | COMMAND...]",
		Short:             "Show a topic of the manual, or what a command does",
		Long:              helpLong,
		Example:           helpExamples,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !cmd.Flags().Changed("man"):
				return a.help(cmd, args)
			case len(args) > 0:
				return usage(errors.New("--man writes the whole manual: leave out the topic or command"))
			}
			return writeMan(cmd.Root(), man)
		},
	}
	cmd.Flags().StringVar(&man, "man", "", "write the manual's pages below `DIR`, for man(1)")
	_ = cmd.MarkFlagDirname("man") // the flag is there
	return cmd
}

// help shows the topic or command that args name, or a list of both if there are no args.
func (a *app) help(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		if page, ok := help.Page(args[0]); ok {
			return a.page(markdown.Text(page, a.width()))
		}
	}
	c, rest, err := cmd.Root().Find(args)
	switch {
	case err != nil || c == nil:
		return usage(errors.New("no such command; see: rootsfs help"))
	case len(rest) > 0 && !c.HasParent():
		return unknownTopic(c, rest[0])
	case len(rest) > 0:
		return unknownCommand(c, rest[0])
	}
	c.InitDefaultHelpFlag()
	return c.Help()
}

// unknownTopic returns the error for a word that names no topic and no command.
func unknownTopic(root *cobra.Command, typed string) error {
	var all []string
	for _, t := range help.Topics() {
		all = append(all, t.Name)
	}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && !slices.Contains(all, c.Name()) {
			all = append(all, c.Name())
		}
	}
	meant := help.Near(typed)
	if len(meant) == 0 {
		meant = similarWords(typed, all)
	}
	if len(meant) == 0 {
		return usage(fmt.Errorf("%q is not a topic or command; see: rootsfs help", typed))
	}
	ways := fmt.Sprintf("rootsfs help %s", names.ShellWord(meant[0]))
	for _, word := range meant[1:] {
		ways += fmt.Sprintf(", or rootsfs help %s", names.ShellWord(word))
	}
	return usage(fmt.Errorf("%q is not a topic or command; see: %s", typed, ways))
}

// completeHelp offers topics and commands, or the subcommands of the command in args.
func completeHelp(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var out []string
	if len(args) == 0 {
		for _, t := range help.Topics() {
			out = append(out, cobra.CompletionWithDesc(t.Name, t.Summary()))
		}
	}
	c, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	for _, sub := range c.Commands() {
		_, isTopic := help.Page(sub.Name())
		if sub.IsAvailableCommand() && (len(args) > 0 || !isTopic) {
			out = append(out, cobra.CompletionWithDesc(sub.Name(), sub.Short))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// width returns how many columns help uses. If standard output is a terminal, help uses the
// terminal's columns, but no more than are easy to read.
func (a *app) width() int {
	const usual, most = 80, 100
	if n := columns(a.Stdout); n < math.MaxInt32 {
		return min(n, most)
	}
	return usual
}

// shellSyntax has characters that a shell interprets. A word without them is the plain name of a
// program.
const shellSyntax = "|&;<>()$`\\\"'*?[#~={}"

// page prints text. If standard output is a terminal, page shows the text with $PAGER, or with
// less(1) if PAGER is not set.
func (a *app) page(text string) error {
	out, ok := a.Stdout.(*os.File)
	pager := cmp.Or(os.Getenv("PAGER"), "less")
	if !ok || !isTerminal(out) || pager == "cat" {
		_, err := io.WriteString(a, text)
		return err
	}
	judge := writabledirs.NewJudge()
	words := []string{"sh", "-c", pager}
	sh, err := judge.Command(words)
	if err == nil {
		if first, _, _ := strings.Cut(strings.TrimSpace(pager), " "); !strings.ContainsAny(first, shellSyntax) {
			_, err = judge.Program(first)
		}
	}
	if err != nil {
		if !errors.Is(err, exec.ErrNotFound) {
			a.warn("the pager is not used: %s", names.EscapeQuoted(err.Error()))
		}
		_, err := io.WriteString(a, text)
		return err
	}
	cmd := exec.Command(sh, words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = strings.NewReader(text), out, a.Stderr, "/"
	cmd.Env = append(judge.Environ(nil), "LESS="+cmp.Or(os.Getenv("LESS"), "FRX"))
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() != exitNotExecutable && ended.ExitCode() != exitNoCommand {
		return nil // the user left the pager, perhaps before the end
	}
	if err != nil {
		_, err = io.WriteString(a, text)
	}
	return err
}

// commandGroups are the commands that the help of rootsfs itself lists, grouped by purpose.
var commandGroups = []struct{ title, names string }{
	{"Start", "mount run serve unmount"},
	{"Look", "status why top console audit metrics"},
	{"Decide", "roots net revoke pause resume allow consent policy stage undo trash"},
	{"Set up", "setup wrap config doctor fleet completion version help"},
}

// flagGroups are the flags of all commands with many flags, grouped by subject. For a command with
// more than manyFlags flags, those in more are shown by --help --all only.
var flagGroups = []struct{ title, first, more string }{
	{"Roots", "root stage once for until subject session", "profile config cross-file-systems allow-system allow-root-dir"},
	{"Confinement", "net net-ask secret env home level unconfined learn", "dir socket net-any-sni net-limit listen memory-max home-max pids-max links map mcp on-revoke"},
	{"MCP", "ask", ""},
	{"HTTP", "http token-file tls-cert tls-key oauth-issuer", "no-token host origin oauth-scope oauth-audience max-sessions max-user-sessions"},
	{"Names that are hidden or protected", "hide protect", "deny allow no-default-policy respect-gitignore"},
	{"Limits", "limit", ""},
	{"Trash", "trash", ""},
	{"Mount", "read-only allow-other", "cache locks posix transport"},
	{"Session", "daemon name verbose", ""},
}

// Help begins the meaning of a command or topic at wordColumn, and that of a flag at flagColumn.
const (
	wordColumn = 19
	flagColumn = 28
)

// Help shows up to listedFlags flags of a command in one list, and a larger number in groups. If
// there are more than manyFlags, it leaves out those in flagGroups.more, unless --all is given.
const (
	listedFlags = 12
	manyFlags   = 20
)

// allFlag adds --all, which is used with --help, to a command with many flags.
func allFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("all", false, "with --help: show every flag")
	_ = cmd.Flags().MarkHidden("all") // fails only for an unknown flag
	run := cmd.RunE
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if c.Flags().Changed("all") {
			return usage(fmt.Errorf("--all goes with --help: write %s --help --all", c.CommandPath()))
		}
		return run(c, args)
	}
}

// showHelp prints the help of a command.
func (a *app) showHelp(c *cobra.Command, _ []string) {
	width := a.width()
	usage := strings.Replace(c.UseLine(), " [flags]", " [FLAG]...", 1)
	if !c.HasParent() {
		usage = "rootsfs COMMAND [FLAG]..."
	}
	fmt.Fprintf(a, "%s\n\nUsage:\n  %s\n", strings.TrimSpace(c.Long), usage)
	if c.HasAvailableSubCommands() && c.HasParent() {
		fmt.Fprintf(a, "  %s COMMAND\n", c.CommandPath())
	}
	if c.HasExample() {
		fmt.Fprintf(a, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		a.showCommands(c, width)
	}
	a.showFlags(c, width)
	if !c.HasParent() {
		fmt.Fprintf(a, "\nTopics, shown by rootsfs help TOPIC:\n")
		for _, t := range help.Topics() {
			a.entry(t.Name, t.Summary(), wordColumn, width)
		}
		fmt.Fprintf(a, "\nrootsfs COMMAND --help shows what a command does, and its flags.\n")
		return
	}
	if page, _, _ := strings.Cut(strings.TrimPrefix(c.CommandPath(), "rootsfs "), " "); topicFor(page) != "" {
		fmt.Fprintf(a, "\nMore: rootsfs help %s\n", names.ShellWord(topicFor(page)))
	}
}

// topicFor returns the topic with more about a command; "": there is none.
func topicFor(command string) string {
	others := map[string]string{
		"net": "network", "mount": "roots", "run": "confinement", "wrap": "hosts", "revoke": "roots", "allow": "policy", "top": "console",
		"resume": "limits", "pause": "roots", "status": "json", "doctor": "troubleshooting", "setup": "hosts", "why": "troubleshooting", "unmount": "roots",
	}
	if _, ok := help.Page(command); ok {
		return command
	}
	return others[command]
}

// showCommands lists the commands below c: in groups if c is rootsfs itself.
func (a *app) showCommands(c *cobra.Command, width int) {
	if c.HasParent() {
		fmt.Fprintf(a, "\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				a.entry(sub.Name(), sub.Short, wordColumn, width)
			}
		}
		return
	}
	for _, g := range commandGroups {
		fmt.Fprintf(a, "\n%s:\n", g.title)
		for name := range strings.FieldsSeq(g.names) {
			i := slices.IndexFunc(c.Commands(), func(sub *cobra.Command) bool { return sub.Name() == name })
			if i >= 0 {
				a.entry(name, c.Commands()[i].Short, wordColumn, width)
			}
		}
	}
}

// flagGroup is a group of flags of one command.
type flagGroup struct {
	title string
	flags []*pflag.Flag
}

// groupFlags sorts a command's flags into groups, and returns how many it leaves out. If there are
// more than manyFlags, it leaves out those in flagGroups.more, unless all is set.
func groupFlags(c *cobra.Command, all bool) (groups []flagGroup, omitted int) {
	var flags []*pflag.Flag
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags = append(flags, f)
		}
	})
	if len(flags) <= listedFlags {
		return []flagGroup{{"Flags", flags}}, 0
	}
	all = all || len(flags) <= manyFlags
	take := func(names string) (taken []*pflag.Flag) {
		for name := range strings.FieldsSeq(names) {
			if i := slices.IndexFunc(flags, func(f *pflag.Flag) bool { return f.Name == name }); i >= 0 {
				taken = append(taken, flags[i])
				flags = slices.Delete(flags, i, i+1)
			}
		}
		return taken
	}
	for _, g := range flagGroups {
		shown, more := take(g.first), take(g.more)
		if all {
			shown = append(shown, more...)
		} else {
			omitted += len(more)
		}
		if len(shown) > 0 {
			groups = append(groups, flagGroup{g.title, shown})
		}
	}
	return append(groups, flagGroup{"Other", flags}), omitted
}

// showFlags lists a command's flags.
func (a *app) showFlags(c *cobra.Command, width int) {
	all, _ := c.Flags().GetBool("all")
	groups, omitted := groupFlags(c, all)
	for _, g := range groups {
		fmt.Fprintf(a, "\n%s:\n", g.title)
		for _, f := range g.flags {
			name, text := flagText(f)
			a.entry(name, text, flagColumn, width)
		}
	}
	if omitted > 0 {
		fmt.Fprintf(a, "\n%d more flags: %s --help --all\n", omitted, c.CommandPath())
	}
}

// flagText returns a flag as it is written, and its meaning.
func flagText(f *pflag.Flag) (name, text string) {
	what, text := pflag.UnquoteUsage(f)
	switch what { // names of Go types mean nothing to the reader
	case "string":
		what = "value"
	case "int", "int64", "float":
		what = "number"
	case "count": // it takes no value
		what = ""
	}
	name = "    --" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", --" + f.Name
	}
	if what != "" {
		name += " " + what
	}
	if def := f.DefValue; def != "" && def != "false" && def != "0" && def != "0s" && def != "[]" && !strings.Contains(text, "(default") {
		text += " (default " + def + ")"
	}
	return name, text
}

// entry prints a word and its meaning. The meaning begins at column, and is wrapped at width.
func (a *app) entry(word, text string, column, width int) {
	first := "  " + word
	if utf8.RuneCountInString(first) >= column {
		fmt.Fprintln(a, first)
		first = ""
	}
	for _, line := range markdown.Wrap(text, width-column) {
		fmt.Fprintf(a, "%-*s%s\n", column, first, line)
		first = ""
	}
}
