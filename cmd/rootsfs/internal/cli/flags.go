package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/names"
)

// valueError adds the expected form of a flag's value to an error.
func valueError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	want := map[string]string{
		"duration": "a duration, such as 30m or 8h", "int": "a whole number", "int64": "a whole number", "count": "a whole number",
		"intSlice": "whole numbers, as in 1,3", "float64": "a number", "bool": "true or false",
	}[bad.GetFlag().Value.Type()]
	if bad.GetFlag().Value.Type() == (pathValue{}).Type() {
		return fmt.Errorf("--%s %w", bad.GetFlag().Name, bad.Unwrap())
	}
	if want == "" {
		return err
	}
	return fmt.Errorf("--%s %s: write %s", bad.GetFlag().Name, names.Quote(bad.GetValue()), want)
}

// emptyFlags refuses flags with an empty value, such as that of an unset shell variable: an empty
// value would silently mean the default.
func emptyFlags(c *cobra.Command) error {
	var err error
	c.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && f.Value.Type() == "string" && f.Value.String() == "" {
			err = usage(fmt.Errorf("--%s is empty: give it a value, or leave it out; see: %s --help", f.Name, c.CommandPath()))
		}
	})
	return err
}

// argCount refuses fewer arguments than least, and more than most unless most is negative.
// what is the word for a missing argument in the error.
func argCount(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usage(fmt.Errorf("%s is missing from the command line; see: %s --help", what, c.CommandPath()))
		case most >= 0 && len(args) > most:
			return usage(fmt.Errorf("%q is one argument too many%s; see: %s --help", args[most], rootHint(c), c.CommandPath()))
		}
		return nil
	}
}

// oneOf returns an error unless exactly one of several things was given. what names them, such as
// "names and --all". missing is the text of the error if none was given.
func oneOf(what, missing string, given ...bool) error {
	given = slices.DeleteFunc(given, func(is bool) bool { return !is })
	switch len(given) {
	case 0:
		return usage(errors.New(missing))
	case 1:
		return nil
	}
	return usage(fmt.Errorf("%s cannot be combined: use one of them", what))
}

// jsonFlag adds --json.
func (a *app) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.JSON, "json", false, "print JSON")
}

// sessionFlag adds --session.
func (a *app) sessionFlag(cmd *cobra.Command) {
	pathVar(cmd.Flags(), &a.Session, "session", "name or mountpoint of the live `session` (default: the only one)")
	completeFlag(cmd, "session", completeSessions(func(in control.Info) (word, what string) { return in.Name, in.Point }))
}

// ofSession adds the flags of a command about one session, and returns the command.
func (a *app) ofSession(cmd *cobra.Command) *cobra.Command {
	a.sessionFlag(cmd)
	a.jsonFlag(cmd)
	return cmd
}

// rootFlag adds --root, which names a root of a session.
func (a *app) rootFlag(cmd *cobra.Command, p *string, usage string) {
	cmd.Flags().StringVar(p, "root", "", usage)
	completeFlag(cmd, "root", a.completeRoots(-1))
}

// pathVar adds a flag whose value is a path, or can be one. The value has ~ expanded.
func pathVar(fs *pflag.FlagSet, p *string, name, usage string) {
	fs.Var(pathValue{p}, name, usage)
}

// pathValue implements pflag.Value.
type pathValue struct{ p *string }

func (v pathValue) Set(s string) (err error) {
	*v.p, err = expandHome(s)
	return err
}

func (v pathValue) String() string {
	if v.p == nil { // pflag asks a zero value for the type's default
		return ""
	}
	return *v.p
}

func (v pathValue) Type() string { return "string" }

// hideFlags hides flags from help: older names, flags with a key in the configuration, and
// defaults.
func hideFlags(fs *pflag.FlagSet, flags ...string) {
	for _, name := range flags {
		_ = fs.MarkHidden(name) // fails only for an unknown flag
	}
}

// completeFlag makes f complete a flag of cmd.
func completeFlag(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, f) // an error would say that the flag was not defined
}

