package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
)

// The commands of owners, and of the machine with the server.

const fleetInitLong = `Make a fleet: the keys of its server and keeper in --dir, and those of its owner in
~/.local/state/rootsfs/fleet/owner. Nothing is replaced. Keep a copy of both: whoever
has the owner's keys owns the fleet, and without them every machine has to join anew.

A machine that hears nothing from the fleet pauses its sessions after the time of
--lease, and goes on when it hears from the fleet again. With --nats the fleet uses a NATS
server, or cluster, that is there already: "rootsfs help fleet" lists the rights that its
administrator gives to each party.`

const fleetInitExamples = `  rootsfs fleet init acme
  rootsfs fleet init acme --server nas.example.org:4222 --lease 10m
  rootsfs fleet init acme --nats tls://nats.example.org:4222 --creds owner.creds`

// fleetLease is the default of --lease.
const fleetLease = 2 * time.Minute

func (a *app) newFleetInitCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "init NAME",
		Short:             "Make a fleet",
		Long:              fleetInitLong,
		Example:           fleetInitExamples,
		Args:              argCount(1, 1, "the fleet's name"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	fleetDir(cmd, f)
	cmd.Flags().StringVar(&f.Server, "server", "", "machines reach the server at this `host:port` (default: this host's name, port 4222)")
	cmd.Flags().StringVar(&f.NATS, "nats", "", "use the NATS server at this `URL`, or the cluster at these, with commas between them")
	credsFlag(cmd, f, "of the owner and the keeper")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if (f.NATS == "") != (f.Creds == "") || f.NATS != "" && f.Server != "" {
			return usage(errors.New("write --nats URL and --creds FILE together, without --server"))
		}
		return nil
	}
	cmd.Flags().DurationVar(&f.Lease, "lease", fleetLease, "machines pause after this `duration` without the fleet: 30s to 24h, or 0 for never")
	return a.fleetCommand(cmd, f)
}

func fleetDir(cmd *cobra.Command, f *FleetFlags) {
	pathVar(cmd.Flags(), &f.Dir, "dir", "the `directory` of the server (default: ~/.local/state/rootsfs/fleet/server)")
	completeFlag(cmd, "dir", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
}

func credsFlag(cmd *cobra.Command, f *FleetFlags, whose string) {
	pathVar(cmd.Flags(), &f.Creds, "creds", "the `file` of NATS credentials "+whose+", with mode 0600")
}

func verboseFlag(cmd *cobra.Command, f *FleetFlags) {
	cmd.Flags().BoolVarP(&f.Verbose, "verbose", "v", false, "log more")
}

const fleetServeLong = `Run the server of a fleet, which init made, until a signal ends it. A line on standard
output says that it is ready; the log goes to standard error. Connections are encrypted
(TLS 1.3), by a certificate authority of the fleet's own that every invite names.`

const fleetServeExamples = `  rootsfs fleet serve
  rootsfs fleet serve --listen 10.0.0.7:4222
  systemctl --user enable --now rootsfs-fleet-serve`

func (a *app) newFleetServeCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Run the server of a fleet",
		Long:    fleetServeLong,
		Example: fleetServeExamples,
	}
	fleetDir(cmd, f)
	cmd.Flags().StringVar(&f.Listen, "listen", "", "listen at this `address`, such as :4222 (default: every address, at the port of init's --server)")
	verboseFlag(cmd, f)
	return a.fleetCommand(cmd, f)
}

const fleetInviteLong = `Print a line to paste on the machine that joins. It holds a secret, and works once: who
is first joins as NAME, with the rights of one machine. A second use is refused and is
told to both. Compare the key that join prints with that of "fleet machines".`

const fleetInviteExamples = `  rootsfs fleet invite laptop
  rootsfs fleet invite build-7 --expires 10m --json`

func (a *app) newFleetInviteCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "invite NAME",
		Short:             "Let a machine join, once",
		Long:              fleetInviteLong,
		Example:           fleetInviteExamples,
		Args:              argCount(1, 1, "the machine's name"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().DurationVar(&f.Expires, "expires", time.Hour, "the invite is valid for this `duration`, up to 168h")
	return a.fleetCommand(cmd, f)
}

const fleetRemoveLong = `Take a machine out of the fleet: the server accepts its connection no more, and another
machine can get its name. It hears nothing after that, and pauses at its lease's end.`

const fleetRemoveExamples = `  rootsfs fleet remove laptop`

func (a *app) newFleetRemoveCmd(f *FleetFlags) *cobra.Command {
	return a.fleetCommand(&cobra.Command{
		Use:               "remove NAME",
		Short:             "Take a machine out of the fleet",
		Long:              fleetRemoveLong,
		Example:           fleetRemoveExamples,
		Args:              argCount(1, 1, "the machine's name"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}, f)
}

const fleetMachinesLong = `Show every machine of the fleet: when it was last heard, how long it goes on without the
fleet (LEASE), its sessions, their roots and open questions, and its key's fingerprint.

STATE is "live", "paused" (the lease is over, or all of its sessions are paused), "locked"
with the reason, "behind" with the numbers of the last order that it has carried out and
of the newest, or "no answer". The exit code is 1 if one is behind or does not answer.`

const fleetMachinesExamples = `  rootsfs fleet machines
  rootsfs fleet machines --watch
  rootsfs fleet machines --wait 10s --json`

func (a *app) newFleetMachinesCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "machines",
		Short:   "Show the machines of the fleet",
		Long:    fleetMachinesLong,
		Example: fleetMachinesExamples,
	}
	cmd.Flags().BoolVar(&f.Watch, "watch", false, "show changes until a signal ends it")
	cmd.Flags().DurationVar(&f.Wait, "wait", 2*time.Second, "wait up to this `duration` for answers")
	cmd.PreRunE = checkWait(f)
	return a.fleetCommand(cmd, f)
}
