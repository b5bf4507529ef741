package cli

import "github.com/spf13/cobra"

// The commands of owners for the ceilings of machines.

const fleetCeilingLong = `Bound what the machines of the fleet give at most: roots and modes, hosts, secrets,
levels, the longest grant, records. FILE is written as /etc/rootsfs/ceiling.toml (rootsfs
help ceiling). A machine keeps to it and to the ceiling of its own.`

const fleetCeilingExamples = `  rootsfs fleet ceiling set agents.toml
  rootsfs fleet ceiling set build.toml --machine build-7
  rootsfs fleet ceiling show
  rootsfs fleet ceiling remove --machine build-7`

func (a *app) newFleetCeilingCmd(f *FleetFlags) *cobra.Command {
	return group(&cobra.Command{
		Use:     "ceiling",
		Short:   "Bound what machines give at most",
		Long:    fleetCeilingLong,
		Example: fleetCeilingExamples,
	}, a.newFleetCeilingSetCmd(f), a.newFleetCeilingShowCmd(f), a.newFleetCeilingRemoveCmd(f))
}

const fleetCeilingSetLong = `Set the ceiling of every machine, also of those that join later, or of those that
--machine names. It takes the place of the one that was set for the same machines; one
for all and one for a machine both hold. A file with a mistake is refused with its line.
A machine that answers has taken back what the ceiling forbids, in sessions that run, too.
One that does not answer gets no lease before it has: what it forbids there is dead at the
latest at the time that is printed. The exit code is 0 if all machines have answered.

It bounds the sessions of the user whose agent joined the fleet, and only "rootsfs fleet
leave" takes that user out of it. To bound every user of a machine, its administrator
writes /etc/rootsfs/ceiling.toml.`

const fleetCeilingSetExamples = `  rootsfs fleet ceiling set agents.toml
  rootsfs fleet ceiling set build.toml --machine build-7,build-8`

func (a *app) newFleetCeilingSetCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "set FILE",
		Short:   "Set the ceiling of machines",
		Long:    fleetCeilingSetLong,
		Example: fleetCeilingSetExamples,
		Args:    argCount(1, 1, "the file"),
	}
	return a.orderFlags(cmd, f, "ceiling set")
}

const fleetCeilingShowLong = `Show the ceilings that owners have set, for all machines and for single ones, or for those
that --machine names. What is in force on a machine: rootsfs config ceiling, there.`

const fleetCeilingShowExamples = `  rootsfs fleet ceiling show
  rootsfs fleet ceiling show --machine build-7 --json`

func (a *app) newFleetCeilingShowCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show the ceilings of machines",
		Long:    fleetCeilingShowLong,
		Example: fleetCeilingShowExamples,
	}
	cmd.Flags().StringSliceVar(&f.Machines, "machine", nil, "those of these `machines`, with commas between them")
	a.jsonFlag(cmd)
	return a.fleetWork(cmd, f, "ceiling show")
}

const fleetCeilingRemoveLong = `Remove the ceiling that was set for all machines, or those of the machines that --machine
names. Nothing that it took back is given again. The exit code is 0 if all machines have
answered.`

const fleetCeilingRemoveExamples = `  rootsfs fleet ceiling remove
  rootsfs fleet ceiling remove --machine build-7`

func (a *app) newFleetCeilingRemoveCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove",
		Short:   "Remove the ceiling of machines",
		Long:    fleetCeilingRemoveLong,
		Example: fleetCeilingRemoveExamples,
	}
	return a.orderFlags(cmd, f, "ceiling remove")
}
