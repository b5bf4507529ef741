package cli

import (
	"github.com/spf13/cobra"
)

// The commands that change who owns and keeps a fleet.

const fleetCharterLong = `Show the owners and keepers of the fleet, by their keys' fingerprints.`

const fleetCharterExamples = `  rootsfs fleet charter`

func (a *app) newFleetCharterCmd(f *FleetFlags) *cobra.Command {
	return a.fleetCommand(&cobra.Command{
		Use:     "charter",
		Short:   "Show the owners and keepers of the fleet",
		Long:    fleetCharterLong,
		Example: fleetCharterExamples,
	}, f)
}

const fleetKeeperLong = `Add and remove keepers. With three keepers on three machines, one may fail: orders hold,
and machines get leases, by what any two of them say. Two keepers are needed both, so add
the third soon after the second.`

const fleetKeeperExamples = `  rootsfs fleet keeper add ~/keeper-2 --server nas-2.example.org:4222
  rootsfs fleet keeper remove SHA256:9f3aK2mVw1xQz7Lp`

func (a *app) newFleetKeeperCmd(f *FleetFlags) *cobra.Command {
	return group(&cobra.Command{
		Use:     "keeper",
		Short:   "Add and remove keepers",
		Long:    fleetKeeperLong,
		Example: fleetKeeperExamples,
	}, a.newFleetKeeperAddCmd(f), a.removeKeyCmd(f, "keeper remove", "Remove a keeper", fleetKeeperRemoveLong, fleetKeeperRemoveExamples))
}

const fleetKeeperAddLong = `Add a keeper. The first call makes DIR, with the new keeper's keys, on the machine of the
first keeper. Move DIR to the machine that --server names, and start the keeper there:
"rootsfs fleet serve --dir DIR". Then give the command again, with DIR or a copy of it
still here: the keeper gets the orders, and becomes one of the fleet.`

const fleetKeeperAddExamples = `  rootsfs fleet keeper add ~/keeper-2 --server nas-2.example.org:4222
  scp -rp ~/keeper-2 nas-2: && ssh nas-2 systemctl --user enable --now rootsfs-fleet-serve
  rootsfs fleet keeper add ~/keeper-2 --server nas-2.example.org:4222`

func (a *app) newFleetKeeperAddCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "add DIR",
		Short:   "Add a keeper",
		Long:    fleetKeeperAddLong,
		Example: fleetKeeperAddExamples,
		Args:    argCount(1, 1, "the new keeper's directory"),
	}
	cmd.Flags().StringVar(&f.Server, "server", "", "machines reach the new keeper at this `host:port`; not needed with init --nats")
	return a.partyCommand(cmd, f, "keeper add")
}

const fleetKeeperRemoveLong = `Remove a keeper, by the fingerprint that "rootsfs fleet charter" shows: nobody counts its
answers any more. Remove one that was lost or stolen, after another was added.`

const fleetOwnerLong = `Add and remove owners. Each has keys of its own, and may do everything. To exchange the
keys of an owner, add a new one and remove the old one.`

const fleetOwnerExamples = `  rootsfs fleet owner add ~/owner-bob
  rootsfs fleet owner remove SHA256:9f3aK2mVw1xQz7Lp`

func (a *app) newFleetOwnerCmd(f *FleetFlags) *cobra.Command {
	return group(&cobra.Command{
		Use:     "owner",
		Short:   "Add and remove owners",
		Long:    fleetOwnerLong,
		Example: fleetOwnerExamples,
	}, a.newFleetOwnerAddCmd(f), a.removeKeyCmd(f, "owner remove", "Remove an owner", fleetOwnerRemoveLong, fleetOwnerRemoveExamples))
}

const fleetOwnerAddLong = `Add an owner, and make DIR with the owner's keys. Move DIR to the owner's machine, as
~/.local/state/rootsfs/fleet/owner, and leave no copy behind.`

const fleetOwnerAddExamples = `  rootsfs fleet owner add ~/owner-bob`

func (a *app) newFleetOwnerAddCmd(f *FleetFlags) *cobra.Command {
	return a.partyCommand(&cobra.Command{
		Use:     "add DIR",
		Short:   "Add an owner",
		Long:    fleetOwnerAddLong,
		Example: fleetOwnerAddExamples,
		Args:    argCount(1, 1, "the directory to make"),
	}, f, "owner add")
}

const fleetOwnerRemoveLong = `Remove an owner, by the fingerprint that "rootsfs fleet charter" shows. The owner's orders
hold on, given once more by you. Do it from another owner when keys were lost or stolen.`

const (
	fleetKeeperRemoveExamples = `  rootsfs fleet keeper remove SHA256:9f3aK2mVw1xQz7Lp`
	fleetOwnerRemoveExamples  = `  rootsfs fleet owner remove SHA256:9f3aK2mVw1xQz7Lp`
)

// removeKeyCmd returns a command that removes a key from the charter.
func (a *app) removeKeyCmd(f *FleetFlags, name, short, long, examples string) *cobra.Command {
	return a.partyCommand(&cobra.Command{
		Use:               "remove KEY",
		Short:             short,
		Long:              long,
		Example:           examples,
		Args:              argCount(1, 1, "the key's fingerprint"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}, f, name)
}

// partyCommand sets up a command about owners or keepers. FleetWork has the command's function
// under name.
func (a *app) partyCommand(cmd *cobra.Command, f *FleetFlags, name string) *cobra.Command {
	a.jsonFlag(cmd)
	return a.fleetWork(cmd, f, name)
}
