package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// The commands for the records of machines.

const fleetAuditLong = `Hand the audit records of this machine, or of an archive, on to what a company runs.`

const fleetAuditExamples = `  rootsfs fleet audit export --ocsf /var/log/rootsfs.ocsf
  rootsfs fleet audit export --otlp https://collector.example.org:4318 --follow`

func (a *app) newFleetAuditCmd(f *FleetFlags) *cobra.Command {
	return group(&cobra.Command{
		Use:     "audit",
		Short:   "Hand audit records on",
		Long:    fleetAuditLong,
		Example: fleetAuditExamples,
	}, a.newFleetExportCmd(f))
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
