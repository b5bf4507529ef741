package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// The command with which an owner works on the sessions of another machine.

const fleetWithLong = `Run COMMAND here with the live sessions of MACHINE, or of several machines, with commas
between them. They are called SESSION@MACHINE. The command reaches no other session.
COMMAND is one of rootsfs; without it, "rootsfs console". The exit code is that of
COMMAND; 1 if a machine does not answer, 4 if there is none.

An owner may look, revoke and pause. The machine's user allows more in the configuration
there: [fleet] allow = ["answer", "grant"] lets owners answer questions of programs, and
grant roots and hosts, set modes and end pauses. Contents of files, stages and the trash
are never in reach. Each act is on record at the machine, with the owner's key: rootsfs
audit show --session fleet.`

const fleetWithExamples = `  rootsfs fleet with laptop
  rootsfs fleet with laptop -- rootsfs consent list
  rootsfs fleet with laptop,build-7 -- rootsfs top
  rootsfs fleet with laptop -- rootsfs revoke --session claude@laptop --all`

func (a *app) newFleetWithCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "with MACHINE [-- COMMAND...]",
		Short:   "Run a command with a machine's sessions",
		Long:    fleetWithLong,
		Example: fleetWithExamples,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() == 0 {
				return usage(errors.New("the machine is missing"))
			}
			if len(args) > 1 && cmd.ArgsLenAtDash() != 1 {
				return usage(errors.New("write -- between the machine and the command"))
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().DurationVar(&f.Wait, "wait", orderWait, "wait up to this `duration` for a machine to hear a request")
	verboseFlag(cmd, f)
	cmd.PreRunE = checkWait(f)
	return a.fleetWork(cmd, f, cmd.Name())
}
