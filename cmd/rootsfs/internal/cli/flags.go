package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/guard/names"
)

// AgentOrDuration is the type of the value of --for of `run`, which takes an agent as well
// as a duration.
const AgentOrDuration = "agent or duration"

// valueError says what a flag's value should have been.
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
	if bad.GetFlag().Value.Type() == AgentOrDuration {
		return fmt.Errorf("--for %s: %w", names.Quote(bad.GetValue()), bad.Unwrap())
	}
	if want == "" {
		return err
	}
	return fmt.Errorf("--%s %s: write %s", bad.GetFlag().Name, names.Quote(bad.GetValue()), want)
}

// emptyFlags refuses flags that were given an empty text, as a shell makes of an
// unset variable: it would silently mean the default.
func emptyFlags(c *cobra.Command) error {
	var err error
	c.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && f.Value.Type() == "string" && f.Value.String() == "" {
			err = Usage(fmt.Errorf("--%s is empty: give it a value, or leave it out; see: %s --help", f.Name, c.CommandPath()))
		}
	})
	return err
}

// ArgCount checks the number of arguments. A negative most is no limit. The error about a
// missing argument calls it what.
func ArgCount(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return Usage(fmt.Errorf("%s is missing from the command line; see: %s --help", what, c.CommandPath()))
		case most >= 0 && len(args) > most:
			return Usage(fmt.Errorf("%q is one argument too many%s; see: %s --help", args[most], rootHint(c), c.CommandPath()))
		}
		return nil
	}
}

// JSONFlag adds --json.
func (a *App) JSONFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.JSON, "json", false, "print JSON")
}

// SessionFlag adds --session.
func (a *App) SessionFlag(cmd *cobra.Command) {
	PathVar(cmd.Flags(), &a.Session, "session", "name or mountpoint of the live `session` (default: the only one)")
	// It fails only if there is no such flag.
	_ = cmd.RegisterFlagCompletionFunc("session", completeSessions)
}

// OfSession adds the flags of a command about one session, which it returns.
func (a *App) OfSession(cmd *cobra.Command) *cobra.Command {
	a.SessionFlag(cmd)
	a.JSONFlag(cmd)
	return cmd
}

// RootFlag adds --root, which names a root of a session.
func (a *App) RootFlag(cmd *cobra.Command, p *string, usage string) {
	cmd.Flags().StringVar(p, "root", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("root", a.CompleteRoots(-1)) // fails only for an unknown flag
}

// PathVar adds a flag whose value is a path, or can be one: the command reads it with ~
// expanded.
func PathVar(fs *pflag.FlagSet, p *string, name, usage string) {
	fs.Var(pathValue{p}, name, usage)
}

// pathValue implements pflag.Value.
type pathValue struct{ p *string }

func (v pathValue) Set(s string) (err error) {
	*v.p, err = ExpandHome(s)
	return err
}

func (v pathValue) String() string {
	if v.p == nil { // as pflag asks for a type's own default
		return ""
	}
	return *v.p
}

func (v pathValue) Type() string { return "string" }

// HideFlags leaves flags out of help: older names, what the configuration says, defaults.
func HideFlags(fs *pflag.FlagSet, flags ...string) {
	for _, name := range flags {
		_ = fs.MarkHidden(name) // fails only for an unknown flag
	}
}

// FixedWords completes a flag with fixed words.
func FixedWords(cmd *cobra.Command, flag string, list ...string) {
	// It fails only if there is no such flag.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
}
