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
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/help"
)

// Commands make commands of rootsfs, by name.
type Commands map[string]func() *cobra.Command

// Package returns the commands that a package has.
type Package func(*App) Commands

// Main executes one command line and returns its exit code.
func Main(args []string, io Stdio, packages ...Package) int {
	a := New(args, io)
	a.packages = packages
	cmd := newRootCmd(a)
	cmd.SetArgs(args)
	cmd.SetIn(io.In)
	cmd.SetErr(io.Err)
	err := a.withOutputError(cmd.ExecuteContext(context.Background()))
	if err != nil {
		a.Fail(err)
	}
	return ExitCode(err)
}

// Tree returns the commands of packages that a command line which begins with args can mean.
func Tree(args []string, packages ...Package) *cobra.Command {
	a := New(args, Stdio{})
	a.packages = packages
	return newRootCmd(a)
}

func newRootCmd(a *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "rootsfs",
		Short:         "Approved directories as a file system that can be revoked",
		SilenceErrors: true, SilenceUsage: true,
	}
	Group(cmd)
	cmd.SetFlagErrorFunc(a.flagError)
	cmd.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return emptyFlags(c) }
	v := readVersion()
	cmd.Version = v.Version
	cmd.SetVersionTemplate(v.line() + "\n")
	helpCmd := newHelpCmd(a)
	complete(helpCmd)
	cmd.SetHelpCommand(helpCmd)
	cmd.SetHelpFunc(a.showHelp)
	cmd.SetOut(a)
	a.addCommands(cmd)
	return cmd
}

// complete gives a command, and those below it, the words of their files. A command that
// does not say which arguments it takes takes none.
func complete(cmd *cobra.Command) {
	if long, examples := help.Command(cmd.CommandPath()); long != "" {
		cmd.Long, cmd.Example = long, examples
	}
	if cmd.Args == nil {
		cmd.Args = ArgCount(0, 0, "")
	}
	for _, sub := range cmd.Commands() {
		complete(sub)
	}
}

// commands returns all there are.
func (a *App) commands() Commands {
	all := Commands{"version": a.newVersionCmd, "completion": newCompletionCmd, "man": newManCmd}
	for _, p := range a.packages {
		maps.Copy(all, p(a))
	}
	return all
}

// addCommands adds the command that the command line begins with. It adds all commands if
// the command line begins with none of them, or with man, which describes all: making all of
// them takes half a millisecond, which would delay the start of every command.
func (a *App) addCommands(root *cobra.Command) {
	all := a.commands()
	if len(a.Args) > 0 && a.Args[0] != "man" && all[a.Args[0]] != nil {
		root.AddCommand(all[a.Args[0]]())
		complete(root)
		return
	}
	for _, command := range all {
		root.AddCommand(command())
	}
	complete(root)
	if len(a.Args) > 0 && strings.HasPrefix(a.Args[0], cobra.ShellCompRequestCmd) {
		completeNoFiles(root)
		root.SetOut(offered{a, map[string]bool{}})
	}
}

// EndsAccess reports whether a command line is one of those that must work without a
// poller: they end or show access, and need no other program for it.
func EndsAccess(args []string) bool {
	return len(args) == 0 || slices.Contains([]string{"revoke", "status", "unmount", "umount", "version", "--version", "roots"}, args[0])
}

// version, commit and date are set by the linker (integration/dist/version.sh names them).
// In a program that was built otherwise the go command's own record takes their place.
var version, commit, date string

// versionInfo is what `rootsfs version --json` prints.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Date     string `json:"date,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readVersion returns the version of this program. Modified reports whether tracked files
// differed from the commit, Date is the commit's.
func readVersion() versionInfo {
	v := versionInfo{Version: version, Revision: commit, Date: date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = cmp.Or(v.Version, info.Main.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = cmp.Or(v.Revision, s.Value)
			case "vcs.time":
				v.Date = cmp.Or(v.Date, s.Value)
			}
		}
	}
	v.Version = cmp.Or(v.Version, "(devel)")
	v.Modified = strings.HasSuffix(v.Version, "+dirty")
	return v
}

// Version is the version of this program.
func Version() string { return readVersion().Version }

// line is what version and --version print.
func (v versionInfo) line() string {
	built := v.Go + ", " + v.Platform
	if v.Revision != "" {
		built = "commit " + v.Revision[:min(12, len(v.Revision))] + " of " + v.Date + ", " + built
	}
	return fmt.Sprintf("rootsfs %s (%s)", v.Version, built)
}

func (a *App) newVersionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show which rootsfs this is",
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			return a.Report(v, func() { a.Say("%s", v.line()) })
		},
	}
	a.JSONFlag(cmd)
	return cmd
}
