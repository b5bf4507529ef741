package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

func newRootsRenewCmd(a *app) *cobra.Command {
	f := &renewFlags{}
	cmd := &cobra.Command{
		Use:   "renew NAME",
		Short: "Change the end of a grant",
		Long: `Give a live root another end: after a duration from now, at a time, or when the
session ends. Without a flag, it lasts as long again as it was granted for. What
programs hold of it stays open.

A root that is unavailable, because its directory was deleted or replaced, is approved
again with the directory that is there now. One that has ended is granted again by
"rootsfs roots add" or "rootsfs allow --last".`,
		Example: `  rootsfs roots renew docs
  rootsfs roots renew docs --for 30m
  rootsfs roots renew docs --until 18:00 --json`,
		Args:              nargs(1, 1, "a root's name"),
		ValidArgsFunction: a.completeRoots(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := control.RenewRequest{Name: args[0], Session: f.forSession}
			g := grantFlags{forTime: f.forTime, until: f.until, fs: cmd.Flags()}
			given := cmd.Flags().Changed
			switch {
			case f.forSession && (given("for") || given("until")):
				return usage(errors.New("--for-session, --for and --until: use one of them"))
			case given("for") && f.forTime <= 0:
				return usage(fmt.Errorf("--for %v: write a positive duration, such as 30m", f.forTime))
			}
			end, err := g.expires(time.Now())
			if err != nil {
				return err
			}
			if !end.IsZero() {
				req.Expires = &end
			}
			return a.renew(cmd.Context(), req)
		},
	}
	cmd.Flags().DurationVar(&f.forTime, "for", 0, "revoke after this `duration` from now, such as 30m")
	cmd.Flags().StringVar(&f.until, "until", "", "revoke at this `time`: 15:04, 2006-01-02T15:04 or RFC 3339")
	cmd.Flags().BoolVar(&f.forSession, "for-session", false, "revoke when the session ends")
	sessionFlag(a, cmd)
	jsonFlag(a, cmd)
	return cmd
}

// renewFlags are the flags of `rootsfs roots renew`.
type renewFlags struct {
	forTime    time.Duration
	until      string
	forSession bool
}

func (a *app) renew(ctx context.Context, req control.RenewRequest) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	r, err := c.Renew(ctx, req)
	if err != nil {
		return err
	}
	return a.report(control.SetAnswer{Root: r}, func() {
		if r.Expires == nil {
			a.say("%s lasts as long as the session", shown(r.Name))
			return
		}
		a.say("%s lasts until %s", shown(r.Name), expiry(r.Expires))
	})
}
