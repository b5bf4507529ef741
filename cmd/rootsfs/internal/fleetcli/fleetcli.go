// Package fleetcli does the work of the commands `rootsfs fleet ...` and prints their results.
// Package cli defines the commands, with their flags and help.
//
// Only the program rootsfs-fleet imports this package, because the package links the fleet's server.
package fleetcli

import "github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"

// Work returns the functions of the commands, by the commands' names.
func Work() cli.FleetWork {
	return cli.FleetWork{
		"init": initFleet, "serve": serve, "invite": invite, "remove": remove, "machines": machines,
		"join": join, "agent": agent, "leave": leave, "export": exportRecords,
		"charter": charter, "keeper add": addKeeper, "keeper remove": removeKeeper, "owner add": addOwner, "owner remove": removeOwner,
		"revoke": revoke, "lock": lock, "unlock": unlock, "with": with,
		"pull": pull, "follow": follow, "verify": verify,
		"ceiling set": setCeiling, "ceiling show": showCeiling, "ceiling remove": removeCeiling,
	}
}
