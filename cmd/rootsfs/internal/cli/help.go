package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/help"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/markdown"
	"github.com/rootsfs/rootsfs/guard/names"
)

// newHelpCmd replaces cobra's own, which succeeds for a command there is not, and
// knows no topics.
func newHelpCmd(a *App) *cobra.Command {
	return &cobra.Command{
		Use:               "help [TOPIC | COMMAND...]",
		Short:             "Show a topic of the manual, or what a command does",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeHelp,
		RunE:              a.help,
	}
}

// help shows what args name: a topic, a command, or nothing, which is the list of both.
func (a *App) help(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		if page, ok := help.Page(args[0]); ok {
			return a.page(markdown.Text(page, a.width()))
		}
	}
	c, rest, err := cmd.Root().Find(args)
	switch {
	case err != nil || c == nil:
		return Usage(errors.New("no such command; see: rootsfs help"))
	case len(rest) > 0 && !c.HasParent():
		return unknownTopic(c, rest[0])
	case len(rest) > 0:
		return unknownCommand(c, rest[0])
	}
	c.InitDefaultHelpFlag()
	return c.Help()
}

// unknownTopic is the error of a word that names no topic and no command.
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
		return Usage(fmt.Errorf("%q is not a topic or command; see: rootsfs help", typed))
	}
	ways := fmt.Sprintf("rootsfs help %s", names.ShellWord(meant[0]))
	for _, word := range meant[1:] {
		ways += fmt.Sprintf(", or rootsfs help %s", names.ShellWord(word))
	}
	return Usage(fmt.Errorf("%q is not a topic or command; see: %s", typed, ways))
}

// completeHelp offers topics and commands, or the commands below those that are named.
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

// width is how many columns help may take: those of the terminal, if standard output
// is one, but no more than are read easily.
func (a *App) width() int {
	const usual, most = 80, 100
	f, ok := a.Stdout.(*os.File)
	if !ok {
		return usual
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return usual
	}
	return min(int(size.Col), most)
}

// page prints text: through $PAGER, or less, if standard output is a terminal.
func (a *App) page(text string) error {
	out, ok := a.Stdout.(*os.File)
	pager := cmp.Or(os.Getenv("PAGER"), "less")
	if !ok || !IsTerminal(out) || pager == "cat" {
		_, err := io.WriteString(a, text)
		return err
	}
	cmd := exec.Command("sh", "-c", pager)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), out, a.Stderr
	cmd.Env = append(cmd.Environ(), "LESS="+cmp.Or(os.Getenv("LESS"), "FRX"))
	err := cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() != 126 && ended.ExitCode() != 127 {
		return nil // left by its user, who need not have read to the end
	}
	if err != nil {
		_, err = io.WriteString(a, text)
	}
	return err
}
