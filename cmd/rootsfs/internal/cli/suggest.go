package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What is misspelt, or stands in the wrong place, is answered with what was
// probably meant. Nothing is guessed and done.

// similarWords returns those of the words that were probably meant, in their order.
func similarWords(typed string, words []string) []string {
	c := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, w := range words {
		c.AddCommand(&cobra.Command{Use: w, Run: func(*cobra.Command, []string) {}})
	}
	found := c.SuggestionsFor(typed)
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !slices.Contains(found, w) })
}

// unknownCommand is the error of a word that is no command below c.
func unknownCommand(c *cobra.Command, typed string) error {
	var all, below []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub.Name())
		}
		for _, one := range sub.Commands() {
			if one.Name() == typed {
				below = append(below, sub.Name()+" "+typed)
			}
		}
	}
	meant := ""
	m := similarWords(typed, all)
	if len(m) == 0 {
		m = below
	}
	if len(m) > 0 {
		meant = ": did you mean " + strings.Join(m, " or ")
	}
	return Usage(fmt.Errorf("unknown command %q%s; see: %s --help", typed, meant, c.CommandPath()))
}

// Group completes a command that only has others below it.
func Group(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args = noSuchCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(below...)
	return cmd
}

// noSuchCommand refuses the arguments of a command that only has others below it.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(c, args[0])
	}
	return nil
}

// flagError says what is wrong with a flag in words of ours: those of strconv and
// time name functions, and a flag that is not there may be one that is.
func (a *App) flagError(c *cobra.Command, err error) error {
	if first := slices.Concat(a.Args, []string{"-"})[0]; !c.HasParent() && !strings.HasPrefix(first, "-") {
		return unknownCommand(c, first) // whose flags cannot be known
	}
	var missing *pflag.NotExistError
	if errors.As(err, &missing) {
		err = fmt.Errorf("%w%s", err, suggestFlag(c, missing))
	}
	return Usage(fmt.Errorf("%w; see: %s --help", valueError(err), c.CommandPath()))
}

// suggestFlag proposes a flag that there is.
func suggestFlag(c *cobra.Command, missing *pflag.NotExistError) string {
	typed := missing.GetSpecifiedName()
	if short := missing.GetSpecifiedShortnames(); short != "" {
		typed, _, _ = strings.Cut(short, "=") // -root was one dash too few
	}
	if !c.HasParent() {
		return ": flags follow the command, as in rootsfs status --json"
	}
	if len(typed) < 2 {
		return ""
	}
	var all []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			all = append(all, f.Name)
		}
	})
	if slices.Contains(all, typed) {
		return ": write --" + typed
	}
	if m := similarWords(typed, all); len(m) > 0 {
		return ": did you mean --" + strings.Join(m, " or --")
	}
	return ""
}

// rootHint says how a root is given, to who gave a word too many to a command that
// takes roots.
func rootHint(c *cobra.Command) string {
	f := c.Flags().Lookup("root")
	switch {
	case f == nil:
		return ""
	case f.Value.Type() != "stringArray":
		return " (a root is written --root NAME)"
	}
	return " (a root is written --root PATH)"
}
