package cli

import (
	"bytes"

	"github.com/spf13/cobra"
)

const metricsLong = `Print the figures of a session in Prometheus' text format: operations, refusals,
bytes and free space of each root; requests, bytes, watches and uploads of servers;
processor time, memory and descriptors of the daemon. GET /metrics on the session's
control socket answers the same.`

const metricsExamples = `  rootsfs metrics
  rootsfs metrics --session work >/var/lib/node_exporter/rootsfs.prom`

func (a *app) newMetricsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "metrics",
		Short:   "Print figures for Prometheus",
		Long:    metricsLong,
		Example: metricsExamples,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			ctx, cancel := interruptible(cmd.Context())
			defer cancel()
			// Write all or nothing: in half a file, the missing roots would look like ended
			// ones.
			var buf bytes.Buffer
			if err := c.Metrics(ctx, &buf); err != nil {
				return err
			}
			_, err = buf.WriteTo(a)
			return err
		},
	}
	a.sessionFlag(cmd)
	return cmd
}
