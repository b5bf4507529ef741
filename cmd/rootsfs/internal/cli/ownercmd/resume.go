package ownercmd

import (
	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

func (a *app) newResumeCmd() *cobra.Command {
	var subject string
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Resume suspended servers",
		Long: `Resume the servers that were suspended because they were refused too often ([abuse]
in the configuration), or the one that --subject names. Their count of refusals begins
anew. "rootsfs status" shows who is suspended and why.`,
		Example: `  rootsfs resume
  rootsfs resume --subject editor --json`,
		Args: cli.ArgCount(0, 0, ""),
	}
	cmd.Flags().StringVar(&subject, "subject", "", "only this `server`, by its name in rootsfs status")
	return cli.Do(a.App, cmd, control.Resume, func([]string) (control.ResumeRequest, error) {
		return control.ResumeRequest{Subject: subject, All: !cmd.Flags().Changed("subject")}, nil
	}, func(ans control.ResumeAnswer) {
		if len(ans.Resumed) == 0 {
			a.Say("no server is suspended")
		}
		for _, s := range ans.Resumed {
			if s == "" {
				a.Say("resumed: servers without a name")
				continue
			}
			a.Say("resumed: %s", cli.QuoteIfNeeded(s))
		}
	})
}
