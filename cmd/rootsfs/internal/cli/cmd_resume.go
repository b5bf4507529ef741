package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

const resumeLong = `Let paused sessions go on: every one that "rootsfs pause" has paused, or the one that
--session names. Servers that are suspended stay so.

If no session is paused, resume the servers that were suspended because they were refused
too often ([abuse] in the configuration), or the one that --subject names. Their count of
refusals begins anew. "rootsfs status" shows what is paused or suspended, and why.`

const resumeExamples = `  rootsfs resume
  rootsfs resume --session work
  rootsfs resume --subject editor --json`

// resumeResult is the output of resume.
type resumeResult struct {
	Resumed   []names.Foreign     `json:"resumed"`             // servers
	Ended     []endedPause        `json:"ended,omitempty"`     // pauses
	Suspended []control.Suspended `json:"suspended,omitempty"` // servers that are still suspended
}

// endedPause is a pause that resume has ended.
type endedPause struct {
	Session string `json:"session"`
	control.Paused
}

func (a *app) newResumeCmd() *cobra.Command {
	var subject string
	cmd := &cobra.Command{
		Use:     "resume",
		Short:   "Let paused sessions and suspended servers go on",
		Long:    resumeLong,
		Example: resumeExamples,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.resume(cmd.Context(), control.ResumeRequest{Subject: subject, All: !cmd.Flags().Changed("subject")})
		},
	}
	cmd.Flags().StringVar(&subject, "subject", "", "only this `server`, by its name in rootsfs status")
	return a.ofSession(cmd)
}

func (a *app) resume(ctx context.Context, req control.ResumeRequest) error {
	ctx, cancel := interruptible(ctx)
	defer cancel()
	var sessions []control.Info
	if req.All {
		all, err := a.targetSessions()
		if err != nil {
			return err
		}
		sessions = pausedSessions(ctx, all)
	}
	if len(sessions) == 0 {
		c, err := a.client()
		if err != nil {
			return err
		}
		sessions = []control.Info{c.Info()}
	}
	got := resumeResult{Resumed: []names.Foreign{}}
	var errs []error
	for _, in := range sessions {
		ans, err := askOf(ctx, a, control.Dial(in), control.Resume, req)
		got.Resumed, got.Suspended = append(got.Resumed, ans.Resumed...), append(got.Suspended, ans.Suspended...)
		switch {
		case err != nil && len(sessions) > 1:
			err = fmt.Errorf("session %s: %w", in.Name, err)
		case err == nil && ans.Pause != nil:
			got.Ended = append(got.Ended, endedPause{in.Name, *ans.Pause})
		}
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if err != nil && len(got.Resumed)+len(got.Ended) == 0 {
		return err
	}
	return errors.Join(a.report(got, func() { a.printResumed(got) }), err)
}

func (a *app) printResumed(r resumeResult) {
	if len(r.Resumed)+len(r.Ended) == 0 {
		a.say("nothing is paused, and no server is suspended")
	}
	for _, p := range r.Ended {
		a.say("%s: goes on", p.Session)
	}
	for _, s := range r.Resumed {
		if s == "" {
			a.say("resumed: servers without a name")
			continue
		}
		a.say("resumed: %s", quoteIfNeeded(s))
	}
	if len(r.Suspended) > 0 {
		a.say("%s still suspended; see: rootsfs status", plural(len(r.Suspended), "server"))
	}
}
