package cli

import (
	"bufio"
	"errors"
	"io"

	"github.com/spf13/cobra"
)

// The commands of a machine that belongs to a fleet.

const fleetJoinLong = `Make this machine one of a fleet, by the line that "rootsfs fleet invite" printed there.
Without TOKEN the line is read from standard input, where no other user sees it.

From then on a session begins only while the fleet answers, by the machine's agent
("rootsfs fleet agent"), and pauses when the fleet has not answered for the lease's time.
The agent sends the audit records of this user's sessions to the fleet.`

const fleetJoinExamples = `  rootsfs fleet join rfl1:eyJzIjoi...
  rootsfs fleet join < invite.txt
  systemctl --user enable --now rootsfs-fleet     # then: its agent`

func (a *app) newFleetJoinCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "join [TOKEN]",
		Short:             "Make this machine one of a fleet",
		Long:              fleetJoinLong,
		Example:           fleetJoinExamples,
		Args:              argCount(0, 1, "the token"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	credsFlag(cmd, f, "of this machine, if the fleet uses another's NATS server")
	return a.fleetCommand(cmd, f)
}

const fleetAgentLong = `Run the agent of this machine: it answers the owners of the fleet, until a signal ends
it. A lost connection is made again. The log goes to standard error. The orders that it
carries out are on record: rootsfs audit show --session fleet. It sends the audit
records of all sessions to the fleet, where its owners read them.`

const fleetAgentExamples = `  rootsfs fleet agent
  systemctl --user enable --now rootsfs-fleet`

func (a *app) newFleetAgentCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "agent",
		Short:   "Run this machine's agent",
		Long:    fleetAgentLong,
		Example: fleetAgentExamples,
	}
	verboseFlag(cmd, f)
	return a.fleetCommand(cmd, f)
}

const fleetLeaveLong = `Take this machine out of its fleet, also when the fleet cannot be reached. Sessions that
begin afterwards need no lease. Those that run pause when theirs has run out: end them,
and start them again.`

const fleetLeaveExamples = `  rootsfs fleet leave`

func (a *app) newFleetLeaveCmd(f *FleetFlags) *cobra.Command {
	return a.fleetCommand(&cobra.Command{
		Use:     "leave",
		Short:   "Take this machine out of its fleet",
		Long:    fleetLeaveLong,
		Example: fleetLeaveExamples,
	}, f)
}

// readLine returns the first line of r, with its newline, but no more than limit bytes.
func readLine(r io.Reader, limit int64) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, limit)).ReadString('\n')
	if errors.Is(err, io.EOF) && line != "" {
		err = nil
	}
	return line, err
}
