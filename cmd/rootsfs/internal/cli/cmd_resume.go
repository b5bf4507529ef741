package cli

import (
	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

const resumeLong = `Resume the servers that were suspended because they were refused too often ([abuse]
in the configuration), or the one that --subject names. Their count of refusals begins
anew. "rootsfs status" shows who is suspended and why.`

const resumeExamples = `  rootsfs resume
  rootsfs resume --subject editor --json`

func (a *app) newResumeCmd() *cobra.Command {
	var subject string
	cmd := &cobra.Command{
		Use:     "resume",
		Short:   "Resume suspended servers",
		Long:    resumeLong,
		Example: resumeExamples,
	}
	cmd.Flags().StringVar(&subject, "subject", "", "only this `server`, by its name in rootsfs status")
	return do(a, cmd, control.Resume, func([]string) (control.ResumeRequest, error) {
		return control.ResumeRequest{Subject: subject, All: !cmd.Flags().Changed("subject")}, nil
	}, func(ans control.ResumeAnswer) {
		if len(ans.Resumed) == 0 {
			a.say("no server is suspended")
		}
		for _, s := range ans.Resumed {
			if s == "" {
				a.say("resumed: servers without a name")
				continue
			}
			a.say("resumed: %s", quoteIfNeeded(s))
		}
	})
}
