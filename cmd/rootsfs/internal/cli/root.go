// Package cli is the command line of rootsfs: its commands, flags, help and output.
//
// # Promises
//
// Commands print what they did or found to standard output, and at most one
// line to standard error when they fail, with what to do next. Exit codes are
// those of exit.go. Every command that reports takes --json, whose field names
// do not change.
//
// # Not promised
//
// The text of human output may change.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Main executes one command line and returns its exit code.
func Main(args []string, io Stdio) int {
	a := newApp(args, io)
	cmd := newRootCmd(a)
	cmd.SetArgs(args)
	cmd.SetIn(io.In)
	cmd.SetErr(io.Err)
	err := a.told(cmd.ExecuteContext(context.Background()))
	if err != nil {
		a.fail(err)
	}
	return exitCode(err)
}

// Tree returns the commands that a command line which begins with args can mean.
func Tree(args ...string) *cobra.Command { return newRootCmd(newApp(args, Stdio{})) }

func newRootCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rootsfs",
		Short: "Approved directories as a file system that can be revoked",
		Long: `rootsfs shows programs the directories that you approve (roots), and nothing else.
A root is read-only unless you say otherwise, and can be revoked at any moment:
whatever a program holds of it is dead when revoke returns.`,
		Example: `  rootsfs setup                   # wrap the MCP hosts on this machine
  rootsfs run --for codex         # run an agent in this project
  rootsfs run --root .:rw -- bash
  mkdir -p ~/agent && rootsfs mount --root code=.:ro --daemon ~/agent
  rootsfs why                     # what was refused last, and what would allow it
  rootsfs revoke code
  rootsfs unmount ~/agent`,
		SilenceErrors: true, SilenceUsage: true,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(a.flagError)
	cmd.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return emptyFlags(c) }
	v := readVersion()
	cmd.Version = v.Version
	cmd.SetVersionTemplate(v.line() + "\n")
	cmd.SetHelpCommand(newHelpCmd(a))
	cmd.SetHelpFunc(a.showHelp)
	cmd.SetOut(a)
	a.addCommands(cmd)
	return cmd
}

// commands are all there are, in the order of the help.
var commands = []struct {
	name string
	make func(*app) *cobra.Command
}{
	{"mount", newMountCmd}, {"run", newRunCmd}, {"serve", newServeCmd}, {"unmount", newUnmountCmd}, {"roots", newRootsCmd},
	{"revoke", newRevokeCmd}, {"net", newNetCmd}, {"resume", newResumeCmd}, {"policy", newPolicyCmd}, {"config", newConfigCmd}, {"trash", newTrashCmd},
	{"why", newWhyCmd}, {"allow", newAllowCmd}, {"consent", newConsentCmd}, {"status", newStatusCmd}, {"metrics", newMetricsCmd}, {"audit", newAuditCmd},
	{"doctor", newDoctorCmd}, {"setup", newSetupCmd}, {"wrap", newWrapCmd}, {"console", newConsoleCmd}, {"top", newTopCmd}, {"version", newVersionCmd},
	{"completion", newCompletionCmd}, {"man", newManCmd},
}

// addCommands adds the one that the command line begins with; if it begins with none
// of them, or with man, which describes all, all. To make them all takes half a millisecond, which whoever waits for
// the start of a command need not wait for.
func (a *app) addCommands(root *cobra.Command) {
	for _, c := range commands {
		if len(a.args) > 0 && a.args[0] == c.name && c.name != "man" {
			root.AddCommand(c.make(a))
			return
		}
	}
	for _, c := range commands {
		root.AddCommand(c.make(a))
	}
	if len(a.args) > 0 && strings.HasPrefix(a.args[0], cobra.ShellCompRequestCmd) {
		completeNoFiles(root)
		root.SetOut(offered{a, map[string]bool{}})
	}
}

// valueError says what a flag's value should have been.
func valueError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	want := map[string]string{
		"duration": "a duration, such as 30m or 8h", "int": "a whole number", "int64": "a whole number",
		"intSlice": "whole numbers, as in 1,3", "float64": "a number", "bool": "true or false",
	}[bad.GetFlag().Value.Type()]
	if bad.GetFlag().Value.Type() == (pathValue{}).Type() {
		return fmt.Errorf("--%s %w", bad.GetFlag().Name, bad.Unwrap())
	}
	if bad.GetFlag().Value.Type() == (forValue{}).Type() {
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
			err = usage(fmt.Errorf("--%s is empty: give it a value, or leave it out; see: %s --help", f.Name, c.CommandPath()))
		}
	})
	return err
}

// nargs checks the number of arguments; most < 0 is no limit. what names them
// for the error.
func nargs(least, most int, what string) cobra.PositionalArgs {
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

// jsonFlag adds --json.
func jsonFlag(a *app, cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

// sessionFlag adds --session.
func sessionFlag(a *app, cmd *cobra.Command) {
	pathVar(cmd.Flags(), &a.session, "session", "name or mountpoint of the live `session` (default: the only one)")
	// It fails only if there is no such flag.
	_ = cmd.RegisterFlagCompletionFunc("session", completeSessions)
}

// cwd is the working directory, for paths on the command line.
func cwd() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", errors.New("the working directory is gone; cd to one that exists")
	}
	return dir, nil
}
