package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// The commands for the records of machines.

const fleetAuditLong = `Bring the audit records of all machines to the owner, check that nobody has changed them
on the way, and hand records on to what a company runs.

Each machine's agent sends its audit records to every keeper, and signs up to where they
go. A keeper that changes or drops some is found out.`

const fleetAuditExamples = `  rootsfs fleet audit pull
  rootsfs fleet audit follow --machine laptop
  rootsfs fleet audit verify
  rootsfs fleet audit export --otlp https://collector.example.org:4318 --follow`

func (a *app) newFleetAuditCmd(f *FleetFlags) *cobra.Command {
	return group(&cobra.Command{
		Use:     "audit",
		Short:   "Bring, check and hand on the records of machines",
		Long:    fleetAuditLong,
		Example: fleetAuditExamples,
	}, a.newFleetPullCmd(f), a.newFleetFollowCmd(f), a.newFleetVerifyCmd(f), a.newFleetExportCmd(f))
}

const fleetPullLong = `Copy the records of machines that keepers have to DIR, each machine's to a directory of
its own (default: ~/.local/state/rootsfs/fleet/records/FLEET). What is there already is
not copied again. Records are written there only if the machine has signed them, and they
follow each other. Otherwise the reason is printed, and the exit code is 1. What one
keeper lacks comes from another: one that answers is enough.

The directories hold ordinary audit files: "rootsfs audit show --dir DIR/MACHINE" shows
them, and "rootsfs fleet audit export DIR/MACHINE" hands them on.`

const fleetPullExamples = `  rootsfs fleet audit pull
  rootsfs fleet audit pull ~/records --machine laptop,build-7`

func (a *app) newFleetPullCmd(f *FleetFlags) *cobra.Command {
	return a.archiveCommand(&cobra.Command{
		Use:     "pull [DIR]",
		Short:   "Copy the records of machines from the keepers",
		Long:    fleetPullLong,
		Example: fleetPullExamples,
	}, f)
}

const fleetFollowLong = `Copy records as "rootsfs fleet audit pull" does, print them as they come, and go on until
a signal ends it. With --json each record is printed as it was written, beside the name
of its machine.`

const fleetFollowExamples = `  rootsfs fleet audit follow
  rootsfs fleet audit follow --machine laptop --json`

func (a *app) newFleetFollowCmd(f *FleetFlags) *cobra.Command {
	return a.archiveCommand(&cobra.Command{
		Use:     "follow [DIR]",
		Short:   "Copy and show the records of machines as they come",
		Long:    fleetFollowLong,
		Example: fleetFollowExamples,
	}, f)
}

const fleetVerifyLong = `Copy records as "rootsfs fleet audit pull" does, and check all sessions of the copies by
what its machine has signed. The machine's key is the one that this owner saw first, and
a new one after each "rootsfs fleet invite" for the machine: compare it with the key that
join printed there. A session is
  whole     nothing is missing, nothing was changed
  hole      records are missing, and no other was changed
  cut       the last records are missing: the machine has signed more
  tampered  a record was changed, moved, or removed after it was sent

The exit code is 1 if a session is cut or tampered, or has a hole that the machine's log
did not make itself. It says which of several keepers lacks what, which changes no exit
code. With --offline no keeper is asked.`

const fleetVerifyExamples = `  rootsfs fleet audit verify
  rootsfs fleet audit verify ~/records --offline --json`

func (a *app) newFleetVerifyCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "verify [DIR]",
		Short:   "Check that no record of a machine was changed",
		Long:    fleetVerifyLong,
		Example: fleetVerifyExamples,
	}
	cmd.Flags().BoolVar(&f.Offline, "offline", false, "check the copies only, without the keepers")
	return a.archiveCommand(cmd, f)
}

// archiveCommand sets up a command for an owner's copies of records.
func (a *app) archiveCommand(cmd *cobra.Command, f *FleetFlags) *cobra.Command {
	cmd.Args = argCount(0, 1, "the directory of the copies")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	cmd.Flags().StringSliceVar(&f.Machines, "machine", nil, "these `machines` only, with commas between them")
	return a.fleetCommand(cmd, f)
}

// Record prints a record of a machine. The machine chose the bytes of the record.
func (p *Printer) Record(machine string, e *audit.Entry) error {
	a := p.a
	if !a.JSON {
		if text := a.auditLine(e, true, ""); text != nil {
			_, err := a.Write(append([]byte(machine+"  "), text...))
			return err
		}
		return nil
	}
	var line bytes.Buffer // without the white space in which a carriage return could be
	if err := json.Compact(&line, e.Line); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a, "{\"machine\":%q,\"record\":%s}\n", machine, names.JSON(line.Bytes()))
	return err
}

const fleetExportLong = `Hand on the records that were not handed on before, of this machine or of the audit files
in DIR: as lines of OCSF (https://ocsf.io, version 1.3.0) with --ocsf, or to a collector
of OpenTelemetry with --otlp, whose variables OTEL_EXPORTER_OTLP_HEADERS and
OTEL_EXPORTER_OTLP_CERTIFICATE are used. With --follow it goes on, until a signal ends it.
How far it has come is kept in a file for each target; --cursor names another.

Each record arrives at least once, in the order of its session; session and number tell a
repetition. A gap in the numbers and a record that was changed arrive as events of their
own, which say whether the log itself has removed the records, because its files were full
or old. If it has not, the exit code is 1.`

func (a *app) newFleetExportCmd(f *FleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "export [DIR]",
		Short:   "Hand records on as OCSF lines or by OTLP",
		Long:    fleetExportLong,
		Example: fleetAuditExamples,
		Args:    argCount(0, 1, "the directory of audit files"),
		PreRunE: func(*cobra.Command, []string) error {
			if (f.OCSF == "") == (f.OTLP == "") {
				return usage(errors.New("write --ocsf FILE or --otlp URL, one of them"))
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.OCSF, "ocsf", "", "append OCSF events, a line of JSON each, to `FILE`; - is standard output")
	fs.StringVar(&f.OTLP, "otlp", "", "send log records to the collector at `URL`, as http://localhost:4318")
	fs.StringVar(&f.Cursor, "cursor", "", "keep in `FILE` how far the export has come")
	fs.BoolVar(&f.Watch, "follow", false, "go on with records as they are written")
	return a.fleetCommand(cmd, f)
}