// fixedWords completes a flag with fixed words.
func fixedWords(cmd *cobra.Command, flag string, list ...string) {
	completeFlag(cmd, flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
}

// expandHome expands ~ in a path. The shell leaves ~ in quotes, and behind = as in name=~/docs,
// and a host that starts rootsfs by its configuration uses no shell. Unexpanded, ~ would be a
// directory of that name.
func expandHome(path string) (string, error) {
	if path != "~" && !strings.HasPrefix(path, "~/") {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("%s: HOME is not set: write the path in full", names.Quote(path))
	}
	return filepath.Join(home, path[1:]), nil
}

// workingDir returns the working directory, for paths on the command line.
func workingDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", errors.New("the working directory is gone; cd to one that exists")
	}
	return dir, nil
}

// homeDirs returns the home directories of this machine's users, each as written and resolved:
// those in /etc/passwd, and the caller's own.
func homeDirs() []string {
	var out []string
	add := func(dir string) {
		if filepath.IsAbs(dir) && filepath.Clean(dir) != "/" {
			out = append(out, filepath.Clean(dir), session.Resolve(dir))
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		add(home)
	}
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return out
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Split(lines.Text(), ":"); len(fields) == 7 {
			add(fields[5])
		}
	}
	return out
}

// For a misspelt or misplaced word, the error proposes the word that was probably meant. No
// command acts on the proposal.

// similarWords returns the words that were probably meant, in their order: those that begin
// with typed, else those that differ from it in up to two characters.
func similarWords(typed string, words []string) []string {
	begun := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, typed) })
	if len(begun) > 0 {
		return begun
	}
	c := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, w := range words {
		c.AddCommand(&cobra.Command{Use: w, Run: func(*cobra.Command, []string) {}})
	}
	found := c.SuggestionsFor(typed)
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !slices.Contains(found, w) })
}

// unknownCommand returns the error for a word that is no command below c.
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
		if slices.Contains(sub.SuggestFor, typed) {
			below = append(below, sub.Name())
		}
	}
	meant := ""
	m := similarWords(typed, all)
	if len(m) == 0 {
		m = below
	}
	if len(m) == 0 && c.HasParent() && isCommand(typed) {
		m = []string{"rootsfs " + typed}
	}
	if len(m) > 0 {
		meant = ": did you mean " + strings.Join(m, " or ")
	}
	return usage(fmt.Errorf("unknown command %q%s; see: %s --help", typed, meant, c.CommandPath()))
}

// isCommand reports whether the first screen of help lists the command.
func isCommand(name string) bool {
	for _, g := range commandGroups {
		if slices.Contains(strings.Fields(g.names), name) {
			return true
		}
	}
	return false
}

// group sets up a command that only has subcommands.
func group(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args = noSuchCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(below...)
	return cmd
}

// noSuchCommand refuses the arguments of a command that only has subcommands.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(c, args[0])
	}
	return nil
}

// flagError rewrites an error about a flag, because the errors of strconv and time name Go
// functions. For an unknown flag it proposes a similar one.
func (a *app) flagError(c *cobra.Command, err error) error {
	if first := slices.Concat(a.Args, []string{"-"})[0]; !c.HasParent() && !strings.HasPrefix(first, "-") {
		return unknownCommand(c, first) // the flags of an unknown command are not known
	}
	var missing *pflag.NotExistError
	if errors.As(err, &missing) {
		err = fmt.Errorf("%w%s", err, suggestFlag(c, missing))
	}
	return usage(fmt.Errorf("%w; see: %s --help", valueError(err), c.CommandPath()))
}

// suggestFlag proposes an existing flag for an unknown one.
func suggestFlag(c *cobra.Command, missing *pflag.NotExistError) string {
	typed := missing.GetSpecifiedName()
	if short := missing.GetSpecifiedShortnames(); short != "" {
		typed, _, _ = strings.Cut(short, "=") // such as -root, with one dash too few
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

// rootHint explains --root, for a user who gave a word too many to a command with roots.
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
