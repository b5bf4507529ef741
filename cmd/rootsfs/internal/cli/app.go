// Package cli is the command line of rootsfs: its commands, flags, help and output.
//
// # Promises
//
// Commands print their results to standard output. An error is one line on standard error, with
// advice. Exit codes are those of exit.go, except that run has the exit code of its command. Every
// command that reports takes --json, whose field names do not change.
//
// # Not promised
//
// The text of human output may change.
package cli

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// commands maps the name of each command of rootsfs to the function that creates the command.
type commands map[string]func() *cobra.Command

// Main executes one command line and returns its exit code.
func Main(args []string, io Stdio) int { return newApp(args, io).main() }

func (a *app) main() int {
	cmd := newRootCmd(a)
	cmd.SetArgs(a.Args)
	cmd.SetIn(a.Stdin)
	cmd.SetErr(a.Stderr)
	err := a.withOutputError(cmd.ExecuteContext(context.Background()))
	if err != nil {
		a.fail(err)
	}
	return exitCode(err)
}

// Tree returns the tree of the commands that a command line can mean if it begins with args.
func Tree(args []string) *cobra.Command {
	return newRootCmd(newApp(args, Stdio{}))
}

const rootsfsLong = `rootsfs shows programs the directories that you approve (roots), and nothing else.
A root is read-only unless you say otherwise, and can be revoked at any moment:
whatever a program holds of it is dead when revoke returns.`

const rootsfsExamples = `  rootsfs setup                   # wrap the MCP hosts on this machine
  rootsfs run --for codex         # run an agent in this project
  rootsfs run --root .:rw -- bash
  mkdir -p ~/agent && rootsfs mount --root code=.:ro --daemon ~/agent
  rootsfs why                     # what was refused last, and what would allow it
  rootsfs revoke code
  rootsfs unmount ~/agent`

func newRootCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "rootsfs",
		Short:         "Approved directories as a file system that can be revoked",
		Long:          rootsfsLong,
		Example:       rootsfsExamples,
		SilenceErrors: true, SilenceUsage: true,
	}
	group(cmd)
	cmd.SetFlagErrorFunc(a.flagError)
	cmd.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return emptyFlags(c) }
	a.versionFlag(cmd)
	helpCmd := newHelpCmd(a)
	defaultArgs(helpCmd)
	cmd.SetHelpCommand(helpCmd)
	cmd.SetHelpFunc(a.showHelp)
	cmd.SetOut(a)
	a.addCommands(cmd)
	return cmd
}

// defaultArgs makes a command and its subcommands refuse all arguments, except for a command that
// checks its arguments itself.
func defaultArgs(cmd *cobra.Command) {
	if cmd.Args == nil {
		cmd.Args = argCount(0, 0, "")
	}
	for _, sub := range cmd.Commands() {
		defaultArgs(sub)
	}
}

// commands returns all commands.
func (a *app) commands() commands {
	return commands{
		"mount": a.newMountCmd, "run": a.newRunCmd, "serve": a.newServeCmd, "wrap": a.newWrapCmd, "setup": a.newSetupCmd,
		"roots": a.newRootsCmd, "revoke": a.newRevokeCmd, "pause": a.newPauseCmd, "resume": a.newResumeCmd, "allow": a.newAllowCmd, "consent": a.newConsentCmd,
		"net": a.newNetCmd, "trash": a.newTrashCmd, "stage": a.newStageCmd, "undo": a.newUndoCmd, "unmount": a.newUnmountCmd,
		"status": a.newStatusCmd, "audit": a.newAuditCmd, "metrics": a.newMetricsCmd, "top": a.newTopCmd, "console": a.newConsoleCmd,
		"why": a.newWhyCmd, "policy": a.newPolicyCmd, "doctor": a.newDoctorCmd, "config": a.newConfigCmd, "fleet": a.newFleetCmd,
		"version": a.newVersionCmd, "completion": newCompletionCmd,
	}
}

// addCommands adds the command that the command line begins with, or all commands if the command
// line begins with no command. Creating all commands takes half a millisecond, which would delay
// the start of every command.
func (a *app) addCommands(root *cobra.Command) {
	all := a.commands()
	if len(a.Args) > 0 && all[a.Args[0]] != nil {
		root.AddCommand(all[a.Args[0]]())
		defaultArgs(root)
		return
	}
	for _, command := range all {
		root.AddCommand(command())
	}
	defaultArgs(root)
	if len(a.Args) > 0 && strings.HasPrefix(a.Args[0], cobra.ShellCompRequestCmd) {
		completeNoFiles(root)
		root.SetOut(completionWriter{a, map[string]bool{}})
	}
}

// NeedsNoPoller reports whether a command line must work even if the Go runtime can have no network
// poller (see package poller). Such a command ends or shows access, or shows help or the version,
// and needs no other program.
func NeedsNoPoller(args []string) bool {
	return len(args) == 0 || slices.Contains([]string{"revoke", "pause", "status", "unmount", "umount", "version", "--version", "roots"}, args[0])
}

// version, commit and date are set by the linker (integration/dist/version.sh names them). In a
// program that was built in another way, they are empty, and readVersion uses the build information
// that the go command records in the program.
var version, commit, date string

// versionInfo is the output of `rootsfs version --json`.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Date     string `json:"date,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readVersion returns the version of this program. Modified reports whether tracked files differed
// from the commit when the program was built. Date is the date of the commit.
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

// programVersion returns the version of this program.
func programVersion() string { return readVersion().Version }

// line returns the line that rootsfs version and rootsfs --version print.
func (v versionInfo) line() string {
	built := v.Go + ", " + v.Platform
	if v.Revision != "" {
		built = "commit " + v.Revision[:min(12, len(v.Revision))] + " of " + v.Date + ", " + built
	}
	return fmt.Sprintf("rootsfs %s (%s)", v.Version, built)
}

// versionFlag gives the root command the flag --version. Cobra's own --version formats its line
// with a template. Package text/template calls methods by their names, so the linker would keep
// every exported method of every type. These methods are a tenth of the program.
func (a *app) versionFlag(root *cobra.Command) {
	isAsked := root.Flags().BoolP("version", "v", false, "version for "+root.Name())
	help := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if !*isAsked {
			return help(cmd, args)
		}
		a.say("%s", readVersion().line())
		return nil
	}
}

const versionLong = `Show the version of rootsfs, its commit, the Go release that built it, and the platform.`

const versionExamples = `  rootsfs version --json`

func (a *app) newVersionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show which rootsfs this is",
		Long:    versionLong,
		Example: versionExamples,
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			return a.report(v, func() { a.say("%s", v.line()) })
		},
	}
	a.jsonFlag(cmd)
	return cmd
}
