package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/guard/names"
)

// shells are those that completion can be printed for.
var shells = map[string]func(*cobra.Command, io.Writer) error{
	"bash":       func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) },
	"fish":       func(c *cobra.Command, w io.Writer) error { return c.GenFishCompletion(w, true) },
	"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
	"zsh":        (*cobra.Command).GenZshCompletion,
}

// newCompletionCmd replaces cobra's own, which shows its help for a shell it does
// not know, and succeeds.
func newCompletionCmd(*app) *cobra.Command {
	list := []string{"bash", "fish", "powershell", "zsh"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion of commands, flags, sessions and roots for a shell",
		Long: `Print a script that makes the shell complete commands, flags, and the names of
live sessions and roots. SHELL is bash, fish, powershell or zsh.`,
		Example: `  source <(rootsfs completion bash)
  rootsfs completion fish >~/.config/fish/completions/rootsfs.fish`,
		ValidArgs: list,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return usage(fmt.Errorf("name one shell: %s", strings.Join(list, ", ")))
			case !slices.Contains(list, args[0]):
				return usage(fmt.Errorf("there is no completion for %s; there is for %s", names.Quote(args[0]), strings.Join(list, ", ")))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return shells[args[0]](cmd.Root(), cmd.OutOrStdout())
		},
	}
}

// newHelpCmd replaces cobra's own, which succeeds for a command there is not.
func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]...",
		Short:   "Show what a command does",
		Long:    "Show what a command does, as COMMAND --help does.",
		Example: "  rootsfs help roots add",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, rest, err := cmd.Root().Find(args)
			if err != nil || c == nil {
				return usage(errors.New("no such command; see: rootsfs help"))
			}
			if len(rest) > 0 {
				return unknownCommand(c, rest[0])
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}
