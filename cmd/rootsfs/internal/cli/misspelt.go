package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard/names"
)

// What is misspelt, or stands in the wrong place, is answered with what was
// probably meant. Nothing is guessed and done.

// near returns those of the words that were probably meant, in their order.
func near(typed string, words []string) []string {
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
	m := near(typed, all)
	if len(m) == 0 {
		m = below
	}
	if len(m) > 0 {
		meant = ": did you mean " + strings.Join(m, " or ")
	}
	return usage(fmt.Errorf("unknown command %q%s; see: %s --help", typed, meant, c.CommandPath()))
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
func (a *app) flagError(c *cobra.Command, err error) error {
	if first := slices.Concat(a.args, []string{"-"})[0]; !c.HasParent() && !strings.HasPrefix(first, "-") {
		return unknownCommand(c, first) // whose flags cannot be known
	}
	var missing *pflag.NotExistError
	if errors.As(err, &missing) {
		err = fmt.Errorf("%w%s", err, meantFlag(c, missing))
	}
	return usage(fmt.Errorf("%w; see: %s --help", valueError(err), c.CommandPath()))
}

// meantFlag proposes a flag that there is.
func meantFlag(c *cobra.Command, missing *pflag.NotExistError) string {
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
	if m := near(typed, all); len(m) > 0 {
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

// runArgs checks the words of `rootsfs run`, of which the first that is no flag begins
// the command. Without -- between, what was meant for us would silently be the
// command's: a server would be started without its root.
func runArgs(c *cobra.Command, args []string) error {
	if err := nargs(1, -1, "the command")(c, args); err != nil || c.ArgsLenAtDash() >= 0 {
		return err
	}
	in, err := os.Stat(args[0])
	dir := err == nil && in.IsDir()
	if slices.Contains(args, "--") { // the command's own, or ours in the wrong place
		if net, ok := c.Flags().Lookup("net").Value.(*netValue); ok && net.all && !dir {
			if _, err := network.ParseRules(args[0]); err == nil && strings.ContainsAny(args[0], ".:") {
				return usage(fmt.Errorf("%s is not a command. To approve hosts, write them behind an equals sign: --net=%s", names.Quote(args[0]), names.ShellWord(args[0])))
			}
		}
		if _, err := exec.LookPath(args[0]); dir || err != nil && !strings.Contains(args[0], "/") {
			return usage(fmt.Errorf("%s is not a command. To approve a root, write --root %s", names.Quote(args[0]), names.ShellWord(args[0])))
		}
		return nil
	}
	if c.Flags().Changed("root") {
		return nil
	}
	if dir {
		return usage(fmt.Errorf("%s is a directory, not a command. To approve it as a root, write --root %s, then -- and the command", names.Quote(args[0]), names.ShellWord(args[0])))
	}
	for _, arg := range args[1:] {
		if arg == "--root" || strings.HasPrefix(arg, "--root=") {
			return usage(fmt.Errorf("--root is written behind the command. Write rootsfs run --root PATH -- %s; if --root is the command's own, write -- before the command", names.ShellWord(args[0])))
		}
	}
	return nil
}

// unsetEnv tells of variables that --env names and that are not set here: the command
// does without, and says nothing of why it does not work.
func (a *app) unsetEnv(list []string) {
	for _, name := range list {
		if _, set := os.LookupEnv(name); !set && !strings.ContainsAny(name, "=*") {
			a.warn("--env %s: not set here, so the command does not get it", names.Escape(name))
		}
	}
}
