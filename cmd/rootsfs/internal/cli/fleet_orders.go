package cli

import (
	"time"

	"github.com/spf13/cobra"
)

// The orders of owners to machines.

const fleetRevokeLong = `End roots in the sessions of every machine, or of those that --machine names, and of
every session there, or of the one that --session names. A machine that answers has done
what "rootsfs revoke" does there. One that does not answer gets no lease until it has
done it: what runs there is dead at the latest at the time that is printed. A later
grant is a new decision: with --lock nothing comes back until "rootsfs fleet unlock".

The exit code is 0 if all machines have answered, and nothing there can still take
effect. Otherwise it is 1.`

const fleetRevokeExamples = `  rootsfs fleet revoke --all
  rootsfs fleet revoke --all --lock "strange pushes"
  rootsfs fleet revoke code --machine laptop,build-7 --session claude`

// orderWait is the default of --wait for orders and for `rootsfs fleet with`: how long the command
// waits for machines to answer.
const orderWait = 5 * time.Second

func (a *app) newFleetRevokeCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke NAME... | --subject SERVER | --net | --all",
		Short:   "End roots on every machine",
		Long:    fleetRevokeLong,
		Example: fleetRevokeExamples,
		Args: func(_ *cobra.Command, args []string) error {
			return oneOf("names, --subject, --net and --all", "name the roots to revoke, or use --all", len(args) > 0, f.Subject != "", f.Net, f.All)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&f.All, "all", false, "every root of the sessions, and their networks")
	cmd.Flags().BoolVar(&f.Net, "net", false, "every host of a command's network (run --net=HOSTS)")
	cmd.Flags().StringVar(&f.Subject, "subject", "", "the roots that are for this `server` alone")
	cmd.Flags().StringVar(&f.Session, "session", "", "in the sessions of this `name` only")
	cmd.Flags().StringVar(&f.Lock, "lock", "", "lock the machines too, for this `reason`")
	return a.orderCommand(cmd, f)
}

// orderCommand sets up the command of an order. FleetWork has the command's function under the
// command's own name.
func (a *app) orderCommand(cmd *cobra.Command, f *FleetFlags) *cobra.Command {
	return a.orderFlags(cmd, f, cmd.Name())
}

// orderFlags sets up the command of an order, as orderCommand does, but FleetWork has the command's
// function under name.
func (a *app) orderFlags(cmd *cobra.Command, f *FleetFlags, name string) *cobra.Command {
	cmd.Flags().StringSliceVar(&f.Machines, "machine", nil, "these `machines` only, with commas between them")
	cmd.Flags().DurationVar(&f.Wait, "wait", orderWait, "wait up to this `duration` for answers")
	cmd.PreRunE = checkWait(f)
	a.jsonFlag(cmd)
	return a.fleetWork(cmd, f, name)
}

const fleetLockLong = `Pause every session of every machine, or of those that --machine names, until "rootsfs
fleet unlock": the sessions answer nothing, and none begins. What was open works again
after that. To end it for good: rootsfs fleet revoke --all --lock REASON.

One that does not answer is paused at the latest at the time that is printed. The exit
code is 0 if all machines have answered.`

const fleetLockExamples = `  rootsfs fleet lock "strange pushes"
  rootsfs fleet lock "lost in a train" --machine laptop`

func (a *app) newFleetLockCmd(f *FleetFlags) *cobra.Command {
	return a.orderCommand(&cobra.Command{
		Use:               "lock REASON",
		Short:             "Pause every machine until unlock",
		Long:              fleetLockLong,
		Example:           fleetLockExamples,
		Args:              argCount(1, 1, "the reason"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}, f)
}

const fleetUnlockLong = `End the lock of all machines, or of those that --machine names. A machine that is locked
by both an order for all and one of its own needs both unlocked. The exit code is 0 if
all machines have answered.`

const fleetUnlockExamples = `  rootsfs fleet unlock
  rootsfs fleet unlock --machine laptop`

func (a *app) newFleetUnlockCmd(f *FleetFlags) *cobra.Command {
	return a.orderCommand(&cobra.Command{
		Use:     "unlock",
		Short:   "Let locked machines go on",
		Long:    fleetUnlockLong,
		Example: fleetUnlockExamples,
	}, f)
}
